/* jinja_tests.c - the tests, which follow `is`. */
#include "template/jinja_run.h"

#define TEST(name)                                                                                 \
    static rvi_jv name(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
/* A test that asks only for the value. */
#define SIMPLE_TEST(name, answer)                                                                  \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)r, (void)a, (void)all;                                                               \
        return rvi_jv_bool(answer);                                                                \
    }

SIMPLE_TEST(is_defined, self.kind != RVI_J_UNDEFINED)
SIMPLE_TEST(is_undefined, self.kind == RVI_J_UNDEFINED)
SIMPLE_TEST(is_none, self.kind == RVI_J_NONE)
SIMPLE_TEST(is_boolean, self.kind == RVI_J_BOOL)
SIMPLE_TEST(is_true, self.kind == RVI_J_BOOL && self.as.boolean)
SIMPLE_TEST(is_false, self.kind == RVI_J_BOOL && !self.as.boolean)
SIMPLE_TEST(is_integer, self.kind == RVI_J_INT)
SIMPLE_TEST(is_float, self.kind == RVI_J_FLOAT)
SIMPLE_TEST(is_number, rvi_jv_is_number(self))
SIMPLE_TEST(is_string, self.kind == RVI_J_STR)
SIMPLE_TEST(is_mapping, self.kind == RVI_J_DICT)
SIMPLE_TEST(is_iterable, rvi_jv_iterable(self) || self.kind == RVI_J_LOOP)
SIMPLE_TEST(is_sequence, self.kind == RVI_J_STR || self.kind == RVI_J_LIST ||
                             self.kind == RVI_J_TUPLE || self.kind == RVI_J_DICT ||
                             self.kind == RVI_J_RANGE || self.kind == RVI_J_UNDEFINED)
SIMPLE_TEST(is_sameas, rvi_jv_same(r, self, a[0]))

/* Comparisons: the operators under other names. */
#define COMPARE_TEST(name, op)                                                                     \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)all;                                                                                 \
        return rvi_jinja_compare(r, op, self, a[0]);                                               \
    }
COMPARE_TEST(is_eq, RVI_JOP_EQ)
COMPARE_TEST(is_ne, RVI_JOP_NE)
COMPARE_TEST(is_lt, RVI_JOP_LT)
COMPARE_TEST(is_le, RVI_JOP_LE)
COMPARE_TEST(is_gt, RVI_JOP_GT)
COMPARE_TEST(is_ge, RVI_JOP_GE)
COMPARE_TEST(is_in, RVI_JOP_IN)

static rvi_jv remainder_is(rvi_jrun *r, rvi_jv v, rvi_jv divisor, int64_t wanted)
{
    rvi_jv rest = rvi_jinja_binary(r, RVI_JOP_MOD, v, divisor);
    return rvi_jv_failed(rest) ? rest : rvi_jinja_compare(r, RVI_JOP_EQ, rest, rvi_jv_int(wanted));
}

TEST(is_odd)
{
    (void)a, (void)all;
    return remainder_is(r, self, rvi_jv_int(2), 1);
}

TEST(is_even)
{
    (void)a, (void)all;
    return remainder_is(r, self, rvi_jv_int(2), 0);
}

TEST(is_divisibleby)
{
    (void)all;
    return remainder_is(r, self, a[0], 0);
}

TEST(is_lower)
{
    (void)a, (void)all;
    rvi_jv text = rvi_jv_to_str(r, self);
    return rvi_jv_failed(text) ? text : rvi_jinja_one_case(r, text.as.str, false);
}

TEST(is_upper)
{
    (void)a, (void)all;
    rvi_jv text = rvi_jv_to_str(r, self);
    return rvi_jv_failed(text) ? text : rvi_jinja_one_case(r, text.as.str, true);
}

static const rvi_jfn tests[] = {
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"iterable", is_iterable, "", 0},
    {"sequence", is_sequence, "", 0},
    {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},
    {"false", is_false, "", 0},
    {"number", is_number, "", 0},
    {"integer", is_integer, "", 0},
    {"float", is_float, "", 0},
    {"sameas", is_sameas, "other", 1},
    {"odd", is_odd, "", 0},
    {"even", is_even, "", 0},
    {"divisibleby", is_divisibleby, "num", 1},
    {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},
    {"in", is_in, "seq", 1},
    {"==", is_eq, "-", 1},
    {"eq", is_eq, "-", 1},
    {"equalto", is_eq, "-", 1},
    {"!=", is_ne, "-", 1},
    {"ne", is_ne, "-", 1},
    {"<", is_lt, "-", 1},
    {"lt", is_lt, "-", 1},
    {"lessthan", is_lt, "-", 1},
    {"<=", is_le, "-", 1},
    {"le", is_le, "-", 1},
    {">", is_gt, "-", 1},
    {"gt", is_gt, "-", 1},
    {"greaterthan", is_gt, "-", 1},
    {">=", is_ge, "-", 1},
    {"ge", is_ge, "-", 1},
};

const rvi_jfn *rvi_jinja_test(const char *name, size_t len)
{
    return rvi_jinja_find(tests, RVI_COUNT(tests), name, len);
}
