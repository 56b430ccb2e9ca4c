/* python.h - the interpreter, where there is one in this process, and the functions given to the shim.
 *
 * Everything below is called with the GIL, and only from inside the interpreter's own calls: nothing here enters it from
 * outside. A builtin looks like this:
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

/* METH_FASTCALL of CPython, in every version from 3.8 on. */
typedef PyObject *tfi_builtin(PyObject *self, PyObject *const *args, ssize_t count);

/* PyMethodDef. */
struct tfi_python_method {
    const char *name;
    tfi_builtin *function;
    int flags;
    const char *help;
};

#define PYTHON(result, name, params) result(*name) params;
#define PYTHON_OPTIONAL PYTHON
struct tfi_python {
#include "python.def"
    PyObject *none;
    PyObject *keyboard_interrupt; /* the class */
    PyObject *runtime_error;
};
#undef PYTHON
#undef PYTHON_OPTIONAL

/* The functions of the interpreter; all set before the shim runs. */
extern struct tfi_python tfi_python;

#define BUILTIN(name, function, help) tfi_builtin function;
#include "builtins.def"
#undef BUILTIN

/* Adds the audit hook if this process has a CPython of 3.8 or newer; does nothing else. */
void tfi_python_constructor(void);

/* True if this process has an interpreter that the shim may run in. */
bool tfi_python_here(void);

/* At wake: what became known about the run before. */
void tfi_python_awake(struct tfi_thread *thread);

/* The same for the rank. */
void tfi_python_rank_awake(struct tfi_thread *thread);

/* The latest value of a fact (builtin _metadata); false if there is none, it is "", or there is no room for it. */
bool tfi_python_fact(const char *key, char *value, size_t size);

/* A new reference to None. */
PyObject *tfi_python_none(void);

/* A str of these bytes; what is not UTF-8 becomes U+FFFD. NULL is None. */
PyObject *tfi_python_str(const char *text);

/* The UTF-8 of a str, which lone surrogates may not have as they are. */
struct tfi_python_text {
    const char *data;
    size_t length;
    PyObject *owner; /* of the bytes, if it is not the str */
};

/* False if the object is not a str. Otherwise tfi_python_text_end() must follow. */
bool tfi_python_text(PyObject *object, struct tfi_python_text *text);
void tfi_python_text_end(struct tfi_python_text *text);

/* The number; 0 if the object is none, or too large. */
int64_t tfi_python_number(PyObject *object);

/* Says what the exception that is set is about, and clears it. An interrupt by the user is set again for the pipeline. */
void tfi_python_failed(const char *where);

/* A part of the shim as it was embedded: scripts/gen-tables embed writes the table, with a last one of NULLs. */
struct tfi_python_part {
    const char *name; /* "shim", "shim_NAME" */
    const char *source;
};
extern const struct tfi_python_part tfi_python_parts[];

#endif
