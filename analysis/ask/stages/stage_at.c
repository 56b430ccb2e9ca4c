/* stage_at.c - finds the innermost stage open on a thread at a moment. */
#include "ask/stages/stage_at.h"

#include <stdlib.h>

#include "base/runs.h"
#include "base/sets/intervals.h"
#include "base/sets/finger_search.h"

/* Places in `order` and in `moment`. */
struct stage_places {
    size_t stage, moment;
};

/* ---- number of threads with an open stage ---- */

struct edge {
    int64_t time;
    uint32_t thread;
    int by; /* +1: a stage opens on the thread; -1: its last open stage ends */
};

static int edges_by_time(const void *a, const void *b, void *unused)
{
    const struct edge *x = a, *y = b;
    (void)unused;
    return (x->time > y->time) - (x->time < y->time);
}

static struct edge *edges_of(const struct stage_finder *finder, size_t *count)
{
    const struct ranges *r = finder->ranges;
    struct edge *edge = mem_zero(2 * finder->count, sizeof *edge);
    *count = 0;
    for (size_t i = 0; i < finder->count;) {
        uint32_t thread = r->thread[finder->order[i]];
        struct intervals open = {0};
        for (; i < finder->count && r->thread[finder->order[i]] == thread; i++)
            intervals_add(&open, r->start[finder->order[i]], r->end[finder->order[i]]);
        intervals_merge(&open);
        for (size_t k = 0; k < open.count; k++) {
            edge[(*count)++] = (struct edge){open.interval[k].start, thread, 1};
            edge[(*count)++] = (struct edge){open.interval[k].end, thread, -1};
        }
        intervals_free(&open);
    }
    sort_runs(edge, *count, sizeof *edge, edges_by_time, NULL);
    return edge;
}

static void find_moments(struct stage_finder *finder)
{
    size_t edges, n = 0;
    struct edge *edge = edges_of(finder, &edges);
    struct stage_moment now = {0};
    finder->moment = mem_zero(edges, sizeof *finder->moment);
    for (size_t i = 0; i < edges; i++) {
        now.time = edge[i].time;
        now.threads += (uint32_t)edge[i].by;
        now.which ^= edge[i].thread;
        n -= n && finder->moment[n - 1].time == now.time;
        finder->moment[n++] = now;
    }
    finder->moments = n;
    free(edge);
}

void stage_finder_init(struct stage_finder *finder, const size_t *order, size_t count, const struct stage_paths *paths)
{
    *finder = (struct stage_finder){.ranges = paths->ranges, .order = order, .count = count, .paths = paths};
    find_moments(finder);
    finder->last = mem_zero(1, sizeof *finder->last);
}

void stage_finder_free(struct stage_finder *finder)
{
    free(finder->moment);
    free(finder->last);
    *finder = (struct stage_finder){0};
}

/* ---- look-up ---- */

struct moment_search {
    const struct stage_finder *finder;
    uint32_t thread;
    int64_t time;
};

static bool stage_opens_behind(const void *context, size_t place)
{
    const struct moment_search *search = context;
    const struct ranges *r = search->finder->ranges;
    size_t at = search->finder->order[place];
    return r->thread[at] > search->thread || (r->thread[at] == search->thread && r->start[at] > search->time);
}

static bool is_later(const void *context, size_t place)
{
    const struct moment_search *search = context;
    return search->finder->moment[place].time > search->time;
}

/* The last stage that began on this thread may have ended by `time`. A stage around it may still be open. */
static uint32_t on_thread(const struct stage_finder *finder, uint32_t thread, int64_t time)
{
    const struct ranges *r = finder->ranges;
    const struct moment_search search = {finder, thread, time};
    size_t after = finder->last->stage = place_near(finder->last->stage, finder->count, stage_opens_behind, &search);
    if (!after || r->thread[finder->order[after - 1]] != thread) return NO_PLACE;
    uint32_t last = (uint32_t)finder->order[after - 1];
    return r->end[last] > time ? last : stages_around(finder->paths, last, time);
}

uint32_t stage_at(const struct stage_finder *finder, uint32_t thread, int64_t time)
{
    uint32_t stage = thread == NO_THREAD ? NO_PLACE : on_thread(finder, thread, time);
    if (stage != NO_PLACE) return stage;
    const struct moment_search search = {finder, thread, time};
    size_t after = finder->last->moment = place_near(finder->last->moment, finder->moments, is_later, &search);
    return after && finder->moment[after - 1].threads == 1 ? on_thread(finder, finder->moment[after - 1].which, time)
                                                           : NO_PLACE;
}
