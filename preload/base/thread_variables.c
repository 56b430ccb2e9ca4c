/* thread_variables.c - notes where the thread-local variables of the loaded objects lie, for bare threads.
 *
 * It asks the loader, which takes its lock: in the constructor only.
 */
#include <errno.h>
#include <link.h>
#include <stdint.h>

#include "base/bare_thread.h"
#include "base/tfi.h"
#include "base/x86_64.h"

enum {
    MOST = 4 << 20, /* of the objects that were loaded with the program; ThreadSanitizer has 0.8 MB */
    ALIGN = 64,
};

/* The linker defines these for our own library: where its file and its thread-local variables begin. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern __thread const char _TLS_MODULE_BASE_[] __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Notes the variables of one object. Those of an object that was loaded later may lie anywhere, and are left out. Our
 * own never do, but the loader does not tell where they lie in a process whose driver has loaded the library, as for
 * CUDA_INJECTION64_PATH: nobody has asked the loader for the address of one. */
static int note_object(struct dl_phdr_info *object, size_t size, void *data)
{
    struct tfi_thread_variables *all = data;
    uintptr_t here = tfi_tls_word(TFI_TLS_SELF), start = (uintptr_t)object->dlpi_tls_data;
    (void)size;
    if (!start && object->dlpi_addr == (uintptr_t)__ehdr_start) start = (uintptr_t)_TLS_MODULE_BASE_;
    if (!start || start >= here || here - start > MOST || all->count == TFI_COUNT(all->module)) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_TLS) continue;
        all->module[all->count].below = here - start;
        all->module[all->count].image = (const void *)(object->dlpi_addr + part->p_vaddr);
        all->module[all->count++].bytes = part->p_filesz;
        if (here - start > all->below) all->below = here - start;
    }
    return 0;
}

void tfi_thread_variables_constructor(void)
{
    struct tfi_thread_variables *all = &tfi_thread_variables;
    dl_iterate_phdr(note_object, all);
    if (tfi_tls_word(TFI_TLS_SELF) - (uintptr_t)&errno > all->below)
        all->below = 0; /* libc's are out of reach: no thread */
    all->below = (all->below + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}
