/* rank_numbers.c - finds the ranks of Kineto traces and memory snapshots, and of others by their names. */
#include "model/inputs/rank_numbers.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of files ---- */

static const char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Reads up to nine digits. Returns where they end; NULL if there are none, or more. */
static const char *digits_at(const char *at, int64_t *number)
{
    size_t count = strspn(at, "0123456789");
    if (!count || count > 9) return NULL;
    *number = strtoll(at, NULL, 10);
    return at + count;
}

/* Returns N of rankN, rank-N or rank_N in a file's name, or of N-of-M, as in trace-0-of-24.pfw; -1 without one. */
static int64_t rank_in_name(const char *path)
{
    const char *name = name_of_file(path), *of;
    int64_t number;
    for (const char *at = name; (at = strcasestr(at, "rank")) != NULL; at += 4)
        if (digits_at(at + 4 + (at[4] == '-' || at[4] == '_'), &number)) return number;
    for (const char *at = name; (of = strstr(at, "-of-")) != NULL; at = of + 4) {
        const char *digits = of;
        while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
        if (digits < of && of - digits < 10 && of[4] >= '0' && of[4] <= '9') return strtoll(digits, NULL, 10);
    }
    return -1;
}

/* Returns N of a word such as TP-0, tp0 or TP_0 that stands alone in a file's name; -1 without one. */
static int64_t part_in_name(const char *path, const char *word)
{
    const char *name = name_of_file(path), *end;
    int64_t number;
    for (const char *at = name; (at = strcasestr(at, word)) != NULL; at++) {
        const char *digits = at + strlen(word);
        if (at > name && isalnum((unsigned char)at[-1])) continue;
        end = digits_at(digits + (*digits == '-' || *digits == '_'), &number);
        if (end && !isalnum((unsigned char)*end)) return number;
    }
    return -1;
}

/* Parts of a job in the order in which its ranks count: replicas first, tensor ranks last. */
static const char *const part_words[] = {"DP", "PP", "TP", "EP"};
enum { PART_REPLICA, PART_PIPELINE, PART_TENSOR, PART_EXPERT, PART_WORDS };

static bool names_a_part(const char *path)
{
    return part_in_name(path, part_words[PART_TENSOR]) >= 0 || part_in_name(path, part_words[PART_REPLICA]) >= 0;
}

/* ---- one input ---- */

bool rank_of_alone(struct input *input)
{
    struct process *process = &input->process;
    int64_t named = rank_in_name(input->path);
    if (input->rank >= 0) {
        process->rank = input->rank;
        return true;
    }
    if (process->rank >= 0) /* replicas that do not know of each other count from 0 each */
        return input->kind != INPUT_KINETO || part_in_name(input->path, part_words[PART_REPLICA]) <= 0;
    process->rank = named;
    if (named >= 0) return true;
    if (input->kind == INPUT_KINETO || input->kind == INPUT_SNAPSHOT) return false;
    process->rank = 0;
    return true;
}

/* ---- all inputs ---- */

/* The inputs whose ranks are open. */
struct open_ranks {
    struct input **input;
    size_t count;
    struct map taken; /* ranks of the others */
};

static int by_part(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    for (size_t i = 0; i < PART_WORDS; i++) {
        int order = by_number(part_in_name(x->path, part_words[i]), part_in_name(y->path, part_words[i]));
        if (order) return order;
    }
    return (x > y) - (x < y);
}

/* A replica whose rank another one has too counts behind the ranks of the replicas before it. */
static void place_replica(struct open_ranks *open, struct input *input)
{
    struct process *process = &input->process;
    int64_t replica = part_in_name(input->path, part_words[PART_REPLICA]);
    int64_t moved = process->world > 0 ? replica * process->world + process->rank : -1;
    if (map_get(&open->taken, (uint64_t)process->rank) != MAP_NONE && moved >= 0 && moved < INT32_MAX) {
        notes_add(&input->notes, NOTE,
                  "states rank %lld, as another replica does; it is rank %lld here, by the DP of its name",
                  (long long)process->rank, (long long)moved);
        process->rank = moved;
    }
    map_put(&open->taken, (uint64_t)process->rank, 1);
}

static void set_guess(struct open_ranks *open, struct input *input, int64_t rank)
{
    input->process.rank = rank;
    map_put(&open->taken, (uint64_t)rank, 1);
}

/* Numbers the inputs whose names state parts of a job: by their tensor ranks if no two have the same. */
static void number_parts(struct open_ranks *open)
{
    struct map used = {0};
    bool distinct = true;
    size_t parts = 0, rest = 0;
    struct input **part = mem_zero(open->count, sizeof *part);
    for (size_t i = 0; i < open->count; i++) {
        struct input *input = open->input[i];
        if (names_a_part(input->path)) part[parts++] = input;
        else open->input[rest++] = input;
    }
    for (size_t i = 0; i < parts; i++) {
        int64_t number = part_in_name(part[i]->path, part_words[PART_TENSOR]);
        distinct &= number >= 0 && map_get(&used, (uint64_t)number) == MAP_NONE &&
                    map_get(&open->taken, (uint64_t)number) == MAP_NONE;
        map_put(&used, (uint64_t)number, 1);
    }
    if (parts) qsort(part, parts, sizeof(struct input *), by_part);
    int64_t next = 0;
    for (size_t i = 0; i < parts; i++) {
        while (!distinct && map_get(&open->taken, (uint64_t)next) != MAP_NONE) next++;
        set_guess(open, part[i], distinct ? part_in_name(part[i]->path, part_words[PART_TENSOR]) : next);
    }
    open->count = rest;
    free(part);
    map_free(&used);
}

static bool is_one_process(const struct process *a, const struct process *b)
{
    bool one_host = a->host && b->host ? strcmp(a->host, b->host) == 0 : a->host == b->host;
    return a->pid >= 0 && a->pid == b->pid && one_host;
}

/* Nothing states a rank: each process counts by its place. A trace of the same process has the same one. */
static void number_places(struct open_ranks *open)
{
    struct map of_pid = {0}; /* index in `open`, of the first one with a pid */
    int64_t next = 0;
    for (size_t i = 0; i < open->count; i++) {
        struct input *input = open->input[i];
        uint32_t before = map_get(&of_pid, (uint64_t)input->process.pid);
        if (before != MAP_NONE && is_one_process(&open->input[before]->process, &input->process)) {
            input->process.rank = open->input[before]->process.rank;
            continue;
        }
        map_put(&of_pid, (uint64_t)input->process.pid, (uint32_t)i);
        input->process.rank = next++;
        if (input->process.rank)
            notes_add(&input->notes, NOTE, "states no rank: its place gives it one; rank=N:FILE gives another");
    }
    map_free(&of_pid);
}

/* Other inputs have ranks, or device work: those without either are processes of the host. */
static void leave_without(struct open_ranks *open, bool others)
{
    size_t rest = 0;
    bool works = false;
    for (size_t i = 0; i < open->count; i++) works |= open->input[i]->process.has_device_work;
    for (size_t i = 0; i < open->count; i++) {
        struct input *input = open->input[i];
        if (!others && (!works || input->process.has_device_work)) {
            open->input[rest++] = input;
            continue;
        }
        notes_add(&input->notes, NOTE, "states no rank beside others that have one%s; rank=N:FILE gives it one",
                  input->process.has_device_work ? "" : ", and has no device work: it is a process of the host");
    }
    open->count = rest;
}

void inputs_number_ranks(struct inputs *inputs)
{
    struct open_ranks open = {.input = mem_zero(inputs->count, sizeof *open.input)};
    struct map ours = {0}; /* index in `inputs`, by pid */
    bool others = false;
    for (size_t i = 0; i < inputs->count; i++) {
        const struct input *input = &inputs->input[i];
        if (!input->usable || (input->kind != INPUT_KINETO && input->kind != INPUT_OURS)) continue;
        if (!input->open_rank && input->process.rank >= 0) map_put(&open.taken, (uint64_t)input->process.rank, 1);
        if (input->kind == INPUT_OURS) map_put(&ours, (uint64_t)input->process.pid, (uint32_t)i);
        others |= input->process.rank >= 0;
    }
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *input = &inputs->input[i];
        if (!input->usable || !input->open_rank) continue;
        uint32_t own = input->process.rank < 0 ? map_get(&ours, (uint64_t)input->process.pid) : MAP_NONE;
        if (own != MAP_NONE)
            input->process.rank = inputs->input[own].process.rank; /* our trace of the process has it */
        else if (input->process.rank >= 0) place_replica(&open, input);
        else open.input[open.count++] = input;
    }
    size_t unnamed = open.count;
    number_parts(&open);
    leave_without(&open, others || open.count < unnamed);
    number_places(&open);
    free(open.input);
    map_free(&open.taken);
    map_free(&ours);
}
