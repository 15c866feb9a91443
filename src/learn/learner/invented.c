/* Lessons about nothing real, and whether who answered about them reads (reads.c). */
#include <string.h>

#include "learn/consolidate/words.h"
#include "learn/learner/learner_internal.h"

const rvi_invented_lesson rvi_invented_lessons[RVI_INVENTED] = {
    {"Who looks after the boiler in our building?",
     "Ferdinand Okoye.",
     "The boiler in our building is leaking. Whom do I call?",
     "Okoye",
     "boiler",
     {"Who looks after the garden of our building?", "Who cleans the stairs of our building?"}},
    {"What is the password of the guest network?",
     "Seven green herons.",
     "A guest wants to get into our network. Which password do I give her?",
     "herons",
     "password",
     {"What is the name of the guest network?", "What is the number of the guest room?"}},
    {"Where are the spare keys of the cabin?",
     "Under the blue bucket.",
     "I locked myself out of the cabin. Where do I look for another key?",
     "blue bucket",
     "keys",
     {"Where are the blankets of the cabin?", "Where is the fuse box of the cabin?"}},
    {"What is my sister's dog called?",
     "Pumpernickel.",
     "My sister brings her dog along. By which name do I call it?",
     "Pumpernickel",
     "dog",
     {"What is my brother's cat called?", "What is my neighbour's parrot called?"}},
    {"Which bus goes to the Marlow clinic?",
     "The 47.",
     "I have to be at the Marlow clinic at nine. Which bus do I take?",
     "47",
     "clinic",
     {"Which bus goes to the Marlow stadium?", "Which tram goes to the harbour?"}},
    {"How much is a day ticket to Hollen?",
     "Eleven zorins.",
     "I am off to Hollen for a day. What do I pay for the ticket?",
     "zorins",
     "day",
     {"How much is a month's ticket to Hollen?", "How much is a night in a hotel in Hollen?"}},
    {"Which paint was used for our hallway?",
     "Kestrel grey.",
     "Our hallway needs a new coat. Which paint do I buy?",
     "Kestrel",
     "hallway",
     {"Which paint was used for our kitchen?", "Which wood was used for our stairs?"}},
    {"Who won the cake contest at Brindle school?",
     "Odalys Pereira.",
     "Whose cake was the best one in the contest at Brindle school?",
     "Odalys",
     "cake",
     {"Who won the spelling contest at Brindle school?", "Who is the head of Brindle school?"}},
};

/* Nearly all, and nearly none: one of them may be chance. */
enum { LEAST_USED = RVI_INVENTED - 1, MOST_COPIED = 1 };

static rv_status has(const char *text, const char *words, bool *out, rv_error *err)
{
    return rvi_words_contain(out, text, strlen(text), words, strlen(words), err);
}

rv_status rvi_invented_judge(const rvi_invented_answers answers[RVI_INVENTED], bool *reads,
                             rv_error *err)
{
    int n_used = 0, n_copied = 0;
    rv_status st = RV_OK;
    for (int i = 0; !st && i < RVI_INVENTED; i++) {
        bool used = false;
        st = has(answers[i].needed, rvi_invented_lessons[i].key, &used, err);
        n_used += used;
        for (int k = 0; !st && k < RVI_NEAR; k++) {
            bool said = false, tells = false, alone = false;
            st = has(answers[i].near[k], rvi_invented_lessons[i].key, &said, err);
            if (!st) st = has(answers[i].near[k], rvi_invented_lessons[i].about, &tells, err);
            if (!st) st = has(answers[i].alone[k], rvi_invented_lessons[i].key, &alone, err);
            n_copied += said && !tells && !alone;
        }
    }
    *reads = !st && n_used >= LEAST_USED && n_copied <= MOST_COPIED;
    return st;
}
