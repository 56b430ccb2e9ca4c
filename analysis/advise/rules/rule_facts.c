/* rule_facts.c - makes the findings of rules: what time they claim, out of which leaves, where, and with what evidence. */
#include "advise/rules/rule_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

double percent(int64_t time, int64_t of)
{
    return of > 0 ? 100.0 * (double)time / (double)of : 0;
}

double ms(int64_t time)
{
    return (double)time / 1e6;
}

const char *named(const struct rule_facts *j, uint32_t name)
{
    return model_name(j->chosen->model, name);
}

void add_evidence(struct finding *f, char *what, const char *command)
{
    if (f->evidences < ARRAY_SIZE(f->evidence))
        f->evidence[f->evidences++] = (struct evidence){what, string_format("tfanalyze %s", command)};
    else free(what);
}

static struct finding *add_finding(struct rule_facts *j, const struct rule *rule, const struct rank_facts *rank,
                                   char *text)
{
    struct advice *a = j->advice;
    a->finding = mem_grow(a->finding, &a->finding_capacity, a->findings + 1, sizeof *a->finding);
    struct finding *f = &a->finding[a->findings++];
    *f = (struct finding){.id = rule->id, .cause = rule->cause, .fix = rule->fix, .confirm = rule->confirm, .line = -1};
    f->confidence = rule->confidence;
    f->rank = f->gains = rank->wall->rank;
    f->beside_device = rank->device;
    f->stage = rank->part->stage;
    f->words = text;
    return f;
}

struct whose {
    char text[32];
};

/* Writes "rank 3", or "the trace" where it has no rank. */
static const char *whose(const struct rank_facts *rank, struct whose *room)
{
    if (rank->wall->rank < 0) return "the trace";
    snprintf(room->text, sizeof room->text, "rank %lld", (long long)rank->wall->rank);
    return room->text;
}

/* Takes at most `time` out of the leaves, first out of the one with the least. Returns what there was. */
static int64_t take_out(struct rank_facts *rank, unsigned leaves, int64_t time)
{
    int64_t taken = 0;
    while (taken < time) {
        int least = -1;
        for (int leaf = 0; leaf < NR_LEAVES; leaf++)
            if (leaves & LEAF_BIT(leaf) && rank->left[leaf] > 0 && (least < 0 || rank->left[leaf] < rank->left[least]))
                least = leaf;
        if (least < 0) break;
        int64_t part = MIN(time - taken, rank->left[least]);
        rank->left[least] -= part;
        taken += part;
    }
    return taken;
}

struct finding *claim_some(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, unsigned leaves,
                           int64_t time, int64_t headroom, char *text)
{
    struct whose room;
    double share;
    if (time <= 0 || percent(time, rank->work) < rule->least) {
        free(text);
        return NULL;
    }
    struct finding *f = add_finding(j, rule, rank, text);
    f->headroom = take_out(rank, leaves, MAX(headroom, 0));
    f->leaves = leaves;
    f->time = time;
    f->share = percent(time, rank->work);
    f->text = string_format("%.3f ms, %.1f %% of the work of %s: %s", ms(time), f->share, whose(rank, &room), text);
    share = percent(f->headroom, rank->work);
    f->severity = share < 1 ? SEVERITY_NOTE : share < 10 ? SEVERITY_FINDING : SEVERITY_PROBLEM;
    return f;
}

struct finding *claim(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, unsigned leaves,
                      int64_t time, char *text)
{
    return claim_some(j, rule, rank, leaves, time, (int64_t)((double)time * (100 - rule->keeps) / 100), text);
}

struct finding *remark(struct rule_facts *j, const struct rule *rule, struct rank_facts *rank, enum severity severity,
                       char *text)
{
    struct finding *f = add_finding(j, rule, rank, text);
    struct whose room;
    f->severity = severity;
    f->text = string_format("%s: %s", whose(rank, &room), text);
    return f;
}

/* True for a file of the program itself, and of no library. */
static bool is_of_program(const struct frame *frame)
{
    static const char *const libraries[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "<"};
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
        if (memmem(frame->file, frame->file_length, libraries[i], strlen(libraries[i]))) return false;
    return frame->file_length != 0;
}

void set_line(struct rule_facts *j, struct finding *f, uint32_t stack)
{
    const struct names *names = &j->chosen->model->names;
    if (stack == NAME_NONE) return;
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        const struct name *text = names_get(names, stack_frame(names, stack, i));
        struct frame frame;
        if (!frame_parse(&frame, text->text, text->length) || !is_of_program(&frame)) continue;
        f->file = mem_text(frame.file, frame.file_length);
        f->function = mem_text(frame.function, frame.function_length);
        f->line = strtol(frame.line, NULL, 10);
        return;
    }
}

struct rank_facts *facts_of_rank(const struct rule_facts *j, int64_t rank)
{
    for (size_t i = 0; i < j->ranks; i++)
        if (j->rank[i].wall->rank == rank) return &j->rank[i];
    return NULL;
}

bool counts_for(const struct rule_facts *j, const struct process *process, const struct rank_facts *rank)
{
    const struct names *names = &j->chosen->model->names;
    if (process->rank != rank->wall->rank) return false;
    if (!rank->wall->works && !rank->wall->waits) return true;
    return process_leads(process, names);
}
