/* input_paths.c - finds the traces that the words on the command line name.
 *
 * The content of a file tells whether it is a trace of ours, one of torch's files or a trace of dftracer.
 */
#include "model/input.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "read/stream/containers.h"
#include "read/dftracer.h"
#include "read/kineto.h"
#include "read/summary/summary_file.h"
#include "read/torch/flight.h"
#include "read/torch/memory_rows.h"
#include "read/torch/memory_snapshot.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

static bool exists(const char *path)
{
    struct stat status;
    return tfi_stat(path, &status) == 0;
}

struct input *inputs_append(struct inputs *inputs, const char *path, enum file_how how, int64_t rank)
{
    inputs->input = mem_grow(inputs->input, &inputs->capacity, inputs->count + 1, sizeof *inputs->input);
    struct input *input = &inputs->input[inputs->count++];
    *input = (struct input){.path = string_format("%s", path), .how = how, .rank = rank, .trace = {.fd = -1}};
    return input;
}

/* Remembers the file of an input that is added next. Returns false if an earlier input is the same file; if a hash
 * clashes, the next key is tried. */
static bool is_new_file(struct inputs *inputs, const struct stat *status)
{
    uint64_t key = hash_numbers(status->st_ino, status->st_dev);
    uint32_t place;
    for (; (place = map_get(&inputs->of_file, key)) != MAP_NONE; key += 0x9e3779b97f4a7c15u)
        if (inputs->input[place].inode == status->st_ino && inputs->input[place].device == status->st_dev) return false;
    map_put(&inputs->of_file, key, (uint32_t)inputs->count);
    return true;
}

static void add_json(struct inputs *inputs, const char *path, enum file_how how, int64_t rank, enum input_kind kind)
{
    struct stat status = {0};
    bool known = tfi_stat(path, &status) == 0;
    if (!known || is_new_file(inputs, &status)) {
        struct input *input = inputs_append(inputs, path, how, rank);
        input->device = status.st_dev;
        input->inode = status.st_ino;
        input->kind = kind;
    }
}

/* Adds a .tfr, or a .live file, which stands for its .tfr if there is one. A file named twice counts once. */
static void add_tfr(struct inputs *inputs, const char *path, enum file_how how, int64_t rank)
{
    char *own = string_format("%s", path);
    bool is_live = ends_with(path, ".live");
    if (is_live) own[strlen(own) - strlen(".live")] = 0;
    if (is_live && !exists(own)) {
        free(own);
        own = string_format("%s", path);
    }
    struct stat status = {0};
    if (tfi_stat(own, &status) == 0 && !is_new_file(inputs, &status)) goto out;
    struct input *input = inputs_append(inputs, own, how, rank);
    input->device = status.st_dev;
    input->inode = status.st_ino;
    if (strcmp(own, path) == 0 && is_live) {
        input->live = string_format("%s", own);
    } else {
        char *live = string_format("%s.live", own);
        input->live = exists(live) ? live : NULL;
        if (!input->live) free(live);
    }
out:
    free(own);
}

static int is_tfr(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && (ends_with(entry->d_name, ".tfr") || ends_with(entry->d_name, ".tfr.live"));
}

static bool is_json_name(const char *name)
{
    return ends_with(name, ".json") || ends_with(name, ".json.gz");
}

static int is_json(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && is_json_name(entry->d_name);
}

static int is_other_trace(const struct dirent *entry)
{
    return is_json(entry) || (entry->d_name[0] != '.' && is_packed_name(entry->d_name)) ||
           (entry->d_name[0] != '.' && is_dftracer_name(entry->d_name));
}

static int is_trace(const struct dirent *entry)
{
    return is_tfr(entry) || is_other_trace(entry);
}

static int count_entries(const char *directory, int (*wanted)(const struct dirent *entry))
{
    struct dirent **entries = NULL;
    int count = file_list(directory, wanted, &entries);
    for (int i = 0; i < count; i++) free(entries[i]);
    free(count >= 0 ? entries : NULL);
    return count;
}

bool inputs_are_in(const char *directory)
{
    return count_entries(directory, is_trace) > 0;
}

/* Returns the most recently changed subdirectory with traces, as a suggestion for the user. */
static char *find_below(const char *directory)
{
    struct dirent **entries = NULL;
    char *best = NULL;
    time_t newest = 0;
    int count = file_list(directory, NULL, &entries);
    for (int i = 0; i < count; i++) {
        char *path = string_format("%s/%s", directory, entries[i]->d_name);
        struct stat status;
        int traces = 0;
        if (entries[i]->d_name[0] != '.' && tfi_lstat(path, &status) == 0 && S_ISDIR(status.st_mode))
            traces = count_entries(path, is_trace);
        if (traces > 0 && (!best || status.st_mtime > newest)) {
            newest = status.st_mtime;
            free(best);
            best = path;
        } else {
            free(path);
        }
        free(entries[i]);
    }
    free(count >= 0 ? entries : NULL);
    return best;
}

static char *path_in(const char *directory, const char *name)
{
    return string_format("%s%s%s", directory, ends_with(directory, "/") ? "" : "/", name);
}

/* Adds an input that is no trace, with what is known of it. Returns false if nothing is. */
static bool add_other_kind(struct inputs *inputs, const char *path, enum file_how how, int64_t rank)
{
    const char *what = ends_with(path, ".tfr") || ends_with(path, ".live") ? NULL : container_of(path, how);
    if (!what) return false;
    notes_add(&inputs_append(inputs, path, how, rank)->notes, UNUSABLE, "is %s", what);
    return true;
}

static void say_empty(struct inputs *inputs, const char *directory, int64_t rank, bool others)
{
    struct input *input = inputs_append(inputs, directory, FILE_NAMED, rank);
    char *below = find_below(directory);
    notes_add(&input->notes, UNUSABLE, "contains no .tfr and no %s; %s%s",
              others ? "trace among its .json files" : ".json", below ? "there are some in " : "",
              below ? below
                    : "give another directory, or record into this one: LD_PRELOAD=libtfinject.so with TFI_OUTPUT_DIR "
                      "set to it");
    free(below);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The files of a directory without a trace of ours, by what they are. */
struct others {
    struct inputs *inputs;
    int64_t rank;
    size_t first;         /* of `inputs`: those of the directory */
    size_t stages, jsons; /* reports of single stages, and JSON that is no trace */
    bool has_json;        /* some name is that of a trace */
    char **rest;          /* files that no reader knows */
    size_t count, capacity;
};

/* The .json file of a pickle of the flight recorder, which has the Python frames too. */
static bool is_twin(const char *path)
{
    if (!ends_with(path, ".json")) return false;
    char *pickle = string_format("%.*s", (int)(strlen(path) - strlen(".json")), path);
    bool is_there = exists(pickle);
    free(pickle);
    return is_there;
}

/* Adds a file of dumps or snapshots, whose names have no fixed ending. */
static bool add_pickle(struct others *o, const char *path)
{
    bool is_snapshot = is_snapshot_file(path, FILE_FOUND);
    if (!is_snapshot && !is_flight_file(path, FILE_FOUND)) return false;
    add_json(o->inputs, path, FILE_FOUND, o->rank, is_snapshot ? INPUT_SNAPSHOT : INPUT_FLIGHT);
    return true;
}

/* Adds a file with the name of a trace. What cannot be read becomes an input too, so that reading reports it. */
static bool add_trace(struct others *o, const char *path, const char *name)
{
    if (is_packed_name(name) && add_other_kind(o->inputs, path, FILE_FOUND, o->rank)) return true;
    bool of_dftracer = is_dftracer_name(name) || is_dftracer_file(path, FILE_FOUND);
    bool of_memory = !of_dftracer && is_memory_rows_file(path, FILE_FOUND);
    enum kineto_kind kind = of_dftracer || of_memory ? KINETO_NONE : kineto_probe(path, FILE_FOUND);
    if (of_dftracer || of_memory)
        add_json(o->inputs, path, FILE_FOUND, o->rank, of_memory ? INPUT_MEMORY : INPUT_DFTRACER);
    if (kind == KINETO_TRACE || kind == KINETO_UNREADABLE) add_json(o->inputs, path, FILE_FOUND, o->rank, INPUT_KINETO);
    o->stages += kind == KINETO_STAGE;
    return of_dftracer || of_memory || kind != KINETO_NONE;
}

/* A key of a file's name that those of other ranks have too: numbers count alike, and so does what it is packed with. */
static uint64_t key_of_kin(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name), kept = 0;
    const char *packed = strstr(name, ".json.");
    if (packed) length = (size_t)(packed - name) + strlen(".json");
    char *kin = mem_zero(length + 1, 1);
    for (size_t i = 0; i < length; i++) {
        bool is_digit = name[i] >= '0' && name[i] <= '9';
        if (!is_digit || !kept || kin[kept - 1] != '#') kin[kept++] = is_digit ? '#' : name[i];
    }
    uint64_t key = hash_text(kin, kept);
    free(kin);
    return key;
}

/* A file that no reader knows, but that is named as a trace beside it, was one: a rank is missing. Other .json files are
 * no loss. */
static void judge_rest(struct others *o)
{
    struct map kin = {0};
    for (size_t i = o->first; i < o->inputs->count; i++)
        map_put(&kin, key_of_kin(o->inputs->input[i].path), (uint32_t)i);
    for (size_t i = 0; i < o->count; i++) {
        uint32_t like = strpbrk(o->rest[i], "0123456789") ? map_get(&kin, key_of_kin(o->rest[i])) : MAP_NONE;
        if (like != MAP_NONE) {
            const char *other = strrchr(o->inputs->input[like].path, '/') + 1;
            struct input *input = inputs_append(o->inputs, o->rest[i], FILE_FOUND, o->rank);
            input->kind = INPUT_KINETO;
            notes_add(&input->notes, UNUSABLE, "is named like %s beside it, but holds no trace: a rank may be missing",
                      other);
        } else {
            o->jsons += is_json_name(o->rest[i]) || is_packed_name(o->rest[i]);
        }
        free(o->rest[i]);
    }
    free(o->rest);
    map_free(&kin);
}

static bool is_directory(const char *path)
{
    struct stat status;
    return tfi_stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Adds the traces of a directory that are not ours. Other files are skipped: reports of stages, and files of other
 * programs. */
static void add_others(struct inputs *inputs, const char *directory, int64_t rank)
{
    struct others o = {.inputs = inputs, .rank = rank, .first = inputs->count};
    struct dirent **entries = NULL;
    int count = file_list(directory, is_visible, &entries);
    for (int i = 0; i < count; i++) {
        char *path = path_in(directory, entries[i]->d_name);
        bool is_named = is_other_trace(entries[i]);
        o.has_json |= is_named;
        bool known = is_directory(path) || (is_twin(path) ? is_flight_file(path, FILE_FOUND) : add_pickle(&o, path)) ||
                     (is_named && add_trace(&o, path, entries[i]->d_name));
        if (known) {
            free(path);
        } else {
            o.rest = mem_grow(o.rest, &o.capacity, o.count + 1, sizeof *o.rest);
            o.rest[o.count++] = path;
        }
        free(entries[i]);
    }
    free(count >= 0 ? entries : NULL);
    judge_rest(&o);
    if (inputs->count == o.first) {
        say_empty(inputs, directory, rank, o.has_json);
        return;
    }
    struct notes *notes = &inputs->input[o.first].notes;
    if (o.stages) notes_add(notes, NOTE, "%zu traces of single stages beside it were left out", o.stages);
    if (o.jsons) notes_add(notes, NOTE, "%zu .json files beside it are not traces and were left out", o.jsons);
}

static void add_directory(struct inputs *inputs, const char *directory, int64_t rank)
{
    struct dirent **entries = NULL;
    int count = file_list(directory, is_tfr, &entries);
    if (count < 0) {
        struct input *input = inputs_append(inputs, directory, FILE_NAMED, rank);
        notes_add(&input->notes, UNUSABLE, "cannot be read (%s)", strerror(errno));
        return;
    }
    for (int i = 0; i < count; i++) {
        char *path = path_in(directory, entries[i]->d_name);
        add_tfr(inputs, path, FILE_FOUND, rank);
        free(path);
        free(entries[i]);
    }
    free(entries);
    if (!count) add_others(inputs, directory, rank);
}

/* Adds a file. Its content decides the type, or its name if the content is not conclusive. */
static void add_file(struct inputs *inputs, const char *path, int64_t rank)
{
    if (add_other_kind(inputs, path, FILE_NAMED, rank)) return;
    if (is_summary_file(path, FILE_NAMED)) add_json(inputs, path, FILE_NAMED, rank, INPUT_SUMMARY);
    else if (is_dftracer_name(path) || is_dftracer_file(path, FILE_NAMED))
        add_json(inputs, path, FILE_NAMED, rank, INPUT_DFTRACER);
    else if (is_snapshot_file(path, FILE_NAMED)) add_json(inputs, path, FILE_NAMED, rank, INPUT_SNAPSHOT);
    else if (is_flight_file(path, FILE_NAMED)) add_json(inputs, path, FILE_NAMED, rank, INPUT_FLIGHT);
    else if (is_memory_rows_file(path, FILE_NAMED)) add_json(inputs, path, FILE_NAMED, rank, INPUT_MEMORY);
    else if (kineto_look(path, FILE_NAMED) == LOOK_JSON || is_json_name(path))
        add_json(inputs, path, FILE_NAMED, rank, INPUT_KINETO);
    else add_tfr(inputs, path, FILE_NAMED, rank);
}

void inputs_add(struct inputs *inputs, const char *word)
{
    struct stat status;
    int64_t rank = -1;
    const char *path = word;
    if (strncmp(word, "rank=", 5) == 0 && !exists(word)) {
        size_t digits = strspn(word + 5, "0123456789");
        if (digits && digits < 10 && word[5 + digits] == ':') {
            rank = strtoll(word + 5, NULL, 10);
            path = word + 5 + digits + 1;
        }
    }
    if (tfi_stat(path, &status) != 0) {
        struct input *input = inputs_append(inputs, path, FILE_NAMED, rank);
        notes_add(&input->notes, UNUSABLE, "cannot be read (%s)", strerror(errno));
    } else if (S_ISDIR(status.st_mode)) {
        add_directory(inputs, path, rank);
    } else {
        add_file(inputs, path, rank);
    }
}

struct input *inputs_add_again(struct inputs *inputs, const struct input *input)
{
    struct input *again = inputs_append(inputs, input->path, input->how, input->rank);
    again->live = input->live ? string_format("%s", input->live) : NULL;
    again->device = input->device;
    again->inode = input->inode;
    again->kind = input->kind;
    again->parts = input->parts;
    again->part = input->part;
    again->is_again = true;
    return again;
}
