/* dl.c - wraps dlsym: answers for names of the CUDA and NCCL tables, and passes every other look-up to the original unchanged.
 *
 * glibc's dlsym reads its caller's return address, which decides the meaning of RTLD_NEXT and RTLD_DEFAULT and whose
 * own scope is searched. If the wrapper called the original, look-ups would be for the wrapper. (Tried: RTLD_DEFAULT
 * in a library that was opened RTLD_LOCAL gives NULL; RTLD_NEXT in another preloaded library gives that library
 * again, for ever.) So the wrapper jumps to the original, with stack and registers unchanged, in assembler.
 *
 * CUPTI and its helper libraries make their own calls of the driver, by addresses from dlsym. Those look-ups get the
 * driver's functions. (None of these libraries is linked with the driver: nm shows no such symbol in CUDA 12.8 and
 * 13.2.)
 */
#include "hooks/dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "base/objects.h"
#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "base/x86_64.h"
#include "cuda/routes.h"
#include "hooks/copies.h"
#include "nccl/plugin.h"

/* The answer to the assembler below, in two registers: `given`: return `address`; else jump to the original. */
struct answer {
    void *address;
    uint64_t given;
};

/* Called by the assembler. */
struct answer tfi_dlsym_answer(void *handle, const char *name, const void *caller);

/* True for names such as cuLaunchKernel, cudaMalloc, __cudaLaunchKernel, ncclSend and mscclLoadAlgo; not for cublasCreate_v2. */
static bool may_be_row(const char *name)
{
    if (name[0] == 'n') return strncmp(name, "nccl", 4) == 0;
    if (name[0] == 'm') return strncmp(name, "msccl", 5) == 0;
    if (name[0] == '_' && name[1] == '_') name += 2;
    if (name[0] != 'c' || name[1] != 'u') return false;
    return (name[2] >= 'A' && name[2] <= 'Z') || strncmp(name + 2, "da", 2) == 0 || strncmp(name + 2, "pti", 3) == 0;
}

/* Number of objects that were loaded with the program, this library among them. They stay loaded, and see only globally
 * opened libraries. */
static unsigned at_start;

struct search {
    const void *address;
    unsigned before; /* objects before that one */
};

/* Ends the iteration at the object that contains the address; no object contains NULL. */
static int look_at_object(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *s = data;
    (void)size;
    for (int i = 0; s->address && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)s->address - object->dlpi_addr - part->p_vaddr < part->p_memsz)
            return 1;
    }
    s->before++;
    return 0;
}

void tfi_dl_constructor(void)
{
    struct search all = {NULL, 0};
    dl_iterate_phdr(look_at_object, &all);
    at_start = all.before;
}

static bool sees_only_what_all_see(const void *caller)
{
    struct search s = {caller, 0};
    return dl_iterate_phdr(look_at_object, &s) && s.before < at_start;
}

/* An RTLD_DEFAULT look-up is an existence test: answer NULL if nothing lies below our wrapper, that is no library at
 * all, or none that the caller would find without us. The scope of a library that was opened later can't be known: it
 * gets the wrapper if the library is mapped anywhere. */
static bool is_missing(const char *name, const void *caller)
{
    if (!tfi_route_is_row(name)) return false;
    if (!sees_only_what_all_see(caller) && !tfi_route_is_missing(name, caller)) return false;
    return !tfi_dlsym(RTLD_NEXT, name);
}

/* True for code of the vendor's profiling libraries. */
static bool is_of_cupti(const void *caller)
{
    static const char *const libraries[] = {"libcupti", "libnvperf_host", "libnvperf_target", "libcheckpoint",
                                            "libpcsamplingutil"};
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname) return false;
    for (size_t i = 0; i < TFI_COUNT(libraries); i++)
        if (tfi_copy_is(info.dli_fname, libraries[i])) return true;
    return false;
}

bool tfi_dl_is_preloaded(void)
{
    struct search ours = {(const void *)tfi_dl_is_preloaded, 0}, theirs = {(const void *)tfi_dlsym_original(), 0};
    return dl_iterate_phdr(look_at_object, &ours) && dl_iterate_phdr(look_at_object, &theirs) &&
           ours.before < theirs.before;
}

/* Answers CUPTI: the original behind our wrapper, where a look-up would find the wrapper; otherwise the handle's
 * symbol. */
static struct answer for_cupti(void *handle, const char *name)
{
    bool ours = handle == RTLD_DEFAULT ? tfi_route_is_row(name) : tfi_route_is_ours(handle, name);
    return (struct answer){ours ? tfi_dlsym(RTLD_NEXT, name) : NULL, ours};
}

/* Decides the answer to a look-up. A look-up without an answer goes on to glibc, which resolves RTLD_DEFAULT, RTLD_NEXT
 * and the program's own handle: they find our wrappers or pass over them, like any symbol of a preloaded library. */
__attribute__((used, visibility("hidden"))) struct answer tfi_dlsym_answer(void *handle, const char *name,
                                                                           const void *caller)
{
    struct answer answer = {NULL, 0};
    __atomic_add_fetch(&tfi_hook_loads, 1, __ATOMIC_RELAXED);
    tfi_objects_look_again();
    if (!tfi_dlsym_original() || handle == RTLD_NEXT || !name || !may_be_row(name)) return answer;
    int error = errno;
    if (tfi_nccl_plugin_hides(handle, name, &answer.address)) {
        answer.given = 1;
    } else if (is_of_cupti(caller)) {
        answer = for_cupti(handle, name);
    } else if (handle == RTLD_DEFAULT) {
        answer.given = is_missing(name, caller);
    } else {
        answer.address = tfi_route_symbol(handle, name);
        answer.given = answer.address || (tfi_route_is_ours(handle, name) && !tfi_dlsym(RTLD_NEXT, name));
    }
    errno = error;
    return answer;
}

TFI_ASM_ANSWER(dlsym, tfi_dlsym_answer, tfi_dlsym_real);
