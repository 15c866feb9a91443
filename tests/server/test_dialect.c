/* What a status of the library is to clients: an HTTP status, and a text without paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "server/dialect.h"

static void paths_are_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *given, *wanted;
    } all[] = {
        {"/srv/models/a.gguf: cannot open: No such file or directory",
         "a.gguf: cannot open: No such file or directory"},
        {"models/a.gguf: truncated?", "a.gguf: truncated?"},
        {"cannot write /var/lib/x/1.pages: Input/output error",
         "cannot write 1.pages: Input/output error"},
        {"session 'x': ../state/1.session is damaged", "session 'x': 1.session is damaged"},
        {"'/srv/my models/a b.gguf': no (/tmp/c)", "'my a b.gguf': no (c)"},
        {"12 heads do not divide into 5 key/value heads",
         "12 heads do not divide into 5 key/value heads"},
        {"/srv/models/", ""},
        {"  two\nlines/ ", "  two\nlines/ "},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s", all[i].given);
        rvi_problem_hide_paths(text);
        assert_string_equal(text, all[i].wanted);
    }
}

static void statuses(void **state)
{
    (void)state;
    static const struct {
        rv_status st;
        int status;
        bool hides; /* it is of this machine, not of the request */
    } all[] = {{RV_E_IO, 500, true},           {RV_E_MODEL, 500, true},
               {RV_E_NOT_FOUND, 404, true},    {RV_E_STORAGE, 503, true},
               {RV_E_GENERATION, 400, true},   {RV_E_LEARNING, 400, true},
               {RV_E_INVALID, 400, false},     {RV_E_CONFIG, 400, false},
               {RV_E_UNSUPPORTED, 400, false}, {RV_E_BUSY, 429, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        rvi_problem p;
        rv_error why = {0};
        (void)rvi_error(&why, all[i].st, "/properties/a: x");
        assert_false(rvi_problem_from(&p, all[i].st, &why));
        assert_int_equal(p.status, all[i].status);
        assert_string_equal(p.message, all[i].hides ? "a: x" : "/properties/a: x");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_hidden),
        cmocka_unit_test(statuses),
    };
    return cmocka_run_group_tests_name("dialect", tests, NULL, NULL);
}
