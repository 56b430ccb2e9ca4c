/* clocks.c - reports clocks, power and temperature of each device, and what kept its clock low: one row per device.
 *
 * They come from the samples of NVML (TFI_NVML_HZ), the one table of the model that this question needs. A value that no
 * sample knows is null.
 */
#include <math.h>

#include "ask/scope.h"
#include "commands/session.h"
#include "write/values.h"

/* The known values of one kind. */
struct known {
    uint64_t count;
    double sum, least, most;
};

/* The samples of one device that the filters leave. */
struct clocks {
    uint64_t samples, reasons_known, limited, reasons; /* limited: samples with a reason that is not an idle device */
    struct known sm, memory, power, temperature, busy;
};

static void add_known(struct known *known, bool is_known, double value)
{
    if (!is_known) return;
    known->least = known->count ? fmin(known->least, value) : value;
    known->most = known->count ? fmax(known->most, value) : value;
    known->sum += value;
    known->count++;
}

static void add_sample(struct clocks *clocks, const struct device_sample *s)
{
    static const uint64_t idle = 1; /* gpu_idle of clock_reasons.def */
    clocks->samples++;
    add_known(&clocks->sm, s->known & TFI_SAMPLE_SM_CLOCK, s->sm_mhz);
    add_known(&clocks->memory, s->known & TFI_SAMPLE_MEMORY_CLOCK, s->memory_mhz);
    add_known(&clocks->power, s->known & TFI_SAMPLE_POWER, s->power_mw / 1e3);
    add_known(&clocks->temperature, s->known & TFI_SAMPLE_TEMPERATURE, s->temperature);
    add_known(&clocks->busy, s->known & TFI_SAMPLE_BUSY, s->busy);
    if (!(s->known & TFI_SAMPLE_REASONS)) return;
    clocks->reasons_known++;
    clocks->limited += (s->reasons & ~idle) != 0;
    clocks->reasons |= s->reasons;
}

/* Adds the samples of a device of the process. */
static struct clocks clocks_of(const struct scope *scope, uint32_t device)
{
    const struct process *p = scope->process;
    struct clocks clocks = {0};
    int64_t from, to;
    selection_window(scope->chosen, &from, &to);
    for (size_t i = 0; i < p->samples; i++) {
        const struct device_sample *s = &p->sample[i];
        if (s->device == device && s->time >= from && s->time < to) add_sample(&clocks, s);
    }
    return clocks;
}

static double mean(const struct known *known)
{
    return known->count ? known->sum / (double)known->count : NAN;
}

static void put_row(struct emit *e, const struct names *names, const struct process *p, const struct device *device,
                    const struct clocks *c)
{
    emit_row(e);
    emit_known(e, "rank", p->rank);
    emit_known(e, "pid", p->pid);
    emit_count(e, "device", device->number);
    emit_name(e, names, "name", device->name);
    emit_count(e, "samples", c->samples);
    emit_double(e, "sm_clock_mhz", mean(&c->sm));
    emit_double(e, "sm_clock_min_mhz", c->sm.count ? c->sm.least : NAN);
    emit_double(e, "sm_clock_max_mhz", c->sm.count ? c->sm.most : NAN);
    emit_double(e, "memory_clock_mhz", mean(&c->memory));
    emit_double(e, "power_w", mean(&c->power));
    emit_double(e, "power_max_w", c->power.count ? c->power.most : NAN);
    emit_double(e, "temperature_c", c->temperature.count ? c->temperature.most : NAN);
    emit_double(e, "busy_pct", mean(&c->busy));
    emit_double(e, "limited_pct", c->reasons_known ? 100.0 * (double)c->limited / (double)c->reasons_known : NAN);
    if (!c->reasons_known) emit_null(e, "throttle");
    else emit_reasons(e, "throttle", c->reasons);
    emit_row_end(e);
}

struct needs clocks_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.samples = true};
}

void cmd_clocks(struct session *session)
{
    struct emit *e = &session->emit;
    size_t rows = 0;
    if (!session_ask(session, STYLE_TABLE)) return;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        const struct process *p = scope->process;
        for (size_t d = 0; d < p->devices; d++) {
            struct clocks clocks = clocks_of(scope, p->device[d].number);
            if (!clocks.samples || !choice_lane(&scope->choice, p->device[d].number, -1)) continue;
            put_row(e, &session->model.names, p, &p->device[d], &clocks);
            rows++;
        }
        scope_end(scope);
    }
    emit_totals(e);
    emit_count(e, "rows", rows);
    emit_end(e);
    if (!rows && !is_filtered(&session->options))
        complain(NULL, "no clock was sampled; TFI_NVML_HZ=10 records them in a run of the library");
    session_end(session, rows || !is_filtered(&session->options));
}
