/* copies.h - finds which copy of a library a caller's object needs, if the process holds several. */
#ifndef TFI_COPIES_H
#define TFI_COPIES_H

#include <stdbool.h>

enum { TFI_COPIES = 12, TFI_COPY_NONE = -1 };

/* Number of the copy that the object of `caller` needs, TFI_COPY_NONE if it needs none. `soname` is the library's first
 * soname. Takes the loader's lock only once for each copy (before glibc 2.35: at each call). */
int tfi_copy_needed(const void *caller, const char *soname);

/* Number of the copy opened under this soname, TFI_COPY_NONE if none was. Does not ask the loader. */
int tfi_copy_known(const char *soname);

/* Number of copies of the library that were opened here. */
unsigned tfi_copies_known(const char *soname);

/* Opens the library that is mapped under a soname; NULL if none is. It stays referenced. */
void *tfi_copy_open(const char *soname);

/* Opens and notes a mapped file as a copy. */
void tfi_copy_note(const char *file);

/* The handle of the copy with this number. */
void *tfi_copy_handle(int copy);

/* True if `path` is the path of a library of this name: libcupti.so.13, libcupti-1f2e.so.12. */
bool tfi_copy_is(const char *path, const char *library);

#endif
