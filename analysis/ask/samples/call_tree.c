/* call_tree.c - the heaviest paths of sampled stacks, from the program's own lines down to where the time is spent.
 *
 * A path begins at the outermost frame of the program's own files; where there is none, at the outermost frame. A function
 * of a library is one node below its caller, whatever line it is at; a line of the program is a node of its own.
 */
#include "ask/samples/call_tree.h"

#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

void call_tree_init(struct call_tree *tree, struct names *names)
{
    *tree = (struct call_tree){.names = names};
    tree->node = mem_grow(tree->node, &tree->capacity, 1, sizeof *tree->node);
    tree->node[tree->count++] = (struct call_node){0};
}

void call_tree_free(struct call_tree *tree)
{
    map_free(&tree->child_of);
    map_free(&tree->function);
    map_free(&tree->own);
    free(tree->node);
    free(tree->chosen);
    free(tree->depth);
    *tree = (struct call_tree){0};
}

/* ---- frames ---- */

static bool has_part(const struct frame *frame, const char *part)
{
    return memmem(frame->file, frame->file_length, part, strlen(part)) != NULL;
}

static bool is_library(const struct frame *frame)
{
    return !frame->file_length || frame->file[0] == '<' || has_part(frame, "/site-packages/") ||
           has_part(frame, "/dist-packages/") || has_part(frame, "/lib/python3");
}

/* Numbers the frame's function, or its line if it is the program's own. */
static uint32_t function_of(struct call_tree *tree, uint32_t text)
{
    uint32_t known = map_get(&tree->function, text);
    if (known != MAP_NONE) return known;
    struct frame frame;
    const struct name *name = names_get(tree->names, text);
    bool parsed = frame_parse(&frame, name->text, name->length), own = parsed && !is_library(&frame);
    uint32_t function = own || !parsed ? text : names_add(tree->names, name->text, (size_t)(frame.line - name->text));
    map_put(&tree->function, text, function);
    map_put(&tree->own, text, own);
    return function;
}

static bool is_own(struct call_tree *tree, uint32_t text)
{
    function_of(tree, text);
    return map_get(&tree->own, text) == 1;
}

/* ---- adding ---- */

static uint32_t child_of(struct call_tree *tree, uint32_t parent, uint32_t text)
{
    uint64_t key = (uint64_t)parent << 32 | function_of(tree, text);
    uint32_t child = map_get(&tree->child_of, key);
    if (child != MAP_NONE) return child;
    child = (uint32_t)tree->count;
    tree->node = mem_grow(tree->node, &tree->capacity, tree->count + 1, sizeof *tree->node);
    tree->node[tree->count++] = (struct call_node){
        .parent = parent, .next = tree->node[parent].child, .frame = text, .is_own = is_own(tree, text)};
    tree->node[parent].child = child;
    map_put(&tree->child_of, key, child);
    return child;
}

/* Keeps the line that most of the time has, if any has more than half. */
static void vote(struct call_node *node, uint32_t text, int64_t weight)
{
    if (node->frame == text) {
        node->of_line = add_ns(node->of_line, weight);
        return;
    }
    node->of_line -= weight;
    if (node->of_line >= 0) return;
    node->frame = text;
    node->of_line = -node->of_line;
}

void call_tree_add(struct call_tree *tree, const struct process *process, const struct sampled *s)
{
    uint32_t stack = process->looks.stack[s->look], at = 0;
    if (stack == NAME_NONE || s->weight <= 0) return;
    if (process->looks.flags[s->look] & TFI_SAMPLED_IMPORT) {
        tree->imports = add_ns(tree->imports, s->weight);
        return;
    }
    size_t depth = stack_depth(tree->names, stack), from = depth;
    while (from && !is_own(tree, stack_frame(tree->names, stack, from - 1))) from--;
    if (!from) from = depth;
    tree->node[0].total = add_ns(tree->node[0].total, s->weight);
    for (size_t i = from; i-- > 0;) {
        uint32_t text = stack_frame(tree->names, stack, i);
        at = child_of(tree, at, text);
        tree->node[at].total = add_ns(tree->node[at].total, s->weight);
        vote(&tree->node[at], text, s->weight);
    }
    tree->node[at].self = add_ns(tree->node[at].self, s->weight);
}

/* ---- the heaviest paths ---- */

struct choosing {
    struct call_tree *tree;
    int64_t least;
    size_t lines;
    uint32_t *sorted; /* children of a node */
    size_t capacity;
};

/* The heaviest node comes last: it is taken first. */
static int nodes_by_total(const void *a, const void *b, void *context)
{
    const struct call_node *node = context, *x = &node[*(const uint32_t *)a], *y = &node[*(const uint32_t *)b];
    return x->total != y->total ? by_number(x->total, y->total) : by_number(*(const uint32_t *)b, *(const uint32_t *)a);
}

/* A node of a library says little if nearly all of its time is its caller's and its one callee's. */
static bool says_little(const struct call_tree *tree, uint32_t node, int64_t least)
{
    const struct call_node *n = &tree->node[node];
    uint32_t only = 0;
    for (uint32_t child = n->child; child; child = tree->node[child].next) {
        if (tree->node[child].total < least) continue;
        if (only) return false;
        only = child;
    }
    return only && !n->is_own && tree->node[only].total >= n->total - n->total / 50 && n->parent &&
           !tree->node[n->parent].is_own;
}

/* Lists the chosen nodes below `node`, the heaviest first, without recursion: a trace may have any depth. */
static void list_chosen(struct choosing *c)
{
    struct call_tree *tree = c->tree;
    uint32_t *waiting = mem_zero(tree->count, sizeof *waiting), *depth = mem_zero(tree->count, sizeof *depth);
    size_t left = 0;
    tree->nr_chosen = c->lines = 0;
    waiting[left++] = 0;
    while (left) {
        uint32_t node = waiting[--left], below = depth[node] + (node != 0);
        if (node) {
            tree->node[node].is_joined = says_little(tree, node, c->least);
            bool follows = tree->nr_chosen && tree->node[tree->chosen[tree->nr_chosen - 1]].is_joined &&
                           tree->node[node].is_joined;
            c->lines += !follows;
            tree->chosen[tree->nr_chosen] = node;
            tree->depth[tree->nr_chosen++] = depth[node];
        }
        size_t first = left;
        for (uint32_t child = tree->node[node].child; child; child = tree->node[child].next) {
            if (tree->node[child].total < c->least) continue;
            depth[child] = below;
            waiting[left++] = child;
        }
        qsort_r(waiting + first, left - first, sizeof *waiting, nodes_by_total, tree->node);
    }
    free(waiting);
    free(depth);
}

void call_tree_choose(struct call_tree *tree, size_t most)
{
    struct choosing c = {.tree = tree, .least = MAX(tree->node[0].total / 100, 1)};
    tree->chosen = mem_zero(tree->count, sizeof *tree->chosen);
    tree->depth = mem_zero(tree->count, sizeof *tree->depth);
    for (list_chosen(&c); c.lines > most && c.least < tree->node[0].total / 2; list_chosen(&c))
        c.least += c.least / 4 + 1;
}
