/* sampler.c - reads clocks, power, temperature and throttle reasons of the process's devices, TFI_NVML_HZ times a second.
 *
 * Threads. The calling thread finds the devices that the process uses, because only it may ask the driver. A thread
 * of its own calls NVML, because such a call may take milliseconds, or hang. Nothing waits for it longer than WAIT_MS,
 * and after one wait in vain nothing waits for it again until it has ended. It holds the lock only while it writes.
 *
 * Fork and exit. A fork ends the thread. A child of a process that has opened NVML does not use it. The thread ends in
 * an exit handler that was registered after NVML's own, so that NVML is not called after its end.
 */
#include "nvml/nvml.h"

#include <stdlib.h>

#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "cupti/client.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/upkeep.h"
#include "record/worker.h"

enum { TARGETS = 64, WAIT_MS = 50, LOCK_MS = 100, LOOK_MS = 1000, LOOK_SOON_MS = 50 };

/* A device that is read. The calling thread fills it, then counts it; the rest is the sampler's. */
struct target {
    struct tfi_rec_device device;
    void *handle;
    bool asked; /* for the handle */
    bool whole;
    bool described; /* the trace has its device record */
    uint32_t said;  /* values whose failure was reported, as TFI_SAMPLE_* */
};

static struct target targets[TARGETS];
static uint32_t nr_targets;
static uint64_t known_devices; /* one bit for each target's number */
static uint64_t next_look;     /* milliseconds */
static pid_t opened_in;        /* the process that has opened NVML, or tried to; 0: none yet */
static bool ready;             /* NVML can be called */
static uint32_t off;           /* NVML can't be had, or must not be called any more */
static bool hangs;             /* the thread did not end in time */
static struct tfi_lock lock;   /* of the lane */
static struct tfi_thread lane; /* writes the samples: not a thread of the program */
static const char *calling;    /* the value that NVML is asked for; NULL: the thread is not in NVML */
static uint64_t called_ms;

static void loop(struct tfi_worker *self);
static struct tfi_worker sampler = {.loop = loop, .calls_others = true};

static void enter_nvml(const char *what)
{
    __atomic_store_n(&called_ms, tfi_monotonic_ms(), __ATOMIC_RELAXED);
    __atomic_store_n(&calling, what, __ATOMIC_RELEASE);
}

static void leave_nvml(void)
{
    __atomic_store_n(&calling, NULL, __ATOMIC_RELEASE);
}

/* ---- reading ---- */

static const struct {
    uint32_t bit;
    const char *name;
} values[] = {
    {TFI_SAMPLE_SM_CLOCK, "the clock of the multiprocessors"},
    {TFI_SAMPLE_MEMORY_CLOCK, "the clock of the memory"},
    {TFI_SAMPLE_POWER, "the power"},
    {TFI_SAMPLE_TEMPERATURE, "the temperature"},
    {TFI_SAMPLE_BUSY, "the utilisation"},
    {TFI_SAMPLE_REASONS, "the clock event reasons"},
};

/* Reads one value into the record; returns NVML's code. */
static int read_value(uint32_t bit, void *handle, struct tfi_rec_device_sample *rec)
{
    const struct tfi_nvml_api *api = &tfi_nvml_api;
    struct tfi_nvml_utilization utilization = {0, 0};
    unsigned long long reasons = 0;
    unsigned value = 0;
    int code = TFI_NVML_NO_FUNCTION;
    switch (bit) {
    case TFI_SAMPLE_SM_CLOCK:
        if (api->clock) code = api->clock(handle, TFI_NVML_SM_CLOCK, &value);
        if (code == 0) rec->sm_mhz = value;
        break;
    case TFI_SAMPLE_MEMORY_CLOCK:
        if (api->clock) code = api->clock(handle, TFI_NVML_MEMORY_CLOCK, &value);
        if (code == 0) rec->memory_mhz = value;
        break;
    case TFI_SAMPLE_POWER:
        if (api->power) code = api->power(handle, &value);
        if (code == 0) rec->power_mw = value;
        break;
    case TFI_SAMPLE_TEMPERATURE:
        if (api->temperature) code = api->temperature(handle, TFI_NVML_GPU_SENSOR, &value);
        if (code == 0) rec->temperature = (int32_t)value;
        break;
    case TFI_SAMPLE_BUSY:
        if (api->utilization) code = api->utilization(handle, &utilization);
        if (code == 0) rec->busy = utilization.gpu, rec->memory_busy = utilization.memory;
        break;
    default:
        if (api->reasons) code = api->reasons(handle, &reasons);
        if (code == 0) rec->reasons = reasons;
    }
    return code;
}

/* Counts a value that NVML did not give, and reports the first failure of each. A value that the device does not have
 * is no failure. */
static void note_failure(struct target *target, uint32_t bit, const char *name, int code)
{
    bool absent = code == TFI_NVML_NOT_SUPPORTED || code == TFI_NVML_NO_FUNCTION;
    tfi_count_drop(TFI_DROP_NVML, 1);
    if (target->said & bit) return;
    target->said |= bit;
    tfi_log(absent ? TFI_LOG_INFO : TFI_LOG_WARN, "NVML does not give %s of device %u: %s", name, target->device.device,
            tfi_nvml_error(code));
}

/* Reads all values; false if the thread must stop. */
static bool read_all(struct tfi_worker *self, struct target *target, struct tfi_rec_device_sample *rec)
{
    uint64_t begin = tfi_ticks();
    *rec = (struct tfi_rec_device_sample){
        .device = target->device.device, .time = begin, .flags = target->whole ? TFI_SAMPLE_WHOLE_GPU : 0};
    for (size_t i = 0; i < TFI_COUNT(values); i++) {
        enter_nvml(values[i].name);
        int code = read_value(values[i].bit, target->handle, rec);
        leave_nvml();
        if (tfi_worker_must_stop(self)) return false;
        if (code == 0) rec->known |= values[i].bit;
        else note_failure(target, values[i].bit, values[i].name, code);
    }
    rec->duration = tfi_ticks() - begin;
    return true;
}

/* ---- writing ---- */

static void write_device(struct target *target)
{
    struct tfi_rec_device *rec = TFI_RESERVE(&lane, device);
    if (!rec) return;
    target->device.rec = rec->rec;
    *rec = target->device;
    tfi_commit(&lane, sizeof *rec);
    target->described = true;
}

static void write_rows(struct target *target, const struct tfi_rec_device_sample *sample)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    if (!gen) return;
    tfi_lane_open(&lane, gen);
    tfi_clock_tick(&lane, sample->time);
    if (!target->described) write_device(target);
    struct tfi_rec_device_sample *rec = TFI_RESERVE(&lane, device_sample);
    if (!rec) return;
    struct tfi_rec head = rec->rec;
    *rec = *sample;
    rec->rec = head;
    tfi_commit(&lane, sizeof *rec);
}

/* ---- the thread ---- */

static void before_exit(void)
{
    if (opened_in != tfi_getpid()) return;
    __atomic_store_n(&off, 1, __ATOMIC_RELEASE);
    hangs = !tfi_worker_stop(&sampler, hangs ? 0 : WAIT_MS);
}

/* Opens NVML once in this process; false if it can't be had. */
static bool open_nvml(void)
{
    if (ready) return true;
    opened_in = tfi_getpid();
    enter_nvml("its start");
    int code = tfi_nvml_open() ? tfi_nvml_api.init() : -1;
    leave_nvml();
    if (code > 0) tfi_log(TFI_LOG_WARN, "TFI_NVML_HZ: no clocks are recorded: NVML reports %s", tfi_nvml_error(code));
    if (code != 0) return false;
    ready = true;
    atexit(before_exit);
    return true;
}

/* Finds NVML's handle of a device, once. */
static bool has_handle(struct target *target)
{
    if (target->asked) return target->handle != NULL;
    enter_nvml("a device");
    int code = tfi_nvml_find(&target->device, &target->handle, &target->whole);
    leave_nvml();
    target->asked = true;
    if (code == 0 && target->handle) return true;
    target->handle = NULL;
    tfi_log(TFI_LOG_WARN, "TFI_NVML_HZ: no clocks of device %u are recorded: NVML does not find it (%s)",
            target->device.device, tfi_nvml_error(code));
    return false;
}

/* Takes one sample of each device; false if the thread must stop. */
static bool sample(struct tfi_worker *self)
{
    uint32_t count = __atomic_load_n(&nr_targets, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++) {
        struct tfi_rec_device_sample rec;
        if (!has_handle(&targets[i])) continue;
        if (tfi_worker_must_stop(self) || !read_all(self, &targets[i], &rec)) return false;
        if (!tfi_lock_within(&lock, LOCK_MS)) continue;
        write_rows(&targets[i], &rec);
        tfi_unlock(&lock);
    }
    return true;
}

/* Returns the time of the next sample. Samples that are overdue are left out. */
static uint64_t after_this(uint64_t due, uint64_t interval)
{
    uint64_t now = tfi_monotonic_ns();
    due += interval;
    return due > now ? due : now + interval - (now - due) % interval;
}

static void loop(struct tfi_worker *self)
{
    uint64_t interval = 1000000000u / tfi_config.nvml_hz, due = tfi_monotonic_ns();
    if (!open_nvml()) {
        __atomic_store_n(&off, 1, __ATOMIC_RELEASE);
        return;
    }
    for (;;) {
        uint32_t seen = tfi_worker_signals(self);
        uint64_t now = tfi_monotonic_ns();
        if (tfi_worker_must_stop(self)) return;
        if (now < due) {
            tfi_worker_sleep(self, seen, (unsigned)((due - now + 999999) / 1000000));
            continue;
        }
        if (!sample(self)) return;
        due = after_this(due, interval);
    }
}

/* ---- the devices ---- */

static bool wanted(void)
{
    return tfi_config.nvml_hz && !__atomic_load_n(&off, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
}

static void add_target(uint32_t number)
{
    struct target *target = &targets[nr_targets];
    *target = (struct target){0};
    if (nr_targets == TARGETS || !tfi_cupti_describe(number, &target->device)) return;
    known_devices |= 1ull << number;
    __atomic_store_n(&nr_targets, nr_targets + 1, __ATOMIC_RELEASE);
}

/* A new device may be used at any time. The driver is not asked before the program's first call that uses one. */
static bool find_targets(void)
{
    if (!wanted() || tfi_monotonic_ms() < next_look) return false;
    next_look = tfi_monotonic_ms() + (nr_targets ? LOOK_MS : LOOK_SOON_MS);
    if (__atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE) == TFI_CUPTI_NEW || !tfi_cupti_may_ask()) return false;
    tfi_other_own_thread();
    uint64_t used = tfi_cupti_devices_used() & ~known_devices;
    for (uint32_t i = 0; i < TARGETS; i++)
        if (used >> i & 1) add_target(i);
    if (nr_targets && tfi_worker_start(&sampler)) hangs = false;
    return false;
}

static unsigned wait_at_most(unsigned most)
{
    return wanted() ? tfi_job_wait(next_look, most) : most;
}

const struct tfi_job tfi_nvml_job = {.work = find_targets, .wait = wait_at_most};

/* ---- the life of the process ---- */

void tfi_nvml_awake(void)
{
    if (wanted()) tfi_caller_keep();
}

void tfi_nvml_before_fork(void)
{
    hangs = !tfi_worker_before_fork(&sampler, hangs ? 0 : WAIT_MS);
}

void tfi_nvml_after_fork(void)
{
    next_look = 0;
    tfi_worker_after_fork(&sampler);
}

static void say_that_it_hangs(void)
{
    const char *what = __atomic_load_n(&calling, __ATOMIC_ACQUIRE);
    uint64_t since = tfi_monotonic_ms() - __atomic_load_n(&called_ms, __ATOMIC_RELAXED);
    if (!what) return;
    tfi_log(TFI_LOG_WARN, "NVML was asked for %s %lu ms ago and has not answered; no clocks are recorded after that",
            what, (unsigned long)since);
}

bool tfi_nvml_finish(void)
{
    hangs = !tfi_worker_stop(&sampler, hangs ? 0 : WAIT_MS);
    if (hangs) say_that_it_hangs();
    if (!tfi_lock_within(&lock, LOCK_MS)) return false;
    tfi_lane_close(&lane);
    tfi_unlock(&lock);
    return true;
}

void tfi_nvml_restart(void)
{
    bool same = !opened_in || opened_in == tfi_getpid();
    if (!same) __atomic_store_n(&off, 1, __ATOMIC_RELEASE);
    if (!hangs || !same) tfi_worker_restart(&sampler); /* a thread that hangs in this process must see the request */
    if (!same) hangs = ready = false;
    lock = (struct tfi_lock){0};
    lane.gen = 0;
    next_look = 0;
    known_devices = 0;
    __atomic_store_n(&nr_targets, 0, __ATOMIC_RELEASE);
}
