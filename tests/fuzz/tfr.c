/* tfr.c - runs commands on damaged traces of ours, .tfr and .live, whose checksums it repairs first.
 *
 * An input is a .tfr, a .live, or a .tfr followed by its .live at a multiple of eight bytes. The mutator takes a .tfr
 * apart, inflates the payloads, changes payloads and heads, and packs it again with correct checksums. So damage
 * reaches the decoders, and tfanalyze reads a found input as an ordinary trace. The mutator changes one input in
 * sixteen as bytes, to exercise the search for blocks. The files lie in a directory of this process below TMPDIR.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/command.h"
#include "commands/session.h"
#include "fuzz.h"
#include "tfi_trace.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
const char *__asan_default_options(void);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t most, unsigned seed);

enum { BLOCKS = 64, PAYLOAD = 1 << 16, LIVE_ALIGN = 8 };

/* Returns the offset at which the .live begins; `size` if there is none. */
static size_t live_at(const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at + sizeof TFI_LIVE_MAGIC <= size; at += LIVE_ALIGN)
        if (memcmp(bytes + at, TFI_LIVE_MAGIC, sizeof TFI_LIVE_MAGIC) == 0) return at;
    return size;
}

/* ---- one input, with any command ---- */

static bool ask_all;
static z_stream unpacking, packing; /* of the mutator; kept, because to initialise one takes longer than to use it */
static char *directory, *run_path, *tfr_path, *live_path, *report_path, *answer_path;

extern const struct command commands[]; /* main.c has them */

static void write_or_remove(const char *path, const uint8_t *bytes, size_t size, bool there)
{
    if (!there) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0, "the input is written to its files");
}

static void empty_directory(const char *path)
{
    DIR *open_dir = opendir(path);
    struct dirent *entry;
    while (open_dir && (entry = readdir(open_dir)) != NULL) unlinkat(dirfd(open_dir), entry->d_name, 0);
    if (open_dir) closedir(open_dir);
}

static void check_times(const int64_t *start, const int64_t *end, size_t count)
{
    for (size_t i = 0; i < count; i++) require(end[i] >= start[i], "nothing ends before it begins");
}

static void check_process(const struct process *p)
{
    check_times(p->ranges.start, p->ranges.end, p->ranges.table.count);
    check_times(p->spans.start, p->spans.end, p->spans.table.count);
    check_times(p->works.start, p->works.end, p->works.table.count);
}

/* Does the work of main(). `words` end with NULL and leave out the program's name. */
static int ask(char **words)
{
    struct session session = {0};
    char *argv[16] = {(char *)"tfanalyze"};
    int argc = 1;
    for (; words[argc - 1]; argc++) argv[argc] = words[argc - 1];
    require(options_parse(&session.options, commands, argc, argv), "the command line is valid");
    for (size_t i = 0; i < session.options.questions; i++) {
        session.options.command = session.options.question[i];
        definition_of(session.options.command, &session.options)->answer(&session);
    }
    session_close(&session);
    for (size_t i = 0; i < session.model.processes; i++) check_process(&session.model.process[i]);
    session_free(&session);
    return session.status;
}

static void check_json(const char *path)
{
    json_error_t error;
    json_t *answer = json_load_file(path, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &error);
    if (!answer && json_error_code(&error) == json_error_null_byte_in_key)
        return; /* this parser cannot represent such a key; others can */
    if (!answer) fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
    require(answer, "an answer is JSON");
    json_decref(answer);
}

static void check_answer(int status)
{
    require(status == 0 || status == 1 || status == 3, "the status says whole, nothing or partial");
    if (status != 1) check_json(answer_path);
}

static void check_report(void)
{
    DIR *open_dir = opendir(report_path);
    struct dirent *entry;
    while (open_dir && (entry = readdir(open_dir)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            char *path = string_format("%s/%s", report_path, entry->d_name);
            check_json(path);
            free(path);
        }
    }
    if (open_dir) closedir(open_dir);
}

#define WORDS 9
static char *const questions[][WORDS] = {
    {"info,stages,breakdown,timeline,kinds,overlap,api,launches", "--format", "json"},
    {"ops", "--format", "json"},
    {"ops", "--group-by", "name,shapes,stack=5", "--format", "json"},
    {"breakdown", "--group-by", "op", "--format", "json"},
    {"breakdown", "--group-by", "category", "--names", "short", "--format", "json"},
    {"timeline,kinds,overlap", "--rules", "hta", "--format", "json"},
    {"stages", "--exclusive", "--from", "0.001", "--to", "9", "--format", "json"},
    {"launches", "--stage", "d*", "--format", "json"},
    {"dump", "--format", "json"},
    {"export", "chrome"},
    {"info,stages,timeline,api", "--format", "text"},
    {"dump", "--format", "csv"},
    {"export", "tensorboard"},
    {"report", "--format", "json"},
    {"ops", "--stage", "*", "--from", "0.0001", "--format", "json"},
    {"memory", "--format", "json"},
    {"memory", "--layout", "raw", "--format", "json"},
    {"memory", "--layout", "peaks", "--format", "json"},
    {"memory", "--layout", "leaks", "--stage", "*", "--format", "json"},
    {"memory", "--layout", "oom", "--format", "json"},
};

/* Runs one command, chosen by the input's bytes, because reading the input is most of the work. FUZZ_ALL runs all. */
static void ask_one(size_t which)
{
    char *words[WORDS + 5] = {0};
    size_t count = 0;
    while (questions[which][count]) {
        words[count] = questions[which][count];
        count++;
    }
    bool json = strcmp(words[count - 1], "json") == 0 || strcmp(words[count - 1], "chrome") == 0;
    bool files = strcmp(words[0], "report") == 0 || strcmp(words[count - 1], "tensorboard") == 0;
    words[count++] = "-j1";
    words[count++] = "--output";
    words[count++] = files ? report_path : answer_path;
    words[count++] = run_path;
    int status = ask(words);
    if (files) {
        check_report();
        empty_directory(report_path);
        require(status == 0 || status == 1 || status == 3, "the status says whole, nothing or partial");
    } else if (json) {
        check_answer(status);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t split = live_at(bytes, size);
    write_or_remove(tfr_path, bytes, split, split || !size);
    write_or_remove(live_path, bytes + split, size - split, split < size);
    for (size_t i = 0; i < ARRAY_SIZE(questions) && ask_all; i++) ask_one(i);
    if (!ask_all) ask_one(crc32(0, bytes, (unsigned)size) % ARRAY_SIZE(questions));
    return 0;
}

/* Without these options the sanitizer takes most of the time: whole stacks of allocations, and fresh pages for each. */
const char *__asan_default_options(void)
{
    return "malloc_context_size=2:quarantine_size_mb=4:thread_local_quarantine_size_kb=64";
}

static void remove_files(void)
{
    empty_directory(report_path);
    empty_directory(run_path);
    rmdir(report_path);
    rmdir(run_path);
    empty_directory(directory);
    rmdir(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *base = getenv("TMPDIR");
    (void)argc, (void)argv;
    ask_all = getenv("FUZZ_ALL");
    directory = string_format("%s/fuzz-tfr-XXXXXX", base ? base : "/tmp");
    require(mkdtemp(directory), "the directory for the files exists");
    run_path = string_format("%s/run", directory);
    report_path = string_format("%s/report", directory);
    answer_path = string_format("%s/answer.json", directory);
    tfr_path = string_format("%s/rank0.host.1.tfr", run_path);
    live_path = string_format("%s.live", tfr_path);
    require(mkdir(run_path, 0700) == 0 && mkdir(report_path, 0700) == 0, "the directory for the files exists");
    require(inflateInit2(&unpacking, -15) == Z_OK &&
                deflateInit2(&packing, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK,
            "memory is allocated");
    atexit(remove_files);
    return 0;
}

/* ---- the mutator: a trace as parts ---- */

struct part {
    struct tfi_block head;
    uint8_t *payload; /* inflated */
    size_t size;
};

struct parts {
    uint8_t head[sizeof(struct tfi_file_head)];
    struct part part[BLOCKS];
    size_t count;
    uint8_t *live;
    size_t live_size;
};

static uint64_t state;

static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (size_t)(state >> 33) % n : 0;
}

static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(PAYLOAD);
    memcpy(copy, bytes, MIN(size, (size_t)PAYLOAD));
    return copy;
}

static bool unpack(struct part *part, const uint8_t *stored)
{
    if (!(part->head.flags & TFI_FLAG_DEFLATED)) {
        part->payload = copy_of(stored, part->head.stored);
        part->size = part->head.stored;
        return part->size <= PAYLOAD;
    }
    part->payload = malloc(PAYLOAD);
    require(inflateReset(&unpacking) == Z_OK, "zlib resets the stream");
    unpacking.next_in = (Bytef *)(uintptr_t)stored;
    unpacking.avail_in = part->head.stored;
    unpacking.next_out = part->payload;
    unpacking.avail_out = PAYLOAD;
    int status = inflate(&unpacking, Z_FINISH);
    part->size = PAYLOAD - unpacking.avail_out;
    return status == Z_STREAM_END;
}

static void take_apart(struct parts *parts, const uint8_t *bytes, size_t size)
{
    size_t end = live_at(bytes, size), at = sizeof parts->head;
    *parts = (struct parts){.live = copy_of(bytes + end, size - end), .live_size = MIN(size - end, (size_t)PAYLOAD)};
    memcpy(parts->head, bytes, MIN(end, sizeof parts->head));
    while (at + sizeof(struct tfi_block) <= end && parts->count < BLOCKS) {
        struct part part = {0};
        memcpy(&part.head, bytes + at, sizeof part.head);
        at += sizeof part.head;
        if (part.head.magic != TFI_BLOCK_MAGIC || part.head.stored > end - at) break;
        if (unpack(&part, bytes + at)) parts->part[parts->count++] = part;
        else free(part.payload);
        at += MIN((part.head.stored + 7u) & ~7u, end - at);
    }
}

static void free_parts(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) free(parts->part[i].payload);
    free(parts->live);
}

/* Packs one block with correct checksums; returns 0 if there is no room. */
static size_t pack(const struct part *part, uint8_t *to, size_t room)
{
    struct tfi_block head = part->head;
    size_t stored = part->size;
    if (room < sizeof head + 8) return 0;
    room = (room - sizeof head) & ~(size_t)7;
    if (head.flags & TFI_FLAG_DEFLATED) {
        require(deflateReset(&packing) == Z_OK, "zlib resets the stream");
        packing.next_in = part->payload;
        packing.avail_in = (unsigned)part->size;
        packing.next_out = to + sizeof head;
        packing.avail_out = (unsigned)room;
        int status = deflate(&packing, Z_FINISH);
        stored = room - packing.avail_out;
        if (status != Z_STREAM_END) return 0;
    } else if (stored > room) {
        return 0;
    } else {
        memcpy(to + sizeof head, part->payload, stored);
    }
    head.stored = (uint32_t)stored;
    head.raw = (uint32_t)part->size;
    head.crc = (uint32_t)crc32(0, to + sizeof head, (unsigned)stored);
    head.head_crc = (uint32_t)crc32(0, (const void *)&head, offsetof(struct tfi_block, head_crc));
    memcpy(to, &head, sizeof head);
    memset(to + sizeof head + stored, 0, -stored & 7);
    return sizeof head + ((stored + 7) & ~(size_t)7);
}

static size_t put_together(const struct parts *parts, uint8_t *to, size_t room)
{
    size_t used = 0;
    if (parts->count && room >= sizeof parts->head) {
        memcpy(to, parts->head, sizeof parts->head);
        used = sizeof parts->head;
    }
    for (size_t i = 0; i < parts->count; i++) used += pack(&parts->part[i], to + used, room - used);
    if (parts->live_size <= room - used) {
        memcpy(to + used, parts->live, parts->live_size);
        used += parts->live_size;
    }
    return used;
}

/* ---- the mutator: changes ---- */

static const uint64_t extremes[] = {0,         1,          7,          0x7f,          0x80,       0xff,
                                    0xffff,    0x7fffffff, 0x80000000, 0xffffffff,    1ull << 32, 1ull << 53,
                                    INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};

static uint64_t extreme(void)
{
    return below(4) ? extremes[below(ARRAY_SIZE(extremes))] : state;
}

/* Overwrites bytes with a number: as a varint, or with two, four or eight bytes. */
static void put_extreme(uint8_t *bytes, size_t size)
{
    uint64_t value = extreme();
    uint8_t coded[10];
    size_t length = 0, at = below(size);
    if (below(2)) {
        do {
            coded[length] = (uint8_t)(value & 0x7f);
            value >>= 7;
            coded[length++] |= value ? 0x80 : 0;
        } while (value);
    } else {
        length = (size_t)2 << below(3);
        at &= ~(size_t)1;
        memcpy(coded, &value, sizeof value);
    }
    memcpy(bytes + at, coded, MIN(length, size - at));
}

static size_t change_bytes(uint8_t *bytes, size_t size, size_t most)
{
    switch (below(4)) {
    case 0:
        for (size_t i = 1 + below(4); i && size; i--) put_extreme(bytes, size);
        return size;
    case 1: /* a few bytes in place: the bytes after them do not move */
        if (size) {
            size_t at = below(size), length = MIN(size - at, (size_t)64);
            LLVMFuzzerMutate(bytes + at, length, length);
        }
        return size;
    default: return LLVMFuzzerMutate(bytes, size, MIN(most, size + 256));
    }
}

static void change_head(struct tfi_block *head)
{
    switch (below(7)) {
    case 0: head->type = (uint16_t)below(8); break;
    case 1: head->flags ^= (uint16_t)(1u << below(3)); break;
    case 2: head->serial = extreme(); break;
    case 3: head->thread = (uint32_t)extreme(); break;
    case 4: head->tid = (uint32_t)extreme(); break;
    case 5: head->records = (uint32_t)extreme(); break;
    default: head->serial += below(3) - 1; break;
    }
}

static void change_order(struct parts *parts)
{
    size_t from = below(parts->count), to = below(parts->count);
    struct part moved = parts->part[from];
    if (below(2) && parts->count < BLOCKS) { /* a copy */
        moved.payload = copy_of(moved.payload, moved.size);
        moved.head.serial += below(2);
        parts->part[parts->count++] = moved;
    } else if (below(2)) {
        parts->part[from] = parts->part[to];
        parts->part[to] = moved;
    } else {
        free(moved.payload);
        parts->part[from] = parts->part[--parts->count];
    }
}

/* Changes numbers in the live file's head, in the heads of its chunks, and small numbers elsewhere. Keeps its size. */
static void change_live(struct parts *parts)
{
    size_t head = MIN(parts->live_size, sizeof(struct tfi_live)), size = parts->live_size;
    size_t at = below(3) ? below(size) & ~(size_t)7 : below(head) & ~(size_t)7;
    switch (below(4)) {
    case 0: put_extreme(parts->live + at, MIN(size - at, (size_t)8)); break;
    case 1:
        if (below(8) == 0) parts->live_size = below(size);
        break;
    default: LLVMFuzzerMutate(parts->live + at, MIN(size - at, (size_t)64), MIN(size - at, (size_t)64)); break;
    }
}

static void change(struct parts *parts)
{
    struct part *part = &parts->part[below(parts->count)];
    size_t what = below(16);
    if (parts->live_size && (!parts->count || below(3) == 0)) change_live(parts);
    else if (parts->count && what < 12) part->size = change_bytes(part->payload, part->size, PAYLOAD);
    else if (parts->count && what < 14) change_head(&part->head);
    else if (parts->count && what == 14) change_order(parts);
    else put_extreme(parts->head, sizeof parts->head);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    struct parts parts;
    state = seed;
    if (below(16) == 0) return LLVMFuzzerMutate(data, size, most);
    take_apart(&parts, data, size);
    for (size_t i = 1 + below(3) * below(2); i; i--) change(&parts);
    size_t used = put_together(&parts, data, most);
    free_parts(&parts);
    return used ? used : LLVMFuzzerMutate(data, size, most);
}

/* Takes some blocks of each input, and the live file of either. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t most, unsigned seed)
{
    struct parts x, y;
    state = seed;
    take_apart(&x, a, a_size);
    take_apart(&y, b, b_size);
    for (size_t i = 0; i < y.count && x.count < BLOCKS; i++) {
        if (below(3) == 0) {
            struct part part = y.part[i], *place = &x.part[below(x.count + 1)];
            part.payload = copy_of(part.payload, part.size);
            if (place < &x.part[x.count]) free(place->payload);
            else x.count++;
            *place = part;
        }
    }
    const struct parts *live = below(2) ? &x : &y;
    struct parts mixed = x;
    mixed.live = live->live;
    mixed.live_size = live->live_size;
    size_t used = put_together(&mixed, out, most);
    free_parts(&x);
    free_parts(&y);
    return used;
}
