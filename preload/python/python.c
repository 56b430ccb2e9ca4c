/* python.c - enters a CPython of this process: an audit hook, then the shim in a namespace of its own.
 *
 * Start. The hook is added before the interpreter starts. It waits for the event that the interpreter is about to run
 * something (cpython.run_file, run_command, run_module, run_stdin). An interpreter embedded in a program may never
 * send it; there the first code that no other code runs is the sign, or the import of torch. Then preload/python/shim/shim.py
 * is compiled and run, once a process; forked children have it already. From there on the shim acts when modules are
 * imported. Nothing here enters the interpreter by itself, so nothing is called once it ends. A hook can't be removed, and
 * sees tens of thousands of events: an unwanted one costs it a comparison.
 *
 * The namespace holds the interpreter's builtins and ours (builtins.def), and is in no module: the program does not
 * see it. A failure here is one warning; the program runs as it would.
 *
 * Subinterpreters are left alone: the shim's objects belong to the first interpreter. Builds without the global lock
 * are left alone too, because all state here relies on that lock.
 *
 * If CUDA_INJECTION64_PATH loads this library, the interpreter runs already: the next import of anything is the sign.
 */
#include "python/python.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "control/startup.h"
#include "python/frames.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/worker.h"

#define FILE_INPUT 257 /* Py_file_input */
#define FASTCALL 0x80  /* METH_FASTCALL */

typedef int audit_hook(const char *event, PyObject *args, void *data);

/* Changed with the GIL. */
static enum { WAITING, RUNNING, DONE } state;
static PyObject *namespace;
static void (*uncaught_function)(PyObject *args); /* atomic */
static void (*started_function)(void);            /* called once the interpreter runs */
static PyObject *awaited, *await_function;        /* names of modules; called with one whose import begins */
static bool here;                                 /* this process has an interpreter */
static bool late;                                 /* it was running before this library was loaded */
static void *interpreter;                         /* owner of these objects */

/* A call of os.fork() that was not seen to have returned. */
static struct {
    PyObject *frame; /* its caller's, not to be used but for comparison; NULL: there is no call */
    int64_t place;   /* its instruction there */
} forking;

/* ---- the shim ---- */

/* Stores a value in a dictionary, which takes over the reference. */
static bool put(PyObject *dict, const char *key, PyObject *value)
{
    if (!value) return false;
    bool stored = tfi_python.PyDict_SetItemString(dict, key, value) == 0;
    tfi_python.Py_DecRef(value);
    return stored;
}

static PyObject *list_of(const char *names)
{
    char entry[512];
    PyObject *list = tfi_python.PyList_New(0);
    while (list && names && tfi_next_name(&names, entry, sizeof entry)) {
        PyObject *text = tfi_python_str(entry);
        tfi_python.PyList_Append(list, text);
        tfi_python.Py_DecRef(text);
    }
    return list;
}

/* Maps the words of TFI_ACTIVITIES to their bits. */
static PyObject *bits_of_activities(void)
{
#define ACTIVITY(name, word, meaning) {word, TFI_ACTIVITY_##name},
    static const struct {
        const char *word;
        uint32_t bit;
    } rows[] = {
#include "env.def"
    };
    PyObject *dict = tfi_python.PyDict_New();
    for (size_t i = 0; dict && i < TFI_COUNT(rows); i++)
        put(dict, rows[i].word, tfi_python.PyLong_FromLongLong(rows[i].bit));
    return dict;
}

/* Returns a dict of the settings in env.def by field name, without those that only C uses. It also has `bits` (each
 * activity's bit, by its name), `activities` (the bits of TFI_ACTIVITIES) and `fixed` (the bits that the environment sets;
 * the others are defaults). */
static PyObject *make_config(void)
{
    struct tfi_setting setting;
    PyObject *dict = tfi_python.PyDict_New();
    for (unsigned i = 0; dict && tfi_config_setting(i, &setting); i++) {
        PyObject *value = NULL;
        switch (setting.kind) {
        case TFI_SETTING_TEXT: value = tfi_python_str(setting.text); break;
        case TFI_SETTING_LIST: value = list_of(setting.text); break;
        case TFI_SETTING_NUMBER: value = tfi_python.PyLong_FromLongLong((long long)setting.number); break;
        case TFI_SETTING_SWITCH: value = tfi_python.PyBool_FromLong(setting.number != 0); break;
        case TFI_SETTING_UNSET: value = tfi_python_none(); break;
        case TFI_SETTING_OTHER: break; /* used by C alone */
        }
        if (value) put(dict, setting.field, value);
    }
    if (dict) put(dict, "bits", bits_of_activities());
    PyObject *fixed = dict ? tfi_python.PyLong_FromLongLong(tfi_config.fixed) : NULL;
    if (fixed) put(dict, "fixed", fixed);
    PyObject *activities = dict ? tfi_python.PyLong_FromLongLong(tfi_config.activities) : NULL;
    if (activities) put(dict, "activities", activities);
    return dict;
}

static PyObject *make_namespace(void)
{
#define BUILTIN(name, function, help) {#name, function, FASTCALL, help},
    static const struct tfi_python_method methods[] = {
#include "python/builtins.def"
    };
#undef BUILTIN
    PyObject *dict = tfi_python.PyDict_New();
    if (!dict) return NULL;
    bool whole = put(dict, "__builtins__", tfi_python.PyDict_Copy(tfi_python.PyEval_GetBuiltins())) &&
                 put(dict, "__name__", tfi_python_str("<tfinject>")) && put(dict, "_config", make_config());
    for (size_t i = 0; i < TFI_COUNT(methods) && whole; i++)
        whole = put(dict, methods[i].name, tfi_python.PyCFunction_NewEx(&methods[i], NULL, NULL));
    return whole ? dict : NULL;
}

static bool run_part(const struct tfi_python_part *part)
{
    PyObject *code = tfi_python.Py_CompileString(part->source, "<tfinject>", FILE_INPUT);
    PyObject *result = code ? tfi_python.PyEval_EvalCode(code, namespace, namespace) : NULL;
    if (code) tfi_python.Py_DecRef(code);
    if (!result) return false;
    tfi_python.Py_DecRef(result);
    return true;
}

PyObject *tfi_builtin_load_part(PyObject *self, PyObject *const *args, ssize_t count)
{
    static uint64_t loaded; /* one bit for each part */
    struct tfi_python_text name;
    bool done = true;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &name)) return tfi_python_none();
    for (unsigned i = 0; i < 64 && tfi_python_parts[i].name && done; i++) {
        const char *part = tfi_python_parts[i].name;
        if (strncmp(part, "shim_", 5) != 0 || strcmp(part + 5, name.data) != 0 || loaded >> i & 1) continue;
        loaded |= (uint64_t)1 << i; /* a part may ask for itself */
        done = run_part(&tfi_python_parts[i]);
        if (!done) loaded &= ~((uint64_t)1 << i);
    }
    tfi_python_text_end(&name);
    return done ? tfi_python_none() : NULL;
}

void tfi_python_at_start(void (*function)(void))
{
    started_function = function;
}

/* An interpreter runs: looks up what a hooked path needs and may not look up itself. */
static void tell_started(void)
{
    tfi_python_find();
    if (started_function) started_function();
}

/* From the loading of this library, which the loader does before the program, to here. */
static void tell_interpreter(void)
{
    static const char name[] = "interpreter";
    tfi_clock_choose();
    uint64_t start = tfi_clock_first()->ticks, now = tfi_ticks();
    struct tfi_startup piece = {name, sizeof name - 1, start, now, now - start, TFI_STARTUP_INTERPRETER, 0};
    if (!late && start && start < now) tfi_startup_add(&piece);
}

static void install(void)
{
    PyObject *type, *value, *traceback;
    int error = errno;
    state = RUNNING;
    tell_started();
    tell_interpreter();
    if (tfi_python_resolve()) {
        tfi_python.PyErr_Fetch(&type, &value, &traceback);
        interpreter = tfi_python.PyInterpreterState_Get();
        namespace = make_namespace();
        if (!namespace || !run_part(&tfi_python_parts[0])) tfi_python_failed("the Python support");
        tfi_python.PyErr_Restore(type, value, traceback);
    }
    state = DONE;
    errno = error;
}

/* ---- events ---- */

/* The shim listens to these events. The argument of each is an object of code. */
static struct {
    const char *event;
    PyObject *function; /* NULL: nobody listens */
} listeners[] = {{"exec", NULL}, {"function.__new__", NULL}};

PyObject *tfi_builtin_on_event(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text event;
    (void)self;
    if (count != 2 || !tfi_python_text(args[0], &event)) return tfi_python_none();
    for (size_t i = 0; i < TFI_COUNT(listeners); i++) {
        PyObject *before = listeners[i].function;
        if (strcmp(listeners[i].event, event.data) != 0) continue;
        listeners[i].function = args[1] == tfi_python.none ? NULL : args[1];
        if (listeners[i].function) tfi_python.Py_IncRef(args[1]);
        if (before) tfi_python.Py_DecRef(before);
    }
    tfi_python_text_end(&event);
    return tfi_python_none();
}

PyObject *tfi_builtin_on_import(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    for (ssize_t i = 0; i < count; i++) tfi_python.Py_IncRef(args[i]);
    awaited = count == 2 ? args[0] : NULL;
    await_function = count == 2 ? args[1] : NULL;
    return tfi_python_none();
}

/* Calls a function of the shim. -1 if it raised, which only signal handlers of the program do: the exception is the
 * program's, and the event's cause raises it. Keeps another one that is set. */
static int tell(PyObject *function, PyObject *argument)
{
    PyObject *error[3], *result = NULL;
    if (!argument || tfi_python.PyInterpreterState_Get() != interpreter) return 0;
    tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
    tfi_python.Py_IncRef(function);
    tfi_python.Py_IncRef(argument);
    tfi_python_hide();
    result = tfi_python.PyObject_CallFunctionObjArgs(function, argument, (void *)NULL);
    tfi_python_show();
    tfi_python.Py_DecRef(argument);
    tfi_python.Py_DecRef(function);
    if (!result && !error[0]) return -1;
    if (result) tfi_python.Py_DecRef(result);
    tfi_python.PyErr_Restore(error[0], error[1], error[2]);
    return 0;
}

static TFI_COLD int tell_listener(const char *event, PyObject *args)
{
    for (size_t i = 0; i < TFI_COUNT(listeners); i++)
        if (listeners[i].function && strcmp(listeners[i].event, event) == 0)
            return tell(listeners[i].function, tfi_python.PyTuple_GetItem(args, 0));
    return 0;
}

static TFI_COLD int tell_import(PyObject *args)
{
    PyObject *name = awaited ? tfi_python.PyTuple_GetItem(args, 0) : NULL;
    if (!name || tfi_python.PyInterpreterState_Get() != interpreter) return 0;
    return tfi_python.PyDict_GetItem(awaited, name) ? tell(await_function, name) : 0;
}

void tfi_python_on_uncaught(void (*function)(PyObject *args))
{
    __atomic_store_n(&uncaught_function, function, __ATOMIC_RELEASE);
}

static TFI_COLD void tell_raised(PyObject *args)
{
    void (*function)(PyObject *) = __atomic_load_n(&uncaught_function, __ATOMIC_ACQUIRE);
    if (!function || !namespace || tfi_python.PyInterpreterState_Get() != interpreter) return;
    function(args);
}

/* The interpreter allocates its entry of a hook before it knows its allocator, and frees it with the one it chose.
 * The allocator of -X dev and PYTHONMALLOC=debug aborts when it is given memory that it did not allocate. The
 * entry's address is therefore noted, and the entry is freed by the allocator that made it. Threads that still run
 * at that time see an allocator whose functions all take the same context. */
#define RAW 0 /* PYMEM_DOMAIN_RAW */

struct allocator { /* PyMemAllocatorEx */
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *place, size_t size);
    void (*free)(void *context, void *place);
};

static struct {
    void (*get)(int domain, struct allocator *allocator), (*set)(int domain, struct allocator *allocator);
    struct allocator first, last; /* when the hook was added, and when it is removed */
    void *place;
} entry;

static void *malloc_entry(void *context, size_t size)
{
    entry.place = entry.first.malloc(context, size);
    return entry.place;
}

static void free_entry(void *context, void *place)
{
    if (!place || place != entry.place) {
        entry.last.free(context, place);
        return;
    }
    entry.place = NULL;
    entry.set(RAW, &entry.last);
    entry.first.free(entry.first.context, place);
}

static bool note_allocation(void)
{
    *(void **)&entry.get = tfi_dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    *(void **)&entry.set = tfi_dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    if (!entry.get || !entry.set) return false;
    entry.get(RAW, &entry.first);
    struct allocator noting = entry.first;
    noting.malloc = malloc_entry;
    entry.set(RAW, &noting);
    return true;
}

static TFI_COLD void expect_free(void)
{
    if (!entry.place) return;
    entry.get(RAW, &entry.last);
    if (entry.last.free == entry.first.free) return;
    struct allocator freeing = entry.last;
    freeing.free = free_entry;
    entry.set(RAW, &freeing);
}

/* True if the interpreter works, for one that sends no run event. Modules are also imported before it is initialized. */
static bool is_initialized(void)
{
    if (!tfi_python_resolve()) state = DONE;
    return state != DONE && tfi_python.Py_IsInitialized();
}

/* True at the import of torch. */
static bool imports_torch(PyObject *args)
{
    if (!is_initialized()) return false;
    struct tfi_python_text name;
    PyObject *module = tfi_python.PyTuple_GetItem(args, 0);
    if (!module || !tfi_python_text(module, &name)) return false;
    bool torch = strncmp(name.data, "torch", 5) == 0 && (name.data[5] == 0 || name.data[5] == '.');
    tfi_python_text_end(&name);
    return torch;
}

/* ---- os.fork() ----
 *
 * A fork ends the library's threads. From 3.12 on os.fork() then counts those of the process, and warns of a second one;
 * some releases first call the program's handlers of after the fork. So no thread starts from the event os.fork until its
 * caller runs on. A fork in another thread than the first is warned of without us too. */

static TFI_COLD void start_again(void)
{
    int error = errno;
    forking.frame = NULL;
    tfi_workers_release();
    tfi_background_again();
    errno = error;
}

/* Returns the attribute of a frame, a new reference; NULL if there is none. */
static PyObject *part_of(PyObject *frame, const char *name)
{
    PyObject *part = tfi_python.PyObject_GetAttrString(frame, name);
    if (part && part != tfi_python.none) return part;
    if (part) tfi_python.Py_DecRef(part);
    else tfi_python.PyErr_Clear();
    return NULL;
}

/* Returns the instruction that a frame is at. */
static int64_t place_in(PyObject *frame)
{
    PyObject *place = part_of(frame, "f_lasti");
    int64_t number = place ? tfi_python_number(place) : 0;
    if (place) tfi_python.Py_DecRef(place);
    return number;
}

/* True if os.fork() has not returned: its caller is at the same instruction, and so are handlers that os.fork() calls,
 * deeper in the stack. */
static bool is_in_fork(void)
{
    enum { DEEPEST = 64 };
    PyObject *frame = tfi_python.PyEval_GetFrame();
    if (frame) tfi_python.Py_IncRef(frame);
    for (int i = 0; frame && frame != forking.frame && i < DEEPEST; i++) {
        PyObject *caller = part_of(frame, "f_back");
        tfi_python.Py_DecRef(frame);
        frame = caller;
    }
    bool is_in = frame && (frame != forking.frame || place_in(frame) == forking.place);
    if (frame) tfi_python.Py_DecRef(frame);
    return is_in;
}

static bool is_first_thread(void)
{
    return tfi_gettid() == tfi_getpid();
}

/* The interpreter calls this in its first thread, soon: perhaps in a handler that os.fork() calls. In the caller itself it
 * does so when os.fork() has returned. */
static int start_pending(void *tries)
{
    uintptr_t more = (uintptr_t)tries;
    if (!forking.frame) return 0;
    if (tfi_python.PyEval_GetFrame() == forking.frame || !is_in_fork()) {
        start_again();
        return 0;
    }
    tfi_workers_hold();
    if (more) tfi_python.Py_AddPendingCall(start_pending, (void *)(more - 1));
    return 0;
}

/* Called with the event of os.fork() and os.forkpty(), whose handlers of before the fork come next; one of them may fork. */
static TFI_COLD void begin_fork(void)
{
    enum { TRIES = 4096 };
    if (!is_first_thread() || !interpreter || tfi_python.PyInterpreterState_Get() != interpreter) return;
    const char *minor = strchr(tfi_python.Py_GetVersion(), '.');
    PyObject *frame = tfi_python.PyEval_GetFrame();
    if (!minor || atoi(minor + 1) < 12 || !frame || (forking.frame && forking.frame != frame)) return;
    forking.frame = frame;
    forking.place = place_in(frame);
    tfi_workers_hold();
    tfi_python.Py_AddPendingCall(start_pending, (void *)(uintptr_t)TRIES);
}

/* An event while a fork was last seen: the pending call may have missed the end of a long one. */
static TFI_COLD void look_at_fork(void)
{
    if (!is_first_thread()) return;
    if (is_in_fork()) tfi_workers_hold();
    else start_again();
}

PyObject *tfi_builtin_forked(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    forking.frame = NULL;
    tell_started();
    return tfi_python_none();
}

/* True if the shim is to be installed. In an embedded interpreter code that no other code runs comes first. */
static TFI_COLD bool begins(const char *event, PyObject *args)
{
    if (strncmp(event, "cpython.run_", 12) == 0) return true;
    if (strcmp(event, "import") == 0) return late || imports_torch(args);
    return strcmp(event, "exec") == 0 && is_initialized() && !tfi_python.PyEval_GetFrame();
}

static int hook(const char *event, PyObject *args, void *data)
{
    (void)data;
    if (TFI_UNLIKELY(forking.frame != NULL)) look_at_fork();
    if (TFI_UNLIKELY(event[0] == 'c') && strcmp(event, "cpython._PySys_ClearAuditHooks") == 0) expect_free();
    if (TFI_UNLIKELY(state == WAITING && begins(event, args))) install();
    if (TFI_UNLIKELY(state != DONE)) return 0;
    switch (event[0]) {
    case 'i': return strcmp(event, "import") == 0 ? tell_import(args) : 0;
    case 's':
        if (strcmp(event, "sys.excepthook") == 0) tell_raised(args);
        return 0;
    case 'o':
        if (strcmp(event, "os.fork") == 0 || strcmp(event, "os.forkpty") == 0) begin_fork();
        return 0;
    case 'e':
    case 'f': return tell_listener(event, args);
    default: return 0;
    }
}

bool tfi_python_here(void)
{
    return here;
}

void tfi_python_constructor(void)
{
    int (*add)(audit_hook *, void *), (*started)(void);
    *(void **)&add = tfi_dlsym(RTLD_DEFAULT, "PySys_AddAuditHook");
    if (!add) return;
    *(void **)&started = tfi_dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    here = true;
    late = started && started();
    bool early = started && !late && note_allocation();
    if (add(hook, NULL) != 0)
        tfi_log(TFI_LOG_WARN, "Python functions and modules are not recorded: this Python accepts no audit hook");
    if (early) entry.set(RAW, &entry.first);
}
