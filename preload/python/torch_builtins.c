/* torch_builtins.c - defines the builtins of shim_torch.py: libtorch's callbacks, sources, and wrappers of native
 * functions.
 *
 * A builtin function of a module in TFI_NATIVE is replaced by one of ours with the same name and documentation, whose
 * `self` is the original. Each call is recorded as an operator of scope TFI_SCOPE_NATIVE, because such functions run
 * no RecordFunction. Arguments, result and exceptions are passed on unchanged. The method definitions are never
 * freed, since functions may outlive their module.
 */
#include "python/python.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/recording_state.h"
#include "torch/torch.h"

/* ---- libtorch ---- */

PyObject *tfi_builtin_torch(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text version;
    (void)self;
    if (count != 1 || !tfi_python_text(args[0], &version)) return tfi_python_str("its version is not a text");
    const char *why = tfi_torch_attach(version.data);
    tfi_python_text_end(&version);
    return tfi_python_str(why);
}

PyObject *tfi_builtin_torch_operators(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    return tfi_python.PyBool_FromLong(tfi_torch_operators());
}

PyObject *tfi_builtin_torch_try(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    int64_t how = count == 1 ? tfi_python_number(args[0]) : -1;
    return tfi_python.PyBool_FromLong(how >= TFI_TORCH_NONE && how <= TFI_TORCH_EXPORTED &&
                                      tfi_torch_try((enum tfi_torch_how)how));
}

PyObject *tfi_builtin_torch_seen(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    return tfi_python_str(tfi_torch_seen());
}

PyObject *tfi_builtin_torch_use(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    int64_t how = count == 1 ? tfi_python_number(args[0]) : 0;
    if (how >= TFI_TORCH_NONE && how <= TFI_TORCH_EXPORTED) tfi_torch_use((enum tfi_torch_how)how);
    else tfi_torch_detach();
    return tfi_python_none();
}

/* ---- native functions ---- */

#define KEYWORDS 3 /* METH_VARARGS | METH_KEYWORDS */

struct native {
    struct tfi_python_method method;
    PyObject *original;
    char *text; /* the recorded text, the name and the documentation, each with its zero */
};

static void write_call(const char *name, uint64_t start)
{
    uint64_t now = tfi_ticks();
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (!t) return;
    if (tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_OPS)) {
        uint32_t string = tfi_string(name, strlen(name));
        struct tfi_rec_op *rec = TFI_RESERVE(t, op);
        if (rec) {
            *rec = (struct tfi_rec_op){.rec = rec->rec, .name = string, .time = start, .duration = now - start};
            rec->sequence = -1;
            rec->scope = TFI_SCOPE_NATIVE;
            tfi_commit(t, sizeof *rec);
        }
    }
    tfi_leave(t);
}

static PyObject *call_native(PyObject *self, PyObject *args, PyObject *keywords)
{
    const struct native *native = tfi_python.PyCapsule_GetPointer(self, NULL);
    if (!native) return NULL;
    uint64_t start = tfi_ticks();
    PyObject *result = tfi_python.PyObject_Call(native->original, args, keywords);
    write_call(native->text, start);
    return result;
}

/* Makes the record of a native function, with copies of its texts in memory that is never freed. */
static struct native *new_native(const struct tfi_python_text text[3])
{
    size_t at = sizeof(struct native), size = at;
    for (int i = 0; i < 3; i++) size += text[i].length + 1;
    struct native *native = tfi_map(size);
    if (!native) return NULL;
    char *place[3];
    for (int i = 0; i < 3; i++) {
        place[i] = (char *)native + at;
        memcpy(place[i], text[i].data, text[i].length);
        at += text[i].length + 1;
    }
    native->text = place[0];
    const char *doc =
        text[2].length ? place[2] : NULL; /* with NULL a program can still set a documentation, as torch does */
    native->method = (struct tfi_python_method){place[1], (tfi_builtin *)(void *)call_native, KEYWORDS, doc};
    return native;
}

PyObject *tfi_builtin_native(PyObject *self, PyObject *const *args, ssize_t count)
{
    struct tfi_python_text text[3] = {{0}};
    struct native *native = NULL;
    PyObject *capsule = NULL, *made = NULL;
    int found = 0;
    (void)self;
    while (count == 5 && found < 3 && tfi_torch_operators() && tfi_python_text(args[found], &text[found])) found++;
    if (found == 3) native = new_native(text);
    if (native) capsule = tfi_python.PyCapsule_New(native, NULL, NULL);
    if (capsule) {
        native->original = args[3];
        tfi_python.Py_IncRef(args[3]);
        made = tfi_python.PyCFunction_NewEx(&native->method, capsule, args[4]);
        tfi_python.Py_DecRef(capsule);
    }
    for (int i = 0; i < found; i++) tfi_python_text_end(&text[i]);
    if (made) return made;
    tfi_python.PyErr_Clear();
    return tfi_python_none();
}

/* ---- facts from the framework ---- */

/* This process's rank in c10d; it holds for every trace of this memory. */
static struct {
    uint32_t rank, world;
    char source[32]; /* empty: unknown */
} known;

void tfi_python_rank_awake(struct tfi_thread *t)
{
    if (!known.source[0]) return;
    uint32_t source = tfi_string(known.source, strlen(known.source));
    struct tfi_rec_rank *rec = TFI_RESERVE(t, rank);
    if (!rec) return;
    rec->rank = known.rank;
    rec->world = known.world;
    rec->source = source;
    rec->time = tfi_ticks();
    tfi_commit(t, sizeof *rec);
}

PyObject *tfi_builtin_rank(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    struct tfi_python_text source;
    if (count != 3 || !tfi_python_text(args[2], &source)) return tfi_python_none();
    known.rank = (uint32_t)tfi_python_number(args[0]);
    known.world = (uint32_t)tfi_python_number(args[1]);
    tfi_fmt(known.source, sizeof known.source, "%s", source.data);
    tfi_python_text_end(&source);
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        tfi_python_rank_awake(t);
        tfi_leave(t);
    }
    return tfi_python_none();
}

/* Writes pairs of a storage's address and bytes; a record holds as many as fit. */
static void write_tensors(struct tfi_thread *t, uint32_t name, uint32_t role, PyObject *pairs)
{
    enum { MOST = 4000 };
    uint64_t time = tfi_ticks();
    ssize_t left = tfi_python.PyTuple_Size(pairs);
    for (ssize_t at = 0; left > 0;) {
        ssize_t count = left < MOST ? left : MOST;
        size_t size = sizeof(struct tfi_rec_tensors) + (size_t)count * 8;
        struct tfi_rec_tensors *rec = tfi_reserve(t, size, TFI_KIND_tensors);
        if (!rec) return;
        rec->name = name;
        rec->time = time;
        rec->role = role;
        rec->reserved = 0;
        for (ssize_t i = 0; i < count; i++)
            rec->blocks[i] = (uint64_t)tfi_python_number(tfi_python.PyTuple_GetItem(pairs, at + i));
        tfi_commit(t, size);
        at += count;
        left -= count;
    }
}

PyObject *tfi_builtin_tensors(PyObject *self, PyObject *const *args, ssize_t count)
{
    (void)self;
    struct tfi_python_text name;
    if (count != 3 || !tfi_python_text(args[0], &name)) return tfi_python_none();
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        uint32_t string = tfi_string(name.data, name.length);
        if (tfi_call_wanted(t)) write_tensors(t, string, (uint32_t)tfi_python_number(args[1]), args[2]);
        tfi_leave(t);
    }
    tfi_python_text_end(&name);
    return tfi_python_none();
}
