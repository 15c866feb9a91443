#include "server/llama.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static bool read_int(const char *value, long min, long max, long *out)
{
    char *end;
    *out = strtol(value, &end, 10);
    return *value && !*end && *out >= min && *out <= max;
}

static bool read_pooling(rvi_llama *l, const char *value)
{
    static const char *const names[] = {"", "none", "mean", "last", "cls"};
    for (size_t i = 1; i < RVI_COUNT(names); i++)
        if (!strcmp(value, names[i])) {
            l->pooling = (rvi_llama_pooling)i;
            return true;
        }
    return false;
}

/* value NULL: there is none */
static bool read_one(rvi_llama *l, const char *name, const char *value)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"slots", &l->slots},
                 {"metrics", &l->metrics},
                 {"verbose", &l->verbose},
                 {"no-ui", &l->no_ui}};
    long n = 0;
    char *end;
    for (size_t i = 0; i < RVI_COUNT(flags); i++)
        if (!value && !strcmp(name, flags[i].name)) return *flags[i].flag = true;
    if (!value) return false;
    if (!strcmp(name, "seed")) {
        l->has_seed = true;
        l->seed = strtoull(value, &end, 10);
        return *value && !*end;
    }
    if (!strcmp(name, "temp")) {
        l->has_temperature = true;
        const char *after;
        l->temperature = (float)rvi_number_parse(value, &after);
        return *value && !*after && l->temperature >= 0 && l->temperature <= 100;
    }
    if (!strcmp(name, "n-predict")) {
        bool ok = read_int(value, -1, INT_MAX, &n);
        l->n_predict = n > 0 ? (int)n : 0;
        return ok;
    }
    if (!strcmp(name, "batch-size")) {
        bool ok = read_int(value, 1, 65536, &n);
        l->batch = (int)n;
        return ok;
    }
    if (!strcmp(name, "pooling")) return read_pooling(l, value);
    if (!strcmp(name, "tags")) return snprintf(l->tags, sizeof l->tags, "%s", value) < 256;
    if (strcmp(name, "reasoning")) return false;
    l->no_thoughts = !strcmp(value, "off");
    return l->no_thoughts || !strcmp(value, "on") || !strcmp(value, "auto");
}

rv_status rvi_llama_read(rvi_llama *l, const char *text, rv_error *err)
{
    l->on = true;
    while (*(text += strspn(text, " "))) {
        char word[320];
        size_t n = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)RVI_MIN(n, sizeof word), text);
        char *value = strchr(word, '=');
        if (value) *value++ = 0;
        if (!read_one(l, word, value))
            return rvi_error(err, RV_E_CONFIG,
                             "--llama-compatible: '%.*s' is no flag of llama-server with a value "
                             "that can be honoured",
                             (int)RVI_MIN(n, (size_t)80), text);
        text += n;
    }
    return RV_OK;
}
