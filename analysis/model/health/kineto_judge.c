/* kineto_judge.c - judges a Kineto trace. */
#include "model/health/kineto_judge.h"

#include <stdlib.h>
#include <string.h>

#include "base/sets/sort.h"

/* Less than this between a trace and an event beyond it is possible: sessions begin late, and devices work on. */
static const int64_t SLACK_NS = 60000000000;

/* ---- taking ---- */

/* Tells whether a name has a word whose letter at `rare` is rare in names. memmem takes three times as long for each call. */
static bool has_word(struct slice name, const char *word, size_t rare)
{
    size_t length = strlen(word);
    if (name.length < length) return false;
    const char *at = name.at + rare, *last = name.at + name.length - length + rare;
    while (at <= last && (at = memchr(at, word[rare], (size_t)(last - at) + 1))) {
        if (memcmp(at - rare, word, length) == 0) return true;
        at++;
    }
    return false;
}

static void judge_call(struct kineto_judge *judge, const struct kineto_event *event, uint32_t thread)
{
    bool is_launch = has_word(event->name, "LaunchKernel", 6);
    judge->captures += !is_launch && has_word(event->name, "BeginCapture", 5);
    if (!(event->has & HAS_CORRELATION)) return;
    judge->call = mem_grow(judge->call, &judge->call_capacity, judge->calls + 1, sizeof *judge->call);
    judge->call[judge->calls++] =
        (struct call_or_work){event->correlation, event->ts, event->ts + event->dur, thread, is_launch};
}

void judge_take(struct kineto_judge *judge, const struct kineto_event *event, enum event_class event_class,
                uint32_t thread)
{
    judge->zeros += event->ts == 0;
    if (IS_WORK(event_class)) {
        uint64_t correlation = event->has & HAS_CORRELATION ? event->correlation : NO_ID;
        judge->work = mem_grow(judge->work, &judge->work_capacity, judge->works + 1, sizeof *judge->work);
        judge->work[judge->works++] = (struct call_or_work){correlation, event->ts, event->ts + event->dur, 0, false};
    } else if (!ON_DEVICE(event_class) && event_class != CLASS_OTHER && event->ts) {
        int64_t end = event->ts + event->dur;
        judge->first = judge->has_host ? MIN(judge->first, event->ts) : event->ts;
        judge->last = judge->has_host ? MAX(judge->last, end) : end;
        judge->has_host = true;
    }
    if (event_class == CLASS_API) judge_call(judge, event, thread);
}

/* ---- impossible times ---- */

bool judge_limits(const struct kineto_judge *judge, int64_t *not_before, int64_t *not_after)
{
    int64_t first = judge->first, last = judge->last;
    size_t beyond = 0;
    bool has = judge->has_host;
    for (size_t i = 0; i < judge->works && !judge->has_host; i++) { /* a trace of a device alone */
        const struct call_or_work *work = &judge->work[i];
        if (!work->start) continue;
        first = has ? MIN(first, work->start) : work->start;
        last = has ? MAX(last, work->end) : work->end;
        has = true;
    }
    if (!has) return false;
    int64_t slack = MAX(SLACK_NS, last - first);
    *not_before = first - slack;
    *not_after = last + slack;
    for (size_t i = 0; i < judge->works; i++)
        beyond += judge->work[i].start < *not_before || judge->work[i].end > *not_after;
    bool zeros = judge->zeros && *not_before > 0;
    return zeros || (beyond && 2 * beyond < judge->works); /* else the clock of the device is another one */
}

/* ---- launches and works ---- */

static int by_correlation(const void *a, const void *b)
{
    const struct call_or_work *x = a, *y = b;
    return x->correlation != y->correlation ? (x->correlation > y->correlation) - (x->correlation < y->correlation)
                                            : by_number(x->start, y->start);
}

void judge_conclude(struct kineto_judge *judge, struct doubts *health)
{
    struct doubt *lost = &health->doubt[DOUBT_LOST_WORK], *early = &health->doubt[DOUBT_EARLY_WORK],
                 *uncalled = &health->doubt[DOUBT_UNCALLED_WORK];
    sort_items(judge->call, judge->calls, sizeof *judge->call, by_correlation);
    sort_items(judge->work, judge->works, sizeof *judge->work, by_correlation);
    size_t w = 0;
    for (size_t i = 0; i < judge->calls; i++) {
        const struct call_or_work *call = &judge->call[i];
        bool again = i && judge->call[i - 1].correlation == call->correlation;
        while (w < judge->works && judge->work[w].correlation < call->correlation)
            uncalled->count += judge->work[w++].correlation != NO_ID;
        bool met = w < judge->works && judge->work[w].correlation == call->correlation;
        lost->of += call->is_launch && !again;
        lost->count += call->is_launch && !again && !met;
        for (; w < judge->works && judge->work[w].correlation == call->correlation; w++) {
            int64_t by = call->start - judge->work[w].start;
            early->of++;
            early->count += by > 0;
            early->worst = MAX(early->worst, by);
        }
    }
    for (; w < judge->works; w++) uncalled->count += judge->work[w].correlation != NO_ID;
    uncalled->of = judge->works;
    if (!judge->calls) uncalled->count = 0; /* calls were not recorded */
    if (!judge->works || judge->captures) lost->is_minor = true;
    lost->is_minor |= lost->count < 2 || 20 * lost->count < lost->of; /* the edges of a session cut some */
    early->is_minor = early->worst <= 1000;
    uncalled->is_minor = 20 * uncalled->count < uncalled->of;
}

const struct call_or_work *call_of_correlation(const struct kineto_judge *judge, uint64_t correlation)
{
    size_t low = 0, high = judge->calls;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (judge->call[middle].correlation < correlation) low = middle + 1;
        else high = middle;
    }
    return low < judge->calls && judge->call[low].correlation == correlation ? &judge->call[low] : NULL;
}

void judge_free(struct kineto_judge *judge)
{
    free(judge->call);
    free(judge->work);
    *judge = (struct kineto_judge){0};
}
