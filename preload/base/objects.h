/* objects.h - keeps a list of the loaded objects that is read without the loader's lock. */
#ifndef TFI_OBJECTS_H
#define TFI_OBJECTS_H

#include <link.h>
#include <stdbool.h>

void tfi_objects_constructor(void);

/* Looks at the loaded objects, by the loader's list. Called in the constructor, and in hooks of functions that take the
 * loader's lock themselves. */
void tfi_objects_look(void);

/* The same, if a part of the library wants the objects that were loaded after the program: see below. */
void tfi_objects_look_again(void);
void tfi_objects_wanted(void);

/* Like dl_iterate_phdr(), for the objects as they were at the last look. An object that was unloaded since is left out,
 * if libc can tell. Any thread, any time. */
int tfi_objects_each(int (*take)(struct dl_phdr_info *info, size_t size, void *data), void *data);

/* Changes with each look that found other objects. */
uint32_t tfi_objects_turn(void);

/* Returns the loader's entry of the object that contains the address, NULL if there is none or libc is older than 2.35
 * (`known` is false then). Any thread, any time. */
struct link_map *tfi_object_of(const void *address, bool *known);

/* Returns a function of the object that the kernel maps into each process (the vDSO); NULL if there is none. Called in the
 * constructor. */
void *tfi_kernel_function(const char *name);

/* Returns the definition of a function that follows this library's own in the order of the program's objects, as
 * dlsym(RTLD_NEXT) does; NULL if there is none. Only objects that were loaded with the program count: they stay. Any
 * thread, any time; the first call may come from another library's constructor, before ours, with its allocator's lock
 * held, and then asks the loader, which allocates nothing. */
void *tfi_next_function(const char *name);

#endif
