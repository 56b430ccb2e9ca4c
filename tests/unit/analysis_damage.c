/* analysis_damage.c - cuts a trace and its live file at many places and flips their bytes.
 *
 * The reader must still read every intact chunk, once, and must not crash. All of it runs in one process, so that
 * sanitizers and leak checks apply.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/load/load_tfr.h"
#include "unit.h"

#define CHUNKS 64

struct part { /* a chunk: its file and its bytes there */
    unsigned long serial, records, from, to;
    bool live;
};

struct file {
    char *path;
    int fd;
    uint8_t *data;
    size_t size;
};

static struct file trace_file, live_file;
static struct part part[CHUNKS];
static size_t parts;
static uint64_t seed;

static uint64_t next_random(void)
{ /* splitmix64 */
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void read_whole(struct file *file, const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    file->size = (size_t)ftell(f);
    rewind(f);
    file->path = strdup(path);
    file->data = malloc(file->size);
    ck_assert_uint_eq(fread(file->data, 1, file->size, f), file->size);
    fclose(f);
    file->fd = open(path, O_WRONLY);
    ck_assert_int_ge(file->fd, 0);
}

static void read_truth(void)
{
    char line[256];
    FILE *f = fopen("truth", "r");
    ck_assert_ptr_nonnull(f);
    for (parts = 0; parts < CHUNKS && fgets(line, sizeof line, f); parts++) {
        struct part *p = &part[parts];
        p->live = strncmp(line, "live ", 5) == 0;
        int n = sscanf(line + (p->live ? 5 : 0), "%lu %lu %lu %lu", &p->serial, &p->records, &p->from, &p->to);
        ck_assert_int_eq(n, 4);
    }
    fclose(f);
    ck_assert_uint_gt(parts, 10);
}

static void setup(void)
{
    char directory[] = "damage.XXXXXX", command[4200];
    const char *tests = getenv("TFI_TEST_DIR");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(command, sizeof command, "python3 '%s/random_traces.py' '%s'", tests ? tests : "tests", directory);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(chdir(directory), 0);
    read_whole(&trace_file, "trace.tfr");
    read_whole(&live_file, "trace.tfr.live");
    read_truth();
}

static void teardown(void)
{
    unlink("trace.tfr");
    unlink("trace.tfr.live");
    unlink("truth");
    close(trace_file.fd);
    close(live_file.fd);
    free(trace_file.path);
    free(trace_file.data);
    free(live_file.path);
    free(live_file.data);
}

static void cut(const struct file *file, size_t size)
{
    ck_assert_int_eq(pwrite(file->fd, file->data, file->size, 0), (ssize_t)file->size);
    ck_assert_int_eq(ftruncate(file->fd, (off_t)size), 0);
}

/* ---- reading ---- */

/* Decodes every value of every column, so that every decoder sees the data. */
static void decode_all(struct reader *reader, struct chunk *chunk)
{
    const uint32_t *first;
    for (unsigned g = 0; g < chunk->groups; g++) {
        struct group *group = &chunk->group[g];
        for (unsigned f = 0; group->kind && f < group->kind->fields; f++)
            if (group->kind->field[f].is_list) group_list(&reader->decoder, group, (int)f, &first);
            else group_values(&reader->decoder, group, (int)f);
    }
}

/* Reads the trace. Sets records[] to the records read from each part. False if the reader refuses it. */
static bool read_trace(bool with_live, unsigned long *records)
{
    struct trace trace;
    struct notes notes = {0};
    struct process process;
    struct names names;
    struct needs all;
    struct chunk chunk;
    const struct piece *piece;
    atomic_ullong done = 0;
    memset(records, 0, CHUNKS * sizeof *records);
    bool good = trace_open(&trace, "trace.tfr", with_live ? "trace.tfr.live" : NULL, FILE_NAMED, &notes);
    if (good) {
        struct reader reader = {.trace = &trace};
        while ((piece = reader_next(&reader, &chunk)) != NULL) {
            decode_all(&reader, &chunk);
            for (size_t i = 0; i < parts; i++) records[i] += part[i].serial == piece->serial ? chunk.records : 0;
        }
        reader_free(&reader);
        memset(&all, 0xff, sizeof all);
        names_init(&names);
        process_init(&process, "trace.tfr", "tfr");
        load_tfr(&trace, &names, all, &process, &notes, &done);
        process_free(&process);
        names_free(&names);
    } else {
        ck_assert(notes_have(&notes, UNUSABLE) || !trace.size); /* empty: its process may have just begun */
    }
    trace_close(&trace);
    notes_free(&notes);
    return good;
}

START_TEST(whole)
{
    unsigned long records[CHUNKS];
    ck_assert(read_trace(true, records));
    for (size_t i = 0; i < parts; i++) ck_assert_uint_eq(records[i], part[i].records);
}
END_TEST

static void check_cut(size_t size)
{
    unsigned long records[CHUNKS];
    cut(&trace_file, size);
    bool good = read_trace(false, records);
    ck_assert_msg(good || size < part[0].from, "no record read from %zu bytes", size);
    for (size_t i = 0; i < parts; i++) {
        unsigned long expected = !part[i].live && part[i].to <= size ? part[i].records : 0;
        bool padding = !part[i].live && part[i].to - 8 < size; /* the cut removes only the padding of the last block */
        ck_assert_msg(records[i] == expected || (padding && records[i] == part[i].records),
                      "cut at %zu: chunk %lu: %lu", size, part[i].serial, records[i]);
    }
}

START_TEST(cuts)
{
    for (size_t size = 0; size < trace_file.size; size += 997) check_cut(size);
    for (size_t i = 0; i < 300; i++) check_cut(next_random() % trace_file.size);
}
END_TEST

START_TEST(cuts_of_the_live_file)
{
    unsigned long records[CHUNKS];
    for (size_t i = 0; i < 300; i++) {
        size_t size = i < 20 ? i * 40 : next_random() % live_file.size;
        cut(&live_file, size);
        ck_assert(read_trace(true, records));
        for (size_t k = 0; k < parts; k++)
            if (!part[k].live) ck_assert_uint_eq(records[k], part[k].records);
            else ck_assert_uint_le(records[k], part[k].records);
    }
}
END_TEST

/* ---- flips ---- */

enum { LIVE_HEADS = 4096, CHUNK_HEAD = 64 };

struct flip {
    struct file *file;
    size_t at;
    uint8_t bits;
};

/* Flips bits of a byte, in memory and in the file. A second call restores them. */
static void turn(const struct flip *flip)
{
    uint8_t *byte = &flip->file->data[flip->at];
    *byte ^= flip->bits;
    ck_assert_int_eq(pwrite(flip->file->fd, byte, 1, (off_t)flip->at), 1);
}

static bool touched(const struct part *p, const struct flip *flips, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (p->live && flips[i].file == &live_file)
            return true; /* a damaged head of the live file can misplace a chunk or give it to another thread */
        if (!p->live && flips[i].file == &trace_file && flips[i].at >= p->from && flips[i].at < p->to) return true;
    }
    return false;
}

/* A flipped serial of a live chunk can turn it into a duplicate of another chunk. */
static bool hits_a_live_head(const struct flip *flips, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool head = flips[i].file == &live_file && flips[i].at < LIVE_HEADS;
        for (size_t k = 0; k < parts && flips[i].file == &live_file; k++)
            head |= part[k].live && flips[i].at >= part[k].from && flips[i].at < part[k].from + CHUNK_HEAD;
        if (head) return true;
    }
    return false;
}

static bool hits_the_version(const struct flip *flips, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (flips[i].file == &trace_file && flips[i].at >= 8 && flips[i].at < 10) return true;
    return false;
}

START_TEST(flips)
{
    unsigned long records[CHUNKS];
    seed = (uint64_t)_i + 1; /* the first rounds do not depend on the number of rounds */
    int rounds = getenv("FLIPS") ? atoi(getenv("FLIPS")) : 200;
    for (int round = 0; round < rounds; round++) {
        struct flip flip[4];
        size_t count = 1 + (round % 4 == 3 ? next_random() % 4 : 0);
        for (size_t i = 0; i < count; i++) {
            flip[i].file = next_random() % 4 ? &trace_file : &live_file;
            flip[i].at = next_random() % flip[i].file->size;
            flip[i].bits = (uint8_t)(1 + next_random() % 255);
            turn(&flip[i]);
        }
        bool good = read_trace(true, records);
        ck_assert(good || hits_the_version(flip, count));
        for (size_t i = 0; good && i < parts && !hits_a_live_head(flip, count); i++) {
            ck_assert_msg(records[i] == part[i].records || touched(&part[i], flip, count),
                          "flip at %zu of %s: chunk %lu has %lu records, not %lu", flip[0].at, flip[0].file->path,
                          part[i].serial, records[i], part[i].records);
        }
        for (size_t i = 0; i < count; i++) turn(&flip[i]);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("damage");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, getenv("FLIPS") ? 600 : 110);
    tcase_add_test(tcase, whole);
    tcase_add_test(tcase, cuts);
    tcase_add_test(tcase, cuts_of_the_live_file);
    tcase_add_loop_test(tcase, flips, 0, 4);
    return unit_run(tcase);
}
