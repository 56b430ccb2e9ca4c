/* calls.c - sees calls of Python functions of the program without a change that the program can see.
 *
 * CPython calls a function by a pointer in the function's object, whose place its type tells (tp_vectorcall_offset). For a
 * watched function that pointer is ours: the object, its code, its frames and tracebacks stay as they are, and nothing
 * stands between function and caller. A call that the interpreter has inlined before does not come here, and is not seen.
 *
 * Imports are calls of importlib's _find_and_load. Those of a thread lie in each other. Of a greenlet they may end in
 * another order, so what is open lies in a table and not on the stack. A short import counts to the one around it.
 *
 * Everything here runs with the GIL.
 */
#include "python/python.h"

#include <errno.h>
#include <string.h>

#include "base/tfi.h"
#include "control/startup.h"
#include "python/layout.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/stage.h"

#define OFFSET_IN_TYPE 56 /* tp_vectorcall_offset of PyTypeObject, in every version from 3.8 on */
#define MOST_FUNCTIONS 64u
#define MOST_OPEN 256u
#define SHORT_NS 200000.0 /* an import that takes less has no record of its own */

typedef PyObject *vectorcall(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords);

enum kind { STAGE, IMPORT, LOADING, DEVICE, TOLD };

struct function {
    PyObject *object;
    vectorcall *original;
    uint32_t what;  /* enum tfi_startup_what */
    PyObject *told; /* of TOLD: called after each call */
    char label[48];
};

static struct function functions[MOST_FUNCTIONS];
static unsigned nr_functions;

static const struct function *find_function(const PyObject *callable)
{
    for (unsigned i = 0; i < nr_functions; i++)
        if (functions[i].object == callable) return &functions[i];
    return NULL; /* cannot be: a watched function is never freed */
}

/* ---- pieces of the start ---- */

/* A call that has begun. */
struct open_call {
    void *thread; /* its PyThreadState; NULL: the entry is free */
    uint64_t start, inside;
    uint32_t depth;
};
static struct open_call open_calls[MOST_OPEN];

/* Returns the innermost open call of a thread. */
static struct open_call *innermost(const void *thread)
{
    struct open_call *found = NULL;
    for (struct open_call *c = open_calls; c < open_calls + MOST_OPEN; c++)
        if (c->thread == thread && (!found || c->depth > found->depth)) found = c;
    return found;
}

static struct open_call *open_call(void)
{
    void *thread = tfi_python.PyThreadState_Get();
    struct open_call *around = innermost(thread);
    for (struct open_call *c = open_calls; c < open_calls + MOST_OPEN; c++) {
        if (c->thread) continue;
        *c = (struct open_call){.thread = thread, .start = tfi_ticks(), .depth = around ? around->depth + 1 : 0};
        return c;
    }
    return NULL;
}

/* Ends a call, and records it as a piece of the start unless it is a short one inside another. */
static void close_call(struct open_call *call, const char *name, size_t length, uint32_t what)
{
    uint64_t end = tfi_ticks(), inside = call->inside < end - call->start ? call->inside : end - call->start;
    struct tfi_startup piece = {name, length, call->start, end, end - call->start - inside, what, call->depth};
    const void *thread = call->thread;
    call->thread = NULL;
    struct open_call *around = innermost(thread);
    bool is_short = (double)(end - piece.start) * tfi_clock_ns_per_tick() < SHORT_NS;
    if (is_short && (around || what != TFI_STARTUP_IMPORT)) return;
    if (around) around->inside += end - piece.start;
    tfi_startup_add(&piece);
}

static PyObject *call_import(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords)
{
    const struct function *function = find_function(callable);
    struct open_call *call = open_call();
    struct tfi_python_text name;
    PyObject *module = count << 1 ? args[0] : NULL;
    PyObject *result = function->original(callable, args, count, keywords);
    int error = errno;
    if (call && module && tfi_python_text(module, &name)) {
        close_call(call, name.data, name.length, TFI_STARTUP_IMPORT);
        tfi_python_text_end(&name);
    } else if (call) {
        call->thread = NULL;
    }
    errno = error;
    return result;
}

static PyObject *call_loading(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords)
{
    const struct function *function = find_function(callable);
    struct open_call *call = open_call();
    PyObject *result = function->original(callable, args, count, keywords);
    int error = errno;
    if (call) close_call(call, function->label, strlen(function->label), function->what);
    errno = error;
    return result;
}

/* ---- stages ---- */

static PyObject *call_stage(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords)
{
    const struct function *function = find_function(callable);
    uint64_t id = 0;
    int error = errno;
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    if (t) {
        struct tfi_range range = {.name = tfi_string(function->label, strlen(function->label)),
                                  .flags = TFI_RANGE_STAGE | TFI_RANGE_AUTO};
        id = tfi_stage_start(t, &range);
        tfi_leave(t);
    }
    errno = error;
    PyObject *result = function->original(callable, args, count, keywords);
    error = errno;
    t = id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        tfi_stage_end(t, id);
        tfi_leave(t);
    }
    errno = error;
    return result;
}

/* ---- calls that are told ---- */

/* Tells a call to a function of the shim: (start, end, arguments by position). What that raises is an exception from a
 * handler of the program, and the call raises it. */
static PyObject *tell_call(const struct function *function, PyObject *const *args, size_t count, uint64_t start,
                           PyObject *result)
{
    PyObject *error[3], *told = NULL, *list = tfi_python.PyTuple_New((ssize_t)count);
    tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
    for (size_t i = 0; list && i < count; i++) {
        tfi_python.Py_IncRef(args[i]);
        tfi_python.PyTuple_SetItem(list, (ssize_t)i, args[i]);
    }
    PyObject *from = tfi_python.PyLong_FromLongLong((long long)start);
    PyObject *to = tfi_python.PyLong_FromLongLong((long long)tfi_ticks());
    tfi_python_hide();
    if (list && from && to)
        told = tfi_python.PyObject_CallFunctionObjArgs(function->told, from, to, list, (void *)NULL);
    tfi_python_show();
    PyObject *mine[] = {list, from, to};
    for (size_t i = 0; i < TFI_COUNT(mine); i++)
        if (mine[i]) tfi_python.Py_DecRef(mine[i]);
    if (!told && !error[0]) {
        if (result) tfi_python.Py_DecRef(result);
        return NULL;
    }
    if (told) tfi_python.Py_DecRef(told);
    tfi_python.PyErr_Restore(error[0], error[1], error[2]);
    return result;
}

static PyObject *call_told(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords)
{
    const struct function *function = find_function(callable);
    uint64_t start = tfi_ticks();
    PyObject *result = function->original(callable, args, count, keywords);
    return tell_call(function, args, count & SIZE_MAX >> 1, start, result);
}

/* ---- functions ---- */

static vectorcall **place_in(PyObject *object)
{
    const char *type = *(const char **)((char *)object + TFI_OBJECT_TYPE);
    ssize_t offset = *(const ssize_t *)(type + OFFSET_IN_TYPE);
    return offset < 64 || offset > 256 || offset % 8 ? NULL : (vectorcall **)((char *)object + offset);
}

/* True if both are plain Python functions, which are called by the same pointer. */
static bool are_alike(PyObject *object, PyObject *other)
{
    bool same_type = *(void **)((char *)object + TFI_OBJECT_TYPE) == *(void **)((char *)other + TFI_OBJECT_TYPE);
    return same_type && place_in(object) && *place_in(object) && *place_in(object) == *place_in(other);
}

PyObject *tfi_builtin_on_calls(PyObject *self, PyObject *const *args, ssize_t count)
{
    static vectorcall *const ways[] = {[STAGE] = call_stage,
                                       [IMPORT] = call_import,
                                       [LOADING] = call_loading,
                                       [DEVICE] = call_loading,
                                       [TOLD] = call_told};
    static const uint32_t whats[] = {
        [IMPORT] = TFI_STARTUP_IMPORT, [LOADING] = TFI_STARTUP_LOADING, [DEVICE] = TFI_STARTUP_DEVICE, [TOLD] = 0};
    struct tfi_python_text label;
    (void)self;
    int64_t kind = count == 4 ? tfi_python_number(args[2]) : -1;
    if (kind < 0 || kind >= (int64_t)TFI_COUNT(ways) || nr_functions == MOST_FUNCTIONS || !are_alike(args[0], args[1]))
        return tfi_python.PyBool_FromLong(false);
    struct function *function = &functions[nr_functions];
    *function = (struct function){.object = args[0], .original = *place_in(args[0]), .what = whats[kind]};
    if (kind == TOLD) function->told = args[3];
    if (kind != TOLD && tfi_python_text(args[3], &label)) {
        memcpy(function->label, label.data,
               label.length < sizeof function->label ? label.length : sizeof function->label - 1);
        tfi_python_text_end(&label);
    }
    tfi_python.Py_IncRef(args[0]);
    tfi_python.Py_IncRef(args[3]);
    tfi_clock_choose();
    nr_functions++;
    *place_in(args[0]) = ways[kind];
    return tfi_python.PyBool_FromLong(true);
}

PyObject *tfi_builtin_compiled(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text[4] = {{0}};
    static const int places[] = {0, 3, 4, 5};
    uint32_t string[4] = {0};
    int found = 0;
    (void)self;
    while (count == 6 && found < 4 && tfi_python_text(args[places[found]], &text[found])) found++;
    struct tfi_thread *t = found == 4 ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (t) {
        uint64_t start = (uint64_t)tfi_python_number(args[1]), end = (uint64_t)tfi_python_number(args[2]);
        for (int i = 0; i < 4; i++)
            if (text[i].length) string[i] = tfi_string(text[i].data, text[i].length);
        TFI_WRITE(t, compile, .name = string[0], .time = start, .duration = end > start ? end - start : 0,
                  .id = string[1], .frame = string[2], .reason = string[3]);
        tfi_leave(t);
    }
    for (int i = 0; i < found; i++) tfi_python_text_end(&text[i]);
    return tfi_python_none();
}
