/* arrows.c - makes flows of arrows, and counters of allocator totals, counter events and launch queues.
 *
 * Each arrow that ends becomes a flow of its own: a graph launch starts a flow to each of its kernels. The depth of a
 * launch queue is the number of launches whose work has not started; the arrows from launches to their work give it. Where
 * launches were left out of the trace no depth is known.
 */
#include "write/pftrace/parts.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"

/* ---- arrows ---- */

/* Returns the event that came last if the arrow ends at it. Of several events that begin together on a stream, the one
 * before the arrow is meant. */
static uint32_t event_before(struct pf *pf, int64_t pid, int64_t tid, int64_t time)
{
    const struct pf_key *key = pf->keys ? &pf->key[pf->keys - 1] : NULL;
    bool same = key && key->start == time && key->kind != KEY_INSTANT && key->track == pf_find_row(pf, pid, tid, true);
    return same ? (uint32_t)pf->keys - 1 : NO_PLACE;
}

void pf_take_arrow(struct pf *pf, const struct event *event)
{
    struct slice category = event->category.at ? event->category : (struct slice){"", 0};
    struct pf_arrow arrow = {
        .time = event->ts,
        .pid = pf_pid(pf, event),
        .tid = pf_tid(pf, event),
        .id = map_number(&pf->arrow_ids, hash_numbers(hash_text(category.at, category.length), event->id)),
        .key = NO_PLACE,
        .is_end = event->phase != 's'};
    if (!(event->has & HAS_ID)) return;
    if (arrow.is_end) arrow.key = event_before(pf, arrow.pid, arrow.tid, arrow.time);
    pf->arrow = mem_grow(pf->arrow, &pf->arrow_capacity, pf->arrows + 1, sizeof *pf->arrow);
    pf->arrow[pf->arrows++] = arrow;
}

static int by_id(const void *a, const void *b)
{
    const struct pf_arrow *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->is_end != y->is_end ? by_number(x->is_end, y->is_end) : by_number(x->time, y->time);
}

static void add_flow(struct pf *pf, uint32_t key, uint64_t number, bool is_end)
{
    pf->flow = mem_grow(pf->flow, &pf->flow_capacity, pf->flows + 1, sizeof *pf->flow);
    pf->flow[pf->flows++] = (struct pf_flow){number, pf->key[key].link, is_end};
    pf->key[key].link = (uint32_t)pf->flows;
}

static void add_sample(struct pf *pf, struct pf_sample sample)
{
    pf->sample = mem_grow(pf->sample, &pf->sample_capacity, pf->samples + 1, sizeof *pf->sample);
    sample.order = pf->samples;
    pf->sample[pf->samples++] = sample;
}

/* ---- launch queues ---- */

static bool is_work(const struct pf *pf, uint32_t key)
{
    return IS_FLAT(pf->key[key].kind) && pf->track[pf->key[key].track].kind == PF_STREAM;
}

/* Returns the counter of a stream's launch queue. */
static uint32_t queue_of(struct pf *pf, uint32_t key)
{
    const struct pf_track *track = &pf->track[pf->track[pf->key[key].track].of];
    long long device = (long long)pf->group[track->group].pid;
    char *name = track->name ? string_format("launch queue, GPU %lld, graphs", device)
                             : string_format("launch queue, GPU %lld, stream %lld", device, (long long)track->tid);
    uint32_t counter = pf_counter(pf, pf_main_group(pf), name, false);
    free(name);
    return counter;
}

/* Adds the change of a queue at the launch and at the start of the work. */
static void add_queue(struct pf *pf, int64_t launch, uint32_t key)
{
    uint32_t of = pf->track[pf->key[key].track].of;
    int64_t start = pf->key[key].start;
    if (launch > start) return;
    if (!pf->track[of].queue) {
        uint32_t counter = queue_of(pf, key); /* moves the tracks */
        pf->track[of].queue = counter + 1;
    }
    uint32_t counter = pf->track[of].queue - 1;
    add_sample(pf, (struct pf_sample){.time = launch, .value = 1, .track = counter, .is_change = true});
    add_sample(pf, (struct pf_sample){.time = start, .value = -1, .track = counter, .is_change = true});
}

/* Joins the arrows with one id: each end belongs to the latest beginning before it, else to the first one. */
static void link_group(struct pf *pf, const struct pf_arrow *arrow, size_t count)
{
    size_t starts = 0, start = 0;
    while (starts < count && !arrow[starts].is_end) starts++;
    for (size_t i = starts; i < count && starts; i++) {
        while (start + 1 < starts && arrow[start + 1].time <= arrow[i].time) start++;
        if (arrow[i].key == NO_PLACE || arrow[start].key == NO_PLACE) continue;
        uint64_t number = ++pf->file->flows;
        add_flow(pf, arrow[start].key, number, false);
        add_flow(pf, arrow[i].key, number, true);
        if (pf->knows_queues && is_work(pf, arrow[i].key)) add_queue(pf, pf->key[arrow[start].key].start, arrow[i].key);
    }
}

void pf_link(struct pf *pf)
{
    if (pf->arrows) qsort(pf->arrow, pf->arrows, sizeof *pf->arrow, by_id);
    for (size_t i = 0, next; i < pf->arrows; i = next) {
        for (next = i + 1; next < pf->arrows && pf->arrow[next].id == pf->arrow[i].id;) next++;
        link_group(pf, &pf->arrow[i], next - i);
    }
}

/* ---- counters ---- */

/* Returns the counter of an allocator's total. */
static uint32_t total_of(struct pf *pf, const char *total, int64_t type, int64_t device)
{
    uint64_t key = hash_numbers(hash_numbers((uint64_t)type, (uint64_t)device), (uint64_t)*total);
    uint32_t track = map_get(&pf->totals, key);
    if (track != MAP_NONE) return track;
    char *name = type == 0 ? string_format("memory %s, CPU", total)
                           : string_format("memory %s, GPU %lld", total, (long long)device);
    track = pf_counter(pf, pf_main_group(pf), name, true);
    map_put(&pf->totals, key, track);
    free(name);
    return track;
}

void pf_take_memory(struct pf *pf, const struct event *event)
{
    static const char *const totals[][2] = {{"Total Allocated", "allocated"}, {"Total Reserved", "reserved"}};
    int64_t type, device, value;
    if (!value_int(event_argument(event, "Device Type"), &type) ||
        !value_int(event_argument(event, "Device Id"), &device))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(totals); i++)
        if (value_int(event_argument(event, totals[i][0]), &value))
            add_sample(pf, (struct pf_sample){
                               .time = event->ts, .value = value, .track = total_of(pf, totals[i][1], type, device)});
}

/* Sets the value of a sample; false if the value has no number. */
static bool set_value(struct pf_sample *sample, const struct value *value)
{
    struct number number;
    if (value->kind != VALUE_JSON) {
        sample->is_real = !value_int(value, &sample->value);
        sample->real = value_real(value);
        return !isnan(sample->real);
    }
    json_number(value->text.at, 0, &number);
    char *digits = mem_text(value->text.at, value->text.length);
    sample->is_real = number.state != NUMBER_GOOD || number.is_float || number.magnitude > INT64_MAX;
    sample->value = number.negative ? -(int64_t)number.magnitude : (int64_t)number.magnitude;
    sample->real = strtod(digits + (*digits == '"'), NULL);
    free(digits);
    return number.state != NUMBER_NONE;
}

/* Each argument is a series. */
void pf_take_counter(struct pf *pf, const struct event *event)
{
    for (const struct value *value = event->argument; value < event->argument + event->arguments; value++) {
        struct pf_sample sample = {.time = event->ts};
        if (!value->has_key || !set_value(&sample, value)) continue;
        char *name =
            string_format("%.*s %.*s", (int)MIN(event->name.length, 1000), event->name.at ? event->name.at : "",
                          (int)MIN(value->key.length, 1000), value->key.at);
        sample.track = pf_counter(pf, pf_main_group(pf), name, false);
        add_sample(pf, sample);
        free(name);
    }
}

static int by_sample_time(const void *a, const void *b)
{
    const struct pf_sample *x = a, *y = b;
    if (x->time != y->time) return by_number(x->time, y->time);
    return (x->order > y->order) - (x->order < y->order);
}

/* Sorts the samples and turns changes into values. Several changes of a counter at one moment become one, the last. */
void pf_sort_samples(struct pf *pf)
{
    size_t kept = 0;
    if (pf->samples) qsort(pf->sample, pf->samples, sizeof *pf->sample, by_sample_time);
    for (size_t i = 0; i < pf->samples; i++) {
        struct pf_sample *sample = &pf->sample[i];
        struct pf_track *track = &pf->track[sample->track];
        if (sample->is_change) {
            sample->value = track->depth_now += sample->value;
            if (track->sample && pf->sample[track->sample - 1].time == sample->time) {
                pf->sample[track->sample - 1].value = sample->value;
                continue;
            }
            track->sample = kept + 1;
        }
        pf->sample[kept++] = *sample;
    }
    pf->samples = kept;
}
