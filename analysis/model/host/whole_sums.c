/* whole_sums.c - what the sums of a whole run say, and their end. */
#include "model/host/whole_run.h"

#include <math.h>
#include <stdlib.h>

#include "sketch.h"

void whole_sums_free(struct whole_run *run)
{
    for (size_t i = 0; i < run->sums; i++) free(run->sum[i].bucket);
    run->sums = 0;
}

void whole_run_free(struct whole_run *run)
{
    if (!run) return;
    whole_sums_free(run);
    free(run->sum);
    free(run->moment);
    free(run);
}

const struct whole_run *whole_run_of(const struct process *process, uint32_t what)
{
    const struct whole_run *run = process->ring.chunks ? process->ring.whole : NULL;
    for (size_t i = 0; run && i < run->sums; i++)
        if (run->sum[i].what == what) return run;
    return NULL;
}

static int64_t middle_of(const struct whole_sum *sum, uint64_t bucket)
{
    double ns = (double)tfi_bucket_middle((uint32_t)(bucket >> TFI_AGGREGATE_COUNT_BITS)) * sum->scale;
    return ns < 9e18 ? (int64_t)llround(ns) : INT64_MAX;
}

int64_t whole_quantile(const struct whole_sum *sum, double share)
{
    const uint64_t mask = ((uint64_t)1 << TFI_AGGREGATE_COUNT_BITS) - 1;
    double total = 0, before = 0;
    for (size_t i = 0; i < sum->buckets; i++) total += (double)(sum->bucket[i] & mask);
    for (size_t i = 0; sum->has_quantiles && i < sum->buckets; i++) {
        before += (double)(sum->bucket[i] & mask);
        if (before <= share * (total - 1)) continue;
        return MIN(MAX(middle_of(sum, sum->bucket[i]), sum->least), sum->most);
    }
    return -1;
}
