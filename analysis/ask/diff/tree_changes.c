/* tree_changes.c - finds the places at which two runs differ, and names each once. */
#include "ask/diff/tree_changes.h"

#include <stdlib.h>

#include "base/statistics.h"
#include "glibc_math.h"

#define TREE_SURE 4.          /* deviations of the noise */
#define TREE_LEAST_RATIO 1.1  /* of times that differ */
#define TREE_DRIFT 1.35       /* a ratio of all times that a slower machine explains */
#define TREE_LEAST_SHARE .02  /* of the run's time: a smaller change of a time does not matter */
#define TREE_LEAST_OF_FEW .05 /* the same of a place with few calls */
#define TREE_MOST_OF .7       /* of a place's time: the place is named, and not what is below it */
#define TREE_FEW_CALLS 5      /* fewer do not show how much calls differ */
enum { MOST_NAMES = 5 };
enum { FEWEST_NODES = 5 };  /* fewer do not show how much runs differ */
#define TREE_MOST_NOISE .35 /* more between runs is a change of most of the places */

/* A node has this while the trees are compared. */
struct judged_node {
    int64_t sub[SIDES];  /* its time with all below it */
    bool in[SIDES];      /* it, or something below it, was called */
    bool settled;        /* its calls differ, or those of a node above it: its times are part of that change */
    bool slower, faster; /* its own time changed */
    unsigned differs;    /* attributes that changed, bits by enum tree_attribute */
    bool few;            /* calls: a stall of one of them counts */
    double ratio;        /* the logarithm of the ratio of its medians; NAN: unknown */
    double deviation;    /* of that ratio, by its calls */
    int64_t changed;     /* time below it that changed, itself included */
    uint32_t parts;      /* children with such time, itself included */
    int sign;            /* 1: all of it is slower, -1: faster, 0: both */
    bool covers;         /* it is named in place of what is below it */
};

struct comparison {
    const struct tree *tree;
    const struct names *names;
    struct judged_node *judged;
    struct tree_changes *changes;
    double between; /* deviation of the ratios between runs */
    double drift;   /* the ratio of all */
};

static bool is_work(const struct tree_node *node)
{
    return node->kind < NR_WORK_KINDS;
}

/* In runs with device work times are those of devices. */
static int64_t own_time(const struct tree *tree, const struct tree_node *node, int side)
{
    return tree->has_work && !is_work(node) ? 0 : node->side[side].own;
}

static void sum_up(struct comparison *c)
{
    for (size_t i = c->tree->count; i-- > 0;) {
        const struct tree_node *node = &c->tree->node[i];
        struct judged_node *j = &c->judged[i];
        for (int side = 0; side < SIDES; side++) {
            bool is_call = node->kind == DIFF_CALL; /* time of the host, which no place sums up with that of devices */
            j->sub[side] = add_ns(j->sub[side], is_call ? node->side[side].own : own_time(c->tree, node, side));
            j->in[side] |= node->side[side].calls > 0;
            if (i == TREE_ROOT) continue;
            struct judged_node *parent = &c->judged[node->parent];
            if (!is_call) parent->sub[side] = add_ns(parent->sub[side], j->sub[side]);
            parent->in[side] |= j->in[side];
        }
    }
}

static struct tree_change *new_change(struct comparison *c, uint32_t node)
{
    struct tree_changes *changes = c->changes;
    changes->change = mem_grow(changes->change, &changes->capacity, changes->count + 1, sizeof *changes->change);
    struct tree_change *change = &changes->change[changes->count++];
    *change = (struct tree_change){.node = node};
    for (int side = 0; side < SIDES; side++) {
        change->calls[side] = c->tree->node[node].side[side].calls;
        change->time[side] = c->judged[node].sub[side];
        change->in[side] = c->judged[node].in[side];
    }
    return change;
}

/* ---- calls ---- */

/* True if each call of the parent makes as many calls in both runs. */
static bool same_calls(const struct comparison *c, const struct tree_node *node)
{
    const struct tree_side *parent = c->tree->node[node->parent].side;
    bool known = node->parent != TREE_ROOT && parent[SIDE_A].calls && parent[SIDE_B].calls;
    long double of_a = known ? parent[SIDE_A].calls : 1, of_b = known ? parent[SIDE_B].calls : 1;
    return node->side[SIDE_A].calls * of_b == node->side[SIDE_B].calls * of_a;
}

/* True if a call that allocates or waits is made more often in one run, and that matters to the run. */
static bool calls_matter(const struct comparison *c, size_t i)
{
    const struct tree_side *side = c->tree->node[i].side;
    const struct judged_node *root = &c->judged[TREE_ROOT];
    uint64_t more = MAX(side[SIDE_A].calls, side[SIDE_B].calls), fewer = MIN(side[SIDE_A].calls, side[SIDE_B].calls);
    double whole = (double)MAX(root->sub[SIDE_A], root->sub[SIDE_B]);
    if ((double)more < TREE_LEAST_RATIO * (double)fewer || more < fewer + TREE_FEW_CALLS) return false;
    return llabs(side[SIDE_B].own - side[SIDE_A].own) >= whole * TREE_LEAST_SHARE;
}

/* Per node: its children whose calls differ. */
enum { ONLY_A, ONLY_B, OTHER_CALLS, NR_DIFFERENCES };
struct different {
    struct text names[NR_DIFFERENCES];
    size_t count[NR_DIFFERENCES], all;
    int64_t time[SIDES];
    uint32_t last;
};

static void put_different(struct different *of, const struct comparison *c, size_t i)
{
    const struct judged_node *j = &c->judged[i];
    int kind = j->in[SIDE_A] && j->in[SIDE_B] ? OTHER_CALLS : j->in[SIDE_A] ? ONLY_A : ONLY_B;
    const char *name = names_get(c->names, c->tree->node[i].name)->text;
    if (of->count[kind] < MOST_NAMES) text_format(&of->names[kind], "%s%s", of->count[kind] ? ", " : "", name);
    else if (of->count[kind] == MOST_NAMES) text_format(&of->names[kind], ", ...");
    of->count[kind]++;
    of->all++;
    of->last = (uint32_t)i;
    for (int side = 0; side < SIDES; side++) of->time[side] = add_ns(of->time[side], j->sub[side]);
}

/* One child is a row of its own. Of several the node itself is the row, and tells what they are. */
static void report_different(struct comparison *c, const struct different *of, size_t node)
{
    struct text what = {0};
    if (of->all == 1) new_change(c, of->last);
    if (of->all < 2) return;
    struct tree_change *change = new_change(c, (uint32_t)node);
    if (of->count[ONLY_A] && of->count[ONLY_B])
        text_format(&what, "%s -> %s", of->names[ONLY_A].data, of->names[ONLY_B].data);
    else if (of->count[ONLY_A] || of->count[ONLY_B])
        text_format(&what, "%s: %s", of->count[ONLY_A] ? "removed" : "added",
                    of->names[of->count[ONLY_A] ? ONLY_A : ONLY_B].data);
    if (of->count[OTHER_CALLS])
        text_format(&what, "%sother calls: %s", what.length ? "; " : "", of->names[OTHER_CALLS].data);
    change->what = what.data;
    for (int side = 0; side < SIDES; side++) change->time[side] = of->time[side];
}

/* Finds the nodes whose calls differ. Below them nothing else is compared. */
static void compare_calls(struct comparison *c)
{
    const struct tree *tree = c->tree;
    struct different *different = mem_zero(tree->count, sizeof *different);
    for (size_t i = 1; i < tree->count; i++) {
        const struct tree_node *node = &tree->node[i];
        struct judged_node *j = &c->judged[i];
        j->settled = c->judged[node->parent].settled;
        if (j->settled || (!j->in[SIDE_A] && !j->in[SIDE_B])) continue;
        if (j->in[SIDE_A] && j->in[SIDE_B] && same_calls(c, node)) continue;
        if (node->kind == DIFF_CALL && !calls_matter(c, i)) continue;
        j->settled = true;
        put_different(&different[node->parent], c, i);
    }
    for (size_t i = 0; i < tree->count; i++) {
        report_different(c, &different[i], i);
        for (int kind = 0; kind < NR_DIFFERENCES; kind++) text_free(&different[i].names[kind]);
    }
    free(different);
}

/* ---- noise ---- */

/* Returns the logarithm of the median time, or of the shortest one of few calls. Sets how much single calls differ from
 * it. NAN: unknown. */
static double typical(const struct tree_samples *samples, double *spread)
{
    double number[TREE_SAMPLES], middle;
    *spread = NAN;
    if (!samples->count) return NAN;
    for (uint32_t i = 0; i < samples->count; i++) number[i] = log((double)MAX(samples->time[i], 1));
    middle = median_of_numbers(number, samples->count);
    if (samples->count < TREE_FEW_CALLS) return number[0];
    for (uint32_t i = 0; i < samples->count; i++) number[i] = fabs(number[i] - middle);
    *spread = 1.4826 * median_of_numbers(number, samples->count);
    return middle;
}

/* Sets the ratio of a node whose own times are compared. */
static void find_ratio(const struct comparison *c, size_t i, double few_calls)
{
    const struct tree_node *node = &c->tree->node[i];
    struct judged_node *j = &c->judged[i];
    double middle[SIDES], spread, variance = 0;
    j->ratio = NAN;
    if (j->settled || i == TREE_ROOT || (c->tree->has_work && !is_work(node))) return;
    for (int side = 0; side < SIDES; side++) {
        const struct tree_side *of = &node->side[side];
        if (!of->own) return;
        middle[side] = typical(&of->samples, &spread);
        spread = isnan(spread) ? few_calls : spread;
        variance += 1.57 * spread * spread / (double)of->calls; /* that of a median */
    }
    j->ratio = middle[SIDE_B] - middle[SIDE_A];
    j->few = MIN(node->side[SIDE_A].calls, node->side[SIDE_B].calls) < TREE_FEW_CALLS;
    if (j->few) {
        double of_sums = log((double)node->side[SIDE_B].own / (double)node->side[SIDE_A].own);
        if (fabs(of_sums) < fabs(j->ratio)) j->ratio = of_sums;
    }
    j->deviation = sqrt(variance);
}

/* Finds how much runs differ: by the smallest quarter of the ratios, which a change leaves alone. */
static void find_noise(struct comparison *c)
{
    double *ratio = mem_zero(c->tree->count, sizeof *ratio);
    size_t count = 0;
    int64_t whole = MAX(c->judged[TREE_ROOT].sub[SIDE_A], c->judged[TREE_ROOT].sub[SIDE_B]);
    for (size_t i = 0; i < c->tree->count; i++) {
        find_ratio(c, i, c->tree->has_work ? .05 : .35);
        if (!isnan(c->judged[i].ratio) && MAX(c->judged[i].sub[SIDE_A], c->judged[i].sub[SIDE_B]) > whole / 1000)
            ratio[count++] = c->judged[i].ratio;
    }
    c->between = c->tree->has_work ? .01 : .03;
    if (count >= FEWEST_NODES) {
        c->drift = median_of_numbers(ratio, count);
        for (size_t i = 0; i < count; i++) ratio[i] = fabs(ratio[i] - c->drift);
        qsort(ratio, count, sizeof *ratio, by_double);
        c->between = fmax(c->between, ratio[count / 4] / .3186); /* the quarter of a normal distribution */
        c->between = fmin(c->between, TREE_MOST_NOISE);
        if (fabs(c->drift) > log(TREE_DRIFT)) c->drift = 0;
    }
    c->changes->noise = expm1(c->between) * 100;
    free(ratio);
}

/* ---- times ---- */

static void judge_time(struct comparison *c, size_t i)
{
    struct judged_node *j = &c->judged[i];
    const struct tree_node *node = &c->tree->node[i];
    double whole = fmax((double)c->judged[TREE_ROOT].sub[SIDE_A], (double)c->judged[TREE_ROOT].sub[SIDE_B]);
    double change = (double)node->side[SIDE_B].own - (double)node->side[SIDE_A].own;
    if (isnan(j->ratio) || fabs(change) < whole * (j->few ? TREE_LEAST_OF_FEW : TREE_LEAST_SHARE) ||
        (change > 0) != (j->ratio > 0))
        return;
    double sure = fmax(TREE_SURE * hypot(c->between, j->deviation), log(TREE_LEAST_RATIO));
    if (fabs(j->ratio) < log(TREE_LEAST_RATIO) || fabs(j->ratio - c->drift) < sure) return;
    j->slower = change > 0;
    j->faster = change < 0;
}

/* Finds the attributes that differ, of a node that matters to the run. */
static void judge_attributes(struct comparison *c, size_t i)
{
    struct judged_node *j = &c->judged[i];
    const struct tree_node *node = &c->tree->node[i];
    const struct judged_node *root = &c->judged[TREE_ROOT];
    double whole = (double)MAX(root->sub[SIDE_A], root->sub[SIDE_B]);
    if (j->settled || (double)MAX(j->sub[SIDE_A], j->sub[SIDE_B]) < whole * TREE_LEAST_SHARE) return;
    for (int k = 0; k < NR_TREE_ATTRIBUTES; k++) {
        double middle[SIDES], spread, variance = 0;
        for (int side = 0; side < SIDES; side++) {
            const struct tree_samples *samples = &node->side[side].attribute[k];
            middle[side] = typical(samples, &spread);
            if (!isnan(spread)) variance += 1.57 * spread * spread / (double)samples->count;
        }
        double ratio = fabs(middle[SIDE_B] - middle[SIDE_A]);
        if (ratio >= log(TREE_LEAST_RATIO) && ratio > TREE_SURE * sqrt(variance)) j->differs |= 1u << k;
    }
}

/* Adds the attributes of a node that differ to the words of its change. */
static void name_attributes(const struct comparison *c, struct tree_change *change)
{
    static const char *const words[NR_TREE_ATTRIBUTES] = {"blocks of a launch", "blocks per SM", "SM clock in MHz"};
    struct text what = {0};
    for (int k = 0; k < NR_TREE_ATTRIBUTES; k++) {
        double middle[SIDES], spread;
        if (!(c->judged[change->node].differs >> k & 1)) continue;
        for (int side = 0; side < SIDES; side++)
            middle[side] = exp(typical(&c->tree->node[change->node].side[side].attribute[k], &spread)) / TREE_SCALE;
        text_format(&what, "%s%s: %.4g -> %.4g", what.length ? "; " : "", words[k], middle[SIDE_A], middle[SIDE_B]);
    }
    change->what = what.data;
}

/* Unites what changed below a node: into the node if that is most of its time, and in more than one part. */
static void unite(struct comparison *c, size_t i)
{
    struct judged_node *j = &c->judged[i];
    int64_t own = MAX(own_time(c->tree, &c->tree->node[i], SIDE_A), own_time(c->tree, &c->tree->node[i], SIDE_B));
    if (i != TREE_ROOT && (j->slower || j->faster || j->differs)) {
        int sign = j->sub[SIDE_B] >= j->sub[SIDE_A] ? 1 : -1;
        if (j->slower || j->faster) sign = j->slower ? 1 : -1;
        j->sign = !j->parts || j->sign == sign ? sign : 0;
        j->changed = add_ns(j->changed, own);
        j->parts++;
    }
    j->covers =
        j->parts > 1 && j->sign && (double)j->changed >= TREE_MOST_OF * (double)MAX(j->sub[SIDE_A], j->sub[SIDE_B]);
    if (i == TREE_ROOT || !j->parts) return;
    struct judged_node *parent = &c->judged[c->tree->node[i].parent];
    parent->sign = !parent->parts || parent->sign == j->sign ? j->sign : 0;
    parent->changed = add_ns(parent->changed, j->changed);
    parent->parts++;
}

static void compare_times(struct comparison *c)
{
    bool *covered = mem_zero(c->tree->count, sizeof *covered);
    for (size_t i = 0; i < c->tree->count; i++) {
        judge_time(c, i);
        judge_attributes(c, i);
    }
    for (size_t i = c->tree->count; i-- > 0;) unite(c, i);
    for (size_t i = 0; i < c->tree->count; i++) {
        const struct judged_node *j = &c->judged[i];
        uint32_t parent = c->tree->node[i].parent;
        covered[i] = i != TREE_ROOT && (covered[parent] || c->judged[parent].covers);
        if (covered[i] || !(j->covers || j->slower || j->faster || j->differs)) continue;
        struct tree_change *change = new_change(c, (uint32_t)i);
        name_attributes(c, change);
        for (int side = 0; side < SIDES && !j->covers && i != TREE_ROOT; side++)
            change->time[side] = own_time(c->tree, &c->tree->node[i], side);
    }
    free(covered);
}

/* ---- all ---- */

static int changes_by_size(const void *a, const void *b)
{
    const struct tree_change *x = a, *y = b;
    int64_t of_x = llabs(add_ns(x->time[SIDE_B], -x->time[SIDE_A])),
            of_y = llabs(add_ns(y->time[SIDE_B], -y->time[SIDE_A]));
    if (of_x != of_y) return of_x > of_y ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

void tree_compare(struct tree_changes *changes, const struct tree *tree, const struct names *names)
{
    struct comparison c = {.tree = tree, .names = names, .changes = changes};
    *changes = (struct tree_changes){0};
    c.judged = mem_zero(tree->count, sizeof *c.judged);
    sum_up(&c);
    compare_calls(&c);
    find_noise(&c);
    compare_times(&c);
    for (int side = 0; side < SIDES; side++) changes->total[side] = c.judged[TREE_ROOT].sub[side];
    if (changes->count) qsort(changes->change, changes->count, sizeof *changes->change, changes_by_size);
    free(c.judged);
}

void tree_changes_free(struct tree_changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) free(changes->change[i].what);
    free(changes->change);
    *changes = (struct tree_changes){0};
}

void tree_path(struct text *path, const struct tree *tree, uint32_t node, const struct names *names)
{
    uint32_t chain[TREE_DEPTH + 1], length = 0;
    for (uint32_t at = node; at != TREE_ROOT && length <= TREE_DEPTH; at = tree->node[at].parent) chain[length++] = at;
    if (!length) text_format(path, "(run)");
    for (uint32_t i = length; i-- > 0;)
        text_format(path, "%s%s", i + 1 < length ? " > " : "", names_get(names, tree->node[chain[i]].name)->text);
}
