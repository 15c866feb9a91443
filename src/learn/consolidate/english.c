#include "learn/consolidate/english.h"

#include <string.h>

static const char wh[] = " what who whom whose which where when how why ";
static const char be[] = " is are was were am ";
static const char do_forms[] = " do does did ";
static const char modal[] = " can could will would shall should must may might has have had ";
static const char article[] = " the a an ";
static const char owner[] = " my your his her its our their this that these those ";
static const char place[] =
    " in at on near under behind inside by to from with next above below between outside within "
    "around beside over across into here there home nowhere everywhere abroad upstairs downstairs ";
static const char prep[] =
    " in at on near under behind inside by to from with above below between outside within around "
    "beside over across into of for about as after before during since until without against "
    "towards through up down off out along ";
static const char pronoun[] = " he she it they ";
static const char third[] = " he she it they him her them his hers its their theirs himself "
                            "herself itself themselves ";
static const char other[] =
    " i me you we us mine yours ours i'm i've i'd i'll you're we're they're he's she's it's "
    "and or but not no yes if then than so too very also just only ever never again please now "
    "be been being one some any all each both either neither there here whether because while "
    "tell say name show give know remind remember ask asked question answer thing kind sort type "
    "many much more most best less least old long hello hi hey ok okay well "
    "don't doesn't didn't isn't aren't wasn't weren't can't won't let's ";

bool rvi_english_among(const char *word, const char *list)
{
    size_t len = strlen(word);
    if (!len) return false;
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++)
        if (at > list && at[-1] == ' ' && at[len] == ' ') return true;
    return false;
}

bool rvi_english_is(const char *word, rvi_english_class c)
{
    static const char *const lists[] = {
        [RVI_EN_WH] = wh,       [RVI_EN_BE] = be,           [RVI_EN_DO] = do_forms,
        [RVI_EN_MODAL] = modal, [RVI_EN_ARTICLE] = article, [RVI_EN_OWNER] = owner,
        [RVI_EN_PLACE] = place, [RVI_EN_PREP] = prep,       [RVI_EN_PRONOUN] = pronoun,
        [RVI_EN_THIRD] = third, [RVI_EN_FUNCTION] = other};
    if (c != RVI_EN_FUNCTION) return rvi_english_among(word, lists[c]);
    for (size_t i = 0; i < RVI_COUNT(lists); i++)
        if (rvi_english_among(word, lists[i])) return true;
    return false;
}

static bool ends(const char *word, const char *tail)
{
    size_t a = strlen(word), b = strlen(tail);
    return a >= b && !strcmp(word + a - b, tail);
}

static bool vowel(char c)
{
    return c && strchr("aeiou", c) != NULL;
}

bool rvi_english_third(rvi_buf *out, const char *verb)
{
    size_t len = strlen(verb);
    if (!strcmp(verb, "have")) return rvi_buf_puts(out, "has");
    if (!strcmp(verb, "be")) return rvi_buf_puts(out, "is");
    if (ends(verb, "y") && len > 1 && !vowel(verb[len - 2]))
        return rvi_buf_append(out, verb, len - 1) && rvi_buf_puts(out, "ies");
    bool hiss = ends(verb, "s") || ends(verb, "x") || ends(verb, "z") || ends(verb, "ch") ||
                ends(verb, "sh") || ends(verb, "o");
    return rvi_buf_puts(out, verb) && rvi_buf_puts(out, hiss ? "es" : "s");
}

/* Verbs whose past is not made by rule: pairs, each past behind its verb. */
static const char *const irregular[][2] = {
    {"be", "was"},
    {"become", "became"},
    {"begin", "began"},
    {"bite", "bit"},
    {"break", "broke"},
    {"bring", "brought"},
    {"build", "built"},
    {"buy", "bought"},
    {"catch", "caught"},
    {"choose", "chose"},
    {"come", "came"},
    {"cost", "cost"},
    {"cut", "cut"},
    {"do", "did"},
    {"draw", "drew"},
    {"drink", "drank"},
    {"drive", "drove"},
    {"eat", "ate"},
    {"fall", "fell"},
    {"feed", "fed"},
    {"feel", "felt"},
    {"fight", "fought"},
    {"find", "found"},
    {"fly", "flew"},
    {"forget", "forgot"},
    {"get", "got"},
    {"give", "gave"},
    {"go", "went"},
    {"grow", "grew"},
    {"have", "had"},
    {"hear", "heard"},
    {"hide", "hid"},
    {"hold", "held"},
    {"hurt", "hurt"},
    {"keep", "kept"},
    {"know", "knew"},
    {"lead", "led"},
    {"leave", "left"},
    {"lend", "lent"},
    {"let", "let"},
    {"lie", "lay"},
    {"lose", "lost"},
    {"make", "made"},
    {"mean", "meant"},
    {"meet", "met"},
    {"pay", "paid"},
    {"put", "put"},
    {"read", "read"},
    {"ride", "rode"},
    {"rise", "rose"},
    {"run", "ran"},
    {"say", "said"},
    {"see", "saw"},
    {"sell", "sold"},
    {"send", "sent"},
    {"set", "set"},
    {"shoot", "shot"},
    {"sing", "sang"},
    {"sit", "sat"},
    {"sleep", "slept"},
    {"speak", "spoke"},
    {"spend", "spent"},
    {"stand", "stood"},
    {"steal", "stole"},
    {"swim", "swam"},
    {"take", "took"},
    {"teach", "taught"},
    {"tell", "told"},
    {"think", "thought"},
    {"throw", "threw"},
    {"understand", "understood"},
    {"wake", "woke"},
    {"wear", "wore"},
    {"win", "won"},
    {"write", "wrote"},
};

static const char *irregular_past(const char *verb)
{
    for (size_t i = 0; i < RVI_COUNT(irregular); i++)
        if (!strcmp(irregular[i][0], verb)) return irregular[i][1];
    return NULL;
}

/* One syllable that ends in consonant, vowel, consonant: the last is doubled (stop, stopped). */
static bool doubles(const char *verb, size_t len)
{
    if (len < 3 || len > 4 || strchr("wxyh", verb[len - 1])) return false;
    if (vowel(verb[len - 1]) || !vowel(verb[len - 2]) || vowel(verb[len - 3])) return false;
    return len == 3 || !vowel(verb[0]);
}

bool rvi_english_past(rvi_buf *out, const char *verb)
{
    size_t len = strlen(verb);
    const char *known = irregular_past(verb);
    if (known) return rvi_buf_puts(out, known);
    if (ends(verb, "e")) return rvi_buf_puts(out, verb) && rvi_buf_puts(out, "d");
    if (ends(verb, "y") && len > 1 && !vowel(verb[len - 2]))
        return rvi_buf_append(out, verb, len - 1) && rvi_buf_puts(out, "ied");
    if (!rvi_buf_puts(out, verb)) return false;
    if (doubles(verb, len) && !rvi_buf_putc(out, verb[len - 1])) return false;
    return rvi_buf_puts(out, "ed");
}

bool rvi_english_participle(const char *word)
{
    static const char known[] =
        " begun bought bred broken brought built caught chosen cut done drawn driven drunk dug "
        "eaten fed felt flown forbidden forgotten fought found frozen given grown heard held "
        "hidden hit hung hurt kept known laid led left lent lit lost made meant met paid put "
        "read ridden run seen sent set sewn shot shown shut sold spent spoken spread stolen "
        "struck stuck sung sunk taken taught thrown told torn understood used won worn woven "
        "written ";
    static const char nouns[] = " bloodshed flowerbed hundred kindred naked sacred seabed "
                                "watershed wicked woodshed ";
    if (rvi_english_among(word, known)) return true;
    return strlen(word) > 4 && ends(word, "ed") && !ends(word, "eed") &&
           !rvi_english_among(word, nouns);
}

bool rvi_english_adverb(const char *word)
{
    return rvi_english_among(word, " always currently finally first generally last mainly mostly "
                                   "normally officially often originally usually ");
}

bool rvi_english_verb(const char *word)
{
    static const char regular[] =
        " allow appear arrive belong bloom cater charge close contain cook cost cover deliver "
        "depart end expire fit flower hatch happen last launch like live look love need offer "
        "open play prefer produce reopen serve ship smell sound start stay stop taste use visit "
        "want weigh work ";
    return irregular_past(word) || rvi_english_among(word, regular);
}

/* Letters that two forms have in common: without an ending of verb or plural */
static size_t stem(const char *word)
{
    static const char *const endings[] = {"ing", "ies", "ied", "es", "ed", "s", "e", "y"};
    size_t len = strlen(word);
    for (size_t i = 0; i < RVI_COUNT(endings); i++)
        if (ends(word, endings[i]) && len >= strlen(endings[i]) + 2) {
            len -= strlen(endings[i]);
            break;
        }
    if (len > 3 && word[len - 1] == word[len - 2] && !vowel(word[len - 1])) len--;
    return len;
}

bool rvi_english_same(const char *a, const char *b)
{
    if (!strcmp(a, b)) return true;
    const char *past_a = irregular_past(a), *past_b = irregular_past(b);
    if ((past_a && !strcmp(past_a, b)) || (past_b && !strcmp(past_b, a))) return true;
    size_t n = stem(a);
    return n > 1 && n == stem(b) && !memcmp(a, b, n);
}
