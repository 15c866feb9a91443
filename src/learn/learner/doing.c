#include "learn/learner/doing.h"

#include <stddef.h>

#include "base/os.h"

void rvi_doing_begin(rvi_doing *d, const char *what, int n)
{
    atomic_store(&d->stage, NULL);
    atomic_store(&d->done, 0);
    atomic_store(&d->total, 0);
    atomic_store(&d->n, n);
    atomic_store(&d->what, what);
}

static long long now_ms(void)
{
    return (long long)(rvi_os_seconds() * 1e3);
}

void rvi_doing_report(rvi_doing *d, const char *stage, int done, int total)
{
    if (atomic_load(&d->stage) != stage) {
        atomic_store(&d->begun_ms, now_ms());
        atomic_store(&d->begun_at, done);
    }
    atomic_store(&d->stage, stage);
    atomic_store(&d->done, done);
    atomic_store(&d->total, total);
}

double rvi_doing_remaining(const rvi_doing *d)
{
    int did = atomic_load(&d->done) - atomic_load(&d->begun_at);
    int left = atomic_load(&d->total) - atomic_load(&d->done);
    if (!atomic_load(&d->stage) || did <= 0 || left < 0) return -1;
    return (double)(now_ms() - atomic_load(&d->begun_ms)) / 1e3 * left / did;
}
