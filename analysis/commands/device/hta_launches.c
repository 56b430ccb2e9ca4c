/* hta_launches.c - answers launches with --rules hta: one row per pair of a launch and a work. */
#include "ask/device/hta_launches.h"

#include "commands/device/hta.h"

enum { SLOW = 50000, DELAYED = 100000 }; /* ns: HTA's defaults */

struct sums {
    uint64_t pairs, short_kernels, slow, delayed;
    int64_t host, device, delay;
};

static void add(struct sums *sums, const struct hta_launch *launch)
{
    sums->pairs++;
    sums->host = add_ns(sums->host, launch->host);
    sums->device = add_ns(sums->device, launch->device);
    sums->delay = add_ns(sums->delay, launch->delay);
    sums->short_kernels += launch->host <= SLOW && launch->device < launch->host;
    sums->slow += launch->host > SLOW;
    sums->delayed += launch->delay > DELAYED;
}

static void emit_frame(struct session *session, const struct hta_frame *frame, struct sums *sums)
{
    struct emit *e = &session->emit;
    struct hta_launches launches;
    uint64_t top = session->options.top;
    hta_launches(&launches, frame, &session->model.names);
    for (size_t i = 0; i < launches.count; i++) {
        const struct hta_launch *launch = &launches.launch[i];
        add(sums, launch);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        emit_count(e, "correlation", launch->correlation);
        emit_us(e, "cpu_us", launch->host);
        emit_us(e, "gpu_us", launch->device);
        emit_us(e, "delay_us", launch->delay);
        emit_row_end(e);
    }
    if (launches.left_out) {
        complain(frame->path,
                 "HTA joins all host rows of a correlation id with all device rows; the pairs of an id "
                 "beyond %d are left out",
                 HTA_MOST_PAIRS);
    }
    hta_launches_free(&launches);
}

void answer_hta_launches(struct session *session)
{
    struct sums sums = {0};
    struct emit *e = &session->emit;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) return;
    emit_keys(e, "rank,correlation,cpu_us,gpu_us,delay_us");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) emit_frame(session, &frames->frame[i], &sums);
    emit_totals(e);
    emit_count(e, "pairs", sums.pairs);
    emit_us(e, "cpu_us", sums.host);
    emit_us(e, "gpu_us", sums.device);
    emit_us(e, "delay_us", sums.delay);
    emit_count(e, "short_kernels", sums.short_kernels);
    emit_count(e, "slow_launches", sums.slow);
    emit_count(e, "delayed", sums.delayed);
    emit_end(e);
    if (!sums.pairs && !is_filtered(&session->options))
        complain(NULL, "HTA finds no launch that it knows: cudaLaunchKernel, cudaLaunchKernelExC, cudaMemcpyAsync or "
                       "cudaMemsetAsync with device work; --rules exact counts all launches");
    session_end(session, sums.pairs || !is_filtered(&session->options));
}
