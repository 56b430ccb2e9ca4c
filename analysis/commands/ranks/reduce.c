/* reduce.c - `reduce`: writes a summary (.tfs) of each process, or unites summaries, for the questions about ranks.
 *
 * A block follows from its process alone, and the blocks are in the order of ranks, then of their bytes. So the file does not depend on
 * the order in which processes are summarised and united, nor on how often.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask/causes/causes.h"
#include "ask/comm/comm_saved.h"
#include "commands/ranks/reduce.h"
#include "commands/session.h"
#include "model/load/load_summary.h"
#include "read/summary/summary_file.h"

/* ---- the summary of a process ---- */

static void *take_saved(struct scope *scope)
{
    struct comm_taken *taken = causes_reduction.take(scope);
    struct text *saved = mem_zero(1, sizeof *saved);
    comm_save(saved, taken);
    causes_reduction.free(taken);
    return saved;
}

static void saved_free(void *saved)
{
    text_free(saved);
    free(saved);
}

/* A summary of a summary is the same bytes. They are checked, so that no damage spreads. */
static void *copy_saved(struct names *names, int64_t rank, struct unpacking *from)
{
    struct text *saved = mem_zero(1, sizeof *saved);
    const uint8_t *first = from->at;
    causes_reduction.free(comm_restore(from, names, rank, true));
    text_add(saved, (const char *)first, (size_t)(from->end - first));
    return saved;
}

const struct reduction saved_reduction = {without_window, take_saved, saved_free, copy_saved};

/* ---- the file ---- */

struct block {
    int64_t rank;
    struct text bytes;
};

static int by_rank_and_bytes(const void *a, const void *b)
{
    const struct block *m = a, *n = b;
    const struct text *x = &m->bytes, *y = &n->bytes;
    int order = by_number(m->rank, n->rank);
    if (!order) order = memcmp(x->data, y->data, MIN(x->length, y->length));
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Returns the blocks of all chosen processes, in their order. */
static struct block *blocks_of(struct session *session)
{
    const struct selection *chosen = &session->chosen;
    void *const *saved = session_summaries(session);
    struct block *block = mem_zero(chosen->processes, sizeof *block);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *process = chosen->process[i];
        const struct text *rest = saved[i];
        block[i].rank = process->rank;
        pack_process(&block[i].bytes, process, &session->inputs.input[process->input].notes);
        text_add(&block[i].bytes, rest->data, rest->length);
    }
    qsort(block, chosen->processes, sizeof *block, by_rank_and_bytes);
    return block;
}

static void write_blocks(struct session *session, const struct block *block)
{
    struct text file = {0};
    size_t count = session->chosen.processes, blocks = 0;
    for (size_t i = 0; i < count; i++) {
        if (i && by_rank_and_bytes(&block[i - 1], &block[i]) == 0) continue;
        bool good = summary_add(&file, &block[i].bytes);
        blocks += good;
        if (good) continue;
        complain(NULL, "a process is left out: its summary is larger than %d MiB", SUMMARY_LARGEST >> 20);
        session_spoil(session);
    }
    summary_end(&file, blocks);
    out_write(&session->out, file.data, file.length);
    text_free(&file);
}

void cmd_reduce(struct session *session)
{
    if (!session->options.output && isatty(STDOUT_FILENO)) {
        complain(NULL, "reduce writes bytes that are not text; choose a file with -o X.tfs");
        session->status = STATUS_USAGE;
        return;
    }
    if (!session_load(session) || !session_begin_text(session)) return;
    struct block *block = blocks_of(session);
    write_blocks(session, block);
    for (size_t i = 0; i < session->chosen.processes; i++) text_free(&block[i].bytes);
    free(block);
    session_end(session, true);
}
