/* kineto.c - feeds arbitrary bytes to the reader and the loader of Kineto traces, and checks the model's invariants. */
#include <string.h>

#include "fuzz.h"
#include "model/load/load_kineto.h"

/* Counts of a second pass over the events, which sees the file as a query does. */
struct seen {
    uint64_t events;
    size_t table[TABLE_FORWARDS + 1];
};

/* The model is loaded with all_spans: Python functions and overhead become spans, as operators do. */
static enum kineto_table table_of(const struct kineto_event *event, enum event_class event_class)
{
    return kineto_table(event, event_class > CLASS_OTHER ? CLASS_OPERATOR : event_class);
}

static void on_event(void *context, const struct kineto_event *event)
{
    struct seen *seen = context;
    seen->events++;
    require(event->raw.length >= 2 && event->raw.at[0] == '{' && event->raw.at[event->raw.length - 1] == '}',
            "an event is an object");
    require(!event->args.at || (event->args.at > event->raw.at &&
                                event->args.at + event->args.length < event->raw.at + event->raw.length),
            "args lie inside the event");
    require(event->name.length <= event->raw.length && event->category.length <= event->raw.length,
            "a text is no longer than its event");
    enum event_class event_class = kineto_class(event->category, event->name);
    require(event_class < NR_CLASSES, "a class is one of the known ones");
    seen->table[table_of(event, event_class)]++;
}

static void check_times(const int64_t *start, const int64_t *end, size_t count)
{
    for (size_t i = 0; i < count; i++) require(end[i] >= start[i], "nothing ends before it begins");
}

static void check(const struct process *p, const struct names *names)
{
    uint64_t counted = 0;
    for (size_t i = 0; i < p->kind_count; i++) counted += p->kinds[i].count;
    require(counted == p->events, "the kinds add up to all events");
    check_times(p->ranges.start, p->ranges.end, p->ranges.table.count);
    check_times(p->spans.start, p->spans.end, p->spans.table.count);
    check_times(p->works.start, p->works.end, p->works.table.count);
    for (size_t i = 0; i < p->ranges.table.count; i++) {
        require(p->ranges.name[i] < names->count, "a range has a name");
        require(find_thread(p, p->ranges.thread[i]), "a range has a thread");
        require(p->ranges.start[i] >= p->first && p->ranges.end[i] <= p->last, "a range lies in its process");
    }
    for (size_t i = 0; i < p->spans.table.count; i++) {
        const struct thread *thread = find_thread(p, p->spans.thread[i]);
        require(p->spans.name[i] < names->count, "a span has a name");
        require(thread && p->spans.start[i] >= thread->first && p->spans.end[i] <= thread->last,
                "a span lies in its thread");
    }
    for (size_t i = 0; i < p->works.table.count; i++) {
        require(p->works.name[i] < names->count, "a work has a name");
        require(p->works.lane[i] < p->lanes, "a work has a lane");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct names names;
    struct needs all;
    struct process process;
    struct notes notes = {0}, again = {0};
    struct seen seen = {0};
    struct kineto_damage damage;
    const struct kineto_sink sink = {.context = &seen, .event = on_event};
    memset(&all, 0xff, sizeof all);
    names_init(&names);
    process_init(&process, "memory", "kineto");
    const struct kineto_bytes whole = {bytes, size, 1 << 20, 1 << 20}, pieces = {bytes, size, 1 + size % 61, 1 << 20};
    bool usable = load_kineto_bytes(&pieces, &names, all, &process, &notes);
    bool readable = kineto_read_bytes(&whole, &sink, &damage, &again);
    require(usable == readable && usable == !notes_have(&notes, UNUSABLE), "an unusable file gives a note");
    require(damage.events == seen.events, "events are counted");
    if (usable) {
        check(&process, &names);
        require(process.events + process.lost == seen.events + damage.bad + damage.cut, "every event is counted");
        require(seen.table[TABLE_RANGES] == process.ranges.table.count, "the model has the file's ranges");
        require(seen.table[TABLE_SPANS] == process.spans.table.count, "the model has the file's spans");
        require(seen.table[TABLE_WORKS] == process.works.table.count, "the model has the file's work");
        require(seen.table[TABLE_FORWARDS] == process.forwards.table.count, "the model has the file's pairs");
        require(!process.lost || notes_have(&notes, LOSS), "a loss gives a note");
    }
    notes_free(&notes);
    notes_free(&again);
    process_free(&process);
    names_free(&names);
    return 0;
}
