/* copies.h - libraries that a process may hold in several copies, and which of them a caller's object needs. */
#ifndef TFI_COPIES_H
#define TFI_COPIES_H

#include <stdbool.h>

enum { TFI_COPIES = 12, TFI_COPY_NONE = -1 };

/* The number of the copy that the object of `caller` names among what it needs, for a library whose first soname that
 * is; TFI_COPY_NONE if it names none. Takes the loader's lock once for each copy, no more (before glibc 2.35: always). */
int tfi_copy_needed(const void *caller, const char *soname);

/* The number of what is mapped under a soname, without asking the loader: TFI_COPY_NONE if it was never opened here. */
int tfi_copy_known(const char *soname);

/* How many copies of that library were opened here. */
unsigned tfi_copies_known(const char *soname);

/* The library that is mapped under a soname; NULL if none is. It stays referenced. */
void *tfi_copy_open(const char *soname);

/* The same for a file that is mapped. */
void tfi_copy_note(const char *file);

/* The handle of a number. */
void *tfi_copy_handle(int copy);

#endif
