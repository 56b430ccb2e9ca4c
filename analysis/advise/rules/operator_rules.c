/* operator_rules.c - rules about what operators do and with what: loops over elements, types, autograd, attention. */
#include <stdlib.h>
#include <string.h>

#include "advise/roofline/inputs.h"
#include "advise/rules/rule_facts.h"

static bool is_named(const struct rule_facts *j, uint32_t name, const char *text)
{
    return strcmp(named(j, name), text) == 0;
}

static bool is_one_of(const struct rule_facts *j, uint32_t name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_named(j, name, list[i])) return true;
    return false;
}

/* Adds the row with the most of a time as where a finding is, and as evidence. */
static void add_row(struct rule_facts *j, struct finding *f, const struct op_fact *op, int64_t time, const char *what)
{
    if (!f || !op) return;
    f->where = op->name;
    set_line(j, f, op->stack);
    add_evidence(f,
                 string_format("%s %s: %llu calls, %.3f ms%s", named(j, op->name), named(j, op->shapes),
                               (unsigned long long)op->calls, ms(time), what),
                 "ops --group-by name,shapes");
}

/* The leaf of an operator's own time. */
static unsigned leaf_bit(const struct rule_facts *j, const struct op_fact *op)
{
    return LEAF_BIT(operator_leaf(names_get(&j->chosen->model->names, op->name)));
}

/* ---- loops over the elements of tensors ---- */

/* Operators that take a tensor apart, or bring one value of it to Python. */
static bool takes_elements(const struct rule_facts *j, uint32_t name)
{
    static const char *const list[] = {"aten::select",     "aten::item",  "aten::unbind", "aten::_local_scalar_dense",
                                       "aten::is_nonzero", "aten::index", "aten::narrow"};
    return is_one_of(j, name, list, ARRAY_SIZE(list));
}

void judge_loop(struct rule_facts *j, const struct rule *rule)
{
    enum { LEAST_CALLS = 2000, SMALL_NS = 200000 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_fact *most = NULL;
        uint64_t taken = 0, all = 0;
        int64_t time = 0;
        unsigned leaves = LEAF_BIT(LEAF_LAYOUT) | HOST_ALONE_LEAVES;
        for (size_t i = 0; i < rank->facts.ops.count; i++) {
            const struct op_fact *op = &rank->facts.ops.row[i];
            bool iterates = strcmp(named(j, op->name), "aten::unbind") == 0; /* takes all elements in one call */
            if (!op->outermost) continue;
            if (!iterates && (op->outer / (int64_t)op->outermost > SMALL_NS || op->outermost < LEAST_CALLS / 4))
                continue;
            bool takes = takes_elements(j, op->name);
            time = add_ns(time, add_ns(op->outer, op->between));
            all += op->outermost;
            leaves |= leaf_bit(j, op);
            taken += takes ? op->outermost : 0;
            if (takes && (!most || op->outermost > most->outermost)) most = op;
        }
        if (taken < LEAST_CALLS || 4 * taken < all) continue;
        struct finding *f =
            claim(j, rule, rank, rank->device ? host_leaves(rank) : leaves, time,
                  string_format("%llu operators one after the other, each on little; %llu take elements out "
                                "of tensors",
                                (unsigned long long)all, (unsigned long long)taken));
        add_row(j, f, most, most->outer, "");
    }
}

/* ---- waiting for the device ---- */

/* A call that waits for all work leaves the device without any until the host has launched the next. */
void judge_sync(struct rule_facts *j, const struct rule *rule)
{
    enum { LEAST_CALLS = 8 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct sync_fact *most = NULL;
        uint64_t calls = 0;
        int64_t idle = 0;
        for (size_t i = 0; i < rank->facts.syncs.count; i++) {
            const struct sync_fact *sync = &rank->facts.syncs.row[i];
            calls += sync->calls;
            idle = add_ns(idle, sync->idle);
            if (!most || sync->idle > most->idle) most = sync;
        }
        if (!most || calls < LEAST_CALLS) continue;
        struct finding *f =
            claim(j, rule, rank, host_leaves(rank), add_ns(idle, rank->left[LEAF_SYNC]),
                  string_format("the devices are idle in %llu calls that wait for them, and behind these",
                                (unsigned long long)calls));
        if (!f) continue;
        if (most->name != NAME_OUTSIDE) f->where = most->name;
        set_line(j, f, most->stack);
        add_evidence(f,
                     string_format("%s in %s: %llu calls, %.3f ms until the next work", named(j, most->call),
                                   most->name == NAME_OUTSIDE ? "no operator" : named(j, most->name),
                                   (unsigned long long)most->calls, ms(most->idle)),
                     "api");
    }
}

/* ---- types ---- */

/* Returns the type of an operator's input by its place; ELEMENT_OTHER too where there is no such tensor. */
static void inputs_of_row(const struct rule_facts *j, const struct op_fact *op, struct op_inputs *inputs)
{
    op_inputs_parse(inputs, named(j, op->shapes), named(j, op->types), "");
}

static bool is_double(const struct op_inputs *in)
{
    for (size_t i = 0; i < MIN(in->count, (size_t)MOST_INPUTS); i++)
        if (in->tensor[i].axes && in->tensor[i].element == ELEMENT_FP64) return true;
    return false;
}

void judge_double(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_fact *most = NULL;
        int64_t time = 0, device = 0;
        unsigned leaves = 0;
        for (size_t i = 0; i < rank->facts.ops.count; i++) {
            const struct op_fact *op = &rank->facts.ops.row[i];
            struct op_inputs in;
            if (!op->types || !strstr(named(j, op->types), "ouble")) continue;
            inputs_of_row(j, op, &in);
            if (!is_double(&in)) continue;
            time = add_ns(time, op->own);
            leaves |= leaf_bit(j, op);
            if (!most || op->own > most->own) most = op;
        }
        for (size_t i = 0; i < j->roofline->count && rank->device; i++) {
            const struct roof_row *row = &j->roofline->row[i];
            if (row->key.rank == rank->wall->rank && strstr(named(j, row->key.types), "ouble"))
                device = add_ns(device, row->device_ns);
        }
        if (!most) continue;
        time = rank->device ? device : MIN(time, rank->work);
        struct finding *f = claim(j, rule, rank, rank->device ? COMPUTING : leaves, time,
                                  string_format("operators compute in float64"));
        add_row(j, f, most, most->own, " in float64");
    }
}

/* A copy between types, by the types of its inputs. */
static bool converts(const struct rule_facts *j, const struct op_fact *op)
{
    struct op_inputs in;
    if (!is_named(j, op->name, "aten::copy_") || !op->types) return false;
    inputs_of_row(j, op, &in);
    return in.count > 1 && in.tensor[0].axes && in.tensor[1].axes && in.tensor[0].bytes > 0 && in.tensor[1].bytes > 0 &&
           in.tensor[0].bytes / tensor_elements(&in.tensor[0]) != in.tensor[1].bytes / tensor_elements(&in.tensor[1]);
}

void judge_conversions(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_fact *most = NULL;
        int64_t time = 0, device = 0;
        uint64_t calls = 0;
        for (size_t i = 0; i < rank->facts.ops.count; i++) {
            const struct op_fact *op = &rank->facts.ops.row[i];
            if (!converts(j, op)) continue;
            time = add_ns(time, op->own);
            calls += op->calls;
            if (!most || op->own > most->own) most = op;
            for (size_t k = 0; k < j->roofline->count && rank->device; k++) {
                const struct roof_row *row = &j->roofline->row[k];
                if (row->key.rank == rank->wall->rank && row->key.name == op->name && row->key.types == op->types &&
                    row->key.shapes == op->shapes)
                    device = add_ns(device, row->device_ns);
            }
        }
        if (calls < 4) continue;
        struct finding *f =
            claim(j, rule, rank, LEAF_BIT(LEAF_LAYOUT), rank->device ? device : time,
                  string_format("%llu copies only change the type of a tensor's elements", (unsigned long long)calls));
        add_row(j, f, most, most->own, "");
        if (f) add_evidence(f, string_format("its types: %s", named(j, most->types)), "dump");
    }
}

/* ---- autograd ---- */

void judge_autograd(struct rule_facts *j, const struct rule *rule)
{
    enum { LEAST_NODES = 100 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_facts *facts = &rank->facts;
        int64_t nodes = facts->has_nodes ? facts->last_node - facts->first_node : 0;
        const struct op_fact *most = NULL;
        if (nodes < LEAST_NODES || facts->backward) continue;
        for (size_t i = 0; i < facts->ops.count; i++)
            if (!most || facts->ops.row[i].total > most->total) most = &facts->ops.row[i];
        struct finding *f =
            remark(j, rule, rank, SEVERITY_NOTE,
                   string_format("autograd recorded %lld nodes, and no backward ran", (long long)nodes));
        add_row(j, f, most, most ? most->total : 0, "");
    }
}

/* ---- attention in pieces ---- */

/* Sets the shape of the first input as it is written; false if it has fewer than three axes, or its last two are small. */
static bool is_score_shape(const struct rule_facts *j, const struct op_fact *op)
{
    struct op_inputs in;
    if (!op->shapes) return false;
    inputs_of_row(j, op, &in);
    const struct tensor *t = &in.tensor[0];
    return in.count && t->axes >= 3 && t->axis[t->axes - 1] >= 32 && t->axis[t->axes - 2] >= 32;
}

/* The text of the first shape: "[[2, 4, 64, 64]". */
static size_t first_shape(const char *shapes)
{
    const char *end = strchr(shapes, ']');
    return end ? (size_t)(end - shapes) : 0;
}

void judge_attention(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_facts *facts = &rank->facts;
        const struct op_fact *softmax = NULL;
        uint64_t products = 0, whole = 0;
        int64_t time = 0;
        unsigned leaves = 0;
        for (size_t i = 0; i < facts->ops.count; i++) {
            const struct op_fact *op = &facts->ops.row[i];
            const char *name = named(j, op->name);
            if (strstr(name, "attention")) whole += op->calls;
            if (strcmp(name, "aten::bmm") == 0 || strcmp(name, "aten::baddbmm") == 0) products += op->calls;
            if (strcmp(name, "aten::_softmax") == 0 && is_score_shape(j, op) && (!softmax || op->own > softmax->own))
                softmax = op;
        }
        if (!softmax || products < 2 * softmax->calls || whole) continue;
        size_t length = first_shape(named(j, softmax->shapes));
        for (size_t i = 0; i < facts->ops.count && length; i++) {
            const struct op_fact *op = &facts->ops.row[i];
            enum leaf leaf = operator_leaf(names_get(&j->chosen->model->names, op->name));
            bool is_same = strncmp(named(j, op->shapes), named(j, softmax->shapes), length) == 0;
            if (!is_same || leaf == LEAF_MATRIX) continue;
            time = add_ns(time, op->own);
            leaves |= LEAF_BIT(leaf);
        }
        if (rank->device) continue;
        struct finding *f =
            claim(j, rule, rank, leaves, time,
                  string_format("attention is made of %llu softmax and %llu products, and writes its scores",
                                (unsigned long long)softmax->calls, (unsigned long long)products));
        add_row(j, f, softmax, softmax->own, "");
    }
}

/* ---- operators of the host in a stage of the device ---- */

void judge_host_operators(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        const struct op_fact *most = NULL;
        int64_t time = 0;
        if (!rank->device) continue;
        for (size_t i = 0; i < rank->facts.ops.count; i++) {
            const struct op_fact *op = &rank->facts.ops.row[i];
            if (!op->idle) continue;
            time = add_ns(time, op->idle);
            if (!most || op->idle > most->idle) most = op;
        }
        if (!most) continue;
        struct finding *f = claim(j, rule, rank, LEAF_BIT(LEAF_LAUNCH) | LEAF_BIT(LEAF_SYNC), time,
                                  string_format("operators compute on the host while the devices could"));
        add_row(j, f, most, most->idle, " without a launch");
    }
}
