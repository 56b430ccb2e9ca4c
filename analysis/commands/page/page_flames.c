/* page_flames.c - the flame graph of a page: a tree of calls for each stage, of the time that `hotspots` counts.
 *
 * A path begins and joins lines as in `hotspots`. What has less than a thousandth of the time is narrower than a screen
 * shows: it is left out, and stays in the time of its caller.
 */
#include "commands/page/page_flames.h"

#include <stdlib.h>

#include "ask/samples/call_tree.h"
#include "model/frames.h"

enum { LEAST_SHARE = 1000, MOST_NODES = 4000, MOST_FRAME = 200 };

struct page_flames {
    struct out *out;
    struct names *names;
    const struct scope *scope;
    struct map stage; /* index of a tree, by name of its stage */
    struct call_tree *tree;
    uint32_t *of; /* the stage of each tree */
    size_t count, capacity, of_capacity;
    int64_t total, imports, least;
    struct map frame; /* number of a frame in the page, by its name */
    uint32_t *text;   /* the names of these frames */
    size_t texts, text_capacity;
    size_t nodes, left; /* written, and left out for being narrow */
};

static void add_period(void *context, const struct sampled *s)
{
    struct page_flames *f = context;
    const struct process *p = f->scope->process;
    uint32_t name = s->stage == NO_PLACE ? f->scope->choice.outside : p->ranges.name[s->stage];
    size_t at = map_number(&f->stage, name);
    if (at == f->count) {
        f->tree = mem_grow(f->tree, &f->capacity, at + 1, sizeof *f->tree);
        f->of = mem_grow(f->of, &f->of_capacity, at + 1, sizeof *f->of);
        call_tree_init(&f->tree[at], f->names);
        f->of[f->count++] = name;
    }
    call_tree_add(&f->tree[at], p, s);
}

static void collect(struct page_flames *f, const struct selection *chosen)
{
    for (size_t i = 0; i < chosen->processes; i++) {
        struct scope *scope = scope_begin(chosen, i);
        f->scope = scope;
        sampled_each(scope, add_period, f);
        scope_end(scope);
    }
    for (size_t i = 0; i < f->count; i++) {
        f->total = add_ns(f->total, f->tree[i].node[0].total);
        f->imports = add_ns(f->imports, f->tree[i].imports);
    }
    f->least = f->total / LEAST_SHARE;
}

static size_t number_of_frame(struct page_flames *f, uint32_t frame)
{
    size_t number = map_number(&f->frame, frame);
    if (number < f->texts) return number;
    f->text = mem_grow(f->text, &f->text_capacity, number + 1, sizeof *f->text);
    f->text[f->texts++] = frame;
    return number;
}

/* Writes the frame, the depth, the time and the owner of a node and of those below it: each caller before its callees. */
static void put_nodes(struct page_flames *f, const struct call_tree *tree)
{
    uint32_t at = tree->node[0].child;
    unsigned depth = 1;
    for (bool more = false; at;) {
        const struct call_node *n = &tree->node[at];
        bool shown = n->total > f->least && f->nodes < MOST_NODES;
        if (shown) {
            out_format(f->out, "%s[%zu,%u,", more ? "," : "", number_of_frame(f, n->frame), depth);
            out_us(f->out, n->total);
            out_puts(f->out, n->is_own ? ",1]" : ",0]");
            more = true;
            f->nodes++;
        } else {
            f->left++;
        }
        if (shown && n->child) {
            at = n->child;
            depth++;
            continue;
        }
        while (at && !tree->node[at].next) {
            at = tree->node[at].parent;
            depth--;
        }
        at = at ? tree->node[at].next : 0;
    }
}

static void put_stages(struct page_flames *f)
{
    bool more = false;
    for (size_t i = 0; i < f->count; i++) {
        const struct call_tree *tree = &f->tree[i];
        const struct name *name = names_get(f->names, f->of[i]);
        if (tree->node[0].total <= f->least) {
            f->left += tree->count > 1;
            continue;
        }
        out_puts(f->out, more ? ",\n{\"stage\": " : "\n{\"stage\": ");
        more = true;
        out_json_string(f->out, name->text, MIN((size_t)name->length, (size_t)MOST_FRAME));
        out_puts(f->out, ", \"total_us\": ");
        out_us(f->out, tree->node[0].total);
        out_puts(f->out, ", \"nodes\": [");
        put_nodes(f, tree);
        out_puts(f->out, "]}");
    }
}

static void put_frames(struct page_flames *f)
{
    struct text text = {0};
    for (size_t i = 0; i < f->texts; i++) {
        text.length = 0;
        frame_text(names_get(f->names, f->text[i]), &text);
        if (i) out_puts(f->out, ",");
        out_json_string(f->out, text.data, MIN(text.length, (size_t)MOST_FRAME));
    }
    text_free(&text);
}

void page_flames_write(struct out *out, const struct selection *chosen)
{
    struct page_flames f = {.out = out, .names = &chosen->model->names};
    collect(&f, chosen);
    out_puts(out, "{\"counted_us\": ");
    out_us(out, f.total);
    out_puts(out, ", \"imports_us\": ");
    out_us(out, f.imports);
    out_puts(out, ", \"least_us\": ");
    out_us(out, f.least);
    out_puts(out, ", \"stages\": [");
    put_stages(&f);
    out_puts(out, "], \"left\": ");
    out_number(out, f.left);
    out_puts(out, ", \"frames\": [");
    put_frames(&f);
    out_puts(out, "]}");
    for (size_t i = 0; i < f.count; i++) call_tree_free(&f.tree[i]);
    free(f.tree);
    free(f.of);
    free(f.text);
    map_free(&f.stage);
    map_free(&f.frame);
}
