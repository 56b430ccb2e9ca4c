/* dftracer.c - feeds arbitrary bytes to the reader and the loader of dftracer's traces, and checks the model's
 * invariants. */
#include <string.h>

#include "fuzz.h"
#include "model/load/load_dftracer.h"

/* Counts of a second pass over the events. */
struct seen {
    uint64_t events;
    uint64_t of_class[DFTRACER_OTHER + 1];
};

static void on_event(void *context, const struct dftracer_event *event)
{
    struct seen *seen = context;
    seen->events++;
    require(event->raw.length >= 2 && event->raw.at[0] == '{' && event->raw.at[event->raw.length - 1] == '}',
            "an event is an object");
    require(!memchr(event->raw.at, '\n', event->raw.length), "an event stands in one line");
    require(!event->args.at || (event->args.at > event->raw.at &&
                                event->args.at + event->args.length < event->raw.at + event->raw.length),
            "args lie inside the event");
    for (size_t i = 0; i < NR_DFT_TEXTS; i++)
        require(event->text[i].length <= event->raw.length, "a text is no longer than its event");
    seen->of_class[dftracer_class(event)]++;
}

static void check_ios(const struct process *p, const struct names *names)
{
    const struct ios *ios = &p->ios;
    for (size_t i = 0; i < ios->table.count; i++) {
        require(ios->end[i] >= ios->start[i], "no call ends before it begins");
        require(ios->function[i] < ios->functions && ios->path[i] < names->count, "a call has a function and a path");
        require(find_thread(p, ios->thread[i]), "a call has a thread");
        require(ios->sum[i] == IO_ONE_CALL || ios->sum[i] < ios->sum_count, "sums exist");
    }
}

static void check(const struct process *p, const struct names *names)
{
    uint64_t counted = 0;
    for (size_t i = 0; i < p->kind_count; i++) counted += p->kinds[i].count;
    require(counted == p->events, "the kinds add up to all events");
    for (size_t i = 0; i < p->ranges.table.count; i++) {
        require(p->ranges.end[i] >= p->ranges.start[i], "no stage ends before it begins");
        require(p->ranges.name[i] < names->count, "a stage has a name");
        require(p->ranges.start[i] >= p->first && p->ranges.end[i] <= p->last, "a stage lies in its process");
        require(find_thread(p, p->ranges.thread[i]), "a stage has a thread");
    }
    check_ios(p, names);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct names names;
    struct needs all;
    struct process process;
    struct notes notes = {0}, again = {0};
    struct seen seen = {0};
    struct dftracer_damage damage;
    const struct dftracer_sink sink = {.context = &seen, .event = on_event};
    memset(&all, 0xff, sizeof all);
    names_init(&names);
    process_init(&process, "memory", "dftracer");
    bool usable = load_dftracer_bytes(bytes, size, 1 + size % 61, 1 << 20, &names, all, &process, &notes);
    bool readable = dftracer_read_bytes(bytes, size, 1 << 20, 1 << 20, &sink, &damage, &again);
    require(usable == readable && usable == !notes_have(&notes, UNUSABLE), "an unusable file gives a note");
    require(damage.events == seen.events, "events are counted");
    if (usable) {
        check(&process, &names);
        require(process.events + process.lost == seen.events + damage.bad + damage.cut, "every event is counted");
        require(process.ios.table.count <= seen.of_class[DFTRACER_IO], "calls are events");
        require(!process.lost || notes_have(&notes, LOSS), "a loss gives a note");
    }
    notes_free(&notes);
    notes_free(&again);
    process_free(&process);
    names_free(&names);
    return 0;
}
