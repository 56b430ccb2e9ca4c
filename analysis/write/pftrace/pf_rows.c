/* pf_rows.c - places the events of a process on tracks where they nest, and gives each arrow its event.
 *
 * Events are visited in the order of their starts, the longer one first, so one stack per track shows which events are
 * open. An event that overlaps work of its stream, or that crosses an open event, moves to a lane beside the track.
 */
#include "write/pftrace/parts.h"

#include <stdlib.h>

static int events_by_time(const void *a, const void *b, void *context)
{
    const struct pf_key *key = context;
    const struct pf_key *x = &key[*(const uint32_t *)a], *y = &key[*(const uint32_t *)b];
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    return nesting ? nesting : (x->offset > y->offset) - (x->offset < y->offset);
}

static int by_arrow_time(const void *a, const void *b)
{
    const struct pf_arrow *x = a, *y = b;
    return x->time != y->time ? by_number(x->time, y->time) : by_number(x->track, y->track);
}

static void close_ended(struct pf *pf, struct pf_track *track, int64_t time)
{
    while (track->depth && pf->key[track->open[track->depth - 1]].end <= time) track->depth--;
}

/* Puts an event onto its track, or onto a lane beside it. */
static void place_event(struct pf *pf, uint32_t index)
{
    struct pf_key *key = &pf->key[index];
    uint32_t at = key->track;
    struct pf_track *track = &pf->track[at];
    track->last = index;
    if (track->drawn_on) {
        key->track = at = track->drawn_on - 1;
        track = &pf->track[at];
    }
    close_ended(pf, track, key->start);
    uint32_t lane = IS_FLAT(key->kind) ? lanes_place(&track->works, key->start, key->end) : 0;
    bool crosses = !lane && track->depth && pf->key[track->open[track->depth - 1]].end < key->end;
    if (crosses) lane = 1 + lanes_place(&track->crossings, key->start, key->end);
    if (lane) {
        key->track = pf_lane(pf, at, lane, crosses);
        return;
    }
    track->open = mem_grow(track->open, &track->capacity, track->depth + 1, sizeof *track->open);
    track->open[track->depth++] = index;
}

/* Returns the event of the arrow's track that is open at its time, the one that began last. */
static uint32_t event_of_arrow(struct pf *pf, const struct pf_arrow *arrow)
{
    if (arrow->track == NO_PLACE) return NO_PLACE;
    struct pf_track *track = &pf->track[arrow->track];
    uint32_t last = track->last;
    if (last != NO_PLACE && (pf->key[last].start == arrow->time || pf->key[last].end > arrow->time)) return last;
    close_ended(pf, track, arrow->time);
    return track->depth ? track->open[track->depth - 1] : NO_PLACE;
}

void pf_place(struct pf *pf)
{
    pf->order = mem_zero(pf->keys, sizeof *pf->order);
    for (size_t i = 0; i < pf->keys; i++) pf->order[i] = (uint32_t)i;
    if (pf->keys) qsort_r(pf->order, pf->keys, sizeof *pf->order, events_by_time, pf->key);
    for (size_t i = 0; i < pf->arrows; i++) {
        struct pf_arrow *arrow = &pf->arrow[i];
        arrow->track = pf_find_row(pf, arrow->pid, arrow->tid, arrow->is_end);
    }
    if (pf->arrows) qsort(pf->arrow, pf->arrows, sizeof *pf->arrow, by_arrow_time);
    size_t next = 0;
    for (size_t i = 0; i < pf->arrows; i++) {
        struct pf_arrow *arrow = &pf->arrow[i];
        for (; next < pf->keys && pf->key[pf->order[next]].start <= arrow->time; next++)
            if (pf->key[pf->order[next]].kind != KEY_INSTANT) place_event(pf, pf->order[next]);
        if (arrow->key == NO_PLACE) arrow->key = event_of_arrow(pf, arrow);
    }
    for (; next < pf->keys; next++)
        if (pf->key[pf->order[next]].kind != KEY_INSTANT) place_event(pf, pf->order[next]);
}
