#include "server/times.h"

#include "base/mem.h"

void rvi_times_add(rv_histogram *h, double seconds)
{
    int low = 0, high = RV_HISTOGRAM_BUCKETS - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (seconds <= rv_histogram_bound(middle))
            high = middle;
        else
            low = middle + 1;
    }
    h->counts[low]++;
    h->n++;
    h->sum += seconds;
    h->max = RVI_MAX(h->max, seconds);
}
