/* stragglers_causes.c - prints causes: in JSON as lists in the totals, in text as lines below them. */
#include "commands/ranks/stragglers_causes.h"

#include <math.h>

#include <string.h>

#include "base/escape.h"
#include "commands/ranks/comm.h"

enum { SHOWN_RANKS = 8 };

/* What a line of text says of a cause. */
static const char *const cause_words[NR_CAUSE_KINDS] = {
    [CAUSE_SLOW_GPU] = "kernels take %.1f %% longer than the same ones on other ranks",
    [CAUSE_LATE_HOST] = "all its devices wait for the host, in each step",
    [CAUSE_LATE_PROCESS] = "its device waits for the process, in each step",
    [CAUSE_SLOW_LINK] = "transfers take %.1f %% longer than the same ones between other ranks",
    [CAUSE_SLOW_HOST_LINK] = "copies between host and device take %.1f %% longer than the same ones of other ranks",
};

/* Returns the number of the host, or the rack, of one of the cause's ranks. */
static uint32_t place_number(const struct places *places, const struct cause *cause, size_t i, bool of_host)
{
    const struct place_of_rank *place = places_find(places, cause->rank[i]);
    return !place ? PLACE_UNKNOWN : of_host ? place->host : place->rack;
}

/* True if an earlier rank of the cause is in the same place, or the place is unknown. */
static bool is_told(const struct places *places, const struct cause *cause, size_t at, bool of_host)
{
    uint32_t number = place_number(places, cause, at, of_host);
    bool told = number == PLACE_UNKNOWN;
    for (size_t i = 0; i < at && !told; i++) told = place_number(places, cause, i, of_host) == number;
    return told;
}

/* ---- JSON ---- */

static void emit_places(struct emit *e, const char *key, const struct places *places, const struct cause *cause,
                        bool of_host)
{
    emit_open(e, key, true);
    for (size_t i = 0; i < cause->ranks; i++)
        if (!is_told(places, cause, i, of_host))
            emit_text(e, NULL, places_name(places, place_number(places, cause, i, of_host)));
    emit_close(e);
}

static void emit_cause(struct emit *e, const struct cause *cause, const struct places *places)
{
    emit_open(e, NULL, false);
    emit_text(e, "cause", cause_names[cause->kind]);
    emit_open(e, "ranks", true);
    for (size_t i = 0; i < cause->ranks; i++) emit_int(e, NULL, cause->rank[i]);
    emit_close(e);
    emit_places(e, "hosts", places, cause, true);
    emit_places(e, "racks", places, cause, false);
    emit_pct(e, "slower_pct", 100 * cause->slower);
    emit_time(e, "late_us", cause->late);
    emit_count(e, "compared", cause->compared);
    emit_close(e);
}

void emit_causes(struct emit *e, const struct causes *causes, const struct places *places)
{
    if (e->format != FORMAT_JSON) return;
    emit_open(e, "causes", true);
    for (size_t i = 0; i < causes->count; i++) emit_cause(e, &causes->cause[i], places);
    emit_close(e);
    emit_open(e, "not_judged", true);
    for (size_t i = 0; i < causes->not_judgeds; i++) {
        const struct not_a_cause *n = &causes->not_judged[i];
        emit_open(e, NULL, false);
        emit_text(e, "what", cause_names[n->kind]);
        emit_text(e, "why", n->why);
        emit_text(e, "how", n->how);
        emit_close(e);
    }
    emit_close(e);
}

/* ---- text ---- */

static void print_places(struct text *line, const struct places *places, const struct cause *cause, bool of_host)
{
    size_t shown = 0;
    for (size_t i = 0; i < cause->ranks; i++) {
        if (is_told(places, cause, i, of_host)) continue;
        const char *name = places_name(places, place_number(places, cause, i, of_host));
        text_puts(line, shown++ ? ", " : of_host ? " on " : " in ");
        text_visible(line, name, strlen(name));
    }
}

static void print_cause(struct out *out, const struct cause *cause, const struct places *places)
{
    struct text line = {0};
    text_format(&line, "%s: rank%s ", cause_names[cause->kind], cause->ranks > 1 ? "s" : "");
    for (size_t i = 0; i < MIN(cause->ranks, (size_t)SHOWN_RANKS); i++)
        text_format(&line, "%s%lld", i ? ", " : "", (long long)cause->rank[i]);
    if (cause->ranks > SHOWN_RANKS) text_format(&line, " and %zu more", cause->ranks - SHOWN_RANKS);
    print_places(&line, places, cause, true);
    print_places(&line, places, cause, false);
    text_puts(&line, ": ");
    if (cause->late == UNKNOWN_TIME) {
        text_format(&line, cause_words[cause->kind], 100 * cause->slower);
    } else {
        human_time(&line, cause->late);
        text_format(&line, " late: %s", cause_words[cause->kind]);
    }
    out_format(out, "%s\n", line.data);
    text_free(&line);
}

void print_causes(struct out *out, const struct causes *causes, const struct places *places)
{
    for (size_t i = 0; i < causes->count; i++) print_cause(out, &causes->cause[i], places);
    for (size_t i = 0; i < causes->not_judgeds; i++) {
        const struct not_a_cause *n = &causes->not_judged[i];
        bool goes_on = i + 1 < causes->not_judgeds && n[1].why == n->why;
        if (goes_on) out_format(out, "%s, ", cause_names[n->kind]);
        else out_format(out, "%s not judged: %s; %s\n", cause_names[n->kind], n->why, n->how);
    }
}
