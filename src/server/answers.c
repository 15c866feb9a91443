#include "server/answers.h"

#include <string.h>

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *to = rvi_alloc_array(size, 1);
    if (to) memcpy(to, text, size);
    return to;
}

rvi_said *rvi_said_copy(const rvi_said *from)
{
    rvi_said *s = rvi_zalloc(sizeof *s);
    if (!s) return NULL;
    *s = *from;
    s->chat = copy_text(from->chat);
    s->question = copy_text(from->question);
    s->text = copy_text(from->text);
    s->calls = from->calls ? copy_text(from->calls) : NULL;
    s->response = from->response ? copy_text(from->response) : NULL;
    s->ids = from->n_ids ? rvi_alloc_array(from->n_ids, sizeof *s->ids) : NULL;
    if (!s->chat || !s->question || !s->text || (from->n_ids && !s->ids) ||
        (from->calls && !s->calls)) {
        rvi_said_free(s);
        return NULL;
    }
    if (s->ids) memcpy(s->ids, from->ids, from->n_ids * sizeof *s->ids);
    s->bytes = sizeof *s + strlen(s->chat) + strlen(s->question) + strlen(s->text) +
               (s->calls ? strlen(s->calls) : 0) + s->n_ids * sizeof *s->ids;
    return s;
}

void rvi_said_free(rvi_said *s)
{
    if (!s) return;
    rvi_free(s->chat);
    rvi_free(s->question);
    rvi_free(s->text);
    rvi_free(s->calls);
    rvi_free(s->response);
    rvi_free(s->ids);
    rvi_free(s);
}

static void drop_oldest(rvi_answers *a)
{
    rvi_said *s = a->ring[a->first];
    a->bytes -= s->bytes;
    a->first = (a->first + 1) % RVI_ANSWERS_MOST;
    a->n--;
    rvi_said_free(s);
}

void rvi_answers_deinit(rvi_answers *a)
{
    while (a->n) drop_oldest(a);
    rvi_free(a->ring);
    *a = (rvi_answers){0};
}

void rvi_answers_add(rvi_answers *a, const rvi_said *said)
{
    if (!a->ring && !(a->ring = rvi_alloc_array(RVI_ANSWERS_MOST, sizeof(rvi_said *)))) return;
    rvi_said *s = rvi_said_copy(said);
    if (!s) return;
    while (a->n && (a->n == RVI_ANSWERS_MOST || a->bytes + s->bytes > RVI_ANSWERS_BYTES))
        drop_oldest(a);
    a->ring[(a->first + a->n++) % RVI_ANSWERS_MOST] = s;
    a->bytes += s->bytes;
}

static rvi_said *find(const rvi_answers *a, const char *id, int choice)
{
    for (size_t i = *id ? a->n : 0; i-- > 0;) { /* "" is the id of those that were forgotten */
        rvi_said *s = a->ring[(a->first + i) % RVI_ANSWERS_MOST];
        if (s->choice == choice && !strcmp(s->id, id)) return s;
    }
    return NULL;
}

const rvi_said *rvi_answers_find(const rvi_answers *a, const char *tenant, const char *id,
                                 int choice)
{
    const rvi_said *s = find(a, id, choice);
    return s && !strcmp(s->tenant, tenant) ? s : NULL;
}

void rvi_answers_set_response(rvi_answers *a, const char *id, const rvi_buf *json)
{
    rvi_said *s = find(a, id, 0);
    if (!s || s->response || json->failed) return;
    s->response = copy_text(json->data);
    if (!s->response) return;
    s->bytes += json->len;
    a->bytes += json->len;
}

/* Its place in the ring stays, without a name and without texts. */
static void forget(rvi_answers *a, rvi_said *s)
{
    a->bytes -= s->bytes;
    rvi_free(s->chat);
    rvi_free(s->question);
    rvi_free(s->text);
    rvi_free(s->calls);
    rvi_free(s->response);
    rvi_free(s->ids);
    *s = (rvi_said){.bytes = sizeof *s};
    a->bytes += s->bytes;
}

bool rvi_answers_forget(rvi_answers *a, const char *id)
{
    rvi_said *s = find(a, id, 0);
    if (s) forget(a, s);
    return s;
}

void rvi_answers_forget_all(rvi_answers *a, const char *tenant)
{
    for (size_t i = 0; i < a->n; i++) {
        rvi_said *s = a->ring[(a->first + i) % RVI_ANSWERS_MOST];
        if (!*tenant || !strcmp(s->tenant, tenant)) forget(a, s);
    }
}
