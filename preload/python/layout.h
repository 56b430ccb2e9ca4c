/* layout.h - the layout of CPython's structures, and the decoders shared by the readers of frames; see frames.c. */
#ifndef TFI_PYTHON_LAYOUT_H
#define TFI_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tfi_text;

/* Offsets in bytes, as in frames.def. */
struct tfi_python_layout {
    int minor, cframe, current, code, previous, at, owner, filename, name, lines, first, adaptive, ascii;
    int interpreter, threads, next, id, tid, qualified;
    int chunk, gil, frame, version;
};

enum {
    TFI_PYTHON_SHIM = 3, /* this owner and larger ones mark an entry that is no frame */
    TFI_PYTHON_TAG = 3,  /* bits of a reference to code, from 3.14 on */
};

/* Offsets that do not depend on the version. */
enum {
    TFI_OBJECT_TYPE = 8,
    TFI_OBJECT_LENGTH = 16,
    TFI_BYTES_DATA = 32,
    TFI_STR_STATE = 32,
    TFI_THREAD_INTERPRETER = 16
};

/* Both read a member of a structure of CPython. */
static inline const char *pointer_at(const char *base, int offset)
{
    const char *value;
    memcpy(&value, base + offset, sizeof value);
    return value;
}

static inline int int_at(const char *base, int offset)
{
    int value;
    memcpy(&value, base + offset, sizeof value);
    return value;
}

/* The layout of this process's interpreter; NULL if it is unknown. Call after tfi_python_find() was true. */
const struct tfi_python_layout *tfi_python_layout(void);

/* Finds the line of the instruction at offset `at` in a code object's line table of `bytes` bytes. */
int tfi_python_line(const struct tfi_python_layout *layout, const void *table, size_t bytes, int64_t at, int first);

/* Finds where a str object has its characters and how wide they are; false for a form that names never have. The head
 * of the object must be readable: layout->ascii bytes. */
struct tfi_python_characters {
    uint64_t length; /* number of characters, at most TFI_PYTHON_CHARACTERS */
    uint32_t width;  /* bytes of each */
    uint32_t offset; /* of the first one in the object */
};
#define TFI_PYTHON_CHARACTERS 1024u
bool tfi_python_characters(const struct tfi_python_layout *layout, const char *str,
                           struct tfi_python_characters *found);

/* Adds a str object's characters, which must be readable, as UTF-8. */
void tfi_python_add_characters(struct tfi_text *text, const char *str, const struct tfi_python_characters *characters);

#endif
