/* sampler_options.c - rv_sampling: defaults, versions of the struct, ranges. */
#include <math.h>
#include <string.h>

#include "decode/sampler_internal.h"

static const rv_sampling defaults = {
    .size = sizeof(rv_sampling),
    .temperature = 0.7f,
    .top_p = 0.9f,
    .repetition_penalty = 1.1f,
    .repetition_window = 64,
    .typical_p = 1,
    .xtc_threshold = 0.1f,
    .dry_base = 1.75f,
    .dry_allowed_length = 2,
    .mirostat_eta = 0.1f,
};

void rvi_sampling_init(rv_sampling *s, size_t size, bool greedy)
{
    if (size < sizeof s->size) return;
    rv_sampling full = defaults;
    full.size = size;
    if (greedy) {
        full.temperature = 0;
        full.top_p = 1;
        full.repetition_penalty = 1;
    }
    memcpy(s, &full, RVI_MIN(size, sizeof full));
}

void rvi_sampling_read(rv_sampling *full, const rv_sampling *given)
{
    *full = defaults;
    if (given) memcpy(full, given, RVI_MIN(given->size, sizeof *full));
    full->size = sizeof *full;
}

/* min_open: min itself is out of the range */
static const struct range {
    const char *name;
    size_t at;
    double min, max;
    bool min_open;
} ranges[] =
    {
#define FIELD(name) #name, offsetof(rv_sampling, name)
        {FIELD(temperature), 0, 100, false},
        {FIELD(top_p), 0, 1, true},
        {FIELD(min_p), 0, 1, false},
        {FIELD(repetition_penalty), 0, 100, true},
        {FIELD(frequency_penalty), -100, 100, false},
        {FIELD(presence_penalty), -100, 100, false},
        {FIELD(typical_p), 0, 1, true},
        {FIELD(top_n_sigma), 0, 100, false},
        {FIELD(xtc_probability), 0, 1, false},
        {FIELD(xtc_threshold), 0, 1, false},
        {FIELD(dry_multiplier), 0, 100, false},
        {FIELD(dry_base), 1, 100, false},
        {FIELD(mirostat_tau), 0, 100, false},
        {FIELD(mirostat_eta), 0, 1, false},
},
  integer_ranges[] = {
      {FIELD(top_k), 0, INT32_MAX, false},
      {FIELD(repetition_window), 0, INT32_MAX, false},
      {FIELD(dry_allowed_length), 1, RVI_DRY_LONGEST, false},
      {FIELD(dry_window), 0, INT32_MAX, false},
#undef FIELD
};

static rv_status check_range(const struct range *r, double value, rv_error *err)
{
    /* NaN fails both comparisons */
    if ((r->min_open ? value > r->min : value >= r->min) && value <= r->max) return RV_OK;
    if (r->min_open)
        return rvi_error(err, RV_E_CONFIG, "%s must be above %g and at most %g (got %g)", r->name,
                         r->min, r->max, value);
    return rvi_error(err, RV_E_CONFIG, "%s must be %g..%g (got %g)", r->name, r->min, r->max,
                     value);
}

static rv_status check_breakers(const rv_sampling *s, rv_error *err)
{
    if (s->n_dry_breakers > RVI_DRY_BREAKERS_MAX)
        return rvi_error(err, RV_E_CONFIG, "n_dry_breakers %zu is more than %d", s->n_dry_breakers,
                         RVI_DRY_BREAKERS_MAX);
    if (s->n_dry_breakers && !s->dry_breakers)
        return rvi_error(err, RV_E_CONFIG, "n_dry_breakers is %zu, but there is no list",
                         s->n_dry_breakers);
    for (size_t i = 0; i < s->n_dry_breakers; i++) {
        const char *text = s->dry_breakers[i];
        if (!text || !text[0]) return rvi_error(err, RV_E_CONFIG, "dry_breakers[%zu] is empty", i);
        if (!memchr(text, 0, RVI_DRY_BREAKER_LEN_MAX + 1))
            return rvi_error(err, RV_E_CONFIG, "dry_breakers[%zu] is longer than %d bytes", i,
                             RVI_DRY_BREAKER_LEN_MAX);
    }
    return RV_OK;
}

/* Finite biases are bounded so that a whole list of them on one token stays far from overflow. */
static rv_status check_biases(const rv_sampling *s, rv_error *err)
{
    static const float most = 1e9f;
    if (s->n_logit_bias > RVI_LOGIT_BIAS_MAX)
        return rvi_error(err, RV_E_CONFIG, "n_logit_bias %zu is more than %d", s->n_logit_bias,
                         RVI_LOGIT_BIAS_MAX);
    if (s->n_logit_bias && !s->logit_bias)
        return rvi_error(err, RV_E_CONFIG, "n_logit_bias is %zu, but there is no list",
                         s->n_logit_bias);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const rv_logit_bias *b = &s->logit_bias[i];
        if (b->id < 0)
            return rvi_error(err, RV_E_CONFIG, "logit_bias[%zu]: %d is no token id", i, b->id);
        if (!isinf(b->bias) && !(fabsf(b->bias) <= most))
            return rvi_error(err, RV_E_CONFIG,
                             "logit_bias[%zu] %g is not infinite and not between %g and %g", i,
                             (double)b->bias, (double)-most, (double)most);
    }
    return RV_OK;
}

rv_status rvi_sampling_check(const rv_sampling *given, rv_error *err)
{
    rv_sampling s;
    const rvi_stage *stages[RVI_STAGES_MAX];
    int n_stages;
    /* Every version of the struct ends aligned; anything else was never set. */
    if (given && (given->size < sizeof given->size || given->size > RVI_SAMPLING_SIZE_MAX ||
                  given->size % _Alignof(rv_sampling)))
        return rvi_error(err, RV_E_CONFIG,
                         "size %zu is not that of an rv_sampling (set it to sizeof)", given->size);
    rvi_sampling_read(&s, given);
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < RVI_COUNT(ranges); i++) {
        float value;
        memcpy(&value, (const char *)&s + ranges[i].at, sizeof value);
        st = check_range(&ranges[i], (double)value, err);
    }
    for (size_t i = 0; !st && i < RVI_COUNT(integer_ranges); i++) {
        int value;
        memcpy(&value, (const char *)&s + integer_ranges[i].at, sizeof value);
        st = check_range(&integer_ranges[i], (double)value, err);
    }
    if (!st) st = check_breakers(&s, err);
    if (!st) st = check_biases(&s, err);
    return st ? st : rvi_stages_parse(s.order, stages, &n_stages, err);
}
