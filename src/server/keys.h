/* keys.h - who may ask: keys with what they allow, kept as hashes.
 *
 * A file of keys has a line for each: NAME SHA256 SCOPES [rate=N] [learning=shared|tenant|off].
 * SHA256 is that of the key, in hexadecimal digits: a key is 256 random bits, which nobody finds by
 * guessing. NAME is the tenant; keys of one name share what belongs to it. SCOPES are of infer,
 * teach and admin, with commas between them. */
#ifndef RVI_SERVER_KEYS_H
#define RVI_SERVER_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/sha256.h"

enum { RVI_MAY_INFER = 1, RVI_MAY_TEACH = 2, RVI_MAY_ADMIN = 4, RVI_MAY_ALL = 7 };
enum { RVI_KEY_NAME = 64, RVI_KEY_TEXT = 64 };

/* Whose learned state takes part in answers and is changed by feedback. */
typedef enum rvi_learned { RVI_LEARNED_SHARED, RVI_LEARNED_TENANT, RVI_LEARNED_OFF } rvi_learned;

typedef struct rvi_key {
    char name[RVI_KEY_NAME + 1]; /* of the tenant; "": of a server without keys */
    uint8_t hash[RVI_SHA256_LEN];
    unsigned may;
    rvi_learned learned;
    int rate;          /* requests a minute; 0: any number */
    double left, then; /* requests that could be made at once, at a time */
} rvi_key;

typedef struct rvi_keys {
    rvi_key *list;
    size_t n;
} rvi_keys;

void rvi_keys_deinit(rvi_keys *k);
/* A key that may do everything, under the name "default". */
rv_status rvi_keys_add(rvi_keys *k, const char *text, rv_error *err) RVI_MUST_CHECK;
/* Adds those of a file; what is wrong is told with its line. */
rv_status rvi_keys_load(rvi_keys *k, const char *path, rv_error *err) RVI_MUST_CHECK;
/* Takes the requests that were made with the old keys over to the new ones. */
void rvi_keys_carry_over(rvi_keys *to, const rvi_keys *from);
/* NULL: there is none. Takes the same time whichever it is. */
rvi_key *rvi_keys_find(const rvi_keys *k, const char *text);
/* Counts a request of the key. False: it has made too many; *wait: seconds until it may again. */
bool rvi_key_take(rvi_key *key, double now, double *wait);

/* A new key: its text, which nobody keeps, and the key's hash. */
void rvi_key_make(rvi_key *key, char text[RVI_KEY_TEXT]);
/* "infer,teach", "shared". False: text has another word. */
bool rvi_key_read_scopes(rvi_key *key, const char *text);
bool rvi_key_read_learned(rvi_key *key, const char *text);
bool rvi_key_is_name(const char *text);
void rvi_key_write(const rvi_key *key, rvi_buf *out); /* its line */

#endif
