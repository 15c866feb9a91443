#include "server/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

enum { MOST_KEYS = 100000, MOST_LINE = 1024 };

static const struct {
    const char *word;
    unsigned may;
} scopes[] = {{"infer", RVI_MAY_INFER}, {"teach", RVI_MAY_TEACH}, {"admin", RVI_MAY_ADMIN}};

static const char *const learned[] = {"shared", "tenant", "off"};

void rvi_keys_deinit(rvi_keys *k)
{
    rvi_free(k->list);
    *k = (rvi_keys){0};
}

static void hash_text(const char *text, uint8_t out[RVI_SHA256_LEN])
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, text, strlen(text));
    rvi_sha256_end(&h, out);
}

static rv_status add(rvi_keys *k, const rvi_key *key, rv_error *err)
{
    if (k->n == MOST_KEYS) return rvi_error(err, RV_E_CONFIG, "more than %d keys", MOST_KEYS);
    if (!(k->n & (k->n - 1))) { /* as many as fit: a power of two, or none */
        rvi_key *list = rvi_realloc_array(k->list, k->n ? k->n * 2 : 1, sizeof *list);
        if (!list) return rvi_nomem(err, "keys");
        k->list = list;
    }
    k->list[k->n] = *key;
    k->list[k->n++].left = key->rate;
    return RV_OK;
}

rv_status rvi_keys_add(rvi_keys *k, const char *text, rv_error *err)
{
    rvi_key key = {.name = "default", .may = RVI_MAY_ALL};
    hash_text(text, key.hash);
    return add(k, &key, err);
}

/* ---- words ---- */

bool rvi_key_is_name(const char *text)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t n = strlen(text);
    return n && n <= RVI_KEY_NAME && strspn(text, good) == n && text[0] != '.' && text[0] != '-';
}

bool rvi_key_read_scopes(rvi_key *key, const char *text)
{
    key->may = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < RVI_COUNT(scopes) &&
               (strlen(scopes[i].word) != n || memcmp(scopes[i].word, at, n)))
            i++;
        if (i == RVI_COUNT(scopes)) return false;
        key->may |= scopes[i].may;
        at += n;
        if (!*at) return true;
    }
}

bool rvi_key_read_learned(rvi_key *key, const char *text)
{
    for (size_t i = 0; i < RVI_COUNT(learned); i++)
        if (!strcmp(learned[i], text)) {
            key->learned = (rvi_learned)i;
            return true;
        }
    return false;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hash(rvi_key *key, const char *text)
{
    if (strlen(text) != 2 * sizeof key->hash) return false;
    for (size_t i = 0; i < sizeof key->hash; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key->hash[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool read_rate(rvi_key *key, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    key->rate = (int)n;
    return *text && !*end && n >= 1 && n <= 1000000;
}

/* ---- a file ---- */

/* The next word of a line, ended by 0; NULL: there is none. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\r\n"), *end = word + strcspn(word, " \t\r\n");
    if (!*word) return NULL;
    *at = *end ? end + 1 : end;
    *end = 0;
    return word;
}

/* What is wrong with a line; NULL: nothing. A line without words is no key: its name is empty. */
static const char *read_line(char *line, rvi_key *key)
{
    char *at = line, *word = next_word(&at);
    *key = (rvi_key){0};
    if (!word || *word == '#') return NULL;
    if (!rvi_key_is_name(word)) return "the name must be 1 to 64 letters, digits, '_', '.' or '-'";
    snprintf(key->name, sizeof key->name, "%s", word);
    if (!(word = next_word(&at)) || !read_hash(key, word))
        return "the second word must be a SHA-256, 64 hexadecimal digits";
    if (!(word = next_word(&at)) || !rvi_key_read_scopes(key, word))
        return "the third word must be of infer, teach and admin, with commas between them";
    while ((word = next_word(&at))) {
        bool good = !strncmp(word, "rate=", 5)       ? read_rate(key, word + 5)
                    : !strncmp(word, "learning=", 9) ? rvi_key_read_learned(key, word + 9)
                                                     : false;
        if (!good) return "what follows must be rate=N or learning=shared|tenant|off";
    }
    return NULL;
}

rv_status rvi_keys_load(rvi_keys *k, const char *path, rv_error *err)
{
    char line[MOST_LINE];
    rv_status st = RV_OK;
    rvi_key key;
    FILE *f = fopen(path, "r");
    if (!f) return rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    for (int n = 1; !st && fgets(line, sizeof line, f); n++) {
        bool whole = strchr(line, '\n') || strlen(line) + 1 < sizeof line;
        const char *wrong = whole ? read_line(line, &key) : "the line is too long";
        if (wrong)
            st = rvi_error(err, RV_E_CONFIG, "%s, line %d: %s", path, n, wrong);
        else if (*key.name)
            st = add(k, &key, err);
    }
    if (!st && ferror(f)) st = rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    (void)fclose(f);
    return st;
}

/* ---- use ---- */

rvi_key *rvi_keys_find(const rvi_keys *k, const char *text)
{
    uint8_t hash[RVI_SHA256_LEN];
    rvi_key *found = NULL;
    hash_text(text, hash);
    for (size_t i = 0; i < k->n; i++) {
        unsigned differ = 0;
        for (size_t j = 0; j < sizeof hash; j++) differ |= hash[j] ^ k->list[i].hash[j];
        if (!differ) found = &k->list[i];
    }
    return found;
}

static int by_hash(const void *a, const void *b)
{
    const rvi_key *const *one = a, *const *other = b;
    return memcmp((*one)->hash, (*other)->hash, sizeof(*one)->hash);
}

/* Without memory every key begins anew. */
void rvi_keys_carry_over(rvi_keys *to, const rvi_keys *from)
{
    const rvi_key **sorted = from->n ? rvi_alloc_array(from->n, sizeof *sorted) : NULL;
    if (!sorted) return;
    for (size_t i = 0; i < from->n; i++) sorted[i] = &from->list[i];
    qsort(sorted, from->n, sizeof *sorted, by_hash);
    for (size_t i = 0; i < to->n; i++) {
        const rvi_key *key = &to->list[i], **old;
        old = bsearch(&key, sorted, from->n, sizeof *sorted, by_hash);
        if (!old) continue;
        to->list[i].left = RVI_MIN((*old)->left, (double)key->rate);
        to->list[i].then = (*old)->then;
    }
    rvi_free(sorted);
}

/* A minute's requests may come at once; then they come back one by one. */
bool rvi_key_take(rvi_key *key, double now, double *wait)
{
    double a_second = key->rate / 60.0;
    if (!key->rate) return true;
    if (key->then > 0)
        key->left = RVI_MIN((double)key->rate, key->left + (now - key->then) * a_second);
    key->then = now;
    *wait = (1 - key->left) / a_second;
    if (key->left < 1) return false;
    key->left -= 1;
    return true;
}

/* ---- making ---- */

void rvi_key_make(rvi_key *key, char text[RVI_KEY_TEXT])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    char *at = text + snprintf(text, RVI_KEY_TEXT, "rv-");
    for (int word = 0; word < 5; word++) { /* 50 digits of 6 bits, from five words of 64 */
        uint64_t bits = rvi_os_random();
        for (int i = 0; i < 10; i++, bits >>= 6) *at++ = digits[bits & 63];
    }
    *at = 0;
    hash_text(text, key->hash);
}

void rvi_key_write(const rvi_key *key, rvi_buf *out)
{
    const char *comma = " ";
    rvi_buf_printf(out, "%s ", key->name);
    for (size_t i = 0; i < sizeof key->hash; i++) rvi_buf_printf(out, "%02x", key->hash[i]);
    for (size_t i = 0; i < RVI_COUNT(scopes); i++)
        if (key->may & scopes[i].may) {
            rvi_buf_printf(out, "%s%s", comma, scopes[i].word);
            comma = ",";
        }
    if (key->rate) rvi_buf_printf(out, " rate=%d", key->rate);
    rvi_buf_printf(out, " learning=%s\n", learned[key->learned]);
}
