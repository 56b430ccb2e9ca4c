/* kineto_rules.c - counts what breaks the rules of torch's validator. No answer is wrong for it by itself: `info` lists it. */
#include "model/health/kineto_rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sets/sort.h"

/* ---- taking ---- */

static void add_ruled(struct ruled_list *list, uint64_t key, const struct kineto_event *event)
{
    list->item = mem_grow(list->item, &list->capacity, list->count + 1, sizeof *list->item);
    list->item[list->count++] = (struct ruled){key, event->ts, event->ts + event->dur};
}

static uint64_t stream_of(const struct kineto_event *event)
{
    return hash_numbers(event->has & HAS_DEVICE ? (uint64_t)event->device : NO_ID,
                        event->has & HAS_STREAM ? (uint64_t)event->stream : NO_ID);
}

static void take_sync(struct kineto_rules *rules, const struct kineto_event *event)
{
    struct slice kind = event->args.at ? json_member(event->args, "cuda_sync_kind") : (struct slice){0};
    bool waits = slice_is(kind, "\"Stream Wait Event\"");
    int64_t record = -1;
    if (slice_is(kind, "\"Stream Sync\"")) add_ruled(&rules->sync, stream_of(event), event);
    if (!waits && !slice_is(kind, "\"Event Sync\"")) return;
    json_int(json_member(event->args, "wait_on_cuda_event_record_corr_id"), &record);
    rules->waits++;
    rules->unnamed += record < 0;
    if (waits && record >= 0) add_ruled(&rules->wait, (uint64_t)record, event);
}

static void take_record(struct kineto_rules *rules, const struct kineto_event *event)
{
    static const char *const names[] = {"cudaEventRecord", "cuEventRecord"}; /* torch knows the first one alone */
    bool is_record = false;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t length = strlen(names[i]);
        is_record |= event->name.length >= length && memcmp(event->name.at, names[i], length) == 0;
    }
    if (!is_record) return;
    if (event->has & HAS_CORRELATION) add_ruled(&rules->record, event->correlation, event);
    if (event->has & HAS_EXTERNAL) add_ruled(&rules->record, event->external, event);
}

static void take_description(struct kineto_rules *rules, const struct kineto_event *event)
{
    static const char *const parts[] = {"Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size"};
    bool whole = event->args.at != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(parts) && whole; i++) whole = json_member(event->args, parts[i]).at != NULL;
    rules->calls++;
    rules->undescribed += !whole;
}

static void take_backward(struct kineto_rules *rules, const struct kineto_event *event)
{
    static const char prefix[] = "autograd::engine::evaluate_function:";
    int64_t sequence;
    if (event->name.length < sizeof prefix || memcmp(event->name.at, prefix, sizeof prefix - 1) != 0) return;
    if (!event->args.at || !json_int(json_member(event->args, "Sequence number"), &sequence) || !sequence) return;
    uint32_t name = (uint32_t)hash_text(event->name.at, event->name.length) >> 1;
    uint32_t before = map_get(&rules->name_of, (uint64_t)sequence);
    if (before == MAP_NONE) map_put(&rules->name_of, (uint64_t)sequence, name);
    else if (before != name) map_put(&rules->shared, (uint64_t)sequence, 1);
}

void rules_take(struct kineto_rules *rules, const struct kineto_event *event, enum event_class event_class)
{
    if (event_class == CLASS_SYNC) take_sync(rules, event);
    if (event_class == CLASS_KERNEL) add_ruled(&rules->kernel, stream_of(event), event);
    if (event_class == CLASS_API) take_record(rules, event);
    if (event_class != CLASS_OPERATOR) return;
    if (slice_is(event->name, "record_param_comms")) take_description(rules, event);
    else take_backward(rules, event);
}

/* ---- the whole ---- */

static int by_key_and_start(const void *a, const void *b)
{
    const struct ruled *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : by_number(x->start, y->start);
}

static void sort_ruled(struct ruled_list *list)
{
    sort_items(list->item, list->count, sizeof *list->item, by_key_and_start);
}

/* Returns the first entry that is not before (key, start); list->count: none. */
static size_t ruled_at(const struct ruled_list *list, uint64_t key, int64_t start)
{
    size_t low = 0, high = list->count;
    const struct ruled wanted = {key, start, 0};
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_key_and_start(&list->item[middle], &wanted) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Counts the waits whose record is later, or in no trace. */
static uint64_t count_unfounded(const struct kineto_rules *rules)
{
    uint64_t count = 0;
    for (size_t i = 0; i < rules->wait.count; i++) {
        const struct ruled *wait = &rules->wait.item[i];
        size_t at = ruled_at(&rules->record, wait->key, INT64_MIN);
        const struct ruled *record = at < rules->record.count ? &rules->record.item[at] : NULL;
        count += !record || record->key != wait->key || record->start > wait->start;
    }
    return count;
}

/* Counts the waits for a stream that begin while its kernel runs. */
static uint64_t count_overlaps(const struct kineto_rules *rules)
{
    uint64_t count = 0;
    for (size_t i = 0; i < rules->sync.count; i++) {
        const struct ruled *sync = &rules->sync.item[i];
        size_t at = ruled_at(&rules->kernel, sync->key, sync->start);
        const struct ruled *before = at ? &rules->kernel.item[at - 1] : NULL;
        count += before && before->key == sync->key && before->end > sync->start;
    }
    return count;
}

void rules_conclude(struct kineto_rules *rules, struct doubts *health)
{
    if (rules->wait.count) sort_ruled(&rules->record);
    if (rules->sync.count) sort_ruled(&rules->kernel);
    health->doubt[DOUBT_UNNAMED_WAITS] = (struct doubt){rules->unnamed, rules->waits, 0, true};
    health->doubt[DOUBT_UNFOUNDED_WAITS] = (struct doubt){count_unfounded(rules), rules->wait.count, 0, true};
    health->doubt[DOUBT_EARLY_SYNCS] = (struct doubt){count_overlaps(rules), rules->sync.count, 0, true};
    health->doubt[DOUBT_UNDESCRIBED] = (struct doubt){rules->undescribed, rules->calls, 0, true};
    health->doubt[DOUBT_SHARED_SEQUENCES] = (struct doubt){rules->shared.count, rules->name_of.count, 0, true};
}

void rules_free(struct kineto_rules *rules)
{
    free(rules->wait.item);
    free(rules->record.item);
    free(rules->kernel.item);
    free(rules->sync.item);
    map_free(&rules->name_of);
    map_free(&rules->shared);
    *rules = (struct kineto_rules){0};
}
