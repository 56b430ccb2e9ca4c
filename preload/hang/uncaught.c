/* uncaught.c - writes down where an exception came from that nothing caught, just before the interpreter prints it.
 *
 * The audit event sys.excepthook has the exception's type and traceback. It comes in the main thread, or in a thread of
 * a program that embeds the interpreter; threads of the module `threading` print their exceptions without it.
 * SystemExit is no such exception.
 *
 * Only the names and lines of the frames and the name of the exception's type are written, never its message. The links
 * between tracebacks and frames are read from memory, where they lie alike in all versions. Asking for the attribute
 * `tb_frame` would be an audit event, which a hook of the program sees and can refuse. A program may send the event
 * itself with other arguments, so their types are checked.
 */
#include "hang/uncaught.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "control/config.h"
#include "python/layout.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"

enum {
    TYPE = 1, /* places in the event's arguments */
    TRACEBACK = 3,
    ARGUMENTS = 4,
    NEXT_OFFSET = 16, /* in a traceback */
    FRAME_OFFSET = 24,
    NAME_BYTES = 4 * TFI_PYTHON_CHARACTERS,
};

/* Used with the GIL. */
static char frame_room[2 * NAME_BYTES + 32];
static char list_room[9 * TFI_STACK_FRAMES];

static PyObject *object_at(PyObject *object, size_t offset)
{
    PyObject *found;
    memcpy(&found, (const char *)object + offset, sizeof found);
    return found;
}

/* Adds a str as UTF-8, with spaces for tabs and line ends, which separate our fields. */
static void add_str(struct tfi_text *out, PyObject *str)
{
    struct tfi_python_text text;
    if (!tfi_python_text(str, &text)) return;
    size_t length = text.length;
    if (length > NAME_BYTES) length = NAME_BYTES;
    while (length < text.length && length && ((unsigned char)text.data[length] & 0xc0) == 0x80) length--;
    for (size_t i = 0; i < length; i++)
        tfi_text_bytes(out, (unsigned char)text.data[i] < 0x20 ? " " : &text.data[i], 1);
    tfi_python_text_end(&text);
}

/* Adds an attribute that is a str; false if the object has none of this name. */
static bool add_attribute(struct tfi_text *out, PyObject *object, const char *name)
{
    PyObject *value = tfi_python.PyObject_GetAttrString(object, name);
    if (!value) {
        tfi_python.PyErr_Clear();
        return false;
    }
    add_str(out, value);
    tfi_python.Py_DecRef(value);
    return true;
}

static int64_t line_of(PyObject *traceback)
{
    PyObject *line = tfi_python.PyObject_GetAttrString(traceback, "tb_lineno");
    if (!line) tfi_python.PyErr_Clear();
    int64_t number = line ? tfi_python_number(line) : 0;
    if (line) tfi_python.Py_DecRef(line);
    return number;
}

/* Returns the string of one frame: function, file and line. */
static uint32_t frame_string(PyObject *traceback)
{
    struct tfi_text text = {frame_room, sizeof frame_room, 0, 0};
    PyObject *code = tfi_python.PyFrame_GetCode(object_at(traceback, FRAME_OFFSET));
    if (!code) return TFI_STRING_LOST;
    if (!add_attribute(&text, code, "co_qualname")) add_attribute(&text, code, "co_name");
    tfi_text_bytes(&text, "\t", 1);
    add_attribute(&text, code, "co_filename");
    tfi_text_add(&text, "\t%d", (int)line_of(traceback));
    tfi_python.Py_DecRef(code);
    return tfi_string(text.data, text.used);
}

/* A traceback begins with the outermost frame. Returns the string of the innermost ones, the innermost first. */
static uint32_t stack_string(PyObject *traceback, bool *cut)
{
    uint32_t frames[TFI_STACK_FRAMES], count = 0;
    struct tfi_text list = {list_room, sizeof list_room, 0, 0};
    PyObject *inner = traceback;
    for (PyObject *ahead = traceback; ahead; ahead = object_at(ahead, NEXT_OFFSET)) {
        *cut = count == TFI_STACK_FRAMES;
        if (*cut) inner = object_at(inner, NEXT_OFFSET);
        else count++;
    }
    for (uint32_t i = count; i-- > 0; inner = object_at(inner, NEXT_OFFSET)) frames[i] = frame_string(inner);
    for (uint32_t i = 0; i < count; i++) tfi_text_add(&list, i ? " %x" : "%x", frames[i]);
    return tfi_string(list.data, list.used);
}

static bool is_traceback(PyObject *object)
{
    static void *type;
    if (!type) type = tfi_dlsym(RTLD_DEFAULT, "PyTraceBack_Type");
    return object && type && object_at(object, TFI_OBJECT_TYPE) == type;
}

static void write_record(struct tfi_thread *t, PyObject *type, PyObject *traceback)
{
    struct tfi_text name = {frame_room, sizeof frame_room, 0, 0};
    bool cut = false;
    add_attribute(&name, type, "__name__");
    uint32_t exception = name.used ? tfi_string(name.data, name.used) : 0;
    uint32_t stack = stack_string(traceback, &cut);
    uint64_t now = tfi_ticks();
    TFI_WRITE(t, silence, .thread = t->serial, .time = now, .since = now, .tid = t->tid, .stack = stack,
              .reading = TFI_READING_RAISED, .flags = cut ? TFI_SILENCE_CUT : 0, .exception = exception);
}

void tfi_raised(PyObject *args)
{
    PyObject *error[3];
    int number = errno;
    if (!tfi_config.hang_s || tfi_python.PyTuple_Size(args) != ARGUMENTS) return;
    PyObject *type = tfi_python.PyTuple_GetItem(args, TYPE), *traceback = tfi_python.PyTuple_GetItem(args, TRACEBACK);
    if (!is_traceback(traceback) || tfi_python.PyErr_GivenExceptionMatches(type, tfi_python.system_exit)) return;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        tfi_python.PyErr_Fetch(&error[0], &error[1], &error[2]);
        write_record(t, type, traceback);
        tfi_python.PyErr_Restore(error[0], error[1], error[2]);
        tfi_leave(t);
    }
    errno = number;
}
