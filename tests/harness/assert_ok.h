/* assert_ok.h - a call that must succeed; inside it `err` is an rv_error that explains a
 * failure. */
#ifndef TESTS_HARNESS_ASSERT_OK_H
#define TESTS_HARNESS_ASSERT_OK_H

#include "ruvllm.h"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        rv_error e_ = {0};                                                                         \
        rv_error *err = &e_;                                                                       \
        rv_status st_ = (call);                                                                    \
        if (st_) fail_msg("%s: %s", rv_status_name(st_), e_.text);                                 \
    } while (0)

#endif
