/* stage_files.c - makes file names from stage names, and finds the directory of a file. */
#include "write/stage_files.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_out.h"

enum { LONGEST_NAME = 120 };

size_t without_number(const char *stage, size_t length)
{
    size_t end = length;
    while (end && isdigit((unsigned char)stage[end - 1])) end--;
    return end < length && end > 1 && stage[end - 1] == '#' ? end - 1 : 0;
}

char *stage_clean_name(const char *stage, size_t length)
{
    size_t collapsed = without_number(stage, length);
    struct text text = {0};
    text_add(&text, stage, collapsed ? collapsed : length);
    text_puts(&text, collapsed ? "*" : "");
    for (size_t i = 0; i < text.length; i++) {
        char c = text.data[i];
        bool plain = isascii((unsigned char)c) && (isalnum((unsigned char)c) || (c && strchr("._ #*()-", c)));
        text.data[i] = plain && (i || (c != '.' && c != '-')) ? c : '_';
    }
    if (!text.length) text_puts(&text, "_");
    if (text.length > LONGEST_NAME) text.data[LONGEST_NAME] = 0;
    return text.data;
}

/* Returns the value of a text: 1 for a taken name; for a stem the next number to try. */
static uint32_t *value_of(struct stage_files *files, const char *text)
{
    uint32_t number = names_add(&files->texts, text, strlen(text));
    size_t had = files->capacity;
    files->value = mem_grow(files->value, &files->capacity, number + (size_t)1, sizeof *files->value);
    memset(files->value + had, 0, (files->capacity - had) * sizeof *files->value);
    return &files->value[number];
}

static bool take_file_name(struct stage_files *files, const char *name)
{
    uint32_t *taken = value_of(files, name);
    return *taken ? false : (*taken = 1);
}

/* Returns the first free STEM~N with an N of `digits` digits; NULL if there is none. Numbers already taken for this
 * stem are not tried again. */
static char *numbered(struct stage_files *files, const char *prefix, const char *clean, const char *suffix, int digits)
{
    uint32_t from = 2, end = 10;
    for (int i = 1; i < digits; i++) {
        from = end;
        end *= 10;
    }
    char *name = NULL, *stem = string_format("%.*s", LONGEST_NAME - digits - 1, clean);
    char *key =
        string_format("%s/%s/%s/%d", prefix, stem, suffix, digits); /* a slash, so it never equals a file's name */
    uint32_t next = MAX(*value_of(files, key), from);
    for (bool good = false; !good && next < end; next++) {
        free(name);
        name = string_format("%s%s~%u%s", prefix, stem, next, suffix);
        good = take_file_name(files, name);
        if (!good && next + 1 == end) {
            free(name);
            name = NULL;
        }
    }
    *value_of(files, key) = next;
    free(key);
    free(stem);
    return name;
}

char *stage_file_named(struct stage_files *files, const char *directory, const char *prefix, const char *stage,
                       size_t length, const char *suffix)
{
    char *clean = stage_clean_name(stage, length);
    char *name = string_format("%s%s%s", prefix, clean, suffix);
    if (!take_file_name(files, name)) {
        free(name);
        name = NULL;
        for (int digits = 1; !name; digits++) /* terminates: there are fewer names than nine-digit numbers */
            name = numbered(files, prefix, clean, suffix, digits);
    }
    char *path = string_format("%s/%s", directory, name);
    free(clean);
    free(name);
    return path;
}

char *stage_file(struct stage_files *files, const char *directory, const char *stage, size_t length, int64_t rank)
{
    char *suffix = string_format("_rank%lld", (long long)MAX(rank, 0));
    char *path = stage_file_named(files, directory, "", stage, length, suffix);
    free(suffix);
    return path;
}

void stage_files_free(struct stage_files *files)
{
    names_free(&files->texts);
    free(files->value);
    *files = (struct stage_files){0};
}

/* ---- directories ---- */

char *directory_of(const char *path)
{
    struct stat status;
    if (tfi_stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return string_format("%s", path);
    return directory_above(path);
}
