/* resources.c - writes the sources of compiled modules into the folder beside an execution trace.
 *
 * The trace gives the names of these files and their content, and it may come from an enemy. So a name has to be one
 * that torch gives to a module, which has no directory in it, and no link is followed.
 */
#include "write/execution/resources.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "write/out.h"

enum { LONGEST = 128 };

/* Returns whether the name is a word and `.py`, as torch's are. */
static bool is_module(const struct string *name)
{
    static const char end[] = ".py";
    size_t tail = sizeof end - 1;
    if (!name || name->length <= tail || name->length > LONGEST) return false;
    size_t stem = name->length - tail;
    for (size_t i = 0; i < stem; i++)
        if (!isalnum((unsigned char)name->text[i]) && name->text[i] != '_') return false;
    return memcmp(name->text + stem, end, tail) == 0;
}

/* Returns the folder for an output: its path without the extension, as os.path.splitext takes it off, and _resources. The
 * caller frees it. */
static char *folder_of(const char *output)
{
    const char *slash = strrchr(output, '/'), *name = slash ? slash + 1 : output;
    const char *first = name + strspn(name, "."), *dot = strrchr(first, '.');
    int stem = (int)(dot ? dot - output : (ptrdiff_t)strlen(output));
    return string_format("%.*s_resources", stem, output);
}

/* Opens the folder, and makes it if it is missing. Returns -1 after a message. */
static int open_folder(const char *folder)
{
    const char *slash = strrchr(folder, '/'), *why = NULL;
    char *directory = directory_above(folder);
    int above = directory_open(directory, &why);
    int fd = above >= 0 ? directory_below(above, slash ? slash + 1 : folder, &why) : -1;
    if (fd < 0) complain(folder, "cannot be written (%s)", why);
    if (above >= 0) close(above);
    free(directory);
    return fd;
}

static bool write_file(int fd, const char *folder, const struct trace *trace, const struct source *source)
{
    const struct string *name = strings_get(&trace->strings, source->name);
    char *path = string_format("%s/%.*s", folder, (int)name->length, name->text);
    struct out out;
    bool good = out_open_in(&out, fd, path, FILE_SHARED);
    for (size_t i = 0; i < source->pieces && good; i++) {
        const struct string *text = strings_get(&trace->strings, source->piece[i]);
        out_write(&out, text->text, text->length);
    }
    if (good) good = out_close(&out);
    else out_discard(&out);
    free(path);
    return good;
}

bool resources_write(const char *output, const struct trace *trace, const struct sources *sources,
                     struct resource_counts *counts)
{
    char *folder = folder_of(output);
    bool good = true;
    int fd = -1;
    *counts = (struct resource_counts){0};
    for (size_t i = 0; i < sources->count && good; i++) {
        const struct source *source = &sources->source[i];
        if (!source_is_whole(source)) {
            counts->partial++;
        } else if (!is_module(strings_get(&trace->strings, source->name))) {
            counts->unnamed++;
        } else {
            if (fd < 0) fd = open_folder(folder);
            good = fd >= 0 && write_file(fd, folder, trace, source);
            counts->written += good;
        }
    }
    if (fd >= 0) close(fd);
    free(folder);
    return good;
}
