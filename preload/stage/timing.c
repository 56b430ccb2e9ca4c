/* timing.c - sums times by stage and writes timing.json: calls and times of every stage of this process.
 *
 * A stage is found by its name's number in a hash table. A slot holds the name and the place of its sums; it is stored
 * once and never changed. The table is never more than half full, so looking for an absent name is short too. If a
 * program has more names than there are places, the trace still has all its stages, and timing.json says how many calls
 * it lacks.
 *
 * The file is written in pieces of one stage each, so its length is not bounded by a buffer.
 */
#include "stage/timing.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "control/rank.h"
#include "record/clock.h"
#include "record/pool.h"
#include "record/strings.h"
#include "stage/telefuser_timing.h"
#include "stage/tell.h"

#define MAX_STAGES 65536u
#define SLOTS (2 * MAX_STAGES)

static uint64_t *slots; /* name << 32 | place, 0: empty */
static struct tfi_timing *stages;
static uint32_t nr_stages; /* places given out; may pass MAX_STAGES */
static uint64_t left_out;  /* calls of stages that got no place */

bool tfi_timing_init(void)
{
    slots = tfi_map(SLOTS * sizeof *slots);
    stages = tfi_map(MAX_STAGES * sizeof *stages);
    nr_stages = 0;
    left_out = 0;
    return slots && stages;
}

/* Takes a new place for a name, NULL if all are taken. */
static struct tfi_timing *take_timing(uint32_t name)
{
    if (__atomic_load_n(&nr_stages, __ATOMIC_RELAXED) >= MAX_STAGES) return NULL;
    uint32_t place = __atomic_fetch_add(&nr_stages, 1, __ATOMIC_RELAXED);
    if (place >= MAX_STAGES) return NULL;
    stages[place].name = name;
    return &stages[place];
}

static TFI_COLD struct tfi_timing *add_timing(uint32_t name, uint32_t slot)
{
    struct tfi_timing *mine = take_timing(name);
    if (!mine) return NULL;
    uint64_t entry = (uint64_t)name << 32 | (uint32_t)(mine - stages);
    for (;; slot = (slot + 1) & (SLOTS - 1)) {
        uint64_t found = 0;
        if (__atomic_compare_exchange_n(&slots[slot], &found, entry, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return mine;
        if (found >> 32 != name) continue;
        mine->name = 0; /* another thread was first: this place stays unused */
        return &stages[(uint32_t)found];
    }
}

struct tfi_timing *tfi_timing_of(uint32_t name)
{
    if (!name) return NULL; /* a range without a name has no time of its own here */
    for (uint32_t slot = name * 2654435761u >> 15;; slot = (slot + 1) & (SLOTS - 1)) {
        uint64_t found = __atomic_load_n(&slots[slot], __ATOMIC_ACQUIRE);
        if (TFI_LIKELY(found >> 32 == name)) return &stages[(uint32_t)found];
        if (!found) return add_timing(name, slot);
    }
}

static uint32_t count_stages(void)
{
    uint32_t count = __atomic_load_n(&nr_stages, __ATOMIC_ACQUIRE);
    return count < MAX_STAGES ? count : MAX_STAGES;
}

void tfi_timing_forget_selected(void)
{
    for (uint32_t i = 0, count = stages ? count_stages() : 0; i < count; i++)
        __atomic_store_n(&stages[i].selected, 0, __ATOMIC_RELAXED);
}

void tfi_timing_signature(uint32_t name, uint32_t direction, uint32_t text)
{
    struct tfi_timing *s = tfi_timing_of(name);
    if (s) __atomic_store_n(direction ? &s->outputs : &s->inputs, text, __ATOMIC_RELAXED);
}

static uint64_t calls_of(const struct tfi_timing *s)
{
    return __atomic_load_n(&s->calls, __ATOMIC_RELAXED);
}

static uint64_t wall_of(const struct tfi_timing *s)
{
    return __atomic_load_n(&s->wall, __ATOMIC_RELAXED) + __atomic_load_n(&s->again, __ATOMIC_RELAXED);
}

void tfi_timing_of_request(uint64_t *ticks, uint64_t *calls)
{
    *ticks = *calls = 0;
    for (uint32_t i = 0, count = count_stages(); i < count; i++) {
        *ticks += wall_of(&stages[i]) - stages[i].wall_before;
        *calls += calls_of(&stages[i]) - stages[i].calls_before;
    }
}

void tfi_timing_begin_request(void)
{
    for (uint32_t i = 0, count = stages ? count_stages() : 0; i < count; i++) {
        stages[i].wall_before = wall_of(&stages[i]);
        stages[i].calls_before = calls_of(&stages[i]);
    }
}

void tfi_timing_left_out(void)
{
    __atomic_add_fetch(&left_out, 1, __ATOMIC_RELAXED);
}

bool tfi_timing_any(void)
{
    return __atomic_load_n(&nr_stages, __ATOMIC_RELAXED) > 0;
}

void tfi_timing_each(bool (*see)(void *context, const char *text, size_t length), void *context)
{
    size_t length;
    for (uint32_t i = 0, count = count_stages(); i < count; i++) {
        const char *text = stages[i].name ? tfi_string_text(stages[i].name, &length) : NULL;
        if (text && !see(context, text, length)) return;
    }
}

/* ---- the file ---- */

static struct {
    struct tfi_text text;
    struct tfi_file file;
    uint64_t size;
    bool failed;
    struct tfi_device_time device;
} out;

/* Room for one stage: each byte of its name may become six; its two descriptions are JSON as they are. */
#define PIECE (6u * TFI_STRING_MAX + 2u * TFI_STRING_MAX + 4096u)

static void drain(void)
{
    struct iovec part = {out.text.data, out.text.used};
    if (!out.failed && out.text.used) out.failed = out.text.full || !tfi_file_append(&out.file, &out.size, &part, 1);
    out.text.used = 0;
}

static void add_head(void)
{
    tfi_text_add(&out.text, "{\n  \"rank\": %u,\n  \"world\": %u,\n  \"host\": ", tfi_rank(), tfi_world());
    tfi_text_json(&out.text, tfi_host(), strlen(tfi_host()));
    tfi_text_add(&out.text, ",\n  \"pid\": %d,\n  \"pipeline\": ", tfi_getpid());
    tfi_text_json(&out.text, tfi_config.pipeline, strlen(tfi_config.pipeline));
    tfi_request_head(&out.text);
    if (left_out) tfi_text_add(&out.text, ",\n  \"calls_left_out\": %lu", (unsigned long)left_out);
    if (out.device.left_out)
        tfi_text_add(&out.text, ",\n  \"device_records_left_out\": %lu", (unsigned long)out.device.left_out);
    tfi_text_add(&out.text, ",\n  \"stages\": {");
}

/* The text of a string that is JSON, NULL if there is none. A text of TFI_STRING_MAX bytes may have been cut, and would
 * not be valid JSON then, so it counts as none. */
static const char *json_of(uint32_t string, size_t *length)
{
    const char *text = string ? tfi_string_text(string, length) : NULL;
    return text && *length < TFI_STRING_MAX ? text : NULL;
}

static void add_signature(const struct tfi_timing *s)
{
    size_t inputs_length = 0, outputs_length = 0;
    const char *inputs = json_of(s->inputs, &inputs_length), *outputs = json_of(s->outputs, &outputs_length);
    if (!inputs && !outputs) return;
    tfi_text_add(&out.text, ", \"signature\": {%s", inputs ? "\"inputs\": " : "");
    if (inputs) tfi_text_bytes(&out.text, inputs, inputs_length);
    if (outputs) tfi_text_add(&out.text, "%s\"outputs\": ", inputs ? ", " : "");
    if (outputs) tfi_text_bytes(&out.text, outputs, outputs_length);
    tfi_text_add(&out.text, "}");
}

static bool add_stage(const struct tfi_timing *s, const char *comma)
{
    double ns = tfi_clock_ns_per_tick();
    size_t length;
    const char *name = s->name && s->calls ? tfi_string_text(s->name, &length) : NULL;
    if (!name) return false;
    tfi_text_add(&out.text, "%s\n    ", comma);
    tfi_text_json(&out.text, name, length);
    tfi_text_add(&out.text, ": {\"calls\": %lu, \"host_ms\": ", (unsigned long)s->calls);
    tfi_text_ms(&out.text, (uint64_t)((double)s->ticks * ns));
    tfi_text_add(&out.text, ", \"wall_ms\": ");
    tfi_text_ms(&out.text, (uint64_t)((double)s->wall * ns));
    tfi_text_add(&out.text, ", \"max_ms\": ");
    tfi_text_ms(&out.text, (uint64_t)((double)s->longest * ns));
    if (out.device.known) tfi_text_add(&out.text, ", \"waited_calls\": %lu", (unsigned long)s->waited);
    tfi_text_add(&out.text, ", \"device_sum_ms\": %s", out.device.known ? "" : "null");
    if (out.device.known) tfi_text_ms(&out.text, s->device);
    tfi_request_stage(&out.text, s);
    add_signature(s);
    tfi_text_add(&out.text, "}");
    return true;
}

static void add_stages(void)
{
    const char *comma = "";
    for (uint32_t i = 0, count = count_stages(); i < count && !out.failed; i++) {
        if (out.text.size - out.text.used < PIECE) drain();
        if (add_stage(&stages[i], comma)) comma = ",";
    }
    drain();
    tfi_text_add(&out.text, "%s}", *comma ? "\n  " : "");
    tfi_request_tail(&out.text);
    tfi_text_add(&out.text, "\n}\n");
    drain();
}

/* Creates the file under a temporary name; never overwrites an existing file. */
static bool create(struct tfi_dir *dir, const char *name)
{
    char temporary[TFI_NAME_BYTES];
    for (unsigned n = 1; n < 10; n++) {
        tfi_fmt(temporary, sizeof temporary, "%s.tmp%u", name, n);
        if (tfi_file_create(&out.file, dir, temporary)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

bool tfi_timing_write(struct tfi_dir *dir, const char *name)
{
    char last[TFI_NAME_BYTES];
    size_t size = 2 * PIECE;
    out.text = (struct tfi_text){tfi_map(size), size, 0, 0};
    out.size = 0;
    out.failed = false;
    if (!out.text.data) return false;
    tfi_fmt(last, sizeof last, "%s.timing.json", name);
    bool ok = create(dir, last);
    if (ok) {
        out.device = (struct tfi_device_time){0};
        tfi_tell_finish(&out.device);
        add_head();
        add_stages();
        if (out.failed) tfi_file_remove(&out.file);
        ok = !out.failed && tfi_file_rename(&out.file, last);
    }
    int error = errno;
    tfi_unmap(out.text.data, size);
    errno = error;
    return ok;
}
