/* device_rules.c - rules about the work of devices: copies, grids, shapes, engines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "ask/device/copy_bandwidth.h"
#include "ask/work_kinds.h"

/* ---- copies ---- */

static bool is_between_host_and_device(const char *name)
{
    return strstr(name, "HtoD") || strstr(name, "DtoH");
}

/* The copies of a rank that a rule is about. */
struct some_copies {
    uint64_t count, bytes;
    struct intervals when;
    uint32_t name;
};

typedef bool wanted_copy(const char *name, const struct copied *copied);

static bool is_pageable(const char *name, const struct copied *copied)
{
    (void)copied;
    return is_between_host_and_device(name) && strstr(name, "Pageable");
}

static bool is_small_copy(const char *name, const struct copied *copied)
{
    return is_between_host_and_device(name) && copied && copied->has_bytes && copied->bytes < 65536;
}

static struct some_copies collect_copies(const struct rule_facts *j, const struct rank_facts *rank, wanted_copy *wanted)
{
    struct some_copies some = {0};
    EACH_PROCESS(j, rank, p)
    for (size_t i = 0; i < p->works.table.count; i++) {
        if (p->works.event_class[i] != CLASS_MEMCPY ||
            !intervals_hold(&rank->part->window, p->works.start[i], p->works.start[i]))
            continue;
        const struct copied *copied = copied_of(p, i);
        if (!wanted(named(j, p->works.name[i]), copied)) continue;
        some.count++;
        some.bytes += copied && copied->has_bytes ? copied->bytes : 0;
        some.name = p->works.name[i];
        intervals_add_merging(&some.when, p->works.start[i], p->works.end[i]);
    }
    intervals_merge(&some.when);
    return some;
}

static void judge_copies(struct rule_facts *j, const struct rule *rule, wanted_copy *wanted, uint64_t least,
                         unsigned leaves, const char *what)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        if (!rank->device) continue;
        struct some_copies some = collect_copies(j, rank, wanted);
        int64_t time = intervals_total(&some.when);
        intervals_free(&some.when);
        if (some.count < least) continue;
        struct finding *f = claim(j, rule, rank, leaves, time,
                                  string_format("%llu copies %s, %.3f MiB in all", (unsigned long long)some.count, what,
                                                (double)some.bytes / 1048576));
        if (f)
            add_evidence(f,
                         string_format("%s: %llu copies, %.3f ms", named(j, some.name), (unsigned long long)some.count,
                                       ms(time)),
                         "bandwidth");
    }
}

void judge_pageable(struct rule_facts *j, const struct rule *rule)
{
    judge_copies(j, rule, is_pageable, 2, LEAF_BIT(LEAF_COPY) | LEAF_BIT(LEAF_SYNC),
                 "from or to memory that is not pinned");
}

void judge_small_copies(struct rule_facts *j, const struct rule *rule)
{
    judge_copies(j, rule, is_small_copy, 100, LEAF_BIT(LEAF_COPY) | LEAF_BIT(LEAF_SYNC) | LEAF_BIT(LEAF_LAUNCH),
                 "of less than 64 KiB");
}

/* ---- grids ---- */

/* The share of a device's units that stand still while a grid runs, if each takes one block at a time. */
static double share_unused(double blocks, double units)
{
    double waves = ceil(blocks / units);
    return waves > 4 || waves < 1 ? 0 : 1 - blocks / (waves * units);
}

void judge_grids(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        double lost = 0;
        int64_t time = 0, longest = 0;
        double blocks = 0, units = 0;
        uint32_t name = NAME_NONE;
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < p->fillings; i++) {
            size_t work = p->filling[i].work;
            const struct device *device = find_device(p, p->lane[p->works.lane[work]].device);
            double of = p->filling[i].blocks, all = is_of_kineto(p) ? 1 : device ? (double)device->units : 0;
            if (isnan(of) || of <= 0 || all <= 0 ||
                !intervals_hold(&rank->part->window, p->works.start[work], p->works.start[work]))
                continue;
            double unused = share_unused(of, all);
            int64_t took = p->works.end[work] - p->works.start[work];
            if (unused < 0.3) continue;
            lost += unused * (double)took;
            time = add_ns(time, took);
            if (took > longest) longest = took, name = p->works.name[work], blocks = of, units = all;
        }
        if (name == NAME_NONE) continue;
        struct finding *f = claim_some(j, rule, rank, COMPUTING, time, (int64_t)(lost / 2),
                                       string_format("kernels whose grids leave units of the device without work"));
        if (f)
            add_evidence(f,
                         units > 1 ? string_format("%.120s: %g blocks on %g units", named(j, name), blocks, units)
                                   : string_format("%.120s: %g blocks a unit", named(j, name), blocks),
                         "ncu plan");
    }
}

/* ---- shapes and engines ---- */

/* True if an axis that is multiplied is no multiple of what the matrix engines take. */
static bool is_misaligned(const struct rule_facts *j, const struct roof_row *row)
{
    struct op_inputs in;
    double of = row->cost.element == ELEMENT_FP16   ? 8
                : row->cost.element == ELEMENT_FP8  ? 16
                : row->cost.element == ELEMENT_FP32 ? 4
                                                    : 0;
    op_inputs_parse(&in, named(j, row->key.shapes), named(j, row->key.types), "");
    for (size_t i = 0; i < MIN(in.count, (size_t)3) && of > 0; i++) {
        const struct tensor *t = &in.tensor[i];
        for (size_t k = t->axes >= 2 ? t->axes - 2 : t->axes; k < t->axes; k++)
            if (t->axis[k] >= 32 && fmod(t->axis[k], of) != 0) return true;
    }
    return false;
}

static bool is_product(const struct rule_facts *j, const struct roof_row *row)
{
    return operator_leaf(names_get(&j->chosen->model->names, row->key.name)) == LEAF_MATRIX && row->cost.known;
}

/* Judges the products of matrices for which `counts` returns the time that a mended one would save. */
static void judge_products(struct rule_facts *j, const struct rule *rule,
                           int64_t (*saved)(const struct rule_facts *j, const struct roof_row *row), const char *words)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct roof_row *most = NULL;
        int64_t time = 0, headroom = 0;
        for (size_t i = 0; i < j->roofline->count; i++) {
            const struct roof_row *row = &j->roofline->row[i];
            if (row->key.rank != rank->wall->rank || !is_product(j, row)) continue;
            int64_t save = saved(j, row);
            if (save <= 0) continue;
            time = add_ns(time, row->device_ns);
            headroom = add_ns(headroom, save);
            if (!most || row->device_ns > most->device_ns) most = row;
        }
        if (!most) continue;
        struct finding *f =
            claim_some(j, rule, rank, LEAF_BIT(LEAF_MATRIX), time, headroom, string_format("%s", words));
        if (!f) continue;
        f->where = most->key.name;
        add_evidence(f,
                     string_format("%s %s: %llu calls, %.3f ms", named(j, most->key.name), named(j, most->key.shapes),
                                   (unsigned long long)most->calls, ms(most->device_ns)),
                     "roofline");
    }
}

/* Without peaks half of the time is what aligned shapes save as a rule. */
static int64_t saved_by_alignment(const struct rule_facts *j, const struct roof_row *row)
{
    if (!is_misaligned(j, row)) return 0;
    return row->bound_ns > 0 ? roof_headroom(row) : row->device_ns / 2;
}

void judge_alignment(struct rule_facts *j, const struct rule *rule)
{
    judge_products(j, rule, saved_by_alignment, "products of matrices whose sides do not fit the matrix engines");
}

/* Only where the peaks are known, and the products were slower than the units without matrix engines can be. */
static int64_t saved_by_engines(const struct rule_facts *j, const struct roof_row *row)
{
    (void)j;
    const struct device_peaks *peaks = row->peaks;
    if (!peaks || row->cost.element != ELEMENT_FP32 || peaks->tf32 < 2 * peaks->fp32 || !row->device_ns) return 0;
    double flops = row->cost.flops * (double)row->calls, rate = flops / (double)row->device_ns * 1e9;
    double best = MAX(flops / peaks->tf32 * 1e9, row->cost.bytes * (double)row->calls / peaks->bytes * 1e9);
    if (rate > peaks->fp32 || flops / peaks->fp32 * 1e9 < 0.3 * (double)row->device_ns) return 0;
    return row->device_ns - (int64_t)MAX(2 * best, 0);
}

void judge_engines(struct rule_facts *j, const struct rule *rule)
{
    judge_products(j, rule, saved_by_engines, "products of float32 matrices without the matrix engines");
}
