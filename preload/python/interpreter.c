/* interpreter.c - finds the functions of CPython, turns its values into ours and back, and calls functions unseen.
 *
 * The functions are looked up once, when an interpreter is about to run something: the library is linked to none.
 *
 * Unseen means by the program's profilers, tracers and debuggers. The interpreter itself does this for a profiler's own
 * functions: it counts how many of them a thread is in, and tells nobody what happens meanwhile. A function of the shim
 * that the interpreter or the program calls is wrapped by _hidden. Where the shim calls code of the program from inside such
 * a function it uses _shown.
 */
#include "python/python.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "python/frames.h"
#include "python/layout.h"
#include "record/log.h"

#define VARARGS_KEYWORDS 3 /* METH_VARARGS | METH_KEYWORDS */
#define TRACING 44         /* offset of the count in a thread state, up to 3.10 */

struct tfi_python tfi_python;

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

bool tfi_python_resolve(void)
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

/* ---- unseen ---- */

static struct {
    bool known;
    bool counts; /* before 3.11 there is no function for it */
    void (*enter)(void *thread), (*leave)(void *thread);
} tracing;

static void resolve_tracing(void)
{
    tracing.known = true;
    *(void **)&tracing.leave = tfi_dlsym(RTLD_DEFAULT, "PyThreadState_LeaveTracing");
    *(void **)&tracing.enter = tfi_dlsym(RTLD_DEFAULT, "PyThreadState_EnterTracing");
    const struct tfi_python_layout *layout = tfi_python_find() ? tfi_python_layout() : NULL;
    tracing.counts = layout && layout->minor <= 10;
}

static void change_tracing(int step)
{
    if (!tracing.known) resolve_tracing();
    char *thread = tfi_python.PyThreadState_Get();
    if (tracing.enter && tracing.leave) {
        (step > 0 ? tracing.enter : tracing.leave)(thread);
    } else if (tracing.counts) {
        int count;
        memcpy(&count, thread + TRACING, sizeof count);
        count += step;
        memcpy(thread + TRACING, &count, sizeof count);
    }
}

void tfi_python_hide(void)
{
    change_tracing(1);
}

void tfi_python_show(void)
{
    change_tracing(-1);
}

static PyObject *call_hidden(PyObject *function, PyObject *args, PyObject *keywords)
{
    change_tracing(1);
    PyObject *result = tfi_python.PyObject_Call(function, args, keywords);
    change_tracing(-1);
    return result;
}

PyObject *tfi_builtin_hidden(PyObject *self, PyObject *const *args, ssize_t count)
{
    static struct tfi_python_method method = {"hidden", NULL, VARARGS_KEYWORDS, NULL};
    (void)self;
    PyObject *(*function)(PyObject *, PyObject *, PyObject *) = call_hidden;
    memcpy(&method.function, &function, sizeof function);
    return count == 1 ? tfi_python.PyCFunction_NewEx(&method, args[0], NULL) : tfi_python_none();
}

PyObject *tfi_builtin_shown(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    if (count < 1) return tfi_python_none();
    change_tracing(-1);
    PyObject *result = tfi_python.PyObject_VectorcallDict(args[0], args + 1, (size_t)count - 1, NULL);
    change_tracing(1);
    return result;
}

/* `parts` are the program's method and the shim's function. */
static PyObject *call_changing(PyObject *parts, PyObject *args, PyObject *keywords)
{
    PyObject *method = tfi_python.PyTuple_GetItem(parts, 0), *change = tfi_python.PyTuple_GetItem(parts, 1);
    ssize_t count = tfi_python.PyTuple_Size(args);
    PyObject *given = count > 1 ? tfi_python.PyTuple_New(count) : NULL;
    for (ssize_t i = 0; given && i < count; i++) {
        PyObject *item = tfi_python.PyTuple_GetItem(args, i), *changed = NULL;
        if (i == 1) {
            change_tracing(1);
            changed = tfi_python.PyObject_CallFunctionObjArgs(change, item, (void *)NULL);
            change_tracing(-1);
            if (!changed) { /* raised by a signal handler of the program */
                tfi_python.Py_DecRef(given);
                return NULL;
            }
        } else {
            tfi_python.Py_IncRef(item);
        }
        tfi_python.PyTuple_SetItem(given, i, changed ? changed : item);
    }
    if (!given) tfi_python.PyErr_Clear();
    PyObject *result = tfi_python.PyObject_Call(method, given ? given : args, keywords);
    if (given) tfi_python.Py_DecRef(given);
    return result;
}

/* A new reference to the arguments without the first one. */
static PyObject *rest_of(PyObject *args)
{
    ssize_t count = tfi_python.PyTuple_Size(args);
    PyObject *rest = tfi_python.PyTuple_New(count - 1);
    for (ssize_t i = 1; rest && i < count; i++) {
        PyObject *item = tfi_python.PyTuple_GetItem(args, i);
        tfi_python.Py_IncRef(item);
        tfi_python.PyTuple_SetItem(rest, i - 1, item);
    }
    return rest;
}

/* Calls the method; without one, the object's `_callback` with the other arguments. */
static PyObject *call_inner(PyObject *method, PyObject *args, PyObject *keywords)
{
    if (method != tfi_python.none) return tfi_python.PyObject_Call(method, args, keywords);
    PyObject *callback = tfi_python.PyObject_GetAttrString(tfi_python.PyTuple_GetItem(args, 0), "_callback");
    PyObject *rest = callback ? rest_of(args) : NULL;
    PyObject *result = rest ? tfi_python.PyObject_Call(callback, rest, keywords) : NULL;
    if (rest) tfi_python.Py_DecRef(rest);
    if (callback) tfi_python.Py_DecRef(callback);
    return result;
}

/* `parts` are the program's method, and two functions of the shim: what the first one returns is given to the second. */
static PyObject *call_around(PyObject *parts, PyObject *args, PyObject *keywords)
{
    PyObject *error[3], *method = tfi_python.PyTuple_GetItem(parts, 0);
    change_tracing(1);
    PyObject *first = tfi_python.PyTuple_GetItem(args, 0);
    PyObject *state =
        tfi_python.PyObject_CallFunctionObjArgs(tfi_python.PyTuple_GetItem(parts, 1), first, (void *)NULL);
    change_tracing(-1);
    PyObject *result = state ? call_inner(method, args, keywords) : NULL;
    if (!state) return NULL;
    tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
    change_tracing(1);
    PyObject *after =
        tfi_python.PyObject_CallFunctionObjArgs(tfi_python.PyTuple_GetItem(parts, 2), state, (void *)NULL);
    change_tracing(-1);
    tfi_python.Py_DecRef(state);
    if (after) {
        tfi_python.Py_DecRef(after);
        tfi_python.PyErr_Restore(error[0], error[1], error[2]);
        return result;
    }
    for (size_t i = 0; i < TFI_COUNT(error); i++)
        if (error[i]) tfi_python.Py_DecRef(error[i]);
    if (result) tfi_python.Py_DecRef(result);
    return NULL;
}

/* Makes a method of C code. No frame of Python is between its caller and the method of the program. */
static PyObject *method_of(PyObject *const *args, ssize_t count, struct tfi_python_method *method,
                           PyObject *(*function)(PyObject *, PyObject *, PyObject *))
{
    memcpy(&method->function, &function, sizeof function);
    PyObject *parts = tfi_python.PyTuple_New(count);
    for (ssize_t i = 0; parts && i < count; i++) {
        tfi_python.Py_IncRef(args[i]);
        tfi_python.PyTuple_SetItem(parts, i, args[i]);
    }
    PyObject *made = parts ? tfi_python.PyCFunction_NewEx(method, parts, NULL) : NULL;
    if (parts) tfi_python.Py_DecRef(parts);
    PyObject *bound = made ? tfi_python.PyInstanceMethod_New(made) : NULL;
    if (made) tfi_python.Py_DecRef(made);
    return bound;
}

PyObject *tfi_builtin_changing(PyObject *self, PyObject *const *args, ssize_t count)
{
    static struct tfi_python_method method = {"call_soon", NULL, VARARGS_KEYWORDS, NULL};
    (void)self;
    return count == 2 ? method_of(args, count, &method, call_changing) : tfi_python_none();
}

PyObject *tfi_builtin_around(PyObject *self, PyObject *const *args, ssize_t count)
{
    static struct tfi_python_method method = {"_run", NULL, VARARGS_KEYWORDS, NULL};
    (void)self;
    return count == 3 ? method_of(args, count, &method, call_around) : tfi_python_none();
}
