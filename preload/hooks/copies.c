/* copies.c - finds which copy of a library a caller's object needs, if the process holds several.
 *
 * The DT_NEEDED entries of the caller's own object name the copy. They are read without the loader's lock. A dlopen in
 * another thread holds that lock until all constructors of the loaded objects have run, which may take seconds. glibc
 * finds an object without the lock from 2.35 on (_dl_find_object). Before that the first call from a page of code takes
 * the lock. A copy that was opened once stays referenced.
 * A call that is only forwarded takes 4.7 ns with one copy and 27 ns with two, 1.8 ns of it the call itself; it took
 * 830 ns when every call asked the loader. Measured on a core of a virtual machine.
 */
#include "hooks/copies.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "base/objects.h"
#include "base/tfi.h"

#define MAX_SONAME 64

static struct {
    char soname[MAX_SONAME];
    void *handle; /* stored last */
} copies[TFI_COPIES];
static unsigned nr_copies;

static struct link_map *object_of(const void *address)
{
    bool known;
    struct link_map *map = tfi_object_of(address, &known);
    Dl_info info;
    if (known) return map;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* Length of "libcudart" in "libcudart.so.13". */
static size_t stem(const char *soname)
{
    const char *end = strstr(soname, ".so");
    return end ? (size_t)(end - soname) : strlen(soname);
}

/* True for libcudart.so.12 and for libcudart-1f2e.so.12: wheels rename the copies they bring. */
static bool is_copy_of(const char *name, const char *soname, size_t length)
{
    return strncmp(name, soname, length) == 0 && (name[length] == '.' || name[length] == '-');
}

static const char *needed_by(const void *caller, const char *soname)
{
    struct link_map *map = caller ? object_of(caller) : NULL;
    const char *strings = NULL;
    size_t length = stem(soname);
    if (!map || !map->l_ld) return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB) strings = (const char *)d->d_un.d_ptr;
    if (!strings || (uintptr_t)strings < map->l_addr) return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && is_copy_of(strings + d->d_un.d_val, soname, length))
            return strings + d->d_un.d_val;
    return NULL;
}

int tfi_copy_known(const char *soname)
{
    for (int i = 0; i < TFI_COPIES; i++)
        if (tfi_copy_handle(i) && strcmp(copies[i].soname, soname) == 0) return i;
    return TFI_COPY_NONE;
}

/* False for a second entry of the same copy: two threads may have opened it at once. */
static bool is_first(int copy)
{
    for (int i = 0; i < copy; i++)
        if (tfi_copy_handle(i) == tfi_copy_handle(copy)) return false;
    return true;
}

unsigned tfi_copies_known(const char *soname)
{
    unsigned known = 0;
    size_t length = stem(soname);
    for (int i = 0; i < TFI_COPIES; i++)
        known += tfi_copy_handle(i) && is_copy_of(copies[i].soname, soname, length) && is_first(i);
    return known;
}

void *tfi_copy_handle(int copy)
{
    return __atomic_load_n(&copies[copy].handle, __ATOMIC_ACQUIRE);
}

static void add_copy(const char *soname, void *handle)
{
    if (strlen(soname) >= MAX_SONAME) return;
    unsigned i = __atomic_fetch_add(&nr_copies, 1, __ATOMIC_RELAXED);
    if (i >= TFI_COPIES) return;
    strcpy(copies[i].soname, soname);
    __atomic_store_n(&copies[i].handle, handle, __ATOMIC_RELEASE);
}

void *tfi_copy_open(const char *soname)
{
    int known = tfi_copy_known(soname);
    if (known != TFI_COPY_NONE) return tfi_copy_handle(known);
    void *handle = dlopen(soname, RTLD_NOLOAD | RTLD_LAZY);
    if (handle) add_copy(soname, handle);
    else dlerror();
    return handle;
}

void tfi_copy_note(const char *file)
{
    const char *slash = strrchr(file, '/');
    void *handle = dlopen(file, RTLD_NOLOAD | RTLD_LAZY);
    if (!handle) dlerror();
    for (int i = 0; handle && i < TFI_COPIES; i++)
        if (tfi_copy_handle(i) == handle) return;
    if (handle) add_copy(slash ? slash + 1 : file, handle);
}

int tfi_copy_needed(const void *caller, const char *soname)
{
    const char *needed = needed_by(caller, soname);
    if (!needed) return TFI_COPY_NONE;
    int known = tfi_copy_known(needed);
    if (known == TFI_COPY_NONE && tfi_copy_open(needed)) known = tfi_copy_known(needed);
    return known;
}

bool tfi_copy_is(const char *path, const char *library)
{
    const char *file = strrchr(path, '/');
    size_t length = strlen(library);
    file = file ? file + 1 : path;
    return strncmp(file, library, length) == 0 && (file[length] == '.' || file[length] == '-');
}
