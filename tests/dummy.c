/* dummy.c - defines the wrappers of dummy.def. */
#include "dummy.h"

#include "hooks/call_record.h"

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) TFI_WRAP(ret, symbol, params, args, (ret)0, values)
#define HOOK_VOID(class, ret, symbol, params, args, names, values) TFI_WRAP_VOID(symbol, params, args, values)
#include "dummy.def"
