/* sample_records.c - writes what the sampler found, in the background thread. */
#include "sample/sample_records.h"

#include <string.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "sample/outside.h"
#include "python/python.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/upkeep.h"
#include "sample/thread_sampler.h"
#include "sample/tables.h"

enum { AT_ONCE = 256, PAUSE_MS = 250, LOCK_MS = 100, STOP_MS = 50, PAGE = 1024 };

static struct tfi_lock lock;   /* of all below */
static struct tfi_thread lane; /* writes the records: not a thread of the program */
static uint64_t next_ms;       /* when the ring is to be emptied */
static uint32_t *texts[TFI_SAMPLE_TEXTS / PAGE], *stacks[TFI_SAMPLE_STACKS / PAGE]; /* their strings in this trace */

static uint32_t *string_place(uint32_t **pages, uint32_t number)
{
    static uint32_t none;
    uint32_t **page = &pages[number / PAGE];
    if (!*page) *page = tfi_map(PAGE * sizeof **page);
    none = 0;
    return *page ? &(*page)[number % PAGE] : &none;
}

static void forget_strings(uint32_t **pages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pages[i]) memset(pages[i], 0, PAGE * sizeof *pages[i]);
}

static uint32_t text_string(uint32_t number)
{
    uint32_t *place = string_place(texts, number), known = *place, length;
    if (known) return known;
    const char *text = tfi_sample_text(number, &length);
    *place = tfi_string(text, length);
    return *place;
}

static uint32_t stack_string(uint32_t number)
{
    static char room[9 * TFI_STACK_FRAMES];
    if (!number) return 0;
    uint32_t *place = string_place(stacks, number), known = *place, count;
    if (known) return known;
    struct tfi_text list = {room, sizeof room, 0, 0};
    const uint32_t *frames = tfi_sample_frames(number, &count);
    for (uint32_t i = 0; i < count; i++) tfi_text_add(&list, i ? " %x" : "%x", text_string(frames[i]));
    *place = tfi_string(list.data, list.used);
    return *place;
}

static void write_sample(const struct tfi_look *look)
{
    uint32_t stack = stack_string(look->stack);
    TFI_WRITE(&lane, sample, .tid = look->tid, .time = look->time, .duration = look->duration, .cpu = look->cpu,
              .stack = stack, .call = look->call, .looks = look->looks, .flags = look->flags);
}

/* Writes some of what is in the ring; false if there was nothing. The caller has the lock. */
static bool write_some(void)
{
    static struct tfi_look looks[AT_ONCE];
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    if (!gen) return false;
    unsigned count = tfi_sampler_take(looks, AT_ONCE);
    uint64_t lost = tfi_sampler_lost();
    if (lost) tfi_count_drop(TFI_DROP_SAMPLES, lost);
    if (!count) return false;
    if (tfi_lane_open(&lane, gen)) {
        forget_strings(texts, TFI_COUNT(texts));
        forget_strings(stacks, TFI_COUNT(stacks));
    }
    tfi_clock_tick(&lane, tfi_ticks());
    for (unsigned i = 0; i < count; i++) write_sample(&looks[i]);
    return true;
}

static bool work(void)
{
    uint64_t now = tfi_monotonic_ms();
    if (!tfi_sampler_wanted() || now < next_ms || !tfi_lock_within(&lock, 0)) return false;
    bool more = write_some();
    if (!more) next_ms = now + PAUSE_MS;
    tfi_unlock(&lock);
    return more;
}

static unsigned wait_at_most(unsigned most)
{
    return tfi_sampler_wanted() && tfi_python_here() ? tfi_job_wait(next_ms, most) : most;
}

const struct tfi_job tfi_looks_job = {.work = work, .wait = wait_at_most, .again = tfi_sampler_start};

/* ---- the life of the process ---- */

void tfi_looks_awake(void)
{
    if (!tfi_sampler_wanted() || !tfi_outside.layout) return;
    tfi_background_keep();
    tfi_sampler_start();
}

/* A record before the interpreter's start may have woken the process. */
void tfi_looks_started(void)
{
    if (!tfi_sampler_wanted() || !tfi_outside_prepare()) return;
    tfi_sampler_restart();
    tfi_sampler_begin();
    if (tfi_process->gen) tfi_looks_awake();
}

void tfi_looks_end(void)
{
    bool locked = tfi_lock_within(&lock, LOCK_MS);
    tfi_sampler_stop(STOP_MS);
    while (locked && write_some()) continue;
    if (locked) tfi_unlock(&lock);
}

bool tfi_looks_finish(void)
{
    if (!tfi_lock_within(&lock, LOCK_MS)) return false;
    tfi_lane_close(&lane);
    tfi_unlock(&lock);
    return true;
}

void tfi_looks_restart(void)
{
    lock = (struct tfi_lock){0};
    lane.gen = 0;
    next_ms = 0;
    tfi_sampler_restart();
}
