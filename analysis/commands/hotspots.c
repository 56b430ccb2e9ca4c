/* hotspots.c - reports which functions or lines take the time of the program's threads, working or waiting, by samples.
 *
 * The text begins with the heaviest paths. The rows are those of functions, of lines or of stages, those that count most first:
 * of the first thread all time counts, of the others only what is not idle waiting.
 */
#include <math.h>
#include <stdlib.h>

#include "ask/samples/call_tree.h"
#include "ask/samples/spots.h"
#include "base/escape.h"
#include "commands/session.h"
#include "model/frames.h"

enum { PATH_LINES = 24, WIDTH = 100, INDENT_MOST = 30 };

struct hotspots {
    struct session *session;
    struct spots spots;
    struct call_tree tree;
    int64_t gaps; /* device time without work; -1: there is no device */
};

struct needs hotspots_needs(const struct options *options)
{
    return sampled_needs(options);
}

/* ---- the paths ---- */

static double share_of(const struct hotspots *h, int64_t weight)
{
    return h->tree.node[0].total ? 100.0 * (double)weight / (double)h->tree.node[0].total : NAN;
}

static void add_frame(const struct hotspots *h, struct text *line, uint32_t frame, bool with_line)
{
    struct frame f;
    const struct name *name = names_get(h->tree.names, frame);
    if (!frame_parse(&f, name->text, name->length)) {
        text_puts(line, name->text);
        return;
    }
    text_add(line, f.function, f.function_length);
    if (!with_line) return;
    const char *from = f.file, *end = f.file + f.file_length;
    for (int parts = 0; end > from && parts < 3; end--) parts += end[-1] == '/';
    text_puts(line, "  ");
    text_puts(line, end > from ? ".../" : "");
    end += end > from && *end == '/';
    text_add(line, end, (size_t)(f.file + f.file_length - end));
    text_format(line, ":%s", f.line);
}

static void print_line(const struct hotspots *h, struct text *line)
{
    struct out *out = h->session->emit.out;
    struct text visible = {0};
    while (line->length && line->data[line->length - 1] == ' ') line->length--;
    text_visible(&visible, line->data, line->length);
    out_write(out, visible.data, visible.length);
    out_puts(out, "\n");
    line->length = 0;
    text_free(&visible);
}

/* Prints joined functions by their names, as many lines as they need. Returns the index behind them. */
static size_t print_joined(const struct hotspots *h, size_t i, size_t indent, struct text *line)
{
    const struct call_tree *tree = &h->tree;
    text_format(line, "%23s%*s", "", (int)indent, "");
    for (size_t first = i; i < tree->nr_chosen && tree->node[tree->chosen[i]].is_joined; i++) {
        text_puts(line, i == first ? "... " : " > ");
        if (line->length > WIDTH - 24) {
            print_line(h, line);
            text_format(line, "%23s%*s    ", "", (int)indent, "");
        }
        add_frame(h, line, tree->node[tree->chosen[i]].frame, false);
    }
    print_line(h, line);
    return i;
}

static void print_paths(struct hotspots *h)
{
    const struct call_tree *tree = &h->tree;
    struct out *out = h->session->emit.out;
    struct text line = {0}, time = {0};
    if (!tree->nr_chosen) return;
    human_time(&time, tree->node[0].total);
    out_format(out, "The heaviest paths, of %s that count", time.data);
    time.length = 0;
    if (tree->imports) human_time(&time, tree->imports);
    if (tree->imports) out_format(out, " (imports, %s, are left out)", time.data);
    out_puts(out, "\n  share       time  self  where\n");
    for (size_t i = 0; i < tree->nr_chosen;) {
        const struct call_node *node = &tree->node[tree->chosen[i]];
        size_t indent = MIN(tree->depth[i], INDENT_MOST);
        if (node->is_joined) {
            i = print_joined(h, i, indent, &line);
            continue;
        }
        time.length = 0;
        human_time(&time, node->total);
        text_format(&line, "%6.1f%% %10s %4.0f%%  %*s", share_of(h, node->total), time.data, share_of(h, node->self),
                    (int)indent, "");
        add_frame(h, &line, node->frame, true);
        print_line(h, &line);
        i++;
    }
    out_puts(out, "\n");
    text_free(&line);
    text_free(&time);
}

static void emit_paths(struct hotspots *h)
{
    struct emit *e = &h->session->emit;
    const struct call_tree *tree = &h->tree;
    struct text line = {0};
    emit_open(e, "paths", true);
    for (size_t i = 0; i < tree->nr_chosen; i++) {
        const struct call_node *node = &tree->node[tree->chosen[i]];
        line.length = 0;
        frame_text(names_get(tree->names, node->frame), &line);
        emit_open(e, NULL, false);
        emit_count(e, "depth", tree->depth[i]);
        emit_bytes_text(e, "frame", line.data, line.length);
        emit_us(e, "total_us", node->total);
        emit_us(e, "self_us", node->self);
        emit_pct(e, "pct", share_of(h, node->total));
        emit_close(e);
    }
    emit_close(e);
    text_free(&line);
}

/* ---- the rows ---- */

static void emit_spot(struct hotspots *h, size_t i)
{
    struct emit *e = &h->session->emit;
    const struct spots *spots = &h->spots;
    const struct spot *row = &spots->row[i];
    uint32_t line = spots->by == SPOT_LINE ? row->line : spot_most(spots, i, SHARE_LINE),
             thread = spot_most(spots, i, SHARE_THREAD);
    emit_row(e);
    emit_name(e, spots->names, "name", row->name);
    emit_name(e, spots->names, "file", row->file);
    if (line) emit_count(e, "line", line);
    else emit_null(e, "line");
    emit_name(e, spots->names, "stage", spots->by == SPOT_STAGE ? row->name : spot_most(spots, i, SHARE_STAGE));
    emit_known(e, "rank", row->rank);
    if (thread) emit_count(e, "thread", thread);
    else emit_null(e, "thread");
    emit_name(e, spots->names, "waits_in", spot_most(spots, i, SHARE_WAIT));
    emit_count(e, "samples", row->looks);
    emit_us(e, "wall_us", row->wall);
    emit_us(e, "total_us", row->total);
    emit_us(e, "cpu_us", row->cpu);
    emit_us(e, "waiting_us", row->waiting);
    if (h->gaps >= 0) emit_us(e, "device_idle_us", row->device_idle);
    else emit_null(e, "device_idle_us");
    emit_pct(e, "pct", spots->weight ? 100.0 * (double)row->weight / (double)spots->weight : NAN);
    emit_row_end(e);
}

static void emit_sums(struct hotspots *h)
{
    struct emit *e = &h->session->emit;
    const struct spots *spots = &h->spots;
    emit_totals(e);
    emit_count(e, "samples", spots->looks);
    emit_count(e, "cut", spots->cut);
    emit_count(e, "unreadable", spots->unreadable);
    emit_us(e, "wall_us", spots->wall);
    emit_us(e, "counted_us", spots->weight);
    emit_us(e, "imports_us", h->tree.imports);
    if (h->gaps >= 0 && !is_filtered(&h->session->options)) emit_us(e, "device_idle_us", h->gaps);
    else emit_null(e, "device_idle_us");
    if (e->format == FORMAT_JSON) emit_paths(h);
}

/* ---- the answer ---- */

struct adding {
    struct hotspots *h;
    const struct scope *scope;
};

static void add_period(void *context, const struct sampled *sampled)
{
    const struct adding *adding = context;
    spots_add(&adding->h->spots, adding->scope, sampled);
    call_tree_add(&adding->h->tree, adding->scope->process, sampled);
}

static void add_process(struct hotspots *h, struct scope *scope)
{
    struct adding adding = {h, scope};
    spots_begin_process(&h->spots);
    int64_t gaps = sampled_each(scope, add_period, &adding);
    if (gaps >= 0) h->gaps = MAX(h->gaps, 0) + gaps;
}

void cmd_hotspots(struct session *session)
{
    struct hotspots h = {.session = session, .gaps = -1};
    if (!session_ask(session, STYLE_TABLE)) return;
    spots_init(&h.spots, session->options.spot_by, &session->model.names);
    call_tree_init(&h.tree, &session->model.names);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        add_process(&h, scope);
        scope_end(scope);
    }
    spots_sort(&h.spots);
    call_tree_choose(&h.tree, PATH_LINES);
    if (session->emit.format == FORMAT_TEXT) print_paths(&h);
    uint64_t top = session->options.top;
    for (size_t i = 0; i < h.spots.count && (!top || i < top); i++) emit_spot(&h, i);
    emit_sums(&h);
    emit_end(&session->emit);
    if (!h.spots.count && !is_filtered(&session->options))
        complain(NULL, "no thread was sampled: tfrun samples Python programs, unless TFI_SAMPLE_HZ is 0");
    session_end(session, h.spots.count || !is_filtered(&session->options));
    spots_free(&h.spots);
    call_tree_free(&h.tree);
}
