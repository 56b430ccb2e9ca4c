/* value_layout.c - selects the offsets of libtorch's values (layout.def) that belong to its release and its strings. */
#include <stdlib.h>

#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "torch/cxx.h"
#include "torch/values.h"

static const struct known {
    uint32_t first, last;
    struct tfi_torch_layout layout;
} known[] = {
#define TORCH(first, last, ...) {first, last, {__VA_ARGS__}},
#include "torch/layout.def"
#undef TORCH
};

struct tfi_torch_layout tfi_torch_at;
const void *tfi_torch_undefined;

/* In the test build the variable names a field whose offset is made wrong. */
static void shift(void)
{
#ifdef TFI_TEST_HOOKS
    const char *field = getenv("TORCH_SHIFTS");
    if (!field) return;
    if (strcmp(field, "dims") == 0) tfi_torch_at.dims += 8;
    if (strcmp(field, "inputs") == 0) tfi_torch_at.inputs += 8;
    if (strcmp(field, "type") == 0) tfi_torch_at.kind_tensor += 1;
    if (strcmp(field, "sizes") == 0) tfi_torch_at.sizes -= 8;
#endif
}

/* Returns 2015 for "2.15.0+cu132". */
static uint32_t version_number(const char *version)
{
    uint32_t major = 0, minor = 0;
    for (; *version >= '0' && *version <= '9'; version++) major = major * 10 + (uint32_t)(*version - '0');
    if (*version == '.') version++;
    for (; *version >= '0' && *version <= '9'; version++) minor = minor * 10 + (uint32_t)(*version - '0');
    return major * 1000 + minor;
}

bool tfi_torch_layout_choose(void *library, const char *version)
{
    uint32_t number = version_number(version);
    tfi_torch_undefined = tfi_dlsym(library, "_ZN3c1019UndefinedTensorImpl10_singletonE");
    for (size_t i = 0; i < TFI_COUNT(known) && tfi_torch_undefined; i++) {
        if (number < known[i].first || number > known[i].last) continue;
        if (known[i].layout.old_strings != tfi_cxx_is_old()) continue;
        tfi_torch_at = known[i].layout;
        shift();
        return true;
    }
    return false;
}
