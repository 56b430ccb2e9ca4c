/* evaluate.c - tells the shim of each start, pause and end of watched code, in Pythons without sys.monitoring (3.9 to 3.11).
 *
 * These interpreters let one function evaluate all frames (PEP 523). Ours looks the frame's code up in a table, and passes
 * the frame on. The function object, its code and its frames stay as they are, so that nothing that pickles, compares,
 * inspects or compiles a function can tell. The function is set when the first code is watched. Versions 3.9 and 3.10 call
 * such a function for every frame anyway, 3.11 begins a call of Python code without it as long as there is none: a call
 * costs 15 ns more there.
 *
 * In 3.11 a call therefore needs stack that it would not need without us. Once half of a thread's stack is used, calls
 * further in are evaluated without us, and one line says that they are no stages.
 *
 * Everything here is called with the interpreter's lock. The shim's function is called with tracing off: neither a
 * profiler nor a debugger of the program sees it. Only exceptions of the program's signal handlers leave it: they are
 * raised at the beginning of the watched call or at its end.
 */
#include "python/python.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "python/frames.h"
#include "python/layout.h"
#include "record/log.h"

#define TABLE 1024u /* a power of two; half of it may be filled */
#define MOST (TABLE / 2)

enum { RETURN_VALUE = 83, RETURN_GENERATOR = 75 }; /* instructions */
enum { BY_GENERATOR = 1 };                         /* owner of a frame in 3.11 */
enum { CODE = 48, DEPTH = 32 };                    /* in code, up to 3.10; in a thread state, in 3.9 */
enum { FUNCTION = 0, LOCALS = 72 };                /* in a frame of 3.11 */
enum event { START, RESUME, YIELD, RETURN, UNWIND };

typedef PyObject *evaluator(void *thread, char *frame, int throwing);

struct watched {
    const char *code; /* NULL: free */
    PyObject *watched;
    PyObject *names; /* of the arguments, in 3.11 */
    bool pauses;     /* code of a generator or coroutine */
};

static struct watched table[TABLE];
static unsigned nr_watched;
static PyObject *function; /* function(event, watched, key, value) of the shim */
static const struct tfi_python_layout *layout;
static evaluator *next;
static void *(*get)(void *interpreter);
static void (*set)(void *interpreter, evaluator *function);
static long (*recursion_limit)(void);
static __thread uintptr_t lowest, above; /* calls in this part of the thread's stack are watched; 0: not yet known */
#define INSIDE ((uintptr_t)1)            /* in `lowest`, which is even otherwise: the shim's function runs */

static struct watched *place_of(const char *code)
{
    size_t i = ((uintptr_t)code >> 4 ^ (uintptr_t)code >> 14) & (TABLE - 1);
    while (table[i].code && table[i].code != code) i = (i + 1) & (TABLE - 1);
    return &table[i];
}

/* ---- one frame ---- */

/* The instruction that the frame executed last. */
static uint8_t instruction_of(const char *frame)
{
    if (layout->minor >= 11) return (uint8_t)*pointer_at(frame, layout->at);
    const char *bytes = pointer_at(pointer_at(frame, layout->code), CODE) + TFI_BYTES_DATA;
    return (uint8_t)bytes[(ssize_t)int_at(frame, layout->at) * (layout->minor == 10 ? 2 : 1)];
}

static bool is_fresh(const struct watched *w, const char *frame)
{
    if (layout->minor <= 10) return int_at(frame, layout->at) < 0;
    return !w->pauses || instruction_of(frame) == RETURN_GENERATOR;
}

/* A new reference to the arguments by name, NULL without memory. Under "" a frame of 3.11 has its function's closure. */
static PyObject *arguments(const struct watched *w, const char *frame)
{
    if (layout->minor <= 10) return tfi_python.PyObject_GetAttrString((PyObject *)(uintptr_t)frame, "f_locals");
    PyObject *values = tfi_python.PyDict_New();
    ssize_t count = values ? tfi_python.PyTuple_Size(w->names) : 0;
    for (ssize_t i = 0; i < count; i++) {
        PyObject *value = (PyObject *)pointer_at(frame, LOCALS + (int)i * 8);
        if (value) tfi_python.PyDict_SetItem(values, tfi_python.PyTuple_GetItem(w->names, i), value);
    }
    PyObject *of = (PyObject *)pointer_at(frame, FUNCTION);
    PyObject *closure = values ? tfi_python.PyObject_GetAttrString(of, "__closure__") : NULL;
    if (closure) {
        tfi_python.PyDict_SetItemString(values, "", closure);
        tfi_python.Py_DecRef(closure);
    }
    return values;
}

/* ---- telling ---- */

/* False if a signal handler of the program raised an exception, which is set then. Keeps another one that is set. */
static bool tell(enum event event, const struct watched *w, const char *frame, PyObject *value)
{
    PyObject *error[3];
    int kept = errno;
    tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
    PyObject *args[] = {tfi_python.PyLong_FromLongLong(event), w->watched,
                        tfi_python.PyLong_FromLongLong((long long)(uintptr_t)frame), value ? value : tfi_python.none};
    lowest |= INSIDE;
    tfi_python_hide();
    PyObject *result = args[0] && args[2] ? tfi_python.PyObject_VectorcallDict(function, args, 4, NULL) : NULL;
    tfi_python_show();
    lowest &= ~INSIDE;
    if (args[0]) tfi_python.Py_DecRef(args[0]);
    if (args[2]) tfi_python.Py_DecRef(args[2]);
    if (result) {
        tfi_python.Py_DecRef(result);
        tfi_python.PyErr_Restore(error[0], error[1], error[2]);
    } else {
        for (size_t i = 0; i < TFI_COUNT(error); i++)
            if (error[i]) tfi_python.Py_DecRef(error[i]);
    }
    errno = kept;
    return result != NULL;
}

/* Raises the exception that is set a little later: a generator that has just yielded cannot raise. */
static void raise_later(void)
{
    PyObject *error[3];
    tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
    if (error[0] && tfi_python.PyErr_GivenExceptionMatches(error[0], tfi_python.keyboard_interrupt))
        tfi_python.PyErr_SetInterrupt();
    else if (error[0]) tfi_python.PyThreadState_SetAsyncExc(tfi_python.PyThread_get_thread_ident(), error[0]);
    for (size_t i = 0; i < TFI_COUNT(error); i++)
        if (error[i]) tfi_python.Py_DecRef(error[i]);
}

static bool begin_call(const struct watched *w, const char *frame)
{
    PyObject *values = arguments(w, frame);
    if (!values) tfi_python.PyErr_Clear();
    bool told = tell(START, w, frame, values);
    if (values) tfi_python.Py_DecRef(values);
    return told;
}

/* False where the shim's function might meet the limit of recursion: 3.9 aborts if a RecursionError is caught there and
 * another one follows. */
static bool has_depth(const char *thread)
{
    enum { ROOM = 60 };
    return layout->minor > 9 || recursion_limit() - int_at(thread, DEPTH) > ROOM;
}

static TFI_COLD PyObject *evaluate_watched(const struct watched *w, char *thread, char *frame, int throwing)
{
    bool makes_generator = w->pauses && layout->minor == 11 && frame[layout->owner] != BY_GENERATOR;
    if (makes_generator || !has_depth(thread)) return next(thread, frame, throwing);
    if (!throwing && is_fresh(w, frame)) {
        if (!begin_call(w, frame)) return NULL;
    } else if (!tell(RESUME, w, frame, NULL)) {
        throwing = 1;
    }
    PyObject *result = next(thread, frame, throwing);
    enum event event = !result ? UNWIND : w->pauses && instruction_of(frame) != RETURN_VALUE ? YIELD : RETURN;
    if (tell(event, w, frame, result)) return result;
    if (event == YIELD) {
        raise_later();
        return result;
    }
    if (result) tfi_python.Py_DecRef(result);
    return NULL;
}

/* ---- the function that evaluates ---- */

/* Sets the part of the thread's stack in which calls are watched: all but its lower half. */
static TFI_COLD void find_stack(void)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    lowest = above = UINTPTR_MAX & ~INSIDE; /* an unknown stack */
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
        lowest = ((uintptr_t)low + size / 2) & ~INSIDE;
        above = (uintptr_t)low + size;
    }
    pthread_attr_destroy(&attributes);
}

static bool has_stack(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (TFI_UNLIKELY(!above)) find_stack();
    return here > lowest && here < above;
}

static TFI_COLD PyObject *evaluate_deep(char *thread, char *frame, int throwing)
{
    static bool said;
    void *interpreter = tfi_python.PyInterpreterState_Get();
    evaluator *now = (evaluator *)get(interpreter);
    if (!said)
        tfi_log(TFI_LOG_WARN, "TFI_STAGES: functions called while half of a thread's stack is used are no stages");
    said = true;
    set(interpreter, next);
    PyObject *result = next(thread, frame, throwing);
    set(interpreter, now);
    return result;
}

static PyObject *evaluate(void *thread, char *frame, int throwing)
{
    if (layout->minor >= 11 && TFI_UNLIKELY(!has_stack())) return evaluate_deep(thread, frame, throwing);
    const struct watched *w = place_of(pointer_at(frame, layout->code));
    if (TFI_LIKELY(!w->code) || lowest & INSIDE) return next(thread, frame, throwing);
    return evaluate_watched(w, thread, frame, throwing);
}

static bool resolve(void)
{
    if (set) return true;
    layout = tfi_python_find() ? tfi_python_layout() : NULL;
    if (!layout || layout->minor > 11) return false;
    *(void **)&get = tfi_dlsym(RTLD_DEFAULT, "_PyInterpreterState_GetEvalFrameFunc");
    *(void **)&recursion_limit = tfi_dlsym(RTLD_DEFAULT, "Py_GetRecursionLimit");
    if (!get || !recursion_limit) return false;
    *(void **)&set = tfi_dlsym(RTLD_DEFAULT, "_PyInterpreterState_SetEvalFrameFunc");
    return set != NULL;
}

/* Another profiler or torch.compile may be there: its function is called by ours, and it calls ours. */
static void install(void)
{
    void *interpreter = tfi_python.PyInterpreterState_Get();
    evaluator *now = (evaluator *)get(interpreter);
    if (now == evaluate || (next && now != next)) return;
    next = now;
    set(interpreter, evaluate);
}

PyObject *tfi_builtin_watch(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    if (count != 5 || !resolve()) return tfi_python.PyBool_FromLong(false);
    struct watched *w = place_of((const char *)args[0]);
    if (!w->code && nr_watched == MOST) return tfi_python.PyBool_FromLong(false);
    for (ssize_t i = 0; i < count; i++) tfi_python.Py_IncRef(args[i]); /* for ever */
    nr_watched += !w->code;
    *w = (struct watched){(const char *)args[0], args[1], args[2], tfi_python_number(args[3]) != 0};
    function = args[4];
    install();
    return tfi_python.PyBool_FromLong(true);
}
