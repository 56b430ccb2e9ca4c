/* output_dirs.c - opens the directories a report writes to, each once, and finds file names that it may take there.
 *
 * Files are examined and created relative to the directory's descriptor, and no link is followed: other users who may
 * write to a directory can put a link to somebody's file there. An existing file that neither a report nor the library
 * wrote is kept, as TeleFuser gives its files the same names. The report's file then gets the suffix ~2.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/report/report.h"
#include "commands/report/stage_script.h"

bool report_add_place(struct report *report, const char *path, enum report_trust trust)
{
    const char *why = "";
    int fd = trust == REPORT_TYPED ? directory_make(path, &why) : directory_walk(path, &why);
    if (fd >= 0 && trust == REPORT_ASKED && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        why = strerror(errno);
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        complain(path, "cannot be created or written to (%s)%s", why,
                 trust == REPORT_ASKED ? "; cache-dit's files are written beside the other files" : "");
        return false;
    }
    report->place = mem_resize(report->place, report->places + 1, sizeof *report->place);
    report->place[report->places++] = (struct report_place){string_format("%s", path), fd};
    return true;
}

bool report_is_beside(const struct report *report, const struct input *input)
{
    const struct report_place *place = &report->place[report->places - 1];
    if (!file_is_in(place->fd, input->path, input->device, input->inode)) {
        complain(place->path, "is no longer the directory that %s was read from; the report writes nothing to it",
                 input->path);
        return false;
    }
    return true;
}

void report_free_places(struct report *report)
{
    for (size_t i = 0; i < report->places; i++) {
        close(report->place[i].fd);
        free(report->place[i].path);
    }
    free(report->place);
}

/* Returns the descriptor of a path's directory, if that is one of the places, else -1. *name is the file's name. */
static int output_dir_of(const struct report *report, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    for (size_t i = 0; slash && i < report->places; i++) {
        size_t length = strlen(report->place[i].path);
        if (length == (size_t)(slash - path) && memcmp(report->place[i].path, path, length) == 0)
            return report->place[i].fd;
    }
    return -1;
}

bool report_open(const struct report *report, struct out *out, const char *path, unsigned mode)
{
    const char *name;
    return out_open_in(out, output_dir_of(report, path, &name), path, mode);
}

/* Opens an existing file of that name. Returns -1 if there is none or it can't be opened; *is_free is true if there is
 * none. */
static int open_earlier(const struct report *report, const char *path, bool *is_free)
{
    const char *name, *why;
    struct stat status;
    int directory = output_dir_of(report, path, &name);
    bool is_there = tfi_fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    int fd = is_there ? file_open_at(directory, name, FILE_FOUND, &status, &why) : -1;
    *is_free = !is_there;
    if (is_there && fd < 0) complain(path, "is not overwritten: %s; the report's file gets another name", why);
    return fd;
}

/* Lists a file as kept unless it may go. */
static bool keep_unless(struct report *report, const char *path, bool may_go)
{
    if (may_go) return true;
    report->kept = mem_grow(report->kept, &report->kept_capacity, report->kepts + 1, sizeof *report->kept);
    report->kept[report->kepts++] = string_format("%s", path);
    return false;
}

bool report_may_take(struct report *report, const char *path)
{
    static const char trace[] = "{\"tfinject\": {\"artefact\": \"stage\"", other[] = "\"writer\": \"tfanalyze ";
    static const char page[] = "<meta name=\"generator\" content=\"tfanalyze\">";
    static const char at_exit[] = "{\n  \"writer\": \"tfinject\""; /* by preload/python/shim/shim_telefuser.py */
    char head[512];
    bool is_free;
    int fd = open_earlier(report, path, &is_free);
    gzFile file = fd >= 0 ? gzdopen(fd, "rb") : NULL; /* also reads uncompressed files */
    if (!file) {
        if (fd >= 0) close(fd);
        return keep_unless(report, path, is_free);
    }
    int length = gzread(file, head, sizeof head);
    gzclose(file);
    bool is_ours = length > 0 && (memmem(head, (size_t)length, trace, sizeof trace - 1) == head ||
                                  memmem(head, (size_t)length, at_exit, sizeof at_exit - 1) == head ||
                                  memmem(head, (size_t)length, other, sizeof other - 1) ||
                                  memmem(head, (size_t)length, page, sizeof page - 1));
    return keep_unless(report, path, is_ours);
}

bool report_may_take_script(struct report *report, const char *path)
{
    bool is_free;
    int fd = open_earlier(report, path, &is_free);
    return keep_unless(report, path, fd < 0 ? is_free : stage_script_may_go(fd));
}

char *report_path(struct report *report, const char *directory, const char *name, const char *suffix)
{
    char *path = string_format("%s/%s%s", directory, name, suffix);
    for (unsigned n = 2; !report_may_take(report, path); n++) {
        free(path);
        path = string_format("%s/%s~%u%s", directory, name, n, suffix);
    }
    return path;
}

bool report_finish(struct report *report, struct out *out, const char *path)
{
    if (!out_close(out)) return false;
    report->file = mem_grow(report->file, &report->file_capacity, report->files + 1, sizeof *report->file);
    report->file[report->files++] = string_format("%s", path);
    return true;
}
