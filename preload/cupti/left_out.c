/* left_out.c - sums the device work whose records are left out, by call of a stage and stream.
 *
 * ENABLE_PROFILER_NAMES, TFI_SCHEDULE and TFI_CAPTURE leave out records, but the device time of every stage stays
 * known: work that is left out is added to a sum of the innermost stage in which it was launched (stage_sums.c). A
 * sum is written when another one needs its place in the table, and at the end of each buffer. A call of a stage
 * therefore may have several sums of one stream; the analysis adds them up.
 *
 * Only the holder of the token runs here.
 */
#include "base/process.h"
#include "cupti/client.h"
#include "record/chunk.h"
#include "record/thread.h"

#define SUMS 1024u

static struct sum {
    uint64_t range;           /* id of the stage, 0: in no stage */
    struct tfi_left_out work; /* `duration`: to the end of the last work, gaps included */
    uint64_t busy;
    uint32_t works; /* 0: the place is free */
} sums[SUMS];
static uint32_t used; /* places that are not free */

static void write_sum(struct tfi_thread *lane, struct sum *sum)
{
    struct tfi_rec_stage_work *rec = TFI_RESERVE(lane, stage_work);
    if (rec) {
        rec->device = sum->work.device;
        rec->id = sum->range;
        rec->start = sum->work.start;
        rec->duration = sum->work.duration;
        rec->busy = sum->busy;
        rec->context = sum->work.context;
        rec->stream = sum->work.stream;
        rec->works = sum->works;
        rec->flags = sum->work.flags;
        tfi_commit(lane, sizeof *rec);
    }
    sum->works = 0;
    used--;
}

static bool is_of(const struct sum *sum, uint64_t range, const struct tfi_left_out *work)
{
    return sum->range == range && sum->work.device == work->device && sum->work.context == work->context &&
           sum->work.stream == work->stream;
}

static void add_left_out(struct tfi_thread *lane, uint64_t range, const struct tfi_left_out *work)
{
    uint64_t key = range ^ (uint64_t)work->stream << 32 ^ (uint64_t)work->context << 16 ^ work->device;
    struct sum *sum = &sums[key * 0x9e3779b97f4a7c15u >> 54];
    if (sum->works && !is_of(sum, range, work)) write_sum(lane, sum);
    if (!sum->works) {
        *sum = (struct sum){.range = range, .work = *work};
        used++;
    }
    uint64_t end = sum->work.start + sum->work.duration, its_end = work->start + work->duration;
    if (work->start < sum->work.start) sum->work.start = work->start;
    sum->work.duration = (its_end > end ? its_end : end) - sum->work.start;
    sum->busy += work->duration;
    sum->works++;
}

void tfi_left_out_add(struct tfi_thread *lane, uint32_t id, const struct tfi_left_out *work)
{
    uint64_t range;
    bool warmup, known = tfi_sums_stage(id, &range, &warmup);
    if (known && !warmup) add_left_out(lane, range, work);
    tfi_count_drop(known ? TFI_DROP_DEVICE_SUMMED : TFI_DROP_DEVICE_OUTSIDE, 1);
    tfi_sums_work(id, work->duration);
}

void tfi_left_out_write(struct tfi_thread *lane)
{
    for (uint32_t i = 0; i < SUMS && used; i++)
        if (sums[i].works) write_sum(lane, &sums[i]);
}

void tfi_left_out_restart(void)
{
    for (uint32_t i = 0; i < SUMS; i++) sums[i].works = 0;
    used = 0;
}
