/* schedule.h - switches recording on and off, by TFI_SCHEDULE, TFI_CAPTURE and TFI_TRIGGER.
 *
 * Stages are always timed. All other recording calls tfi_recording() first, which costs one relaxed load.
 */
#ifndef TFI_SCHEDULE_H
#define TFI_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/plan.h"
#include "record/clock.h"

struct tfi_job;
struct tfi_thread;

/* The TFI_ACTIVITY_* recorded now, TFI_RECORDING_SHAPES if operators' inputs are recorded, and TFI_RECORDING_ANY; 0
 * while recording is off. */
#define TFI_RECORDING_ANY 0x80000000u
#define TFI_RECORDING_SHAPES 0x40000000u
extern uint32_t tfi_recording_now;

/* True if one of these activities (or TFI_RECORDING_ANY) is recorded now. */
static inline bool tfi_recording(uint32_t activities)
{
    return (__atomic_load_n(&tfi_recording_now, __ATOMIC_RELAXED) & activities) != 0;
}

/* The time of the next look at times and triggers, which no call announces; in ticks. */
extern uint64_t tfi_recording_look_at;

/* Checks times and triggers and switches recording; `t` is the calling thread with its guard set, NULL in the
 * background thread. */
void tfi_recording_look(struct tfi_thread *t);

/* Looks if it is time to; called at the edges of stages. */
static inline void tfi_recording_tick(struct tfi_thread *t)
{
    uint64_t due = __atomic_load_n(&tfi_recording_look_at, __ATOMIC_RELAXED);
    if (__builtin_expect(due != UINT64_MAX, 0) && tfi_ticks() >= due) tfi_recording_look(t);
}

/* Looks if it is time to, for a call that finds recording off, where nothing else may look. `t` is the calling thread,
 * inside or outside the recorder. Returns true if recording is on afterwards. */
bool tfi_recording_off(const struct tfi_thread *t, uint64_t now);

/* The background thread's job: looks when it is time to. */
extern const struct tfi_job tfi_schedule_job;

/* The value of tfi_recording_now at `ticks`, with TFI_RECORDING_WARMS in steps of warm-up; -1 if it is not known any
 * more. */
#define TFI_RECORDING_WARMS (1ll << 32)
int64_t tfi_recording_at(uint64_t ticks);

/* True if anything may switch recording in this process. */
extern uint32_t tfi_recording_switched;

/* The number of the current schedule; 0 while no steps are counted. The function returns true if entries of a stage of
 * this name are steps. */
extern uint32_t tfi_schedule_runs;
bool tfi_schedule_counts(const char *name, size_t length);

/* Counts a step that begins. */
void tfi_schedule_step(struct tfi_thread *t);

/* True if the user's schedule has waited for its first step all the time. */
bool tfi_schedule_never_began(void);

/* Sets another schedule, in the format of TFI_SCHEDULE, from step 0 on; "" ends it. Entries of the stage `step` are its
 * steps (NULL: the default). Returns how many steps the schedule before has counted. Returns TFI_SCHEDULE_UNREADABLE
 * for an invalid text, TFI_SCHEDULE_OF_USER if the user's own TFI_SCHEDULE has priority; then nothing changes. */
#define TFI_SCHEDULE_UNREADABLE (-1)
#define TFI_SCHEDULE_OF_USER (-2)
int64_t tfi_schedule_set(struct tfi_thread *t, const char *text, const char *step);

/* Begins or ends the request of an embedded profiler, which this library replaces; `wanted` has the bits of
 * tfi_recording_now. While any is active, bits that the environment does not fix are those that the profilers request
 * together: no other activities, and also `stack`. */
void tfi_schedule_ask(struct tfi_thread *t, uint32_t wanted, bool begins);

/* Handles cudaProfilerStart and -Stop; called before the former and after the latter. Wakes the process as a call
 * does. */
void tfi_capture_call(bool start);

/* init: called in the constructor, after tfi_config_read(). awake: at wake. restart: before each wake; in a new
 * process it resets the state, after a failed exec it keeps it. */
void tfi_schedule_init(void);
void tfi_schedule_awake(struct tfi_thread *t);
void tfi_schedule_restart(void);

/* ---- trigger.c ---- */

/* A trigger's request: recording on or off, and with which activities. */
struct tfi_wish {
    bool on;
    uint32_t activities;
    const char *cause; /* NULL: no new request */
};

/* Installs the handler of the trigger's signal, if there is one. Called at wake. */
void tfi_trigger_start(void);

/* Asks the triggers. Reads at most one file. */
struct tfi_wish tfi_trigger_ask(void);

/* Forgets the signals that the parent received. Called in a new process. */
void tfi_trigger_restart(void);

#endif
