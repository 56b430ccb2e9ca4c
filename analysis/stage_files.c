/* stage_files.c - makes names of files from names of stages, and the directory they go to. */
#include "stage_files.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_NAME = 120 };

size_t without_number(const char *stage, size_t length)
{
    size_t end = length;
    while (end && isdigit((unsigned char)stage[end - 1])) {
        end--;
    }
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
        text.data[i] = plain && (i || c != '.') ? c : '_';
    }
    if (!text.length) {
        text_puts(&text, "_");
    }
    if (text.length > LONGEST_NAME) {
        text.data[LONGEST_NAME] = 0;
    }
    return text.data;
}

static bool is_taken(const struct stage_files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++) {
        if (strcmp(files->taken[i], name) == 0) {
            return true;
        }
    }
    return false;
}

char *stage_file_named(struct stage_files *files, const char *directory, const char *prefix, const char *stage,
                       size_t length, const char *suffix)
{
    char *clean = stage_clean_name(stage, length);
    char *name = string_format("%s%s%s", prefix, clean, suffix);
    for (unsigned n = 2; is_taken(files, name); n++) {
        char *number = string_format("~%u", n);
        free(name);
        name = string_format("%s%.*s%s%s", prefix, LONGEST_NAME - (int)strlen(number), clean, number, suffix);
        free(number);
    }
    free(clean);
    files->taken = mem_grow(files->taken, &files->capacity, files->count + 1, sizeof *files->taken);
    files->taken[files->count++] = name;
    return string_format("%s/%s", directory, name);
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
    for (size_t i = 0; i < files->count; i++) {
        free(files->taken[i]);
    }
    free(files->taken);
    *files = (struct stage_files){0};
}

/* ---- directories ---- */

char *directory_of(const char *path)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        return string_format("%s", path);
    }
    const char *slash = strrchr(path, '/');
    return !slash ? string_format(".") : slash == path ? string_format("/") : mem_text(path, (size_t)(slash - path));
}

bool make_directory(const char *path)
{
    struct stat status;
    char *copy = string_format("%s", path);
    for (char *p = copy + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            mkdir(copy, 0777);
            *p = '/';
        }
    }
    int error = mkdir(copy, 0777) == 0 ? 0 : errno;
    bool is_there = stat(copy, &status) == 0 && S_ISDIR(status.st_mode);
    if (!is_there) {
        complain(path, "can't be made (%s)", strerror(error));
    }
    free(copy);
    return is_there;
}
