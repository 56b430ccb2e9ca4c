/* findings.c - applies the rules of advise.def to the budget of each rank and to the roofline of its operators. */
#include "advise/findings.h"

#include <stdlib.h>
#include <string.h>

const char *const severity_names[] = {"note", "finding", "problem"};

/* A rule looks at a leaf, or at the weakest operator. */
struct rule {
    const char *id;
    enum leaf leaf; /* NR_LEAVES: the weakest operator */
    double least, keeps;
    const char *confidence, *finding, *cause, *fix, *confirm;
};

static const struct rule rules[] = {
#define RULE(id, leaf, least, keeps, confidence, finding, cause, fix, confirm)                                         \
    {id, LEAF_##leaf, least, keeps, confidence, finding, cause, fix, confirm},
#define WEAK(id, least, confidence, finding, cause, fix, confirm)                                                      \
    {id, NR_LEAVES, least, 0, confidence, finding, cause, fix, confirm},
#include "advise/advise.def"
};

struct judging {
    struct advice *advice;
    const struct selection *chosen;
    const struct walls *walls;
    const struct roofline *roofline;
    int64_t (*left)[NR_LEAVES]; /* by wall: what earlier rules left of each leaf */
};

struct needs advise_needs(const struct options *options)
{
    return needs_union(wall_needs(options), roofline_needs(options));
}

/* Returns the part of a wall that is judged: the whole rank, or the first stage that the options choose. */
static const struct wall_part *part_judged(const struct wall *wall)
{
    return wall->parts && !wall->part[0].unknown && wall->part[0].total > 0 ? &wall->part[0] : NULL;
}

static double percent(int64_t time, int64_t of)
{
    return of ? 100.0 * (double)time / (double)of : 0;
}

static void add_evidence(struct finding *f, char *what, const char *command)
{
    if (f->evidences < ARRAY_SIZE(f->evidence))
        f->evidence[f->evidences++] = (struct evidence){what, string_format("tfanalyze %s", command)};
    else free(what);
}

/* Returns a new finding about `time` of a rank, of which the fix may remove `headroom`. */
static struct finding *add_finding(struct judging *j, const struct rule *rule, size_t number, int64_t time,
                                   int64_t headroom)
{
    struct advice *a = j->advice;
    const struct wall *wall = &j->walls->wall[number];
    const struct wall_part *part = part_judged(wall);
    double share = percent(headroom, part->total);
    struct text whose = {0};
    a->finding = mem_grow(a->finding, &a->finding_capacity, a->findings + 1, sizeof *a->finding);
    struct finding *f = &a->finding[a->findings++];
    *f = (struct finding){.id = rule->id, .cause = rule->cause, .fix = rule->fix, .confirm = rule->confirm};
    f->confidence = rule->confidence;
    f->rank = wall->rank;
    f->stage = part->stage;
    f->headroom = headroom;
    f->severity = share < 1 ? SEVERITY_NOTE : share < 10 ? SEVERITY_FINDING : SEVERITY_PROBLEM;
    if (wall->rank >= 0) text_format(&whose, "rank %lld", (long long)wall->rank);
    f->text = string_format("%.3f ms, %.1f %% of the time of %s: %s", (double)time / 1e6, percent(time, part->total),
                            whose.data ? whose.data : "the trace", rule->finding);
    text_free(&whose);
    return f;
}

/* Returns the wall with the largest share of a leaf; SIZE_MAX: no wall can be judged. */
static size_t worst_wall(const struct judging *j, enum leaf leaf)
{
    size_t worst = SIZE_MAX;
    double most = -1;
    for (size_t i = 0; i < j->walls->count; i++) {
        const struct wall_part *part = part_judged(&j->walls->wall[i]);
        double share = part ? percent(part->time[leaf], part->total) : -1;
        if (share > most) most = share, worst = i;
    }
    return worst;
}

/* Adds the operators that launched most of a leaf's kernels, as the roofline has them. */
static void add_operators(struct judging *j, struct finding *f, enum leaf leaf)
{
    const struct roofline *r = j->roofline;
    enum { SHOWN = 2 };
    bool *used = mem_zero(r->count, sizeof *used);
    for (size_t n = 0; n < SHOWN; n++) {
        size_t most = SIZE_MAX;
        for (size_t i = 0; i < r->count; i++) {
            bool fits = r->row[i].key.rank == f->rank && !used[i] && r->row[i].key.name != NAME_OUTSIDE &&
                        operator_leaf(names_get(&j->chosen->model->names, r->row[i].key.name)) == leaf;
            if (fits && (most == SIZE_MAX || r->row[i].device_ns > r->row[most].device_ns)) most = i;
        }
        if (most == SIZE_MAX) break;
        const struct roof_row *row = &r->row[most];
        used[most] = true;
        if (!n) f->where = row->key.name;
        add_evidence(f,
                     string_format("%s of one shape: %llu calls, %.3f ms of kernels",
                                   model_name(j->chosen->model, row->key.name), (unsigned long long)row->calls,
                                   (double)row->device_ns / 1e6),
                     "roofline");
    }
    free(used);
}

static void judge_leaf(struct judging *j, const struct rule *rule)
{
    size_t worst = worst_wall(j, rule->leaf);
    if (worst == SIZE_MAX) return;
    const struct wall *wall = &j->walls->wall[worst];
    const struct wall_part *part = part_judged(wall);
    int64_t time = part->time[rule->leaf];
    const char *path = leaf_rows[rule->leaf].path[wall->works > 0];
    if (!path || percent(time, part->total) < rule->least) return;
    int64_t headroom = (int64_t)((double)time * (100 - rule->keeps) / 100);
    headroom = MIN(headroom, j->left[worst][rule->leaf]);
    j->left[worst][rule->leaf] -= headroom;
    struct finding *f = add_finding(j, rule, worst, time, headroom);
    add_evidence(f, string_format("leaf `%s`: %.3f ms", path, (double)time / 1e6), "budget");
    if (rule->leaf <= LEAF_OTHER && wall->works) add_operators(j, f, rule->leaf);
}

static size_t wall_of_rank(const struct judging *j, int64_t rank)
{
    size_t i = 0;
    while (i < j->walls->count && j->walls->wall[i].rank != rank) i++;
    return i < j->walls->count && part_judged(&j->walls->wall[i]) ? i : SIZE_MAX;
}

/* The operator with the largest headroom, if it is a matrix product, a convolution or attention: the others are bound by
 * memory, and rules of their own look at them. */
static void judge_weakest(struct judging *j, const struct rule *rule)
{
    for (size_t i = 0; i < j->roofline->count; i++) {
        const struct roof_row *row = &j->roofline->row[i];
        enum leaf leaf = operator_leaf(names_get(&j->chosen->model->names, row->key.name));
        size_t number = wall_of_rank(j, row->key.rank);
        bool of_units = leaf == LEAF_MATRIX || leaf == LEAF_CONVOLUTION || leaf == LEAF_ATTENTION;
        if (!of_units || !row->bound || number == SIZE_MAX) continue;
        const struct wall_part *part = part_judged(&j->walls->wall[number]);
        int64_t headroom = MIN(roof_headroom(row), j->left[number][leaf]);
        if (percent(headroom, part->total) < rule->least) return;
        j->left[number][leaf] -= headroom;
        struct finding *f = add_finding(j, rule, number, row->device_ns, headroom);
        f->where = row->key.name;
        add_evidence(f,
                     string_format("%s %s: %llu calls, bound by %s, %.1f %% of the peak",
                                   model_name(j->chosen->model, row->key.name),
                                   model_name(j->chosen->model, row->key.shapes), (unsigned long long)row->calls,
                                   row->bound, percent((int64_t)row->bound_ns, row->device_ns)),
                     "roofline");
        return;
    }
}

/* ---- what could not be judged ---- */

static void add_unjudged(struct advice *a, const char *what, char *why, const char *how)
{
    a->not_judged = mem_grow(a->not_judged, &a->unjudged_capacity, a->unjudged + 1, sizeof *a->not_judged);
    a->not_judged[a->unjudged++] = (struct not_judged){what, how, why};
}

static void find_doubts_of_traces(struct judging *j)
{
    size_t broken = 0, lossy = 0, without_files = 0, without_rank = 0;
    const struct selection *chosen = j->chosen;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        broken += !p->complete;
        lossy += p->lost > 0;
        without_files += !p->ios.table.count;
        without_rank += p->world > (int64_t)chosen->processes;
    }
    if (broken || lossy)
        add_unjudged(
            j->advice, "the whole run",
            string_format("%zu of %zu traces are incomplete, %zu lost records", broken, chosen->processes, lossy),
            "`tfanalyze info` says what is missing; let the program end by itself, raise TFI_MAX_MB");
    if (without_rank)
        add_unjudged(j->advice, "other ranks",
                     string_format("the job has more ranks than the %zu inputs", chosen->processes),
                     "give the traces of all ranks");
    if (without_files == chosen->processes)
        add_unjudged(j->advice, "files", string_format("no calls on files are recorded"),
                     "tfrun --activities cpu,gpu,mem,nccl,ops,io");
}

static void find_unjudged(struct judging *j)
{
    bool device = false;
    size_t unknown = 0, unexplained = worst_wall(j, LEAF_UNKNOWN);
    for (size_t i = 0; i < j->walls->count; i++) {
        device |= j->walls->wall[i].works > 0;
        unknown += !part_judged(&j->walls->wall[i]);
    }
    find_doubts_of_traces(j);
    if (unknown)
        add_unjudged(j->advice, "ranks",
                     string_format("of %zu of %zu ranks some records are not in the traces", unknown, j->walls->count),
                     "record without ENABLE_PROFILER_NAMES, TFI_SCHEDULE and TFI_CAPTURE, or choose --step");
    if (!device)
        add_unjudged(j->advice, "devices", string_format("no device work is in the traces"),
                     "run where a device is; `tfanalyze info` says what was recorded");
    if (device && j->roofline->lacks_device)
        add_unjudged(j->advice, "what bounds operators", string_format("no trace names a device whose peaks are known"),
                     "--gpu NAME");
    if (device && j->roofline->lacks_shapes)
        add_unjudged(j->advice, "operators without shapes", string_format("their input shapes are not in the traces"),
                     "TFI_RECORD_SHAPES=1, or record_shapes=True of torch.profiler");
    if (unexplained == SIZE_MAX) return;
    const struct wall_part *part = part_judged(&j->walls->wall[unexplained]);
    if (percent(part->time[LEAF_UNKNOWN], part->total) >= 5)
        add_unjudged(j->advice, "time that nothing explains",
                     string_format("%.1f %% of the time of rank %lld", percent(part->time[LEAF_UNKNOWN], part->total),
                                   (long long)j->walls->wall[unexplained].rank),
                     "mark stages, or record call stacks: tfrun --activities cpu,gpu,mem,nccl,ops,stack");
}

/* ---- all ---- */

static int findings_by_headroom(const void *a, const void *b)
{
    const struct finding *x = a, *y = b;
    return x->headroom != y->headroom ? by_number(y->headroom, x->headroom) : strcmp(x->id, y->id);
}

void advise(struct advice *advice, const struct selection *chosen, const struct walls *walls,
            const struct roofline *roofline)
{
    struct judging j = {advice, chosen, walls, roofline, NULL};
    *advice = (struct advice){0};
    j.left = mem_zero(walls->count, sizeof *j.left);
    for (size_t i = 0; i < walls->count; i++)
        if (part_judged(&walls->wall[i])) memcpy(j.left[i], part_judged(&walls->wall[i])->time, sizeof *j.left);
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
        if (rules[i].leaf == NR_LEAVES) judge_weakest(&j, &rules[i]);
        else judge_leaf(&j, &rules[i]);
    find_unjudged(&j);
    if (advice->findings) qsort(advice->finding, advice->findings, sizeof *advice->finding, findings_by_headroom);
    free(j.left);
}

void advice_free(struct advice *advice)
{
    for (size_t i = 0; i < advice->findings; i++) {
        struct finding *f = &advice->finding[i];
        free(f->text);
        for (size_t k = 0; k < f->evidences; k++) {
            free(f->evidence[k].what);
            free(f->evidence[k].command);
        }
    }
    for (size_t i = 0; i < advice->unjudged; i++) free(advice->not_judged[i].why);
    free(advice->finding);
    free(advice->not_judged);
    *advice = (struct advice){0};
}
