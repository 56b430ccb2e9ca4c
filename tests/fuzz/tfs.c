/* tfs.c - feeds arbitrary bytes to the reader of summaries, as a file and as a block, and checks that what is read is
 * saved as the same. */
#include <string.h>

#include "ask/causes/causes.h"
#include "ask/causes/facts.h"
#include "ask/comm/comm_saved.h"
#include "fuzz.h"
#include "model/load/load_summary.h"
#include "read/summary/summary_file.h"

static void check_file(const uint8_t *bytes, size_t size)
{
    struct notes notes = {0};
    struct summary_file file = {.bytes = mem_text((const char *)bytes, size), .length = size};
    size_t length, blocks = 0;
    for (uint8_t *block; (block = summary_next(&file, &length, &notes));) {
        require(length > 0 && length <= SUMMARY_LARGEST, "a block has a size");
        blocks++;
        free(block);
    }
    require(blocks == file.blocks, "all blocks are given");
    require(file.is_whole || notes.count || !size || file.at == size, "a damaged end gives a note");
    summary_close(&file);
    notes_free(&notes);
}

/* Saves what was read, and reads it again. */
static void check_again(const struct comm_taken *taken, struct names *names, int64_t rank)
{
    struct text first = {0}, second = {0};
    comm_save(&first, taken);
    struct unpacking from = {(const uint8_t *)first.data, (const uint8_t *)first.data + first.length, false};
    struct comm_taken *again = comm_restore(&from, names, rank, true);
    require(!from.bad && from.at == from.end, "what was saved is read whole");
    comm_save(&second, again);
    require(first.length == second.length && memcmp(first.data, second.data, first.length) == 0, "it stays the same");
    causes_reduction.free(again);
    text_free(&first);
    text_free(&second);
}

static void check_block(const uint8_t *bytes, size_t size)
{
    struct notes notes = {0};
    struct process process = {0};
    struct names names;
    uint8_t *block = (uint8_t *)mem_text((const char *)bytes, size);
    names_init(&names);
    if (load_summary(block, size, &process, &notes)) {
        struct unpacking from = process.block.rest;
        struct comm_taken *taken = comm_restore(&from, &names, process.rank, true);
        for (size_t i = 0; i < taken->parts.count; i++)
            require(taken->parts.part[i].op < NR_COLLECTIVE_OPS && taken->parts.part[i].stage < names.count,
                    "all exist");
        if (!from.bad) check_again(taken, &names, process.rank);
        causes_reduction.free(taken);
        process_free(&process);
    } else {
        free(block);
    }
    notes_free(&notes);
    names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    check_file(bytes, size);
    check_block(bytes, size);
    return 0;
}
