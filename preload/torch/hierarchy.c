/* hierarchy.c - names the modules of TorchScript around an operator, as torch.profiler(with_modules=True) does.
 *
 * libtorch's function walks the frames of TorchScript's interpreter in the calling thread, and returns a name for each.
 * Outside the interpreter it looks at one variable of the thread and returns nothing. torch.profiler puts a point
 * behind each name, also behind the last one.
 *
 * libtorch's function asks each inlined call for the name of the called function, which torch may have freed. That
 * crashed half of the runs of a model that torch.jit.load, freeze and optimize_for_inference made. So only
 * TFI_WITH_MODULES=1 makes the library call it, and shim_torch.py then keeps the functions of loaded files. Programs
 * without Python, and units that a program makes itself, have no such protection.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fmt.h"
#include "base/tfi.h"
#include "control/config.h"
#include "torch/cxx.h"
#include "torch/torch.h"

static struct tfi_cxx_vector *(*current)(struct tfi_cxx_vector *names);

#ifdef TFI_TEST_HOOKS
/* Simulates a release whose function returns a larger object. */
static struct tfi_cxx_vector *larger(struct tfi_cxx_vector *names)
{
    memset(names, 0, sizeof *names + sizeof(void *));
    return names;
}
#endif

/* Calls the function outside the interpreter, with more room than it needs. An empty std::vector is three zeros. A
 * function that writes anything else returns another object in this release, and is not used. */
static bool returns_vector(void)
{
    enum { WORDS = 64, OWN = sizeof(struct tfi_cxx_vector) / sizeof(uint64_t) };
    union {
        uint64_t word[WORDS];
        struct tfi_cxx_vector names;
    } room;
    memset(&room, 0xa5, sizeof room);
    if (current(&room.names) != &room.names) return false;
    for (unsigned i = 0; i < WORDS; i++)
        if (room.word[i] != (i < OWN ? 0 : 0xa5a5a5a5a5a5a5a5u)) return false;
    return true;
}

void tfi_torch_hierarchy_init(void *library)
{
    static const struct tfi_torch_function function = {"_ZN5torch3jit22currentModuleHierarchyB5cxx11Ev", &current,
                                                       "_ZN5torch3jit22currentModuleHierarchyEv"};
    if (!tfi_config.with_modules) return;
    bool can_free = tfi_cxx_init(library);
    tfi_torch_find(library, &function, 1);
#ifdef TFI_TEST_HOOKS
    const char *release = getenv("TORCH_HIERARCHY");
    if (release) current = strcmp(release, "other") == 0 ? larger : NULL;
#endif
    if (!current || !can_free || !returns_vector()) current = NULL;
}

static TFI_COLD void add_names(struct tfi_text *text, const struct tfi_cxx_vector *names)
{
    for (const char *at = names->begin; at < names->end; at += tfi_cxx_string_bytes()) {
        struct tfi_cxx_text name = tfi_cxx_text(at);
        tfi_text_bytes(text, name.bytes, name.length);
        tfi_text_bytes(text, ".", 1);
    }
    tfi_cxx_strings_end(names);
}

void tfi_torch_hierarchy(struct tfi_text *text)
{
    struct tfi_cxx_vector names;
    if (!current) return;
    current(&names);
    if (TFI_UNLIKELY(names.begin != NULL)) add_names(text, &names);
}
