/* python.c - enters a CPython of this process: an audit hook, then the shim in a namespace of its own.
 *
 * Start. The hook is added before the interpreter starts. It waits for the event that the interpreter is about to run
 * something (cpython.run_file, run_command, run_module, run_stdin). An interpreter embedded in a program may never
 * send it; there the import of torch is the sign. Then preload/python/shim.py is compiled and run, once a process;
 * forked children have it already. From there on the shim acts when modules are imported. Nothing here enters the
 * interpreter by itself, so nothing is called once it ends. A hook can't be removed, and sees tens of thousands of
 * events: an unwanted one costs it a comparison.
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
#include <stddef.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "record/background.h"
#include "record/log.h"

#define FILE_INPUT 257 /* Py_file_input */
#define FASTCALL 0x80  /* METH_FASTCALL */

typedef int audit_hook(const char *event, PyObject *args, void *data);

struct tfi_python tfi_python;

/* Changed with the GIL. */
static enum { WAITING, RUNNING, DONE } state;
static PyObject *namespace;
static PyObject *exec_function;                   /* called with code objects, NULL if there is no consumer */
static void (*uncaught_function)(PyObject *args); /* atomic */
static bool forked;                               /* the next audit event is to start the background thread again */
static bool here;                                 /* this process has an interpreter */
static bool late;                                 /* it was running before this library was loaded */
static void *interpreter;                         /* owner of these objects */

/* ---- the interpreter's functions ---- */

#define PYTHON(result, name, params) {#name, offsetof(struct tfi_python, name)},
static const struct {
    const char *name;
    size_t place;
} functions[] = {
#include "python/python.def"
    {"_Py_NoneStruct", offsetof(struct tfi_python, none)},
    {"PyExc_KeyboardInterrupt", offsetof(struct tfi_python, keyboard_interrupt)},
    {"PyExc_SystemExit", offsetof(struct tfi_python, system_exit)},
    {"PyExc_RuntimeError", offsetof(struct tfi_python, runtime_error)},
};
#undef PYTHON

static bool resolve(void)
{
    if (tfi_python.runtime_error) return true; /* the last one to be set */
    for (size_t i = 0; i < TFI_COUNT(functions); i++) {
        void *found = tfi_dlsym(RTLD_DEFAULT, functions[i].name);
        if (!found) {
            tfi_log(TFI_LOG_WARN,
                    "Python functions and modules are not recorded: this Python lacks %s, which 3.9 to 3.14 have",
                    functions[i].name);
            return false;
        }
        memcpy((char *)&tfi_python + functions[i].place, &found, sizeof found);
    }
    if (strstr(tfi_python.Py_GetVersion(), "free-threading")) {
        tfi_log(TFI_LOG_WARN, "Python functions and modules are not recorded: this Python has no global lock");
        return false;
    }
    tfi_python.keyboard_interrupt = *(PyObject **)tfi_python.keyboard_interrupt; /* variables, unlike None */
    tfi_python.system_exit = *(PyObject **)tfi_python.system_exit;
    tfi_python.runtime_error = *(PyObject **)tfi_python.runtime_error;
    return true;
}

/* ---- values ---- */

PyObject *tfi_python_none(void)
{
    tfi_python.Py_IncRef(tfi_python.none);
    return tfi_python.none;
}

PyObject *tfi_python_str(const char *text)
{
    if (!text) return tfi_python_none();
    PyObject *made = tfi_python.PyUnicode_DecodeUTF8(text, (ssize_t)strlen(text), "replace");
    if (made) return made;
    tfi_python.PyErr_Clear();
    return tfi_python_none();
}

bool tfi_python_text(PyObject *object, struct tfi_python_text *text)
{
    ssize_t length = 0;
    char *data = NULL;
    *text = (struct tfi_python_text){0};
    text->data = tfi_python.PyUnicode_AsUTF8AndSize(object, &length);
    if (!text->data) {
        tfi_python.PyErr_Clear();
        text->owner = tfi_python.PyUnicode_AsEncodedString(object, "utf-8", "backslashreplace");
        if (text->owner && tfi_python.PyBytes_AsStringAndSize(text->owner, &data, &length) == 0) text->data = data;
    }
    text->length = (size_t)length;
    if (text->data) return true;
    tfi_python.PyErr_Clear();
    tfi_python_text_end(text);
    return false;
}

void tfi_python_text_end(struct tfi_python_text *text)
{
    if (text->owner) tfi_python.Py_DecRef(text->owner);
    text->owner = NULL;
}

int64_t tfi_python_number(PyObject *object)
{
    long long number = tfi_python.PyLong_AsLongLong(object);
    if (number == -1) tfi_python.PyErr_Clear();
    return number == -1 ? 0 : number;
}

void tfi_python_failed(const char *where)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL, *said = NULL;
    struct tfi_python_text text = {.data = "no reason given"};
    tfi_python.PyErr_Fetch(&type, &value, &traceback);
    if (type && tfi_python.PyErr_GivenExceptionMatches(type, tfi_python.keyboard_interrupt)) {
        tfi_python.PyErr_SetInterrupt();
    } else {
        if (value) said = tfi_python.PyObject_Str(value);
        if (said && !tfi_python_text(said, &text)) text.data = "no reason given";
        tfi_log(TFI_LOG_WARN, "%s has failed and is off in process %d: %s", where, (int)tfi_getpid(), text.data);
        tfi_python_text_end(&text);
    }
    tfi_python.PyErr_Clear();
    PyObject *const held[] = {type, value, traceback, said};
    for (size_t i = 0; i < TFI_COUNT(held); i++)
        if (held[i]) tfi_python.Py_DecRef(held[i]);
}

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
    bool whole = tfi_python.PyDict_SetItemString(dict, "__builtins__", tfi_python.PyEval_GetBuiltins()) == 0 &&
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

PyObject *tfi_builtin_load(PyObject *self, PyObject *const *args, ssize_t count)
{
    static uint64_t loaded, failed; /* one bit for each part */
    struct tfi_python_text name;
    bool done = false;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &name)) return tfi_python.PyBool_FromLong(false);
    for (unsigned i = 0; i < 64 && tfi_python_parts[i].name; i++) {
        const char *part = tfi_python_parts[i].name;
        if (strncmp(part, "shim_", 5) != 0 || strcmp(part + 5, name.data) != 0) continue;
        if (!(loaded >> i & 1)) {
            loaded |= (uint64_t)1 << i;
            if (!run_part(&tfi_python_parts[i])) {
                failed |= (uint64_t)1 << i;
                tfi_python_failed(part);
            }
        }
        done = !(failed >> i & 1);
    }
    tfi_python_text_end(&name);
    return tfi_python.PyBool_FromLong(done);
}

static void install(void)
{
    PyObject *type, *value, *traceback;
    int error = errno;
    state = RUNNING;
    if (resolve()) {
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

PyObject *tfi_builtin_on_exec(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    if (count != 1) return tfi_python_none();
    PyObject *before = exec_function;
    exec_function = args[0] == tfi_python.none ? NULL : args[0];
    if (exec_function) tfi_python.Py_IncRef(exec_function);
    if (before) tfi_python.Py_DecRef(before);
    return tfi_python_none();
}

static TFI_COLD void tell_exec(PyObject *args)
{
    PyObject *type, *value, *traceback, *function = exec_function;
    if (tfi_python.PyInterpreterState_Get() != interpreter) return;
    PyObject *code = tfi_python.PyTuple_GetItem(args, 0);
    tfi_python.PyErr_Fetch(&type, &value, &traceback);
    if (code) {
        tfi_python.Py_IncRef(function);
        PyObject *result = tfi_python.PyObject_CallFunctionObjArgs(function, code, (void *)NULL);
        if (result) tfi_python.Py_DecRef(result);
        else tfi_python_failed("TFI_STAGES");
        tfi_python.Py_DecRef(function);
    }
    tfi_python.PyErr_Restore(type, value, traceback);
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

/* True at the import of torch, for an interpreter that sends no run event. Modules are also imported before it is
 * initialized. */
static bool imports_torch(PyObject *args)
{
    if (!resolve()) state = DONE;
    if (state == DONE || !tfi_python.Py_IsInitialized()) return false;
    struct tfi_python_text name;
    PyObject *module = tfi_python.PyTuple_GetItem(args, 0);
    if (!module || !tfi_python_text(module, &name)) return false;
    bool torch = strncmp(name.data, "torch", 5) == 0 && (name.data[5] == 0 || name.data[5] == '.');
    tfi_python_text_end(&name);
    return torch;
}

/* Called in the parent of os.fork(), which has ended the background thread. */
PyObject *tfi_builtin_forked(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    forked = count == 1 && tfi_python_number(args[0]) != 0;
    if (!forked) tfi_background_again();
    return tfi_python_none();
}

static TFI_COLD void start_again(void)
{
    int error = errno;
    forked = false;
    tfi_background_again();
    errno = error;
}

static int hook(const char *event, PyObject *args, void *data)
{
    (void)data;
    if (TFI_UNLIKELY(forked)) start_again();
    if (TFI_UNLIKELY(event[0] == 'c') && strcmp(event, "cpython._PySys_ClearAuditHooks") == 0) expect_free();
    if (TFI_LIKELY(state != WAITING)) {
        if (TFI_UNLIKELY(exec_function != NULL) && state == DONE && strcmp(event, "exec") == 0) tell_exec(args);
        if (TFI_UNLIKELY(event[0] == 's') && strcmp(event, "sys.excepthook") == 0) tell_raised(args);
        return 0;
    }
    if (strncmp(event, "cpython.run_", 12) == 0 || (strcmp(event, "import") == 0 && (late || imports_torch(args))))
        install();
    return 0;
}

bool tfi_python_here(void)
{
    return here;
}

void tfi_python_constructor(void)
{
    int (*add)(audit_hook *, void *), (*started)(void);
    *(void **)&add = tfi_dlsym(RTLD_DEFAULT, "PySys_AddAuditHook");
    *(void **)&started = tfi_dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    if (!add) return;
    here = true;
    late = started && started();
    bool early = started && !started() && note_allocation();
    if (add(hook, NULL) != 0)
        tfi_log(TFI_LOG_WARN, "Python functions and modules are not recorded: this Python accepts no audit hook");
    if (early) entry.set(RAW, &entry.first);
}
