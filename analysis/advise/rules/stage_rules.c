/* stage_rules.c - rules about stages and memory: parts that run too often, memory that is kept, devices nearly full. */
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "ask/memory/changes.h"
#include "ask/stages/order.h"
#include "ask/stages/stage_table.h"

/* ---- a part that runs more often than its pipeline needs ---- */

/* Parts of which a call of a pipeline needs one, by the end of the name of their stage. */
static bool runs_once(const char *name)
{
    static const char *const parts[] = {"vae.decode",  "vae.encode",   "vae_decode", "vae_encode",
                                        "text_encode", "text_encoder", "tokenizer",  "encode_prompt"};
    size_t length = strlen(name);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        size_t of = strlen(parts[i]);
        if (length >= of && strcmp(name + length - of, parts[i]) == 0 &&
            (length == of || strchr(".:_ ", name[length - of - 1])))
            return true;
    }
    return false;
}

static const struct stage_row *stage_named_in(const struct stage_table *table, uint32_t name)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->row[i].name == name) return &table->row[i];
    return NULL;
}

/* Returns the outermost stage around a row; NULL: there is none. */
static const struct stage_row *outermost(const struct stage_table *table, const struct stage_row *row)
{
    enum { MOST_AROUND = 16 };
    const struct stage_row *around = NULL;
    for (size_t i = 0; i < MOST_AROUND && row && row->parent != NAME_NONE; i++) {
        row = stage_named_in(table, row->parent);
        if (row) around = row;
    }
    return around;
}

void judge_repeated_part(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct stage_table table = {.since = INT64_MIN};
        for (size_t i = 0; i < j->chosen->processes; i++) {
            if (!counts_for(j, j->chosen->process[i], rank)) continue;
            struct scope *scope = scope_begin(j->chosen, i);
            stages_add_times(&table, scope, rank->wall->rank, false);
            scope_end(scope);
        }
        for (size_t i = 0; i < table.count; i++) {
            const struct stage_row *row = &table.row[i],
                                   *around = runs_once(named(j, row->name)) ? outermost(&table, row) : NULL;
            if (!around || !around->calls || row->calls <= 2 * around->calls) continue;
            int64_t time = (int64_t)((double)row->wall * (double)(row->calls - around->calls) / (double)row->calls);
            struct finding *f = claim(j, rule, rank, COMPUTING | host_leaves(rank), time,
                                      string_format("%s ran %llu times in %llu calls of %s", named(j, row->name),
                                                    (unsigned long long)row->calls, (unsigned long long)around->calls,
                                                    named(j, around->name)));
            if (!f) continue;
            f->stage = row->name;
            add_evidence(f,
                         string_format("%s: %llu calls, %.3f ms", named(j, row->name), (unsigned long long)row->calls,
                                       ms(row->wall)),
                         "stages");
        }
        stages_free(&table);
    }
}

/* ---- memory that stages keep ---- */

/* Memory that calls of a stage allocated, and that was in use when its last call began. */
struct kept {
    uint32_t stage;                /* the key */
    uint64_t all;                  /* calls of the stage */
    int64_t last;                  /* when the last one began */
    uint64_t bytes, blocks, calls; /* calls: that keep some */
    uint32_t call;                 /* the one counted last */
};

struct kept_stages {
    KEYED_ROWS(struct kept);
};

static void find_last_calls(struct kept_stages *stages, const struct ranges *ranges)
{
    for (size_t i = 0; i < ranges->table.count; i++) {
        if (!is_stage(ranges, i) || ranges->flags[i] & RANGE_CONTINUED) continue;
        struct kept *stage = keyed_row(&stages->keyed, &ranges->name[i], sizeof stage->stage, sizeof *stage);
        stage->last = stage->all++ ? MAX(stage->last, ranges->start[i]) : ranges->start[i];
    }
}

static void end_block(struct kept_stages *stages, const struct ranges *ranges, const struct memory_live *live,
                      int64_t end)
{
    if (live->holder == NO_PLACE) return;
    struct kept *stage = keyed_row(&stages->keyed, &ranges->name[live->holder], sizeof stage->stage, sizeof *stage);
    if (ranges->start[live->holder] >= stage->last || end < stage->last) return;
    stage->bytes += (uint64_t)live->bytes;
    stage->calls += !stage->blocks || stage->call != live->holder;
    stage->blocks++;
    stage->call = live->holder;
}

static int live_by_block(const void *a, const void *b)
{
    const struct memory_live *x = a, *y = b;
    return by_number(x->block, y->block);
}

static void find_kept(struct kept_stages *stages, const struct selection *chosen, const struct scope *scope)
{
    struct memory_reading reading = {.process = scope->process, .names = &chosen->model->names};
    const struct ranges *ranges = &scope->process->ranges;
    const struct memory_change *change;
    struct memory_walk walk;
    find_last_calls(stages, ranges);
    memory_walk_init(&walk, &reading);
    while ((change = memory_walk_next(&walk)) != NULL) {
        if (change->has_gone) end_block(stages, ranges, &change->gone, change->time);
        if (change->bytes > 0)
            walk.live[change->live].holder = memory_change_at(&reading, &scope->choice, change).stage;
    }
    if (walk.lives) qsort(walk.live, walk.lives, sizeof *walk.live, live_by_block);
    for (size_t i = 0; i < walk.lives; i++)
        if (!walk.live[i].is_free) end_block(stages, ranges, &walk.live[i], INT64_MAX);
    memory_walk_free(&walk);
}

static void judge_kept_of(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, struct scope *scope)
{
    enum { LEAST_BYTES = 16 << 20, LEAST_CALLS = 4 };
    struct kept_stages stages = {0};
    const struct kept *most = NULL;
    scope_attribute(scope);
    find_kept(&stages, j->chosen, scope);
    for (size_t i = 0; i < stages.count; i++) {
        const struct kept *stage = &stages.row[i];
        bool grows = stage->calls >= LEAST_CALLS && 2 * stage->calls >= stage->all;
        if (grows && stage->bytes >= LEAST_BYTES && (!most || stage->bytes > most->bytes)) most = stage;
    }
    if (most) {
        struct finding *f = remark(j, rule, rank, SEVERITY_FINDING,
                                   string_format("%s keeps %.1f MiB, in %llu blocks of %llu of its calls",
                                                 named(j, most->stage), (double)most->bytes / 1048576,
                                                 (unsigned long long)most->blocks, (unsigned long long)most->calls));
        f->stage = most->stage;
        add_evidence(f,
                     string_format("%s: %.1f MiB of earlier calls are in use when the last one begins",
                                   named(j, most->stage), (double)most->bytes / 1048576),
                     "memory --layout leaks");
    }
    keyed_free(&stages.keyed);
}

void judge_kept_memory(struct rule_facts *j, const struct rule *rule)
{
    for (size_t i = 0; i < j->chosen->processes; i++) {
        const struct process *p = j->chosen->process[i];
        struct rank_facts *rank = facts_of_rank(j, p->rank);
        if (!rank || !p->blocks.table.count || !counts_for(j, p, rank)) continue;
        struct scope *scope = scope_begin(j->chosen, i);
        judge_kept_of(j, rule, rank, scope);
        scope_end(scope);
    }
}

/* ---- near the limit, and in pieces ---- */

void judge_near_limit(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        uint64_t reserved = 0, allocated = 0, memory = 0, refused = 0;
        EACH_PROCESS(j, rank, p)
        {
            refused += p->ooms.table.count;
            for (size_t i = 0; i < p->devices; i++) memory = MAX(memory, p->device[i].memory);
            for (size_t i = 0; i < p->blocks.table.count; i++) {
                if (p->blocks.device[i] < 0) continue;
                if (p->blocks.reserved[i] != TOTAL_UNKNOWN) reserved = MAX(reserved, p->blocks.reserved[i]);
                if (p->blocks.allocated[i] != TOTAL_UNKNOWN) allocated = MAX(allocated, p->blocks.allocated[i]);
            }
        }
        bool full = memory && 10 * reserved > 9 * memory,
             in_pieces = reserved > (UINT64_C(256) << 20) && 10 * allocated < 7 * reserved;
        if (!refused && !full && !in_pieces) continue;
        struct finding *f = remark(j, rule, rank, refused || full ? SEVERITY_FINDING : SEVERITY_NOTE,
                                   string_format("%.1f MiB of device memory are reserved, %.1f MiB of them in use, of "
                                                 "%.1f MiB; %llu requests were refused",
                                                 (double)reserved / 1048576, (double)allocated / 1048576,
                                                 (double)memory / 1048576, (unsigned long long)refused));
        add_evidence(f,
                     string_format("reserved %.1f MiB, in use %.1f MiB", (double)reserved / 1048576,
                                   (double)allocated / 1048576),
                     refused ? "memory --layout oom" : "memory --layout peaks");
    }
}
