/* frames.c - walks the frames of CPython in the calling thread.
 *
 * Operators, launches and allocations run without the interpreter's lock. Taking it there could deadlock: an
 * allocator holds a mutex of its own. But a thread's frames are changed by that thread alone, frames keep their code
 * alive, and code does not change. The frames are therefore read as they lie in memory, by the offsets of frames.def,
 * and no reference count is touched. Line tables are decoded here for the same reason.
 *
 * If the version is not in the table, the interpreter is asked, provided this thread holds its lock.
 */
#include "python/frames.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/types.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "python/layout.h"

enum { NO_LINE = -128 };

#define PYTHON(...) {__VA_ARGS__},
static const struct tfi_python_layout layouts[] = {
#include "python/frames.def"
};
#undef PYTHON

typedef void object; /* PyObject */

static struct {
    bool found;
    const struct tfi_python_layout *layout; /* NULL: unknown, the interpreter is asked */
    struct tfi_python_layout told;
    const void *evaluator;
    int (*is_initialized)(void);
    int (*is_finalizing)(void);
    char *(*this_thread)(void);
    int (*has_lock)(void);
    /* called with the interpreter's lock */
    object *(*thread_frame)(void *);
    object *(*frame_back)(object *);
    object *(*frame_code)(object *);
    int (*frame_line)(object *);
    object *(*attribute)(object *, const char *);
    const char *(*utf8)(object *, ssize_t *);
    void (*forget)(object *);
    void (*fetch_error)(object **, object **, object **);
    void (*restore_error)(object *, object *, object *);
} python;

/* ---- the interpreter's layout ---- */

/* Python 3.13 and newer publish their offsets in struct _Py_DebugOffsets. These are the indexes of the needed
 * ones, in units of 64 bits. */
enum { VERSION = 1, FREE_THREADED };
struct places {
    int minor;
    uint8_t current, previous, code, at, owner, filename, name, lines, first, adaptive, ascii;
    uint8_t interpreter, threads, next, id, tid, qualified;
};
static const struct places told_at[] = {
    {13, 23, 29, 30, 31, 33, 35, 36, 38, 39, 43, 70, 8, 9, 21, 24, 25, 37},
    {14, 26, 32, 33, 34, 36, 40, 41, 43, 44, 48, 80, 8, 9, 24, 27, 28, 42},
};

/* NULL if the interpreter does not publish its offsets, or runs without the GIL: objects then have another head
 * than the one by which names are read. */
static const struct tfi_python_layout *layout_told(const uint64_t *offsets, const struct tfi_python_layout *known)
{
    enum { MAX_OFFSET = 1 << 20 };
    const struct places *p = NULL;
    for (size_t i = 0; i < TFI_COUNT(told_at); i++)
        if (told_at[i].minor == known->minor) p = &told_at[i];
    if (!p || !offsets || memcmp(offsets, "xdebugpy", 8) != 0 || (int)(offsets[VERSION] >> 16 & 0xff) != p->minor ||
        offsets[FREE_THREADED])
        return NULL;
    for (const uint8_t *place = &p->current; place <= &p->qualified; place++)
        if (offsets[*place] >= MAX_OFFSET) return NULL;
    bool are_as_known = offsets[p->current] == (uint64_t)known->current && offsets[p->id] == (uint64_t)known->id &&
                        offsets[p->tid] == (uint64_t)known->tid && offsets[p->threads] == (uint64_t)known->threads;
    python.told = (struct tfi_python_layout){
        .minor = known->minor,
        .cframe = -1,
        .current = (int)offsets[p->current],
        .code = (int)offsets[p->code],
        .previous = (int)offsets[p->previous],
        .at = (int)offsets[p->at],
        .owner = (int)offsets[p->owner],
        .filename = (int)offsets[p->filename],
        .name = (int)offsets[p->name],
        .lines = (int)offsets[p->lines],
        .first = (int)offsets[p->first],
        .adaptive = (int)offsets[p->adaptive],
        .ascii = (int)offsets[p->ascii],
        .interpreter = (int)offsets[p->interpreter],
        .threads = (int)offsets[p->threads],
        .next = (int)offsets[p->next],
        .id = (int)offsets[p->id],
        .tid = (int)offsets[p->tid],
        .qualified = (int)offsets[p->qualified],
        .chunk = known->chunk,
        .gil = are_as_known ? known->gil : -1,
        .frame = known->frame,
        .version = known->version,
    };
    return &python.told;
}

/* Parses "3.11.7 (main, ...": the number after the first point, -1 if this is not Python 3. */
static int minor_of(const char *version)
{
    int minor = 0;
    if (!version || strncmp(version, "3.", 2) != 0) return -1;
    for (version += 2; *version >= '0' && *version <= '9' && minor < 1000; version++)
        minor = minor * 10 + (*version - '0');
    return minor;
}

static const struct tfi_python_layout *layout_of(int minor)
{
    for (size_t i = 0; i < TFI_COUNT(layouts); i++) {
        if (layouts[i].minor != minor) continue;
        return minor < 13 ? &layouts[i] : layout_told(tfi_dlsym(RTLD_DEFAULT, "_PyRuntime"), &layouts[i]);
    }
    return NULL;
}

#define LOOK_UP(field, symbol) (*(void **)&python.field = tfi_dlsym(RTLD_DEFAULT, symbol))

static bool can_ask(void)
{
    LOOK_UP(thread_frame, "PyThreadState_GetFrame");
    LOOK_UP(frame_back, "PyFrame_GetBack");
    LOOK_UP(frame_code, "PyFrame_GetCode");
    LOOK_UP(frame_line, "PyFrame_GetLineNumber");
    LOOK_UP(attribute, "PyObject_GetAttrString");
    LOOK_UP(utf8, "PyUnicode_AsUTF8AndSize");
    LOOK_UP(forget, "Py_DecRef");
    LOOK_UP(fetch_error, "PyErr_Fetch");
    LOOK_UP(restore_error, "PyErr_Restore");
    return python.has_lock && python.thread_frame && python.frame_back && python.frame_code && python.frame_line &&
           python.attribute && python.utf8 && python.forget && python.fetch_error && python.restore_error;
}

bool tfi_python_find(void)
{
    const char *(*version)(void);
    if (__atomic_load_n(&python.found, __ATOMIC_ACQUIRE)) return true;
    *(void **)&version = tfi_dlsym(RTLD_DEFAULT, "Py_GetVersion");
    if (!version || !LOOK_UP(this_thread, "PyGILState_GetThisThreadState")) return false;
    if (!LOOK_UP(is_initialized, "Py_IsInitialized") || !python.is_initialized()) return false;
    if (!LOOK_UP(is_finalizing, "Py_IsFinalizing")) LOOK_UP(is_finalizing, "_Py_IsFinalizing");
    LOOK_UP(has_lock, "PyGILState_Check");
    python.evaluator = tfi_dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault");
    python.layout = layout_of(minor_of(version()));
    if (!python.layout && !can_ask()) return false;
    __atomic_store_n(&python.found, true, __ATOMIC_RELEASE);
    return true;
}

const struct tfi_python_layout *tfi_python_layout(void)
{
    return python.layout;
}

const void *tfi_python_evaluator(void)
{
    return python.evaluator;
}

/* ---- the frames ---- */

static uint32_t read_frames(const char *thread, struct tfi_python_frame *frames, uint32_t max)
{
    const struct tfi_python_layout *o = python.layout;
    const char *holder = o->cframe < 0 ? thread : pointer_at(thread, o->cframe);
    const char *frame = holder ? pointer_at(holder, o->current) : NULL;
    uint32_t n = 0;
    for (; frame && n < max; frame = pointer_at(frame, o->previous)) {
        struct tfi_python_frame *f = &frames[n];
        if (o->minor >= 12 && frame[o->owner] >= TFI_PYTHON_SHIM) {
            if (n) frames[n - 1].first = true;
            continue;
        }
        const char *code = pointer_at(frame, o->code);
        if (o->minor >= 14) code -= (uintptr_t)code & TFI_PYTHON_TAG; /* the low bits tell who counts the reference */
        f->code = code;
        f->name =
            (uint64_t)(uintptr_t)pointer_at(code, o->name) * 31 + (uint64_t)(uintptr_t)pointer_at(code, o->filename);
        f->first = o->minor <= 10 || (o->minor == 11 && frame[o->owner - 1]);
        if (o->adaptive < 0) f->at = (int64_t)int_at(frame, o->at) * (o->minor == 10 ? 2 : 1);
        else f->at = pointer_at(frame, o->at) - (code + o->adaptive);
        n++;
    }
    return n;
}

/* Asks the interpreter, with its lock held, and saves an exception that may be set. */
static uint32_t ask_frames(void *thread, struct tfi_python_frame *frames, uint32_t max)
{
    object *error[3], *frame, *back;
    uint32_t n = 0;
    python.fetch_error(&error[0], &error[1], &error[2]);
    for (frame = python.thread_frame(thread); frame; frame = back) {
        object *code = n < max ? python.frame_code(frame) : NULL;
        if (code) frames[n++] = (struct tfi_python_frame){code, python.frame_line(frame), 0, false};
        if (code) python.forget(code); /* the frame keeps it alive */
        back = n < max ? python.frame_back(frame) : NULL;
        python.forget(frame);
    }
    python.restore_error(error[0], error[1], error[2]);
    return n;
}

uint32_t tfi_python_frames(struct tfi_python_frame *frames, uint32_t max)
{
    if (!__atomic_load_n(&python.found, __ATOMIC_ACQUIRE) || !python.is_initialized()) return 0;
    if (python.is_finalizing && python.is_finalizing()) return 0;
    char *thread = python.this_thread();
    if (!thread) return 0;
    if (python.layout) return read_frames(thread, frames, max);
    return python.has_lock() ? ask_frames(thread, frames, max) : 0;
}

/* ---- lines ---- */

/* Up to 3.9: pairs of bytes, the steps of the instruction offset and of the line. */
static int line_of_pairs(const uint8_t *p, const uint8_t *end, int64_t at, int line)
{
    int64_t address = 0;
    for (; p + 2 <= end && (address += p[0]) <= at; p += 2) line += (int8_t)p[1];
    return line;
}

/* 3.10: pairs too, of the number of bytes of instructions and their line. */
static int line_of_ranges(const uint8_t *p, const uint8_t *end, int64_t at, int line)
{
    int64_t address = 0;
    int computed = line;
    for (; p + 2 <= end && address <= at; p += 2) {
        address += p[0];
        if ((int8_t)p[1] != NO_LINE) computed += (int8_t)p[1];
        line = (int8_t)p[1] == NO_LINE ? 0 : computed;
    }
    return line;
}

/* Reads a number in groups of six bits, the lowest first, with its sign in the lowest bit. */
static int signed_number(const uint8_t *p, const uint8_t *end)
{
    unsigned value = 0, shift = 0;
    for (; p < end; p++, shift += 6) {
        if (shift < 32) value |= (unsigned)(*p & 63) << shift;
        if (!(*p & 64)) break;
    }
    return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/* From 3.11 on: entries of different lengths; the first byte has an entry's form and its number of instructions. */
static int line_of_entries(const uint8_t *p, const uint8_t *end, int64_t at, int line)
{
    enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };
    int64_t address = 0;
    int computed = line;
    while (p < end && address <= at) {
        int form = *p >> 3 & 15;
        address += ((*p & 7) + 1) * 2;
        if (form == NO_COLUMNS || form == LONG) computed += signed_number(p + 1, end);
        else if (form >= ONE_LINE && form < NO_COLUMNS) computed += form - ONE_LINE;
        line = form == NONE ? 0 : computed;
        do p++;
        while (p < end && !(*p & 128));
    }
    return line;
}

int tfi_python_line(const struct tfi_python_layout *layout, const void *table, size_t bytes, int64_t at, int first)
{
    const uint8_t *p = table, *end = p + bytes;
    if (at < 0) return first;
    if (layout->minor <= 9) return line_of_pairs(p, end, at, first);
    if (layout->minor == 10) return line_of_ranges(p, end, at, first);
    return line_of_entries(p, end, at, first);
}

static int line_of(const struct tfi_python_layout *o, const struct tfi_python_frame *frame)
{
    const char *table = pointer_at(frame->code, o->lines);
    int first = int_at(frame->code, o->first);
    if (!table) return first;
    size_t bytes = (uintptr_t)pointer_at(table, TFI_OBJECT_LENGTH);
    return tfi_python_line(o, table + TFI_BYTES_DATA, bytes, frame->at, first);
}

/* ---- names ---- */

static void add_character(struct tfi_text *text, uint32_t c)
{
    uint8_t bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (c < 0x20) c = ' '; /* tabs and line ends separate our fields */
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (uint8_t)(0x80 | (c & 63));
    bytes[0] = (uint8_t)(lead[n] | c);
    tfi_text_bytes(text, bytes, n);
}

bool tfi_python_characters(const struct tfi_python_layout *layout, const char *str, struct tfi_python_characters *found)
{
    unsigned state = (unsigned)int_at(str, TFI_STR_STATE), kind = state >> 2 & 7;
    bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
    uint64_t length = (uintptr_t)pointer_at(str, TFI_OBJECT_LENGTH);
    found->length = length < TFI_PYTHON_CHARACTERS ? length : TFI_PYTHON_CHARACTERS;
    found->width = kind;
    found->offset = (uint32_t)layout->ascii + (ascii ? 0u : layout->minor >= 12 ? 16u : 24u);
    return compact && (kind == 1 || kind == 2 || kind == 4);
}

void tfi_python_add_characters(struct tfi_text *text, const char *str, const struct tfi_python_characters *characters)
{
    const char *at = str + characters->offset;
    for (uint64_t i = 0; i < characters->length; i++, at += characters->width) {
        uint32_t c = 0;
        memcpy(&c, at, characters->width);
        add_character(text, c);
    }
}

/* Adds a str object as UTF-8. */
static void add_str(struct tfi_text *text, const struct tfi_python_layout *o, const char *str)
{
    struct tfi_python_characters characters;
    if (str && tfi_python_characters(o, str, &characters)) tfi_python_add_characters(text, str, &characters);
}

static void add_attribute(struct tfi_text *text, const struct tfi_python_frame *frame, const char *name)
{
    ssize_t length = 0;
    object *value = python.attribute((object *)frame->code, name);
    const char *bytes = value ? python.utf8(value, &length) : NULL;
    for (ssize_t i = 0; bytes && i < length; i++)
        tfi_text_bytes(text, (unsigned char)bytes[i] < 0x20 ? " " : bytes + i, 1);
    if (value) python.forget(value);
}

void tfi_python_describe(struct tfi_text *text, const struct tfi_python_frame *frame)
{
    const struct tfi_python_layout *o = python.layout;
    object *error[3];
    if (o) {
        add_str(text, o, pointer_at(frame->code, o->name));
        tfi_text_bytes(text, "\t", 1);
        add_str(text, o, pointer_at(frame->code, o->filename));
        tfi_text_add(text, "\t%d", line_of(o, frame));
        return;
    }
    python.fetch_error(&error[0], &error[1], &error[2]);
    add_attribute(text, frame, "co_name");
    tfi_text_bytes(text, "\t", 1);
    add_attribute(text, frame, "co_filename");
    tfi_text_add(text, "\t%d", (int)frame->at);
    python.restore_error(error[0], error[1], error[2]);
}
