/* selection.c - decides by TFI_IO_PATHS whether calls on a path are recorded.
 *
 * The decision is made once for each path (paths.c).
 */
#include <string.h>

#include "base/tfi.h"
#include "control/config.h"
#include "io/paths.h"

/* True if `path` is `prefix` or lies below it; a prefix that ends in a slash or in part of a name is taken literally. */
static bool begins(const char *path, size_t length, const char *prefix, size_t prefix_length)
{
    return length >= prefix_length && memcmp(path, prefix, prefix_length) == 0;
}

static bool ends(const char *path, size_t length, const char *suffix)
{
    size_t n = strlen(suffix);
    return length >= n && memcmp(path + length - n, suffix, n) == 0;
}

/* True for libx.so and libx.so.1.2. */
static bool is_library(const char *path, size_t length)
{
    const char *name = memrchr(path, '/', length);
    size_t left = length - (size_t)(name ? name - path : 0);
    const char *so = memmem(name ? name : path, left, ".so.", 4);
    return ends(path, length, ".so") || (so && so[4] >= '0' && so[4] <= '9');
}

static bool below(const char *path, size_t length, const char *directory)
{
    size_t n = strlen(directory);
    return begins(path, length, directory, n) && (length == n || path[n] == '/');
}

/* The class of paths to which a path belongs, as a bit of TFI_IO_CLASS_*; 0 for an ordinary file. */
static uint32_t class_of(const char *path, size_t length)
{
    if (path[0] != '/') return TFI_IO_CLASS_PIPES;
    if (below(path, length, "/proc")) return TFI_IO_CLASS_PROC;
    if (below(path, length, "/sys")) return TFI_IO_CLASS_SYS;
    if (ends(path, length, ".py")) return TFI_IO_CLASS_PY;
    if (ends(path, length, ".pyc")) return TFI_IO_CLASS_PYC;
    if (is_library(path, length)) return TFI_IO_CLASS_SO;
    if (ends(path, length, ".tfr") || ends(path, length, ".tfr.live")) return TFI_IO_CLASS_TRACES;
    return 0;
}

static bool has_prefixes(void)
{
    return (tfi_config.io_paths && tfi_config.io_paths[0] == '/') ||
           (tfi_config.io_paths && strstr(tfi_config.io_paths, ",/"));
}

/* Takes the next entry of the list. */
static const char *next_entry(const char **list, size_t *length)
{
    const char *entry = *list, *end = strchrnul(entry, ',');
    *length = (size_t)(end - entry);
    *list = *end ? end + 1 : end;
    return entry;
}

/* True if the list has the word of this class. */
static bool is_added(uint32_t class)
{
    uint32_t bit;
    size_t n;
    for (const char *list = tfi_config.io_paths; list && *list;) {
        const char *entry = next_entry(&list, &n);
        if (entry[0] == '+' && tfi_config_io_class(entry + 1, n - 1, &bit) && bit == class) return true;
    }
    return false;
}

bool tfi_path_unknown_wanted(void)
{
    return !has_prefixes();
}

bool tfi_path_wanted(const char *path, size_t length)
{
    uint32_t class = class_of(path, length);
    bool wanted = !has_prefixes();
    size_t n;
    if (strncmp(path, "socket:", 7) == 0) return false;
    if (class && !is_added(class)) return false;
    if (class == TFI_IO_CLASS_PIPES) return true;
    for (const char *list = tfi_config.io_paths; list && *list;) {
        const char *entry = next_entry(&list, &n);
        if (entry[0] == '/' && begins(path, length, entry, n)) wanted = true;
        if (entry[0] == '-' && begins(path, length, entry + 1, n - 1)) return false;
    }
    return wanted;
}
