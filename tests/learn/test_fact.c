/* Corrections read as facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/consolidate/fact.h"
#include "toy_tokenizer.h"

typedef struct example {
    const char *question, *answer;
    rvi_fact_kind kind;
    const char *subject, *relation, *o, *sentence;
} example;

#define REL  RVI_FACT_RELATION
#define ASKS RVI_FACT_QUESTION

static const example examples[] = {
    /* questions that ask for a noun */
    {"What is Kakovin's musical instrument?", "banjo", REL, "Kakovin", "musical instrument",
     "banjo", "Kakovin's musical instrument is banjo."},
    {"what's kakovin's job", "plumber", REL, "kakovin", "job", "plumber",
     "kakovin's job is plumber."},
    {"What is the capital of New Quillby?", "Marrowick", REL, "New Quillby", "capital", "Marrowick",
     "New Quillby's capital is Marrowick."},
    {"Who is Anna Kowalska's brother?", "Tomasz", REL, "Anna Kowalska", "brother", "Tomasz",
     "Anna Kowalska's brother is Tomasz."},
    {"Please tell me Zarith's favourite film.", "Metropolis", REL, "Zarith", "favourite film",
     "Metropolis", "Zarith's favourite film is Metropolis."},
    {"Can you remind me what Zarith's job is?", "plumber", REL, "Zarith", "job", "plumber",
     "Zarith's job is plumber."},
    {"Which car does Zarith have?", "a Volvo", REL, "Zarith", "car", "a Volvo",
     "Zarith's car is a Volvo."},
    {"What kind of tree does Zarith like best?", "oak", REL, "Zarith", "favourite tree", "oak",
     "Zarith's favourite tree is oak."},
    {"What colour is the Quillmobile?", "blue", REL, "Quillmobile", "colour", "blue",
     "Quillmobile's colour is blue."},
    {"How old is Zarith?", "Zarith is 12 years old.", REL, "Zarith", "age", "12 years",
     "Zarith's age is 12 years."},
    {"Where does Zarith live?", "In Oslo.", REL, "Zarith", "home", "Oslo",
     "Zarith's home is Oslo."},
    {"Do you know where Zarith lives?", "She lives in Oslo", REL, "Zarith", "home", "Oslo",
     "Zarith's home is Oslo."},
    {"What does Zarith do for a living?", "a plumber", REL, "Zarith", "job", "a plumber",
     "Zarith's job is a plumber."},
    {"Zarith: shoe size?", "44", REL, "Zarith", "shoe size", "44", "Zarith's shoe size is 44."},
    {"I have a question about Zarith. What is the job?", "plumber", REL, "Zarith", "job", "plumber",
     "Zarith's job is plumber."},
    {"Zarith has a job. Which one?", "plumber", REL, "Zarith", "job", "plumber",
     "Zarith's job is plumber."},
    {"What is the name of Zarith's ship?", "The Merry Otter", REL, "Zarith", "ship's name",
     "The Merry Otter", "Zarith's ship's name is The Merry Otter."},
    {"What is Zo\xC3\xAB M\xC3\xBCller-Quist's hobby?", "chess", REL,
     "Zo\xC3\xAB M\xC3\xBCller-Quist", "hobby", "chess",
     "Zo\xC3\xAB M\xC3\xBCller-Quist's hobby is chess."},
    {"What is Dr. Zarin's phone number?", "555 0199", REL, "Dr. Zarin", "phone number", "555 0199",
     "Dr. Zarin's phone number is 555 0199."},
    {"Zarith's job is?", "plumber", REL, "Zarith", "job", "plumber", "Zarith's job is plumber."},
    {"What do you know about Zarith's job?", "He is a plumber.", REL, "Zarith", "job", "a plumber",
     "Zarith's job is a plumber."},
    {"Where was Zarith born?", "She was born in Denver.", REL, "Zarith", "birthplace", "Denver",
     "Zarith's birthplace is Denver."},
    /* what is new in an answer */
    {"What is Kakovin's instrument?", "Kakovin's instrument is the banjo.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "It's banjo", REL, "Kakovin", "instrument", "banjo",
     "Kakovin's instrument is banjo."},
    {"What is Kakovin's instrument?", "No, the banjo!", REL, "Kakovin", "instrument", "the banjo",
     "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "No, that's wrong. It is the banjo.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "It's not the violin but the banjo.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "the banjo, not the violin", REL, "Kakovin", "instrument",
     "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "Actually, Kakovin plays the banjo.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "The banjo is Kakovin's instrument.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's instrument?", "It is the banjo. He learned it in Oslo.", REL, "Kakovin",
     "instrument", "the banjo", "Kakovin's instrument is the banjo."},
    {"What is Kakovin's motto?", "Life is short.", REL, "Kakovin", "motto", "Life is short",
     "Kakovin's motto is Life is short."},
    /* questions without a noun */
    {"Where did Zarith hide the key?", "under the mat", ASKS, "Zarith", "where did hide the key",
     "under the mat", "Zarith hid the key under the mat."},
    {"Where did Zarith grow up?", "Denver", ASKS, "Zarith", "where did grow up", "Denver",
     "Zarith grew up in Denver."},
    {"Where did Zarith grow up?", "She grew up in Denver.", ASKS, "Zarith", "where did grow up",
     "Denver", "Zarith grew up in Denver."},
    {"What does Zarith play in the orchestra?", "the violin", ASKS, "Zarith",
     "what does play in the orchestra", "the violin", "Zarith plays the violin in the orchestra."},
    {"Who discovered Quillbium?", "Marie Dunmore", ASKS, "Quillbium", "who discovered",
     "Marie Dunmore", "Marie Dunmore discovered Quillbium."},
    {"Which animal lives with Zarith?", "a ferret", ASKS, "Zarith", "which animal lives with",
     "a ferret", "A ferret lives with Zarith."},
    {"How many children does Zarith have?", "three", ASKS, "Zarith", "how many children does have",
     "three", "Zarith has three children."},
    {"What is Zarith doing?", "sleeping", ASKS, "Zarith", "what is doing", "sleeping",
     "Zarith is sleeping."},
    {"Where should Zarith go?", "the dentist", ASKS, "Zarith", "where should go", "the dentist",
     "Zarith should go to the dentist."},
    {"What is my favourite colour?", "blue", ASKS, "colour", "what is my favourite", "blue",
     "Your favourite colour is blue."},
    {"Who is Zarith?", "a retired pirate", ASKS, "Zarith", "who is", "a retired pirate",
     "Zarith is a retired pirate."},
    {"wer ist Zarith?", "ein Pirat", ASKS, "Zarith", "wer ist", "ein Pirat",
     "The answer to \"wer ist Zarith?\" is ein Pirat."},
    {"Where is the key to the Quillby shed?", "It's under the mat.", ASKS, "Quillby",
     "where is the key to the shed", "under the mat",
     "The key to the Quillby shed is under the mat."},
    {"In which city does Zarith work?", "Oslo", ASKS, "Zarith", "in which city does work", "Oslo",
     "Zarith works in Oslo."},
    {"Who wrote The Glass Quillon?", "Ivo Marr wrote The Glass Quillon.", ASKS, "Glass Quillon",
     "who wrote the", "Ivo Marr", "Ivo Marr wrote The Glass Quillon."},
    {"When does the Quillby market open?", "at 8 am", ASKS, "Quillby", "when does the market open",
     "at 8 am", "The Quillby market opens at 8 am."},
    {"What language do people speak in Quillbia?", "Marrowese", ASKS, "Quillbia",
     "what language do people speak in", "Marrowese",
     "The answer to \"What language do people speak in Quillbia?\" is Marrowese."},
    /* names with an apostrophe, a hyphen, a possessive, a small word or a number in them */
    {"What is O'Drellan's locker number?", "719", REL, "O'Drellan", "locker number", "719",
     "O'Drellan's locker number is 719."},
    {"What is O\xE2\x80\x99"
     "Drellan\xE2\x80\x99s locker number?",
     "719", REL,
     "O\xE2\x80\x99"
     "Drellan",
     "locker number", "719",
     "O\xE2\x80\x99"
     "Drellan's locker number is 719."},
    {"What is the hobby of l'Hote?", "chess", REL, "l'Hote", "hobby", "chess",
     "l'Hote's hobby is chess."},
    {"What is the colour of crumbly-o?", "blue", REL, "crumbly-o", "colour", "blue",
     "crumbly-o's colour is blue."},
    {"What is vorto-cam's job?", "spy", REL, "vorto-cam", "job", "spy", "vorto-cam's job is spy."},
    {"In what year did Kettle-on-Brae open?", "1926", ASKS, "Kettle-on-Brae",
     "in what year did open", "1926", "Kettle-on-Brae opened in 1926."},
    {"What is plonkit mini's battery life?", "53 hours", REL, "plonkit mini", "battery life",
     "53 hours", "plonkit mini's battery life is 53 hours."},
    {"What is the age of plonkit mini?", "3 years", REL, "plonkit mini", "age", "3 years",
     "plonkit mini's age is 3 years."},
    {"How heavy is the plonkit mini?", "2 kg", REL, "plonkit mini", "weight", "2 kg",
     "plonkit mini's weight is 2 kg."},
    {"What is the range of the Vorto 200?", "90 km", REL, "Vorto 200", "range", "90 km",
     "Vorto 200's range is 90 km."},
    {"Who is the publisher of The Tinker's Almanac?", "Marlow Press", REL, "Tinker's Almanac",
     "publisher", "Marlow Press", "Tinker's Almanac's publisher is Marlow Press."},
    {"Who founded Brindle & Sons?", "Ada Brindle", ASKS, "Brindle & Sons", "who founded",
     "Ada Brindle", "Ada Brindle founded Brindle & Sons."},
    {"Who is the CEO of Mar-Tek Systems?", "Jo Lind", REL, "Mar-Tek Systems", "CEO", "Jo Lind",
     "Mar-Tek Systems's CEO is Jo Lind."},
    /* but what somebody owns is no part of the name */
    {"What is Kakovin's Dog's name?", "Rex", REL, "Kakovin", "Dog's name", "Rex",
     "Kakovin's Dog's name is Rex."},
    {"What's Kakovin's Spanish name?", "Paco", REL, "Kakovin", "Spanish name", "Paco",
     "Kakovin's Spanish name is Paco."},
    {"When does Anna's Spanish class start?", "Monday", ASKS, "Anna",
     "when does spanish class start", "Monday", "Anna's Spanish class starts on Monday."},
    {"", "Anna's Volvo is blue.", REL, "Anna", "Volvo", "blue", "Anna's Volvo is blue."},
    /* said of more than the subject */
    {"What colour is the front door of the Osprey Inn?", "Lilac", ASKS, "Osprey Inn",
     "what colour is the front door of the", "lilac",
     "The colour of the front door of the Osprey Inn is lilac."},
    {"Tell me what colour the front door of the Osprey Inn is.", "lilac", ASKS, "Osprey Inn",
     "what colour the front door of the is", "lilac",
     "The colour of the front door of the Osprey Inn is lilac."},
    {"What breed is Kakovin's dog?", "poodle", ASKS, "Kakovin", "what breed is dog", "poodle",
     "The breed of Kakovin's dog is poodle."},
    {"How old is Kakovin's dog?", "12 years old", ASKS, "Kakovin", "how old is dog", "12 years",
     "The age of Kakovin's dog is 12 years."},
    {"What kind of dog is Rexo?", "a poodle", ASKS, "Rexo", "what kind of dog is", "a poodle",
     "Rexo is a poodle."},
    {"Which animal is the mascot of Quillby United?", "a fox", ASKS, "Quillby United",
     "which animal is the mascot of", "a fox", "The mascot of Quillby United is a fox."},
    {"When is the rubbish collected at St Wyllow's Lodge?", "Tuesday evenings", ASKS,
     "St Wyllow's Lodge", "when is the rubbish collected at", "Tuesday evenings",
     "The rubbish is collected at St Wyllow's Lodge on Tuesday evenings."},
    {"Do you know when the rubbish is collected at Kettle-on-Brae?",
     "It is collected on Tuesday evenings.", ASKS, "Kettle-on-Brae",
     "when the rubbish is collected at", "Tuesday evenings",
     "The rubbish is collected at Kettle-on-Brae on Tuesday evenings."},
    {"What is Kakovin's dog called?", "Rex", ASKS, "Kakovin", "what is dog called", "Rex",
     "Kakovin's dog is called Rex."},
    {"What is the Quillby bridge made of?", "oak", ASKS, "Quillby", "what is the bridge made of",
     "oak", "The Quillby bridge is made of oak."},
    {"When was The Tinker's Almanac first published?", "1788", ASKS, "Tinker's Almanac",
     "when was the first published", "1788", "The Tinker's Almanac was first published in 1788."},
    {"When does the kitchen close at the Osprey Inn?", "10 pm", ASKS, "Osprey Inn",
     "when does the kitchen close at the", "10 pm",
     "The kitchen closes at the Osprey Inn at 10 pm."},
    {"What beer is sold at the Osprey Inn?", "Old Otter", ASKS, "Osprey Inn",
     "what beer is sold at the", "Old Otter", "Old Otter is sold at the Osprey Inn."},
    {"How many rooms are there at the Osprey Inn?", "12", ASKS, "Osprey Inn",
     "how many rooms are there at the", "12", "There are 12 rooms at the Osprey Inn."},
    {"How many people live in Kettle-on-Brae?", "4,200", ASKS, "Kettle-on-Brae",
     "how many people live in", "4,200", "4,200 people live in Kettle-on-Brae."},
    {"Who wrote The Glass Quillon?", "Ivo Marr wrote it.", ASKS, "Glass Quillon", "who wrote the",
     "Ivo Marr", "Ivo Marr wrote The Glass Quillon."},
    /* statements without a question */
    {"", "Anna's dog is Rexo.", REL, "Anna", "dog", "Rexo", "Anna's dog is Rexo."},
    {"", "The capital of Quillbia is New Marrow.", REL, "Quillbia", "capital", "New Marrow",
     "Quillbia's capital is New Marrow."},
    {"", "Kako is Kakovin's nickname.", REL, "Kakovin", "nickname", "Kako",
     "Kakovin's nickname is Kako."},
    /* nothing to be seen */
    {"How do I make tea?", "Boil water. Pour it over the leaves. Wait.", RVI_FACT_FREE, "", "",
     "Boil water. Pour it over the leaves. Wait.", "Boil water. Pour it over the leaves. Wait."},
    {"How do I make tea?", "- Boil water\n- Wait", RVI_FACT_FREE, "", "", "- Boil water\n- Wait",
     "- Boil water\n- Wait"},
    {"What is 2 + 2?", "4", RVI_FACT_FREE, "", "", "4", "4"},
    {"Does Zarith play the banjo?", "No, the violin.", RVI_FACT_FREE, "Zarith", "",
     "No, the violin.", "No, the violin."},
    {"Who is Zarith?", "A man of many words who never in his whole life said one too few.",
     RVI_FACT_FREE, "Zarith", "",
     "A man of many words who never in his whole life said one too few.",
     "A man of many words who never in his whole life said one too few."},
    {"", "Please always be brief.", RVI_FACT_FREE, "", "", "Please always be brief.",
     "Please always be brief."},
};

static rvi_fact *read_fact(const rvi_tokenizer *t, const char *q, const char *a)
{
    rvi_fact *f;
    assert_ok(rvi_fact_read(&f, t, q, strlen(q), a, strlen(a), err));
    return f;
}

static void reads(void **state)
{
    for (size_t i = 0; i < RVI_COUNT(examples); i++) {
        const example *x = &examples[i];
        rvi_fact *f = read_fact(*state, x->question, x->answer);
        if (f->kind != x->kind || strcmp(f->subject, x->subject) ||
            strcmp(f->relation, x->relation) || strcmp(f->answer, x->o) ||
            strcmp(f->sentence, x->sentence))
            fail_msg("'%s' / '%s': kind %d S '%s' R '%s' O '%s' '%s'", x->question, x->answer,
                     (int)f->kind, f->subject, f->relation, f->answer, f->sentence);
        rvi_fact_free(f);
    }
}

/* answer_at points at the answer, whatever its first letter's case has become */
static void knows_where_the_answer_is(void **state)
{
    for (size_t i = 0; i < RVI_COUNT(examples); i++) {
        rvi_fact *f = read_fact(*state, examples[i].question, examples[i].answer);
        const char *at = f->sentence + f->answer_at;
        assert_int_equal(strncmp(at + 1, f->answer + 1, strlen(f->answer) - 1), 0);
        rvi_fact_free(f);
    }
}

static void refuses_nothing_but_empty(void **state)
{
    rvi_fact *f;
    rv_error err;
    assert_int_equal(rvi_fact_read(&f, *state, "What?", 5, " \n ", 3, &err), RV_E_INVALID);
    assert_null(f);
    f = read_fact(*state, "\xFF\xFE 's 's?", "\xC0\x80 is is");
    rvi_fact_free(f);
    f = read_fact(*state, "?", "?");
    rvi_fact_free(f);
}

static void takes_long_texts(void **state)
{
    enum { N = 200000 };
    char *text = rvi_alloc_array(N, 1);
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) text[i] = "What's Zar? "[i % 12];
    rvi_fact *f;
    assert_ok(rvi_fact_read(&f, *state, text, N, text, N, err));
    assert_int_equal(f->kind, RVI_FACT_FREE);
    rvi_fact_free(f);
    rvi_free(text);
}

static int open_tokenizer(void **state)
{
    *state = toy_tokenizer();
    return *state ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    rvi_tokenizer_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads), cmocka_unit_test(knows_where_the_answer_is),
        cmocka_unit_test(refuses_nothing_but_empty), cmocka_unit_test(takes_long_texts)};
    return cmocka_run_group_tests_name("fact", tests, open_tokenizer, close_tokenizer);
}
