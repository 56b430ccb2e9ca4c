/* telefuser.c - defines the builtins of the shim for TeleFuser's profiler: its timing report and its setters.
 *
 * They are called with the GIL.
 */
#include "python/python.h"

#include <string.h>

#include "base/fmt.h"
#include "control/config.h"
#include "control/rank.h"
#include "control/trace.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/allocator_totals.h"
#include "stage/telefuser_timing.h"
#include "stage/timing.h"

enum { SNAPSHOT = 2 }; /* direction of a signature record */

static void write_snapshot(struct tfi_thread *t, uint64_t id, uint32_t name, const struct tfi_memory *m)
{
    char list[128];
    size_t length =
        tfi_fmt(list, sizeof list, "[%lu, %lu, %lu, %lu]", (unsigned long)m->allocated, (unsigned long)m->reserved,
                (unsigned long)m->peak_allocated, (unsigned long)m->peak_reserved);
    uint32_t text = tfi_string(list, length);
    TFI_WRITE(t, signature, .text = text, .time = tfi_ticks(), .id = id, .name = name, .direction = SNAPSHOT);
}

PyObject *tfi_builtin_snapshot(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text name;
    (void)self;
    uint64_t id = count == 6 ? (uint64_t)tfi_python_number(args[0]) : 0;
    if (!id || !tfi_python_text(args[1], &name)) return tfi_python_none();
    struct tfi_memory m = {.known = 1,
                           .allocated = (uint64_t)tfi_python_number(args[2]),
                           .reserved = (uint64_t)tfi_python_number(args[3]),
                           .peak_allocated = (uint64_t)tfi_python_number(args[4]),
                           .peak_reserved = (uint64_t)tfi_python_number(args[5])};
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        uint32_t stage = tfi_string(name.data, name.length);
        tfi_request_snapshot(stage, &m);
        write_snapshot(t, id, stage, &m);
        tfi_leave(t);
    }
    tfi_python_text_end(&name);
    return tfi_python_none();
}

PyObject *tfi_builtin_timing_reset(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    tfi_request_begin();
    return tfi_python_none();
}

/* ---- setters ---- */

PyObject *tfi_builtin_run_dir(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text[2] = {{0}};
    static char place[4096 + 1] = "!";
    (void)self;
    for (int i = 0; i < 2 && count == 2; i++)
        if (args[i] == tfi_python.none || !tfi_python_text(args[i], &text[i])) text[i] = (struct tfi_python_text){0};
    const char *dir = text[0].length ? text[0].data : NULL, *pipeline = text[1].length ? text[1].data : NULL;
    bool moved = tfi_run_dir_choose(dir, pipeline, place + 1, sizeof place - 1);
    tfi_run_dir_pass_on();
    for (int i = 0; i < 2; i++)
        if (text[i].data) tfi_python_text_end(&text[i]);
    return tfi_python_str(moved ? place + 1 : place);
}

PyObject *tfi_builtin_select(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text names;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &names)) return tfi_python_none();
    tfi_config_select(names.data);
    tfi_timing_forget_selected();
    tfi_python_text_end(&names);
    return tfi_python_none();
}
