/* flames.c - writes times by call stack as collapsed lines (flamegraph.pl, torch's export_stacks) and for speedscope.
 *
 * speedscope's format is described in src/lib/file-format-spec.ts of jlfwong/speedscope: a list of distinct frames, and
 * for each profile stacks of their indices, the outermost first, with weights.
 */
#include "write/flames/flames.h"

#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

/* The frames of a stack, the innermost first. */
struct lines {
    struct slice *line;
    size_t count, capacity;
};

static void split(struct lines *lines, const struct name *stack)
{
    const char *at = stack->text, *end = stack->text + stack->length;
    lines->count = 0;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        lines->line = mem_grow(lines->line, &lines->capacity, lines->count + 1, sizeof *lines->line);
        lines->line[lines->count++] = (struct slice){at, (size_t)(stop - at)};
        at = stop + 1;
    }
}

/* ---- collapsed lines ---- */

static void put_frame(struct text *line, struct slice frame)
{
    char *plain = mem_text(frame.at, frame.length);
    for (size_t i = 0; i < frame.length; i++)
        if (plain[i] && strchr(" ;\t\n", plain[i])) plain[i] = '_';
    text_visible(line, plain, frame.length);
    free(plain);
}

/* Adds up the stacks of all processes. The result keeps the order of their first appearance. */
static struct flames together(const struct flames *flames)
{
    struct flames sum = {0};
    struct map place = {0};
    for (size_t i = 0; i < flames->count; i++) {
        size_t at = map_number(&place, flames->flame[i].stack);
        if (at == sum.count) {
            sum.flame = mem_grow(sum.flame, &sum.capacity, at + 1, sizeof *sum.flame);
            sum.flame[sum.count++] = flames->flame[i];
        } else {
            sum.flame[at].time = add_ns(sum.flame[at].time, flames->flame[i].time);
        }
    }
    map_free(&place);
    return sum;
}

size_t flames_collapsed(struct out *out, const struct selection *chosen, const struct flames *flames)
{
    struct flames sum = together(flames);
    struct lines lines = {0};
    struct text line = {0};
    size_t written = 0;
    for (size_t i = 0; i < sum.count; i++) {
        if (sum.flame[i].time < 1000) continue;
        line.length = 0;
        split(&lines, names_get(&chosen->model->names, sum.flame[i].stack));
        for (size_t k = lines.count; k-- > 0;) {
            put_frame(&line, lines.line[k]);
            text_puts(&line, k ? ";" : "");
        }
        text_format(&line, " %lld\n", (long long)(sum.flame[i].time / 1000));
        out_write(out, line.data, line.length);
        written++;
    }
    text_free(&line);
    free(lines.line);
    flames_free(&sum);
    return written;
}

/* ---- speedscope ---- */

static void put_described(struct out *out, struct slice frame)
{
    struct slice file, line, function;
    bool is_python = frame_take_apart(frame, &file, &line, &function);
    out_puts(out, "{\"name\": ");
    out_json_string(out, is_python ? function.at : frame.at, is_python ? function.length : frame.length);
    if (is_python) {
        out_puts(out, ", \"file\": ");
        out_json_string(out, file.at, file.length);
        out_format(out, ", \"line\": %ld", strtol(line.at, NULL, 10));
    }
    out_puts(out, "}");
}

struct speedscope {
    struct out *out;
    struct names *names;
    struct map number; /* index of a frame in the file, by its name number */
    struct lines lines;
};

static uint32_t number_of(struct speedscope *s, struct slice frame)
{
    return map_number(&s->number, names_add(s->names, frame.at, frame.length));
}

/* Splits the stack and keeps its frames as they are, because names may move while frames are added to them. */
static char *split_copy(struct speedscope *s, const struct flame *flame)
{
    const struct name *stack = names_get(s->names, flame->stack);
    struct name copy = {.text = mem_text(stack->text, stack->length), .length = stack->length};
    split(&s->lines, &copy);
    return (char *)copy.text;
}

static void put_frames(struct speedscope *s, const struct flames *flames)
{
    for (size_t i = 0; i < flames->count; i++) {
        char *copy = split_copy(s, &flames->flame[i]);
        for (size_t k = 0; k < s->lines.count; k++) {
            size_t known = s->number.count;
            if (number_of(s, s->lines.line[k]) < known) continue;
            out_puts(s->out, known ? ",\n" : "\n");
            put_described(s->out, s->lines.line[k]);
        }
        free(copy);
    }
}

static void put_stack(struct speedscope *s, const struct flame *flame)
{
    char *copy = split_copy(s, flame);
    out_puts(s->out, "[");
    for (size_t k = s->lines.count; k-- > 0;) {
        out_number(s->out, number_of(s, s->lines.line[k]));
        out_puts(s->out, k ? "," : "");
    }
    out_puts(s->out, "]");
    free(copy);
}

static void put_profile(struct speedscope *s, const struct process *process, const struct flame *flame, size_t count,
                        const char *metric)
{
    int64_t total = 0;
    out_puts(s->out, "{\"type\": \"sampled\", \"name\": \"");
    if (process->rank >= 0) out_format(s->out, "rank %lld, ", (long long)process->rank);
    if (process->pid >= 0) out_format(s->out, "pid %lld, ", (long long)process->pid);
    out_format(s->out, "%s\", \"unit\": \"nanoseconds\", \"startValue\": 0, \"samples\": [", metric);
    for (size_t i = 0; i < count; i++) {
        out_puts(s->out, i ? ",\n" : "\n");
        put_stack(s, &flame[i]);
        total = add_ns(total, flame[i].time);
    }
    out_puts(s->out, "],\n\"weights\": [");
    for (size_t i = 0; i < count; i++) {
        out_puts(s->out, i ? "," : "");
        out_number(s->out, (uint64_t)flame[i].time);
    }
    out_format(s->out, "],\n\"endValue\": %lld}", (long long)total);
}

void flames_speedscope(struct out *out, const struct selection *chosen, const struct flames *flames, const char *metric)
{
    struct speedscope s = {.out = out, .names = &chosen->model->names};
    out_puts(
        out,
        "{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n\"exporter\": \"tfanalyze@" TFI_VERSION
        "\",\n\"shared\": {\"frames\": [");
    put_frames(&s, flames);
    out_puts(out, "]},\n\"profiles\": [");
    for (size_t i = 0, first = 0, end; i < chosen->processes; i++, first = end) {
        for (end = first; end < flames->count && flames->flame[end].process == i;) end++;
        out_puts(out, i ? ",\n" : "\n");
        put_profile(&s, chosen->process[i], &flames->flame[first], end - first, metric);
    }
    out_puts(out, "]}\n");
    map_free(&s.number);
    free(s.lines.line);
}
