/* schedule.h - when is recorded: TFI_SCHEDULE, TFI_CAPTURE and TFI_TRIGGER, and what they come to at this moment.
 *
 * Stages are timed in every case; whatever else is recorded asks tfi_recording() first, which costs one relaxed load.
 */
#ifndef TFI_SCHEDULE_H
#define TFI_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

struct tfi_thread;

/* torch.profiler.schedule's arguments; `active` is 0 where there is no schedule. */
struct tfi_plan {
    uint32_t skip_first;
    uint32_t skip_first_wait; /* not 0: the first cycle does not wait */
    uint32_t wait;
    uint32_t warmup;
    uint32_t active;
    uint32_t repeat; /* cycles, 0 without an end */
};

enum tfi_recording_state { TFI_RECORDING_OFF, TFI_RECORDING_WARMUP, TFI_RECORDING_ON };

struct tfi_capture {
    uint32_t set;
    uint32_t api;       /* between cudaProfilerStart and cudaProfilerStop */
    uint64_t delay_ns;  /* since the process was started, with `api` since cudaProfilerStart */
    uint64_t length_ns; /* 0 without an end */
};

struct tfi_trigger {
    uint32_t signal;  /* 0: none */
    const char *path; /* NULL: none; absolute */
};

/* Texts of the variables to their meaning; false where they have none. */
bool tfi_plan_parse(const char *text, struct tfi_plan *plan);
bool tfi_capture_parse(const char *text, struct tfi_capture *capture);
bool tfi_trigger_parse(const char *text, struct tfi_trigger *trigger);

/* What the schedule says about a step, counted from 0, and which cycle that is. */
enum tfi_recording_state tfi_plan_at(const struct tfi_plan *plan, uint64_t step, uint32_t *cycle);

/* TFI_ACTIVITY_* that are recorded now, TFI_RECORDING_SHAPES where operators' inputs are, and TFI_RECORDING_ANY; 0 while
 * recording is off. */
#define TFI_RECORDING_ANY 0x80000000u
#define TFI_RECORDING_SHAPES 0x40000000u
extern uint32_t tfi_recording_now;

/* True if one of these activities (or TFI_RECORDING_ANY) is recorded now. */
static inline bool tfi_recording(uint32_t activities)
{
    return (__atomic_load_n(&tfi_recording_now, __ATOMIC_RELAXED) & activities) != 0;
}

/* When something that no call announces, a time or a trigger, is to be looked at again, in ticks. */
extern uint64_t tfi_recording_look_at;

/* Looks; `t` is the calling thread with its guard set, NULL in the background thread. */
void tfi_recording_look(struct tfi_thread *t);

/* The same at the edges of stages. */
static inline void tfi_recording_tick(struct tfi_thread *t)
{
    uint64_t due = __atomic_load_n(&tfi_recording_look_at, __ATOMIC_RELAXED);
    if (__builtin_expect(due != UINT64_MAX, 0) && tfi_ticks() >= due) tfi_recording_look(t);
}

/* The same where recording is off and nothing else may look: `t` is the calling thread, inside or outside the recorder.
 * Returns tfi_recording(TFI_RECORDING_ANY). */
bool tfi_recording_off(const struct tfi_thread *t, uint64_t now);

/* How long the background thread may sleep, at most `ms`. */
unsigned tfi_recording_wait(unsigned ms);

/* What was recorded at a moment: tfi_recording_now as it was, with TFI_RECORDING_WARMS in steps of warm-up; -1 if that is
 * not known any more. */
#define TFI_RECORDING_WARMS (1ll << 32)
int64_t tfi_recording_at(uint64_t ticks);

/* True if anything may switch recording in this process. */
extern uint32_t tfi_recording_switched;

/* Not 0 while steps are counted, and another number for each schedule; and whether entries of a stage of this name are
 * steps. */
extern uint32_t tfi_schedule_runs;
bool tfi_schedule_counts(const char *name, size_t length);

/* A step begins. */
void tfi_schedule_step(struct tfi_thread *t);

/* Another schedule, in the words of TFI_SCHEDULE, from step 0 on, by entries of the stage `step` (NULL: as ever); "" ends
 * it. Returns how many steps the schedule before has counted, or one of these: the text can't be read; the user's own
 * TFI_SCHEDULE goes first, and nothing changes. */
#define TFI_SCHEDULE_UNREADABLE (-1)
#define TFI_SCHEDULE_OF_USER (-2)
int64_t tfi_schedule_set(struct tfi_thread *t, const char *text, const char *step);

/* A profiler of the program's own, which we stand for, begins or ends, and wants these: words as tfi_recording_now. While
 * any does, what the environment leaves open is what they want together: no other activities, and `stack`, too. */
void tfi_schedule_ask(struct tfi_thread *t, uint32_t wanted, bool begins);

/* cudaProfilerStart and -Stop, called before the first and after the second; wakes as a call does. */
void tfi_capture_call(bool start);

/* In the constructor, behind tfi_config_read(); at wake; and before it, in a new process or after an exec that failed. */
void tfi_schedule_init(void);
void tfi_schedule_awake(struct tfi_thread *t);
void tfi_schedule_restart(void);

/* ---- trigger.c ---- */

/* What a trigger says: recording or not, and with which activities. */
struct tfi_wish {
    bool on;
    uint32_t activities;
    const char *cause; /* NULL: nothing new */
};

/* At wake: catches the signal. Without a trigger nothing is touched. */
void tfi_trigger_start(void);

/* Asks the triggers. Reads a file at most. */
struct tfi_wish tfi_trigger_ask(void);

/* In a new process: signals of the parent are none of ours. */
void tfi_trigger_restart(void);

#endif
