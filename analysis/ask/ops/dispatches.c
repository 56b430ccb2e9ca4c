/* dispatches.c - tells operators of other libraries from torch's by scope and name. */
#include "ask/ops/dispatches.h"

#include <string.h>

static bool is_native_name(const char *name)
{
    static const char *const torchs[] = {"aten", "prim", "prims", "c10d", "autograd", "torch", "profiler"};
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.");
    if (!length || strncmp(name + length, "::", 2) != 0) return false;
    for (size_t i = 0; i < ARRAY_SIZE(torchs); i++)
        if (strlen(torchs[i]) == length && strncmp(name, torchs[i], length) == 0) return false;
    return true;
}

bool is_dispatch(const struct model *model, const struct spans *s, size_t i, struct map *native)
{
    uint32_t scope = op_details_of(&s->details, i)->scope;
    if (s->event_class[i] != CLASS_OPERATOR || (scope != TFI_SCOPE_FUNCTION && scope != TFI_SCOPE_NATIVE)) return false;
    uint32_t known = map_get(native, s->name[i]);
    if (known == MAP_NONE) {
        known = is_native_name(model_name(model, s->name[i]));
        map_put(native, s->name[i], known);
    }
    return scope == TFI_SCOPE_NATIVE || known;
}
