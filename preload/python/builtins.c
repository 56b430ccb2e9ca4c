/* builtins.c - defines the builtins of the shim that open, close and describe stages; see builtins.def.
 *
 * They are called with the GIL, many times a second; each is one entry into the recorder. Stages that are not
 * recorded have id 0, and calls with 0 do nothing. A stage opened before a fork is the parent's: the look-up of its
 * id ignores calls of the child.
 */
#include "python/python.h"

#include <stdlib.h>
#include <string.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "control/command.h"
#include "control/config.h"
#include "python/callstack.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/facts.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/allocator_totals.h"
#include "stage/stage.h"
#include "stage/timing.h"
#include "stage/unmatched_names.h"
#include "stage/recording_state.h"

#define INT64 2 /* NVTX_PAYLOAD_TYPE_INT64 */

enum { DETAILS = 3 }; /* direction of a signature record: what the pipeline said of a range */

/* ---- stages ---- */

static void give_number(struct tfi_range *range, PyObject *number)
{
    if (number == tfi_python.none) return;
    range->payload_type = INT64;
    range->payload = (uint64_t)tfi_python_number(number);
}

PyObject *tfi_builtin_enter(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name;
    uint64_t id = 0;
    (void)self;
    if (count != 3 || !tfi_python_text(args[0], &name)) return tfi_python.PyLong_FromLongLong(0);
    uint32_t origin = (uint32_t)tfi_python_number(args[1]);
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    if (t) {
        struct tfi_range range = {.name = tfi_string(name.data, name.length), .flags = TFI_RANGE_STAGE | origin};
        give_number(&range, args[2]);
        id = tfi_stage_start(t, &range);
        tfi_leave(t);
    }
    tfi_python_text_end(&name);
    return tfi_python.PyLong_FromLongLong((long long)id);
}

/* Shared by leave, pause and resume; none of them wakes the process. */
static PyObject *change(PyObject *const *args, ssize_t count, void (*step)(struct tfi_thread *thread, uint64_t id))
{
    uint64_t id = count == 1 ? (uint64_t)tfi_python_number(args[0]) : 0;
    struct tfi_thread *t = id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        step(t, id);
        tfi_leave(t);
    }
    return tfi_python_none();
}

PyObject *tfi_builtin_leave(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    return change(args, count, tfi_stage_end);
}

PyObject *tfi_builtin_pause(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    return change(args, count, tfi_stage_pause);
}

PyObject *tfi_builtin_resume(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    return change(args, count, tfi_stage_resume);
}

/* Leaves out NVTX's ranges and those of the C interface: they belong to no coroutine, and hold wherever the
 * program is. */
PyObject *tfi_builtin_ranges(PyObject *self, PyObject *const *args, ssize_t count)
{
    enum {
        MOST = 256,
        ORIGINS = TFI_RANGE_TORCH | TFI_RANGE_FUNCTION | TFI_RANGE_AUTO | TFI_RANGE_MODULE | TFI_RANGE_TELEFUSER |
                  TFI_RANGE_CACHE_DIT | TFI_RANGE_DFTRACER
    };
    uint64_t ids[MOST];
    unsigned open = 0;
    (void)self;
    (void)args;
    (void)count;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        open = tfi_stage_list(t, ORIGINS, ids, MOST);
        tfi_leave(t);
    }
    PyObject *tuple = tfi_python.PyTuple_New(open);
    for (unsigned i = 0; tuple && i < open; i++)
        tfi_python.PyTuple_SetItem(tuple, i, tfi_python.PyLong_FromLongLong((long long)ids[i]));
    return tuple;
}

PyObject *tfi_builtin_ticks(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    tfi_clock_choose();
    return tfi_python.PyLong_FromLongLong((long long)tfi_ticks());
}

/* Converts a moment of CLOCK_REALTIME to the time of the trace's counter; a moment to come becomes now. */
static uint64_t ticks_at(const struct tfi_clock_pair *now, uint64_t realtime, double ns_per_tick)
{
    double ticks = (double)(int64_t)(now->realtime - realtime) / ns_per_tick;
    if (ticks < 0) return now->ticks;
    return ticks < (double)now->ticks ? now->ticks - (uint64_t)ticks : 0;
}

PyObject *tfi_builtin_ticks_of(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    uint64_t start = count == 2 ? (uint64_t)tfi_python_number(args[0]) : 0;
    uint64_t end = count == 2 ? start + (uint64_t)tfi_python_number(args[1]) : 0;
    tfi_clock_choose();
    double ns_per_tick = tfi_clock_ns_per_tick();
    struct tfi_clock_pair now = tfi_clock_read();
    PyObject *ticks = tfi_python.PyTuple_New(2);
    for (int i = 0; ticks && i < 2; i++) {
        uint64_t at = ticks_at(&now, i ? end : start, ns_per_tick);
        tfi_python.PyTuple_SetItem(ticks, i, tfi_python.PyLong_FromLongLong((long long)at));
    }
    return ticks ? ticks : tfi_python_none();
}

PyObject *tfi_builtin_past(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name;
    uint64_t id = 0;
    (void)self;
    if (count != 5 || !tfi_python_text(args[0], &name)) return tfi_python.PyLong_FromLongLong(0);
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    if (t) {
        struct tfi_range range = {.name = tfi_string(name.data, name.length),
                                  .flags = (uint32_t)tfi_python_number(args[1])};
        give_number(&range, args[4]);
        id = tfi_stage_past(t, &range, (uint64_t)tfi_python_number(args[2]), (uint64_t)tfi_python_number(args[3]));
        tfi_leave(t);
    }
    tfi_python_text_end(&name);
    return tfi_python.PyLong_FromLongLong((long long)id);
}

PyObject *tfi_builtin_io_paths(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text list;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &list)) return tfi_python_none();
    tfi_config_io_paths(list.data);
    tfi_python_text_end(&list);
    return tfi_python_none();
}

PyObject *tfi_builtin_undecided(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    tfi_config_select_undecided();
    return tfi_python_none();
}

PyObject *tfi_builtin_mark(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &name)) return tfi_python_none();
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    if (t) {
        struct tfi_range mark = {.name = tfi_string(name.data, name.length)};
        tfi_stage_mark(t, &mark);
        tfi_leave(t);
    }
    tfi_python_text_end(&name);
    return tfi_python_none();
}

PyObject *tfi_builtin_recording(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    bool wanted = t && tfi_call_wanted(t);
    if (t) tfi_leave(t);
    return tfi_python.PyBool_FromLong(wanted);
}

PyObject *tfi_builtin_schedule(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text = {0}, step = {0};
    int64_t steps = 0;
    (void)self;
    if (count == 2 && tfi_python_text(args[0], &text) && tfi_python_text(args[1], &step)) {
        struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
        if (t) {
            steps = tfi_schedule_set(t, text.data, step.data);
            tfi_leave(t);
        }
    }
    tfi_python_text_end(&text);
    tfi_python_text_end(&step);
    return tfi_python.PyLong_FromLongLong(steps);
}

PyObject *tfi_builtin_ask(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    uint32_t wanted = count == 2 ? (uint32_t)tfi_python_number(args[0]) : 0;
    bool begins = wanted && tfi_python_number(args[1]) == 1;
    struct tfi_thread *t = wanted ? tfi_enter(TFI_WHY_STAGE) : NULL;
    if (t) {
        if (begins && wanted & ~tfi_config.fixed & TFI_ACTIVITY_STACK) tfi_callstack_begin();
        tfi_schedule_ask(t, wanted, begins);
        tfi_leave(t);
    }
    return tfi_python.PyBool_FromLong(t != NULL);
}

PyObject *tfi_builtin_memory(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_memory memory = {.known = 0};
    (void)self;
    uint64_t id = count == 1 ? (uint64_t)tfi_python_number(args[0]) : 0;
    struct tfi_thread *t = id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        uint64_t start = tfi_stage_started(id);
        if (start) tfi_allocator_totals_of(id, start, &memory);
        tfi_leave(t);
    }
    uint64_t bytes[] = {memory.allocated, memory.reserved, memory.peak_allocated, memory.peak_reserved};
    PyObject *tuple = memory.known ? tfi_python.PyTuple_New(TFI_COUNT(bytes)) : NULL;
    if (!tuple) return tfi_python_none();
    for (unsigned i = 0; i < TFI_COUNT(bytes); i++)
        tfi_python.PyTuple_SetItem(tuple, i, tfi_python.PyLong_FromLongLong((long long)bytes[i]));
    return tuple;
}

/* ---- facts about stages and the run ---- */

PyObject *tfi_builtin_signature(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text json;
    (void)self;
    uint64_t id = count == 3 ? (uint64_t)tfi_python_number(args[0]) : 0;
    if (!id || !tfi_python_text(args[2], &json)) return tfi_python_none();
    uint32_t direction = (uint32_t)tfi_python_number(args[1]);
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    uint32_t name = t ? tfi_stage_name(id) : 0;
    if (name) {
        uint32_t text = tfi_string(json.data, json.length);
        tfi_timing_signature(name, direction, text);
        TFI_WRITE(t, signature, .text = text, .time = tfi_ticks(), .id = id, .name = name, .direction = direction);
    }
    if (t) tfi_leave(t);
    tfi_python_text_end(&json);
    return tfi_python_none();
}

PyObject *tfi_builtin_details(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name, json;
    (void)self;
    uint64_t id = count == 3 ? (uint64_t)tfi_python_number(args[0]) : 0;
    if (!id || !tfi_python_text(args[1], &name)) return tfi_python_none();
    struct tfi_thread *t = tfi_python_text(args[2], &json) ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        uint32_t stage = tfi_string(name.data, name.length), text = tfi_string(json.data, json.length);
        TFI_WRITE(t, signature, .text = text, .time = tfi_ticks(), .id = id, .name = stage, .direction = DETAILS);
        tfi_leave(t);
    }
    tfi_python_text_end(&json);
    tfi_python_text_end(&name);
    return tfi_python_none();
}

void tfi_python_awake(struct tfi_thread *t)
{
    tfi_python_rank_awake(t);
    tfi_facts_awake(t);
}

PyObject *tfi_builtin_metadata(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text[3] = {{0}};
    int found = 0;
    (void)self;
    while (count == 3 && found < 3 && tfi_python_text(args[found], &text[found])) found++;
    if (found == 3) {
        struct tfi_fact fact = {text[0].data, text[1].data, text[2].data};
        tfi_fact_keep(&fact);
        struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
        if (t) {
            tfi_fact_write(t, &fact);
            tfi_leave(t);
        }
    }
    for (int i = 0; i < found; i++) tfi_python_text_end(&text[i]);
    return tfi_python_none();
}

/* Finds the name in a tuple of texts that is nearest to the part of an entry behind its colon; "" if none is near. */
static void find_nearest(const char *entry, PyObject *names, char *nearest, size_t size)
{
    const char *colon = strchr(entry, ':'), *name = colon ? colon + 1 : entry;
    unsigned best = TFI_FAR;
    *nearest = 0;
    for (ssize_t i = 0; i < tfi_python.PyTuple_Size(names); i++) {
        struct tfi_python_text text;
        if (!tfi_python_text(tfi_python.PyTuple_GetItem(names, i), &text)) continue;
        unsigned distance = tfi_distance(name, strlen(name), text.data, text.length);
        if (distance < best) tfi_fmt(nearest, size, "%s", text.data);
        if (distance < best) best = distance;
        tfi_python_text_end(&text);
    }
}

PyObject *tfi_builtin_note(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text entry;
    char nearest[TFI_DISTANCE_LONGEST + 1];
    (void)self;
    if (count != 2 || !tfi_python_text(args[0], &entry)) return tfi_python_none();
    if (args[1] == tfi_python.none) {
        tfi_unmatched_note(entry.data, NULL);
    } else {
        find_nearest(entry.data, args[1], nearest, sizeof nearest);
        tfi_unmatched_note(entry.data, nearest);
    }
    tfi_python_text_end(&entry);
    return tfi_python_none();
}

/* ---- secrets ---- */

PyObject *tfi_builtin_is_secret(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &name)) return tfi_python.PyBool_FromLong(false);
    bool is = tfi_secret_name(name.data, name.length);
    tfi_python_text_end(&name);
    return tfi_python.PyBool_FromLong(is);
}

PyObject *tfi_builtin_without_secrets(PyObject *self, PyObject *const *args, ssize_t count)
{
    static char room[8192]; /* with the interpreter's lock */
    struct tfi_python_text text;
    struct tfi_text to = {room, sizeof room - 1, 0, 0};
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &text)) return tfi_python_none();
    tfi_secret_text(&to, text.data, text.length);
    room[to.used] = 0;
    PyObject *result;
    if (to.used == text.length && memcmp(room, text.data, to.used) == 0) {
        result = args[0];
        tfi_python.Py_IncRef(result);
    } else {
        result = tfi_python.PyUnicode_DecodeUTF8(room, (ssize_t)to.used, "replace");
    }
    tfi_python_text_end(&text);
    return result ? result : tfi_python_none();
}

/* ---- messages ---- */

/* True if this text has not been seen yet. */
static bool is_new(const char *text)
{
    static struct tfi_lock lock;
    static uint64_t seen[256];
    static unsigned used;
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    bool found = false;
    if (!tfi_lock_within(&lock, 10)) return false;
    for (unsigned i = 0; i < used && !found; i++) found = seen[i] == hash;
    if (!found && used < TFI_COUNT(seen)) seen[used++] = hash;
    else found = true;
    tfi_unlock(&lock);
    return !found;
}

PyObject *tfi_builtin_warn(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &text)) return tfi_python_none();
    if (is_new(text.data)) tfi_log(TFI_LOG_WARN, "%s", text.data);
    tfi_python_text_end(&text);
    return tfi_python_none();
}

/* In the test build the variable names the step at which the shim fails. */
static bool is_to_fail(const char *step)
{
#ifdef TFI_TEST_HOOKS
    const char *wanted = getenv("SHIM_FAILS_AT");
    return wanted && strcmp(wanted, step) == 0;
#else
    (void)step;
    return false;
#endif
}

PyObject *tfi_builtin_debug(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &text)) return tfi_python_none();
    bool fail = is_to_fail(text.data);
    if (!fail) tfi_log(TFI_LOG_DEBUG, "%s", text.data);
    else tfi_python.PyErr_SetString(tfi_python.runtime_error, "broken by a test");
    tfi_python_text_end(&text);
    return fail ? NULL : tfi_python_none();
}

/* ---- code ---- */

PyObject *tfi_builtin_frame(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    PyObject *frame = tfi_python.PyEval_GetFrame(); /* borrowed */
    PyObject *caller = frame ? tfi_python.PyObject_GetAttrString(frame, "f_back") : NULL;
    if (caller) return caller;
    tfi_python.PyErr_Clear();
    return tfi_python_none();
}
