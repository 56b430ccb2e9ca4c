/* plan.h - parses TFI_SCHEDULE, TFI_CAPTURE and TFI_TRIGGER. */
#ifndef TFI_PLAN_H
#define TFI_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* torch.profiler.schedule's arguments; `active` is 0 if there is no schedule. */
struct tfi_plan {
    uint32_t skip_first;
    uint32_t skip_first_wait; /* not 0: the first cycle does not wait */
    uint32_t wait;
    uint32_t warmup;
    uint32_t active;
    uint32_t repeat; /* number of cycles, 0: without an end */
};

enum tfi_recording_state { TFI_RECORDING_OFF, TFI_RECORDING_WARMUP, TFI_RECORDING_ON };

struct tfi_capture {
    uint32_t set;
    uint32_t api;       /* record only between cudaProfilerStart and cudaProfilerStop */
    uint64_t delay_ns;  /* counts from the start of the process, with `api` from cudaProfilerStart */
    uint64_t length_ns; /* 0: without an end */
};

struct tfi_trigger {
    uint32_t signal;  /* 0: none */
    const char *path; /* NULL: none; absolute */
};

/* Parse the texts of the variables; false if a text is invalid. */
bool tfi_plan_parse(const char *text, struct tfi_plan *plan);
bool tfi_capture_parse(const char *text, struct tfi_capture *capture);
bool tfi_trigger_parse(const char *text, struct tfi_trigger *trigger);

/* The state of recording in a step, counted from 0, by the schedule; sets `cycle` to the step's cycle. */
enum tfi_recording_state tfi_plan_at(const struct tfi_plan *plan, uint64_t step, uint32_t *cycle);

#endif
