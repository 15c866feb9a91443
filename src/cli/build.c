/* What the program was built from; the Makefile says it. */
#include "cli/cli.h"

#ifndef RVI_COMMIT
#define RVI_COMMIT "unknown"
#endif
#ifndef RVI_BUILD_NUMBER
#define RVI_BUILD_NUMBER 0
#endif

const char *cli_commit(void)
{
    return RVI_COMMIT;
}

int cli_build_number(void)
{
    return RVI_BUILD_NUMBER;
}
