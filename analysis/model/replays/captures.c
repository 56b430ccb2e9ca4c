/* captures.c - collects the calls that were captured in CUDA graphs from the spans of a trace of another program. */
#include "model/replays/captures.h"

#include <stdlib.h>
#include <string.h>

#define KEY_OF_CLASS 0xfffffff0u /* above all numbers of names */

uint32_t capture_key(struct names *names, enum event_class event_class, uint32_t kernel)
{
    static const char *const suffixes[] = {".kd", " [clone .kd]"}; /* of ROCm's symbols, plain and demangled */
    if (event_class != CLASS_KERNEL || kernel == NAME_NONE) return KEY_OF_CLASS + (uint32_t)event_class;
    struct name name = names_copy(names, kernel);
    for (size_t i = ARRAY_SIZE(suffixes); i--;) {
        size_t length = strlen(suffixes[i]);
        if (name.length > length && memcmp(name.text + name.length - length, suffixes[i], length) == 0)
            return names_add(names, name.text, name.length - length);
    }
    return kernel;
}

static uint64_t captures_hash(uint64_t hash, uint32_t key)
{
    hash = (hash ^ key) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* ---- what a call does ---- */

enum role { ROLE_NONE, ROLE_KERNEL, ROLE_COPY, ROLE_SET, ROLE_GRAPH, ROLE_BEGIN, ROLE_END, ROLE_UNKNOWN };

static enum role role_of_text(const char *name)
{
    if (strstr(name, "StreamBeginCapture")) return ROLE_BEGIN;
    if (strstr(name, "StreamEndCapture")) return ROLE_END;
    if (strstr(name, "GraphLaunch")) return ROLE_GRAPH;
    if (strstr(name, "Launch") && strstr(name, "Kernel")) return ROLE_KERNEL;
    if (strstr(name, "Memcpy")) return ROLE_COPY;
    if (strstr(name, "Memset")) return ROLE_SET;
    return ROLE_NONE;
}

struct collecting {
    struct captures *captures;
    const struct process *process;
    bool is_given, has_markers;
    struct map roles;    /* by name */
    struct map own_work; /* correlation ids of work */
    struct captured_stack open;
    uint32_t *order; /* operators, Python functions and calls with a role, by thread and time */
    size_t count, capacity;
    struct capture_pattern *capture; /* each is a pattern of its own */
    size_t found, capture_capacity;
};

static enum role role_of(struct collecting *c, size_t span)
{
    const struct spans *s = &c->process->spans;
    if (s->event_class[span] != CLASS_API) return ROLE_NONE;
    uint32_t role = map_get(&c->roles, s->name[span]);
    if (role == MAP_NONE) {
        role = role_of_text(names_copy(c->open.names, s->name[span]).text);
        map_put(&c->roles, s->name[span], role);
    }
    return (enum role)role;
}

static int by_thread_then_start(const void *a, const void *b, void *context)
{
    const struct spans *s = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (s->thread[x] != s->thread[y]) return s->thread[x] < s->thread[y] ? -1 : 1;
    if (s->start[x] != s->start[y]) return s->start[x] < s->start[y] ? -1 : 1;
    if (s->end[x] != s->end[y]) return s->end[x] > s->end[y] ? -1 : 1;
    return (x > y) - (x < y);
}

static bool opens(const struct spans *s, size_t span)
{
    return s->event_class[span] == CLASS_OPERATOR || s->event_class[span] == CLASS_PYTHON;
}

static void sort_spans(struct collecting *c)
{
    const struct spans *s = &c->process->spans;
    for (size_t i = 0; i < s->table.count; i++) {
        if (!opens(s, i) && role_of(c, i) == ROLE_NONE) continue;
        c->order = mem_grow(c->order, &c->capacity, c->count + 1, sizeof *c->order);
        c->order[c->count++] = (uint32_t)i;
    }
    if (c->count) qsort_r(c->order, c->count, sizeof *c->order, by_thread_then_start, (void *)s);
}

static bool has_markers(struct collecting *c)
{
    const struct spans *s = &c->process->spans;
    for (size_t i = 0; i < s->table.count; i++)
        if (role_of(c, i) == ROLE_BEGIN || role_of(c, i) == ROLE_END) return true;
    return false;
}

/* ---- patterns ---- */

static bool are_equal(const struct captures *captures, const struct capture_pattern *pattern, const uint32_t *key,
                      size_t count, bool is_named)
{
    if (pattern->count != count || pattern->is_named != is_named) return false;
    for (size_t i = 0; i < count; i++)
        if (captures->call[pattern->first + i].key != key[i]) return false;
    return true;
}

const struct capture_pattern *captures_find(const struct captures *captures, const uint32_t *key, size_t count,
                                            bool is_named)
{
    uint64_t hash = is_named;
    for (size_t i = 0; i < count; i++) hash = captures_hash(hash, key[i]);
    uint32_t at = map_get(&captures->known, hash);
    if (at == MAP_NONE || !are_equal(captures, &captures->pattern[at], key, count, is_named)) return NULL;
    return &captures->pattern[at];
}

static int by_end_and_place(const void *a, const void *b)
{
    const struct capture_pattern *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Makes a capture a pattern, or a part of what an equal one says, which ended before. */
static void add_pattern(struct captures *captures, const struct capture_pattern *capture)
{
    uint32_t at = map_get(&captures->known, capture->hash);
    if (at == MAP_NONE) {
        captures->pattern =
            mem_grow(captures->pattern, &captures->pattern_capacity, captures->patterns + 1, sizeof *captures->pattern);
        map_put(&captures->known, capture->hash, (uint32_t)captures->patterns);
        captures->pattern[captures->patterns++] = *capture;
        return;
    }
    const struct capture_pattern *pattern = &captures->pattern[at];
    struct captured_call *mine = &captures->call[pattern->first];
    const struct captured_call *other = &captures->call[capture->first];
    struct map seen = {0};
    for (size_t i = 0; i < MIN(capture->count, pattern->count); i++) {
        bool same = captured_op_name(&captures->ops, mine[i].op) == captured_op_name(&captures->ops, other[i].op);
        if (!same || mine[i].key != other[i].key) mine[i].until = MIN(mine[i].until, capture->end);
        else captured_ops_agree(&captures->ops, mine[i].op, other[i].op, &seen);
    }
    map_free(&seen);
}

/* ---- the calls of a thread ---- */

struct walking {
    size_t first;        /* the first call of the capture */
    bool captures;       /* a capture is open */
    bool is_named;       /* all its kernels have names so far */
    bool is_known;       /* all its nodes are known so far */
    int64_t launched_to; /* end of the last launching call, whose inner calls do not count */
};

static void begin_capture(const struct collecting *c, struct walking *w)
{
    bool nested = w->captures;
    if (!nested) w->first = c->captures->calls;
    w->captures = w->is_named = true;
    w->is_known = !nested;
}

/* Leaves only the kinds of the calls: not all kernels have names. */
static void forget_kernels(struct captures *captures, size_t first)
{
    for (size_t i = first; i < captures->calls; i++)
        if (captures->call[i].key < KEY_OF_CLASS) captures->call[i].key = KEY_OF_CLASS + CLASS_KERNEL;
}

static void end_capture(struct collecting *c, struct walking *w, int64_t end)
{
    struct capture_pattern new = {w->first, c->captures->calls - w->first, w->is_named, c->is_given ? INT64_MIN : end,
                                  w->is_named};
    if (w->captures && !w->is_named) forget_kernels(c->captures, w->first);
    if (w->captures && w->is_known && new.count) {
        for (size_t i = 0; i < new.count; i++) new.hash = captures_hash(new.hash, c->captures->call[new.first + i].key);
        c->capture = mem_grow(c->capture, &c->capture_capacity, c->found + 1, sizeof *c->capture);
        c->capture[c->found++] = new;
    } else if (w->captures) {
        c->captures->calls = w->first;
    }
    w->captures = false;
}

static void add_call(struct collecting *c, struct walking *w, size_t span, enum role role)
{
    const struct process *p = c->process;
    struct captures *to = c->captures;
    struct captured_call call = {.until = INT64_MAX};
    enum event_class event_class = role == ROLE_KERNEL ? CLASS_KERNEL : role == ROLE_COPY ? CLASS_MEMCPY : CLASS_MEMSET;
    uint32_t kernel = map_get(&p->graphs.kernel_of, span);
    if (p->spans.start[span] < w->launched_to) return;
    w->launched_to = p->spans.end[span];
    if (p->spans.id[span] != NO_ID && map_get(&c->own_work, p->spans.id[span]) != MAP_NONE) return;
    if (role == ROLE_GRAPH) w->is_known = false;
    if (role == ROLE_KERNEL && kernel == MAP_NONE) w->is_named = false;
    call.key = capture_key(c->open.to, event_class, kernel == MAP_NONE ? NAME_NONE : captured_name(&c->open, kernel));
    call.op = captured_stack_operator(&c->open, p->spans.start[span], &to->ops);
    to->call = mem_grow(to->call, &to->call_capacity, to->calls + 1, sizeof *to->call);
    to->call[to->calls++] = call;
}

static void add_span(struct collecting *c, struct walking *w, uint32_t span)
{
    const struct spans *s = &c->process->spans;
    enum role role = role_of(c, span);
    if (opens(s, span)) captured_stack_open(&c->open, span);
    else if (role == ROLE_BEGIN) begin_capture(c, w);
    else if (role == ROLE_END) end_capture(c, w, s->end[span]);
    else if (w->captures) add_call(c, w, span, role);
}

static void walk_thread(struct collecting *c, size_t from, size_t to)
{
    struct walking w = {.launched_to = INT64_MIN};
    bool is_whole = c->is_given && !c->has_markers;
    c->open.depth = 0;
    if (is_whole) begin_capture(c, &w);
    for (size_t i = from; i < to; i++) add_span(c, &w, c->order[i]);
    if (is_whole) end_capture(c, &w, INT64_MIN);
    else if (w.captures) c->captures->calls = w.first;
}

void captures_add(struct captures *captures, const struct process *process, struct names *names, struct names *to,
                  bool is_given)
{
    struct collecting c = {.captures = captures,
                           .process = process,
                           .open = {.process = process, .names = names, .to = to},
                           .is_given = is_given};
    const struct spans *s = &process->spans;
    c.has_markers = has_markers(&c);
    if (c.has_markers || is_given) {
        for (size_t i = 0; i < process->works.table.count; i++)
            if (IS_WORK(process->works.event_class[i]) && process->works.correlation[i] != NO_ID)
                map_put(&c.own_work, process->works.correlation[i], 1);
        sort_spans(&c);
        for (size_t i = 0, end; i < c.count; i = end) {
            for (end = i; end < c.count && s->thread[c.order[end]] == s->thread[c.order[i]];) end++;
            walk_thread(&c, i, end);
        }
        if (c.found) qsort(c.capture, c.found, sizeof *c.capture, by_end_and_place);
        for (size_t i = 0; i < c.found; i++) add_pattern(captures, &c.capture[i]);
    }
    map_free(&c.roles);
    map_free(&c.own_work);
    free(c.open.open);
    free(c.order);
    free(c.capture);
}

void captures_free(struct captures *captures)
{
    free(captures->ops.op);
    free(captures->call);
    free(captures->pattern);
    map_free(&captures->known);
    *captures = (struct captures){0};
}
