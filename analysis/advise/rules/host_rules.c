/* host_rules.c - rules about the process and its machine: threads, compilation, start, samples of Python, the recording. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "ask/samples/periods.h"
#include "ask/stages/start_times.h"
#include "base/sets/measure.h"
#include "model/frames.h"
#include "read/trace.h"

/* ---- threads ---- */

/* Returns the processors that a process may use; -1: unknown. */
static double processors_of(const struct process *p)
{
    int64_t allowed = machine_number(&p->machine, "usable_processors"),
            quota = machine_number(&p->machine, "quota_millis");
    if (allowed <= 0) allowed = machine_number(&p->machine, "processors");
    double processors = allowed > 0 ? (double)allowed : -1;
    return quota > 0 && (processors < 0 || (double)quota / 1000 < processors) ? (double)quota / 1000 : processors;
}

void judge_threads(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        EACH_PROCESS(j, rank, p)
        {
            uint32_t threads = 0;
            double processors = processors_of(p);
            int64_t time = 0;
            for (size_t i = 0; i < p->machine.pools; i++) threads = MAX(threads, p->machine.pool[i].threads);
            if (processors <= 0 || threads < 1.5 * processors || threads < processors + 1) continue;
            for (int leaf = LEAF_MATRIX; leaf <= LEAF_OTHER; leaf++) time = add_ns(time, rank->left[leaf]);
            if (rank->device) time = rank->left[LEAF_LAUNCH];
            struct finding *f = claim(
                j, rule, rank, host_leaves(rank), time,
                string_format("operators run on %u threads, and the process has %g processors", threads, processors));
            if (f) add_evidence(f, string_format("torch's threads: %u; processors: %g", threads, processors), "info");
        }
    }
}

/* ---- compilation ---- */

void judge_recompiled(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct intervals again = {0};
        const struct compile_phase *last = NULL;
        size_t count = 0;
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < p->startup.phases; i++) {
            const struct compile_phase *phase = &p->startup.phase[i];
            if (phase->reason == NAME_NONE || !intervals_hold(&rank->part->window, phase->start, phase->start))
                continue;
            intervals_add(&again, phase->start, phase->end);
            last = phase;
            count++;
        }
        intervals_merge(&again);
        int64_t time = intervals_total(&again);
        intervals_free(&again);
        if (count < 2) continue;
        struct finding *f = claim(j, rule, rank, LEAF_BIT(LEAF_COMPILE), time,
                                  string_format("%zu compilations repeat an earlier one whose guards failed", count));
        if (!f) continue;
        add_evidence(f, string_format("%s: %s", named(j, last->frame), named(j, last->reason)), "startup");
    }
}

void judge_graph_breaks(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const char *said = NULL;
        size_t breaks = 0;
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < 32 && p->metadata; i++) {
            char key[40];
            snprintf(key, sizeof key, "torch.graph_break.%zu", i);
            const char *text = pairs_get(p->metadata, key);
            if (!text) break;
            breaks += strtoul(text, NULL, 10);
            said = said ? said : text;
        }
        if (!said) continue;
        struct finding *f =
            remark(j, rule, rank, SEVERITY_FINDING,
                   string_format("torch.compile broke %zu graph%s: %.160s", breaks, breaks == 1 ? "" : "s", said));
        add_evidence(f, string_format("%.200s", said), "info");
    }
}

/* ---- the start ---- */

void judge_start(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        int64_t start = rank->part->time[LEAF_START];
        const struct startup_piece *longest = NULL;
        if (start <= rank->work || start < 1000000000) continue;
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < p->startup.pieces; i++)
            if (!p->startup.piece[i].depth &&
                (!longest || p->startup.piece[i].end - p->startup.piece[i].start > longest->end - longest->start))
                longest = &p->startup.piece[i];
        struct finding *f = remark(j, rule, rank, start > 60 * INT64_C(1000000000) ? SEVERITY_FINDING : SEVERITY_NOTE,
                                   string_format("%.3f ms of start-up for %.3f ms of work", ms(start), ms(rank->work)));
        if (longest)
            add_evidence(f, string_format("%s: %.3f ms", named(j, longest->name), ms(longest->end - longest->start)),
                         "startup");
        return;
    }
}

void judge_first_calls(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        EACH_PROCESS(j, rank, p)
        {
            struct first_calls first = first_calls_find(p);
            const struct first_call *most = NULL;
            for (size_t i = 0; i < first.count; i++)
                if (!most || first.call[i].time > most->time) most = &first.call[i];
            if (most && 10 * (most->time - most->median) > (int64_t)most->others * most->median) {
                struct finding *f =
                    remark(j, rule, rank, SEVERITY_NOTE,
                           string_format("the first call of %s took %.3f ms, the median of %llu others %.3f ms",
                                         named(j, most->name), ms(most->time), (unsigned long long)most->others,
                                         ms(most->median)));
                f->stage = most->name;
                add_evidence(
                    f,
                    string_format("%s: %.3f ms beyond the median", named(j, most->name), ms(most->time - most->median)),
                    "stages --slowest 5");
            }
            free(first.call);
        }
    }
}

/* ---- the recording ---- */

void judge_own_cost(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        int64_t cost = 0;
        EACH_PROCESS(j, rank, p)
        if (p->has_cost) cost = add_ns(cost, (int64_t)MIN(p->own_cost_ns, (uint64_t)INT64_MAX));
        double share = percent(cost, rank->work);
        if (share < rule->least) continue;
        struct finding *f = remark(j, rule, rank, share < 20 ? SEVERITY_NOTE : SEVERITY_FINDING,
                                   string_format("recording took %.3f ms, %.1f %% of the work", ms(cost), share));
        add_evidence(f, string_format("own cost: %.3f ms", ms(cost)), "info");
    }
}

/* ---- samples ---- */

/* What a thread did: it ran Python code, or native code without the interpreter's lock, or it waited. */
enum line_does { RUNS_PYTHON, RUNS_NATIVE, WAITS };

/* Time of a rank by the innermost line of the program under which it went. */
struct line_time {
    uint32_t frame;
    enum line_does does; /* both are the key */
    uint32_t inner;      /* the innermost frame of all that most of the time has, if one has more than half */
    int64_t time, votes, longest;
    size_t samples;
    size_t look; /* of the longest period */
    const struct process *process;
};

struct line_times {
    KEYED_ROWS(struct line_time);
    struct rule_facts *j;
    const struct rank_facts *rank;
    const struct process *process;
    struct measure explained; /* moments that the budget explains otherwise */
    bool coroutines;          /* only those of event loops */
};

static bool frame_has(const struct rule_facts *j, uint32_t frame, const char *part)
{
    return strstr(named(j, frame), part) != NULL;
}

static bool is_own_frame(const struct rule_facts *j, uint32_t text)
{
    static const char *const libraries[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "\t<"};
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
        if (frame_has(j, text, libraries[i])) return false;
    return frame_has(j, text, "\t");
}

static enum line_does does(const struct line_times *lines, const struct sampled *s)
{
    const struct looks *l = &lines->process->looks;
    if (!sampled_works(l, s->look, s->wall, s->cpu)) return WAITS;
    bool locks = l->flags[s->look] & (TFI_SAMPLED_HOLDS | TFI_SAMPLED_WANTS);
    return locks ? RUNS_PYTHON : RUNS_NATIVE;
}

static void add_look(void *context, const struct sampled *s)
{
    struct line_times *lines = context;
    const struct looks *l = &lines->process->looks;
    const struct names *names = &lines->j->chosen->model->names;
    uint32_t stack = l->stack[s->look], own = NAME_NONE;
    bool looped = false;
    int64_t known = measure_between(&lines->explained, l->start[s->look], l->end[s->look]);
    int64_t weight = s->weight - MIN(s->weight, known);
    if (stack == NAME_NONE || weight <= 0 || l->flags[s->look] & TFI_SAMPLED_IMPORT) return;
    if (!intervals_hold(&lines->rank->part->window, l->start[s->look], l->start[s->look])) return;
    size_t depth = stack_depth(names, stack);
    for (size_t i = 0; i < depth; i++) {
        uint32_t frame = stack_frame(names, stack, i);
        if (own == NAME_NONE && is_own_frame(lines->j, frame)) own = frame;
        looped |= i && frame_has(lines->j, frame, "asyncio/") && frame_has(lines->j, frame, "_run");
    }
    uint32_t inner = stack_frame(names, stack, 0);
    if (lines->coroutines && (!looped || own == NAME_NONE)) return;
    if (own == NAME_NONE) own = stack_frame(names, stack, depth - 1);
    const struct {
        uint32_t frame;
        enum line_does does;
    } key = {own, does(lines, s)};
    struct line_time *line = keyed_row(&lines->keyed, &key, sizeof key, sizeof *line);
    line->time = add_ns(line->time, weight);
    line->samples++;
    line->votes += line->inner == inner ? weight : -weight;
    if (line->votes < 0 || line->inner == NAME_NONE) line->inner = inner, line->votes = weight;
    if (s->wall <= line->longest) return;
    line->longest = s->wall;
    line->look = s->look;
    line->process = lines->process;
}

static void collect_lines(struct line_times *lines, struct rule_facts *j, const struct rank_facts *rank)
{
    lines->j = j;
    lines->rank = rank;
    measure_init(&lines->explained, &rank->wall->explained);
    for (size_t i = 0; i < j->chosen->processes; i++) {
        if (!counts_for(j, j->chosen->process[i], rank) || !j->chosen->process[i]->looks.table.count) continue;
        struct scope *scope = scope_begin(j->chosen, i);
        lines->process = scope->process;
        sampled_each(scope, add_look, lines);
        scope_end(scope);
    }
    measure_free(&lines->explained);
}

/* Sets file, line and function from a frame. */
static void set_frame(const struct rule_facts *j, struct finding *f, uint32_t text)
{
    const struct name *name = names_get(&j->chosen->model->names, text);
    struct frame frame;
    if (!frame_parse(&frame, name->text, name->length)) return;
    f->file = mem_text(frame.file, frame.file_length);
    f->function = mem_text(frame.function, frame.function_length);
    f->line = strtol(frame.line, NULL, 10);
}

/* Returns a frame in words, which the caller frees: a package's file from the package on, and another one's last name. */
static char *frame_words(const struct rule_facts *j, uint32_t text)
{
    struct text words = {0};
    const struct name *name = names_get(&j->chosen->model->names, text);
    struct frame frame;
    frame_text(name, &words);
    if (words.data && frame_parse(&frame, name->text, name->length)) {
        static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
        const char *from = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(folders) && !from; i++)
            if ((from = memmem(words.data, MIN(words.length, frame.file_length), folders[i], strlen(folders[i]))) !=
                NULL)
                from += strlen(folders[i]);
        if (!from && (from = memrchr(words.data, '/', MIN(words.length, frame.file_length))) != NULL) from++;
        if (from) memmove(words.data, from, strlen(from) + 1);
    }
    return words.data ? words.data : string_format("?");
}

/* True if a rule has a finding about the line of a frame. */
static bool is_said(const struct rule_facts *j, const struct rank_facts *rank, uint32_t text)
{
    const struct name *name = names_get(&j->chosen->model->names, text);
    struct frame frame;
    if (!frame_parse(&frame, name->text, name->length)) return false;
    for (size_t i = 0; i < j->advice->findings; i++) {
        const struct finding *f = &j->advice->finding[i];
        if (f->rank == rank->wall->rank && f->file && f->line == strtol(frame.line, NULL, 10) &&
            strlen(f->file) == frame.file_length && strncmp(f->file, frame.file, frame.file_length) == 0)
            return true;
    }
    return false;
}

/* Returns the line with the most time, of those that no finding names; NULL: none, or too few samples tell: the share of ten
 * is known to a third. */
static const struct line_time *heaviest_of(const struct line_times *lines, enum line_does does)
{
    enum { LEAST_SAMPLES = 10 };
    const struct line_time *most = NULL;
    for (size_t i = 0; i < lines->count; i++) {
        const struct line_time *line = &lines->row[i];
        if (line->does == does && line->samples >= LEAST_SAMPLES && (!most || line->time > most->time) &&
            !is_said(lines->j, lines->rank, line->frame))
            most = line;
    }
    return most;
}

/* Says what the heaviest line does, in words that the caller frees. */
static char *line_words(const struct rule_facts *j, const struct line_time *most, bool coroutines, const char *wait)
{
    char *own = frame_words(j, most->frame), *inner = frame_words(j, most->inner);
    const char *in = wait ? " in " : "";
    wait = wait ? wait : "";
    char *words = coroutines            ? string_format("%s blocks the event loop%s%s", own, in, wait)
                  : most->does == WAITS ? string_format("%s waits%s%s", own, in, wait)
                                        : string_format("%s works, most of it in %s", own, inner);
    free(own);
    free(inner);
    return words;
}

static void add_line(struct rule_facts *j, struct finding *f, const struct line_time *most)
{
    char *own = frame_words(j, most->frame), *inner = frame_words(j, most->inner);
    set_frame(j, f, most->frame);
    add_evidence(
        f, string_format("%zu samples under %s: %.3f ms, most of it in %s", most->samples, own, ms(most->time), inner),
        "hotspots");
    free(own);
    free(inner);
}

/* `coroutines`: only what runs in an event loop, which waits for nothing else meanwhile. Each of the heaviest lines is a
 * finding. */
static void judge_lines(struct rule_facts *j, const struct rule *rule, enum line_does does, bool coroutines,
                        unsigned leaves)
{
    enum { MOST_LINES = 3 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct line_times lines = {.coroutines = coroutines};
        const struct line_time *most;
        struct finding *f;
        char room[24];
        size_t said = 0;
        collect_lines(&lines, j, rank);
        while (said++ < MOST_LINES && (most = heaviest_of(&lines, does)) != NULL) {
            const char *wait = does == WAITS ? sampled_wait(&most->process->looks, most->look, room) : NULL;
            bool polls = wait && (strstr(wait, "poll") || strcmp(wait, "select") == 0);
            if (polls && (coroutines || frame_has(j, most->inner, "selectors.py"))) break;
            f = claim(j, rule, rank, leaves, most->time, line_words(j, most, coroutines, wait));
            if (!f) break;
            add_line(j, f, most);
            if (!f->file) break; /* it cannot be told from the next one */
        }
        keyed_free(&lines.keyed);
    }
}

/* Native code without the lock does its work: it is worth a note, because nobody knows whether it has to. */
static void note_native_lines(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct line_times lines = {0};
        collect_lines(&lines, j, rank);
        const struct line_time *most = heaviest_of(&lines, RUNS_NATIVE);
        if (most && percent(most->time, rank->work) >= rule->least) {
            char *own = frame_words(j, most->frame);
            add_line(j,
                     remark(j, rule, rank, SEVERITY_NOTE,
                            string_format("%.3f ms, %.1f %% of the work: %s runs native code without the "
                                          "interpreter's lock",
                                          ms(most->time), percent(most->time, rank->work), own)),
                     most);
            free(own);
        }
        keyed_free(&lines.keyed);
    }
}

void judge_coroutine(struct rule_facts *j, const struct rule *rule)
{
    judge_lines(j, rule, WAITS, true,
                LEAF_BIT(LEAF_PYTHON) | LEAF_BIT(LEAF_SYSTEM) | LEAF_BIT(LEAF_UNKNOWN) | LEAF_BIT(LEAF_FILE_IO));
}

void judge_python_line(struct rule_facts *j, const struct rule *rule)
{
    judge_lines(j, rule, RUNS_PYTHON, false, LEAF_BIT(LEAF_PYTHON) | LEAF_BIT(LEAF_UNKNOWN));
    note_native_lines(j, rule);
}

void judge_system_call(struct rule_facts *j, const struct rule *rule)
{
    judge_lines(j, rule, WAITS, false, LEAF_BIT(LEAF_SYSTEM) | LEAF_BIT(LEAF_UNKNOWN));
}

/* ---- filters of TorchFX ---- */

/* A fused chain is one call; what tells a chain from calls for many inputs is their number alone. */
void judge_dispatches(struct rule_facts *j, const struct rule *rule)
{
    enum { LEAST_CALLS = 1000 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_fact *most = NULL;
        uint64_t calls = 0;
        int64_t time = 0;
        for (size_t i = 0; i < rank->facts.ops.count; i++) {
            const struct op_fact *op = &rank->facts.ops.row[i];
            if (!strstr(named(j, op->name), "torchfx")) continue;
            calls += op->calls;
            time = add_ns(time, op->total);
            if (!most || op->calls > most->calls) most = op;
        }
        if (!most || calls < LEAST_CALLS || time / (int64_t)calls > 1000000) continue;
        struct finding *f =
            claim(j, rule, rank, host_leaves(rank), time,
                  string_format("%llu short calls of filters, one after the other", (unsigned long long)calls));
        if (!f) continue;
        f->where = most->name;
        add_evidence(f,
                     string_format("%s: %llu calls, %.3f ms", named(j, most->name), (unsigned long long)most->calls,
                                   ms(most->total)),
                     "launches");
    }
}
