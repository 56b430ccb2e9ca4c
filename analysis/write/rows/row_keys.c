/* row_keys.c - the keys of rows: which there are, their units, and those that say whose a row is. */
#include "write/rows/row_keys.h"

#include <string.h>

#include "base/util.h"

bool keys_have(const char *keys, const char *key, size_t length)
{
    for (const char *p = keys; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == length && strncmp(p, key, length) == 0) return true;
    return false;
}

size_t key_without_unit(const char *keys, const char *key, size_t length)
{
    static const char *const units[] = {"_us", "_bytes"};
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        size_t unit = strlen(units[i]);
        if (length > unit && strncmp(key + length - unit, units[i], unit) == 0)
            return keys_have(keys, key, length - unit) ? length : length - unit;
    }
    return length;
}

bool key_is_place(const char *key)
{
    static const char *const places[] = {"rank", "pid", "tid", "device", "stream", "step", "correlation", "worker"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (strcmp(key, places[i]) == 0) return true;
    return false;
}
