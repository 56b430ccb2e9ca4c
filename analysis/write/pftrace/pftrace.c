/* pftrace.c - writes a trace for Perfetto as protobuf: TracePackets with TrackEvents.
 *
 * The events come in the form of a Chrome trace, from our traces and from PyTorch's alike, so both exports agree. Each
 * process is a sequence of packets: its tracks, its texts, then its events by time. Times are differences to the packet
 * before (an incremental clock), and names, categories, argument names and texts are numbers.
 *
 * Beside the Chrome export, for a PyTorch trace of 216,092 events on a busy machine of two cores:
 *
 *                 size    as .gz          CPU time            as .gz    peak memory
 *   pftrace    13.3 MB    2.5 MB    0.36 to 0.47 s    0.43 to 0.61 s          24 MB
 *   chrome     53.3 MB    4.1 MB    0.17 to 0.40 s    0.31 to 0.43 s           9 MB
 *
 * The memory beyond that of the model is that of the events of one process: 32 bytes a key, grown by halves, 48 an
 * arrow, 40 a counter's value. Arguments wait in a temporary file.
 */
#include "write/pftrace/pftrace.h"

#include <stdlib.h>

#include "base/hash.h"
#include "model/load/load_kineto.h"
#include "write/pftrace/parts.h"

enum { CLOCK_REAL = 1, CLOCK_BOOT = 6, CLOCK_OF_SEQUENCE = 64 };

/* ---- packets ---- */

static void put_clock(struct proto *packet, unsigned clock, int64_t time)
{
    size_t place = proto_open(packet, SNAPSHOT_CLOCKS);
    proto_uint(packet, CLOCK_ID, clock);
    proto_uint(packet, CLOCK_TIMESTAMP, (uint64_t)time);
    if (clock == CLOCK_OF_SEQUENCE) proto_uint(packet, CLOCK_IS_INCREMENTAL, true);
    proto_close(packet, place);
}

/* Begins the sequence. Its clock starts at `time`, or at 0 if that is negative: Perfetto has no negative times. The
 * trace's time is the time of day. */
static void write_start(struct pf *pf, int64_t time)
{
    struct proto packet = {0};
    proto_uint(&packet, PACKET_FIRST_ON_SEQUENCE, true);
    proto_uint(&packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_CLEARED);
    size_t place = proto_open(&packet, PACKET_DEFAULTS);
    proto_uint(&packet, PACKET_TIMESTAMP_CLOCK_ID, CLOCK_OF_SEQUENCE);
    proto_close(&packet, place);
    pf_write_packet(pf, &packet);
    packet.length = 0;
    place = proto_open(&packet, PACKET_CLOCK_SNAPSHOT);
    put_clock(&packet, CLOCK_REAL, MAX(time, 0));
    put_clock(&packet, CLOCK_BOOT, MAX(time, 0));
    put_clock(&packet, CLOCK_OF_SEQUENCE, MAX(time, 0));
    proto_uint(&packet, SNAPSHOT_PRIMARY, CLOCK_BOOT);
    proto_close(&packet, place);
    pf_write_packet(pf, &packet);
    free(packet.data);
}

/* ---- taking events ---- */

/* Encodes the event and keeps it. Returns its key. */
static struct pf_key *keep_key(struct pf *pf, const struct event *event, enum pf_key_kind kind, uint32_t track)
{
    struct proto *p = &pf->event;
    p->length = 0;
    if (event->category.at)
        proto_uint(p, EVENT_CATEGORY_IIDS, pf_intern(pf, SPACE_CATEGORY, event->category.at, event->category.length));
    proto_uint(p, EVENT_NAME_IID, pf_intern(pf, SPACE_NAME, event->name.at ? event->name.at : "", event->name.length));
    pf_put_args(pf, event);
    uint32_t length = (uint32_t)p->length;
    uint64_t offset = scratch_add(&pf->scratch, (const char *)&length, sizeof length);
    scratch_add(&pf->scratch, p->data, p->length);
    pf->key = mem_grow(pf->key, &pf->key_capacity, pf->keys + 1, sizeof *pf->key);
    struct pf_key *key = &pf->key[pf->keys++];
    *key = (struct pf_key){.start = event->ts, .end = event->ts, .track = track};
    key->offset = offset & ((UINT64_C(1) << 62) - 1);
    key->kind = (unsigned)kind & 3;
    pf->file->events++;
    return key;
}

static void take_slice(struct pf *pf, const struct event *event)
{
    if (!(event->has & HAS_DUR) || event->dur < 0) return; /* the loader reports these */
    enum event_class event_class = kineto_class(event->category, event->name);
    uint32_t track = pf_row(pf, event, ON_DEVICE(event_class));
    int64_t graph = 0;
    bool is_node = IS_WORK(event_class) && value_int(event_argument(event, "graph id"), &graph) && graph;
    struct pf_key *key = keep_key(pf, event, is_node ? KEY_NODE : IS_WORK(event_class) ? KEY_FLAT : KEY_SLICE, track);
    key->end = add_ns(event->ts, event->dur);
}

static void take_instant(struct pf *pf, const struct event *event)
{
    keep_key(pf, event, KEY_INSTANT, pf_row(pf, event, ON_DEVICE(kineto_class(event->category, event->name))));
    if (event->name.at && slice_is(event->name, "[memory]")) pf_take_memory(pf, event);
}

/* Takes the beginning or the end of an asynchronous event. */
static void take_async(struct pf *pf, const struct event *event)
{
    if (!(event->has & HAS_ID)) return;
    uint32_t track = pf_async(pf, event);
    uint64_t id = hash_numbers(track, event->id);
    uint32_t begun = map_get(&pf->pairs, id);
    if (event->phase == 'b') {
        keep_key(pf, event, KEY_FLAT, track);
        map_put(&pf->pairs, id, (uint32_t)pf->keys - 1);
    } else if (begun != MAP_NONE) {
        pf->key[begun].end = MAX(event->ts, pf->key[begun].start);
        map_remove(&pf->pairs, id);
    }
}

/* Returns an event on the clock of the file, with its arguments apart. */
static struct event taken_event(struct pftrace *file, const struct event *event)
{
    struct event own = *event;
    own.ts = clock_shifted(&file->shift, event->ts);
    if (event->has & HAS_DUR && event->dur >= 0)
        own.dur = add_ns(clock_shifted(&file->shift, add_ns(event->ts, event->dur)), -own.ts);
    event_split(&own, &file->arguments);
    return own;
}

static void take_event(void *context, const struct event *given)
{
    struct pftrace *file = context;
    struct pf *pf = file->pf;
    const struct event own = taken_event(file, given), *event = &own;
    if (event->phase == 'M') pf_describe(pf, event);
    else if (!(event->has & HAS_TS)) return; /* the loader reports these */
    else if (event->phase == 'X') take_slice(pf, event);
    else if (event->phase == 'i' || event->phase == 'I') take_instant(pf, event);
    else if (event->phase == 's' || event->phase == 't' || event->phase == 'f') pf_take_arrow(pf, event);
    else if (event->phase == 'b' || event->phase == 'e') take_async(pf, event);
    else if (event->phase == 'C') pf_take_counter(pf, event);
    else file->unknown++;
}

/* ---- writing events ---- */

struct writing {
    struct pf *pf;
    struct proto packet;
    int64_t time;   /* of the packet before */
    uint32_t *open; /* a heap of the open events: the one that ends next is at the top */
    size_t opens, capacity;
    size_t sample; /* the next sample */
};

static size_t begin_packet(struct writing *w, int64_t time, unsigned type, uint32_t track)
{
    w->packet.length = 0;
    proto_uint(&w->packet, PACKET_TIMESTAMP, (uint64_t)time - (uint64_t)w->time);
    proto_uint(&w->packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_NEEDS_STATE);
    w->time = time;
    size_t place = proto_open(&w->packet, PACKET_TRACK_EVENT);
    proto_uint(&w->packet, EVENT_TYPE, type);
    proto_uint(&w->packet, EVENT_TRACK, w->pf->track[track].uuid);
    return place;
}

static void end_packet(struct writing *w, size_t place)
{
    proto_close(&w->packet, place);
    pf_write_packet(w->pf, &w->packet);
}

/* True if the event ends before the other one. Of events that end together the inner one, which began later, ends
 * first. `a` and `b` are places in the order of the beginnings. */
static bool ends_first(const struct writing *w, uint32_t a, uint32_t b)
{
    const struct pf *pf = w->pf;
    int64_t x = pf->key[pf->order[a]].end, y = pf->key[pf->order[b]].end;
    return x != y ? x < y : a > b;
}

static void push_open(struct writing *w, uint32_t place)
{
    w->open = mem_grow(w->open, &w->capacity, w->opens + 1, sizeof *w->open);
    size_t at = w->opens++;
    for (; at && ends_first(w, place, w->open[(at - 1) / 2]); at = (at - 1) / 2) w->open[at] = w->open[(at - 1) / 2];
    w->open[at] = place;
}

static uint32_t pop_open(struct writing *w)
{
    uint32_t top = w->open[0], place = w->open[--w->opens];
    size_t at = 0, below;
    for (; (below = 2 * at + 1) < w->opens; at = below) {
        below += below + 1 < w->opens && ends_first(w, w->open[below + 1], w->open[below]);
        if (!ends_first(w, w->open[below], place)) break;
        w->open[at] = w->open[below];
    }
    w->open[at] = place;
    return top;
}

static void write_samples(struct writing *w, int64_t until)
{
    struct pf *pf = w->pf;
    for (; w->sample < pf->samples && pf->sample[w->sample].time <= until; w->sample++) {
        const struct pf_sample *sample = &pf->sample[w->sample];
        size_t place = begin_packet(w, sample->time, TYPE_COUNTER, sample->track);
        if (sample->is_real) proto_double(&w->packet, EVENT_DOUBLE_COUNTER_VALUE, sample->real);
        else proto_uint(&w->packet, EVENT_COUNTER_VALUE, (uint64_t)sample->value);
        end_packet(w, place);
    }
}

/* Writes the ends of events, and the samples, up to a time. */
static void write_until(struct writing *w, int64_t until)
{
    const struct pf *pf = w->pf;
    while (w->opens && pf->key[pf->order[w->open[0]]].end <= until) {
        const struct pf_key *key = &pf->key[pf->order[pop_open(w)]];
        write_samples(w, key->end);
        end_packet(w, begin_packet(w, key->end, TYPE_END, key->track));
    }
    write_samples(w, until);
}

static void write_event(struct writing *w, uint32_t at)
{
    struct pf *pf = w->pf;
    const struct pf_key *key = &pf->key[pf->order[at]];
    uint32_t length;
    const char *bytes = scratch_get(&pf->scratch, key->offset, sizeof length);
    if (!bytes) return;
    memcpy(&length, bytes, sizeof length);
    bytes = scratch_get(&pf->scratch, key->offset + sizeof length, length);
    if (!bytes) return;
    write_until(w, key->start);
    size_t place = begin_packet(w, key->start, key->kind == KEY_INSTANT ? TYPE_INSTANT : TYPE_BEGIN, key->track);
    proto_add(&w->packet, bytes, length);
    for (uint32_t i = key->link; i; i = pf->flow[i - 1].next)
        proto_fixed64(&w->packet, pf->flow[i - 1].is_end ? EVENT_TERMINATING_FLOW_IDS : EVENT_FLOW_IDS,
                      pf->flow[i - 1].number);
    end_packet(w, place);
    if (key->kind != KEY_INSTANT) push_open(w, at);
}

static int64_t first_time(const struct pf *pf)
{
    int64_t first = pf->keys ? pf->key[pf->order[0]].start : INT64_MAX;
    if (pf->samples) first = MIN(first, pf->sample[0].time);
    return first == INT64_MAX ? 0 : first;
}

static void write_events(struct pf *pf)
{
    struct writing w = {.pf = pf, .time = first_time(pf)};
    for (size_t i = 0; i < pf->keys; i++) write_event(&w, (uint32_t)i);
    write_until(&w, INT64_MAX);
    free(w.open);
    free(w.packet.data);
}

/* ---- processes ---- */

static void begin_process(void *context, const struct process *process, int64_t pid)
{
    struct pftrace *file = context;
    struct pf *pf = file->pf = mem_zero(1, sizeof *pf);
    pf->file = file;
    pf->process = process;
    pf->knows_queues = !process->stage_times.table.count;
    pf->main_pid = pid;
    names_init(&pf->texts);
    scratch_init(&pf->scratch);
    file->sequences++;
}

static void free_process(struct pf *pf)
{
    pf_tracks_free(pf);
    names_free(&pf->texts);
    scratch_free(&pf->scratch);
    map_free(&pf->totals);
    map_free(&pf->arrow_ids);
    map_free(&pf->pairs);
    text_free(&pf->plain);
    text_free(&pf->utf8);
    free(pf->spaces);
    free(pf->event.data);
    free(pf->key);
    free(pf->order);
    free(pf->arrow);
    free(pf->flow);
    free(pf->sample);
    free(pf);
}

static void end_process(void *context)
{
    struct pftrace *file = context;
    struct pf *pf = file->pf;
    pf_join_streams(pf);
    pf_place(pf);
    pf_link(pf);
    pf_sort_samples(pf);
    write_start(pf, first_time(pf));
    pf_write_tracks(pf);
    pf_write_texts(pf);
    write_events(pf);
    file->failed |= pf->scratch.failed;
    free_process(pf);
    file->pf = NULL;
}

void pftrace_open(struct pftrace *file, struct out *out)
{
    *file = (struct pftrace){.out = out};
}

struct event_taker pftrace_taker(struct pftrace *file)
{
    return (struct event_taker){.context = file, .begin = begin_process, .event = take_event, .end = end_process};
}

void pftrace_close(struct pftrace *file)
{
    map_free(&file->pids);
    event_values_free(&file->arguments);
}
