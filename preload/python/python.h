/* python.h - the interpreter of this process, if there is one, and the functions given to the shim.
 *
 * Everything below is called with the GIL, and only from inside the interpreter's own calls: nothing here enters it
 * from outside. A builtin looks like this:
 *
 *     PyObject *tfi_builtin_name(PyObject *self, PyObject *const *args, ssize_t count)
 *     {
 *         (void)self;
 *         struct tfi_python_text name;
 *         if (count == 1 && tfi_python_text(args[0], &name)) { ...; tfi_python_text_end(&name); }
 *         return tfi_python_none();
 *     }
 */
#ifndef TFI_PYTHON_H
#define TFI_PYTHON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tfi_thread;

typedef struct tfi_python_object PyObject;

/* METH_FASTCALL of CPython, in every version from 3.9 on. */
typedef PyObject *tfi_builtin(PyObject *self, PyObject *const *args, ssize_t count);

/* PyMethodDef. */
struct tfi_python_method {
    const char *name;
    tfi_builtin *function;
    int flags;
    const char *help;
};

#define PYTHON(result, name, params) result(*name) params;
struct tfi_python {
#include "python/python.def"
    PyObject *none;
    PyObject *keyboard_interrupt; /* the exception class */
    PyObject *system_exit;
    PyObject *runtime_error;
};
#undef PYTHON

/* The functions of the interpreter; all set before the shim runs. */
extern struct tfi_python tfi_python;

/* Sets them. False if this interpreter lacks one, or has no global lock: a line says so. */
bool tfi_python_resolve(void);

#define BUILTIN(name, function, help) tfi_builtin function;
#include "python/builtins.def"
#undef BUILTIN

/* Adds the audit hook if this process has a CPython that takes one (3.8 or newer); does nothing else. */
void tfi_python_constructor(void);

/* True if this process has an interpreter that the shim may run in. */
bool tfi_python_here(void);

/* Called at wake: writes what became known before: the rank, the facts about the run and the sources. */
void tfi_python_awake(struct tfi_thread *thread);

/* Called at wake: writes the rank. */
void tfi_python_rank_awake(struct tfi_thread *thread);

/* Names the function that is called once the interpreter runs, where no lock of the loader is held. */
void tfi_python_at_start(void (*function)(void));

/* Names the function that is called with the arguments of the audit event sys.excepthook: nothing caught an exception,
 * and the interpreter has not printed it yet. */
void tfi_python_on_uncaught(void (*function)(PyObject *args));

/* Between these two calls the program's profilers and tracers see nothing of this thread; may be nested. */
void tfi_python_hide(void);
void tfi_python_show(void);

/* Returns a new reference to None. */
PyObject *tfi_python_none(void);

/* Returns a str of these bytes; bytes that are not UTF-8 become U+FFFD. NULL is None. */
PyObject *tfi_python_str(const char *text);

/* The UTF-8 of a str; lone surrogates, which have none, are escaped. */
struct tfi_python_text {
    const char *data;
    size_t length;
    PyObject *owner; /* owner of the bytes, if it is not the str */
};

/* False if the object is not a str. Otherwise tfi_python_text_end() must follow. */
bool tfi_python_text(PyObject *object, struct tfi_python_text *text);
void tfi_python_text_end(struct tfi_python_text *text);

/* Returns the number; 0 if the object is no number, or is too large. -1 becomes 0, too. */
int64_t tfi_python_number(PyObject *object);

/* Logs the exception that is set, and clears it. An interrupt by the user is set again for the pipeline. */
void tfi_python_failed(const char *where);

/* An embedded part of the shim: scripts/gen-tables embed writes the table, ended by a row of NULLs. */
struct tfi_python_part {
    const char *name; /* "shim", "shim_NAME" */
    const char *source;
};
extern const struct tfi_python_part tfi_python_parts[];

#endif
