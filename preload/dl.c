/* dl.c - dlsym: answers for names of the CUDA tables, and for everything else is not there.
 *
 * glibc looks at the return address of its caller: it decides what RTLD_NEXT and RTLD_DEFAULT mean, and which library's
 * own scope is searched. A wrapper that called the original would answer for itself (tried: RTLD_DEFAULT in a library
 * that was opened RTLD_LOCAL gives NULL, RTLD_NEXT in another preloaded library gives that library again, for ever). So
 * the original is jumped to, with stack and registers as they came. This is x86-64 assembler, the only one.
 *
 * CUPTI and what belongs to it call the driver on their own account, by addresses that they ask dlsym for: those are the
 * driver's. (None of these libraries is linked with it: nm shows no such symbol in any of CUDA 12.8 and 13.2.)
 */
#include "dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "cuda_routes.h"
#include "tfi.h"

typedef void *dlsym_function(void *handle, const char *name);

/* What the assembler below gets, in two registers: return this address, or jump to the original. */
struct answer {
    void *address;
    uint64_t given;
};

/* Named by the assembler. */
__attribute__((visibility("hidden"))) dlsym_function *tfi_dlsym_real;
struct answer tfi_dlsym_answer(void *handle, const char *name, const void *caller);

/* The old version first: it is there in every glibc, and a look-up that fails would allocate, which other preloaded
 * libraries that ask for malloc itself could not bear. */
static TFI_COLD dlsym_function *find_real(void)
{
    void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    __atomic_store_n(&tfi_dlsym_real, (dlsym_function *)found, __ATOMIC_RELAXED);
    return (dlsym_function *)found;
}

static inline dlsym_function *real(void)
{
    dlsym_function *known = __atomic_load_n(&tfi_dlsym_real, __ATOMIC_RELAXED);
    return TFI_LIKELY(known != NULL) ? known : find_real();
}

void *tfi_dlsym(void *handle, const char *name)
{
    return real()(handle, name);
}

/* cuLaunchKernel, cudaMalloc, __cudaLaunchKernel; not cublasCreate_v2 or cudnnCreate. */
static bool may_be_cuda(const char *name)
{
    if (name[0] == '_' && name[1] == '_') name += 2;
    if (name[0] != 'c' || name[1] != 'u') return false;
    return (name[2] >= 'A' && name[2] <= 'Z') || strncmp(name + 2, "da", 2) == 0 || strncmp(name + 2, "pti", 3) == 0;
}

/* Objects that were loaded with the program, us among them: they stay, and see what was opened for all, no more. */
static unsigned at_start;

struct search {
    const void *address;
    unsigned before; /* objects */
};

/* Ends at the object that the address lies in; NULL lies in none. */
static int look(struct dl_phdr_info *object, size_t size, void *data)
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
    dl_iterate_phdr(look, &all);
    at_start = all.before;
}

static bool sees_only_what_all_see(const void *caller)
{
    struct search s = {caller, 0};
    return dl_iterate_phdr(look, &s) && s.before < at_start;
}

/* Who asks for a function at large wants to know whether it is there. A wrapper is not, if there is nothing below it: no
 * library at all, or none that the caller would find without us. What a library that was opened later sees can't be
 * known; it gets the wrapper if there is a library anywhere. */
static bool is_missing(const char *name, const void *caller)
{
    if (!tfi_route_is_row(name)) return false;
    if (!sees_only_what_all_see(caller) && !tfi_route_is_missing(name, caller)) return false;
    return !tfi_dlsym(RTLD_NEXT, name);
}

bool tfi_dl_is(const char *path, const char *library)
{
    const char *file = strrchr(path, '/');
    size_t length = strlen(library);
    file = file ? file + 1 : path;
    return strncmp(file, library, length) == 0 && (file[length] == '.' || file[length] == '-');
}

/* True for code of the vendor's profiling libraries. */
static bool is_of_cupti(const void *caller)
{
    static const char *const libraries[] = {"libcupti", "libnvperf_host", "libnvperf_target", "libcheckpoint",
                                            "libpcsamplingutil"};
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname) return false;
    for (size_t i = 0; i < TFI_COUNT(libraries); i++)
        if (tfi_dl_is(info.dli_fname, libraries[i])) return true;
    return false;
}

bool tfi_dl_is_preloaded(void)
{
    struct search ours = {(const void *)tfi_dl_is_preloaded, 0}, theirs = {(const void *)real(), 0};
    return dl_iterate_phdr(look, &ours) && dl_iterate_phdr(look, &theirs) && ours.before < theirs.before;
}

/* What CUPTI gets: where everybody is asked, what is behind us, and else what the handle has. */
static struct answer for_cupti(void *handle, const char *name)
{
    bool ours = handle == RTLD_DEFAULT ? tfi_route_is_row(name) : tfi_route_is_ours(handle, name);
    return (struct answer){ours ? tfi_dlsym(RTLD_NEXT, name) : NULL, ours};
}

/* RTLD_DEFAULT, RTLD_NEXT and the program's own handle find our wrappers, or pass them by, as any other symbol of a
 * preloaded library. */
__attribute__((used, visibility("hidden"))) struct answer tfi_dlsym_answer(void *handle, const char *name,
                                                                           const void *caller)
{
    struct answer answer = {NULL, 0};
    __atomic_add_fetch(&tfi_hook_loads, 1, __ATOMIC_RELAXED);
    if (!real() || handle == RTLD_NEXT || !name || !may_be_cuda(name)) return answer;
    int error = errno;
    if (is_of_cupti(caller)) {
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

__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    push %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    push %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    mov 24(%rsp), %rdx\n" /* the return address: the caller */
        "    call tfi_dlsym_answer\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    test %rdx, %rdx\n"
        "    jnz 1f\n"
        "    jmp *tfi_dlsym_real(%rip)\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
