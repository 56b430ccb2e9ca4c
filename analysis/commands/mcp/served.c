/* served.c - the directories that `tfanalyze mcp` was started for: which paths lie in them, and which runs they hold.
 *
 * A client names files. This is where its mistakes are answered: `..`, a link below a directory, a path elsewhere. A path
 * may still change between this check and its opening, so that file_confine() decides again on what was opened.
 */
#include "commands/mcp/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_in.h"
#include "model/input.h"

bool served_add(struct served *served, const char *directory)
{
    struct stat status;
    char *real = realpath(directory, NULL);
    if (!real || tfi_stat(real, &status) != 0 || !S_ISDIR(status.st_mode)) {
        complain(directory, "%s", real ? "it is no directory; give the one that holds the runs" : strerror(errno));
        free(real);
        return false;
    }
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') length--;
    served->directory = mem_resize(served->directory, served->count + 1, sizeof *served->directory);
    served->directory[served->count++] = (struct served_directory){
        .typed = string_format("%s%.*s", *directory == '-' ? "./" : "", (int)length, directory), .real = real};
    return true;
}

void served_names(const struct served *served, struct text *to)
{
    enum { LONG = 400 }; /* bytes after which no further one is named */
    size_t before = to->length, i = 0;
    for (; i < served->count && to->length - before < LONG; i++)
        text_format(to, "%s%.200s", i ? ", " : "", served->directory[i].typed);
    if (i < served->count) text_format(to, " and %zu more", served->count - i);
}

static char *path_below(const char *directory, const char *rest)
{
    while (*rest == '/') rest++;
    size_t length = strlen(directory);
    return string_format("%s%s%s", directory, *rest && directory[length - 1] != '/' ? "/" : "", rest);
}

static bool has_parent(const char *path)
{
    for (const char *p = path; *p; p += strcspn(p, "/"), p += strspn(p, "/"))
        if (strncmp(p, "..", 2) == 0 && (!p[2] || p[2] == '/')) return true;
    return false;
}

/* Returns false, with the reason, if the path does not exist or a link lies below the directory, whose path has `from`
 * bytes. */
static bool is_plain(char *path, size_t from, struct text *why)
{
    struct stat status;
    for (char *end = path + from; *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char rest = *end;
        *end = 0;
        int failed = tfi_lstat(path, &status);
        if (failed) text_format(why, "%.400s cannot be read (%s)", path, strerror(errno));
        else if (S_ISLNK(status.st_mode))
            text_format(why, "%.400s is a symbolic link, and links are not followed", path);
        *end = rest;
        if (failed || S_ISLNK(status.st_mode)) return false;
    }
    return true;
}

/* Returns what of a path is below the directory, NULL if it is elsewhere. */
static const char *rest_below(const struct served_directory *directory, const char *path)
{
    const char *names[] = {directory->typed, directory->real};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t length = strlen(names[i]);
        if (path_is_below(path, names[i])) return path + MIN(length, strlen(path));
    }
    return NULL;
}

static bool exists(const char *path)
{
    struct stat status;
    return tfi_lstat(path, &status) == 0;
}

static char *checked(const struct served_directory *directory, const char *rest, struct text *why)
{
    char *path = path_below(directory->typed, rest);
    if (is_plain(path, strlen(directory->typed), why)) return path;
    free(path);
    return NULL;
}

char *served_path(const struct served *served, const char *path, struct text *why)
{
    const char *rest;
    if (has_parent(path)) {
        text_format(why, "%.400s: a path with `..` is refused", path);
        return NULL;
    }
    for (size_t i = 0; i < served->count; i++)
        if ((rest = rest_below(&served->directory[i], path)) != NULL) return checked(&served->directory[i], rest, why);
    for (size_t i = 0; i < served->count && *path != '/'; i++) {
        char *below = path_below(served->directory[i].typed, path);
        bool there = exists(below);
        free(below);
        if (there) return checked(&served->directory[i], path, why);
    }
    text_format(why, "%.400s is not in what this server reads: ", path);
    served_names(served, why);
    return NULL;
}

void served_free(struct served *served)
{
    for (size_t i = 0; i < served->count; i++) {
        free(served->directory[i].typed);
        free(served->directory[i].real);
    }
    free(served->directory);
    *served = (struct served){0};
}

/* ---- runs ---- */

enum {
    DEEPEST = 5,    /* of directories below one that is served */
    VISITED = 4096, /* directories at most */
    NAMED = 30,     /* runs at most */
};

struct found_run {
    char *path;
    time_t changed;
};

struct found_runs {
    struct found_run *run;
    size_t count, capacity, visited;
};

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Notes the directory if it holds traces, else those below it. */
static void find_runs(struct found_runs *runs, const char *directory, int depth)
{
    struct dirent **entries = NULL;
    struct stat status;
    if (tfi_lstat(directory, &status) != 0 || (depth && !S_ISDIR(status.st_mode)) || runs->visited++ >= VISITED) return;
    if (inputs_are_in(directory)) {
        runs->run = mem_grow(runs->run, &runs->capacity, runs->count + 1, sizeof *runs->run);
        runs->run[runs->count++] = (struct found_run){string_format("%s", directory), status.st_mtime};
        return;
    }
    int count = depth < DEEPEST ? file_list(directory, is_visible, &entries) : 0;
    for (int i = 0; i < count; i++) {
        bool may_be_one = entries[i]->d_type == DT_DIR || entries[i]->d_type == DT_UNKNOWN;
        char *path = path_below(directory, entries[i]->d_name);
        if (may_be_one) find_runs(runs, path, depth + 1);
        free(path);
        free(entries[i]);
    }
    free(count >= 0 ? entries : NULL);
}

static int newest_first(const void *a, const void *b)
{
    const struct found_run *x = a, *y = b;
    return x->changed == y->changed ? strcmp(x->path, y->path) : x->changed < y->changed ? 1 : -1;
}

const char *served_run(const struct served *served, struct text *why)
{
    struct found_runs runs = {0};
    if (served->count == 1 && inputs_are_in(served->directory[0].typed)) return served->directory[0].typed;
    for (size_t i = 0; i < served->count; i++) find_runs(&runs, served->directory[i].typed, 0);
    if (runs.count) qsort(runs.run, runs.count, sizeof *runs.run, newest_first);
    text_puts(why, runs.count ? "give one of these runs as `input`, the newest first:" : "no run is in ");
    if (!runs.count) served_names(served, why);
    for (size_t i = 0; i < runs.count; i++) {
        if (i < NAMED) text_format(why, "\n%s", runs.run[i].path);
        free(runs.run[i].path);
    }
    if (runs.count > NAMED) text_format(why, "\nand %zu older ones", runs.count - NAMED);
    free(runs.run);
    return NULL;
}
