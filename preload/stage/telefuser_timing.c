/* telefuser_timing.c - adds to timing.json the members that only TeleFuser's own file has.
 *
 * These are the last call of each stage, sums since the program's last request began, and the data that the program
 * gave to TeleFuser's registry. TeleFuser keeps one record a call, shows the last one of each name and adds up all of
 * them. Its times are wall time. The rest comes as facts from preload/python/shim/shim_telefuser.py:
 * `telefuser.request_id`, `.began` and `.ended` (CLOCK_REALTIME in nanoseconds), `.metadata` and `.memory` (JSON). If
 * no request was begun the process is the request. A stage has these members only if its last call belongs to the
 * current request.
 */
#include "stage/telefuser_timing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/clock.h"
#include "record/facts.h"
#include "stage/timing.h"

static uint32_t request = 1;
static uint64_t begun; /* ticks at wake, when the process's own request began */
static uint64_t sum;   /* wall time of the request's stages, in ticks */

void tfi_request_add(struct tfi_timing *s, uint64_t wall)
{
    __atomic_store_n(&s->last, wall, __ATOMIC_RELAXED);
    __atomic_store_n(&s->request, __atomic_load_n(&request, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void tfi_request_snapshot(uint32_t name, const struct tfi_memory *memory)
{
    struct tfi_timing *s = tfi_timing_of(name);
    if (s) s->snapshot = *memory;
}

void tfi_request_begin(void)
{
    __atomic_add_fetch(&request, 1, __ATOMIC_RELAXED);
    tfi_timing_begin_request();
}

void tfi_request_restart(void)
{
    begun = tfi_ticks();
}

/* ---- the text ---- */

/* Reads a fact that is a number of nanoseconds; 0 if there is none. */
static uint64_t moment(const char *key)
{
    char digits[32];
    return tfi_fact(key, digits, sizeof digits) ? strtoull(digits, NULL, 10) : 0;
}

static void add_ms(struct tfi_text *text, const char *key, uint64_t ticks)
{
    tfi_text_add(text, "%s", key);
    tfi_text_ms(text, (uint64_t)((double)ticks * tfi_clock_ns_per_tick()));
}

/* Adds a fact that is JSON as a member; `otherwise` is the value if there is none, NULL: no member. */
static void add_json(struct tfi_text *text, const char *key, const char *otherwise)
{
    size_t size = 1u << 16;
    char *value = tfi_map(size), name[64];
    tfi_fmt(name, sizeof name, "telefuser.%s", key);
    bool found = value && tfi_fact(name, value, size) && strcmp(value, "{}") != 0;
    if (found || otherwise) tfi_text_add(text, ",\n  \"%s\": ", key);
    if (found) tfi_text_bytes(text, value, strlen(value));
    else if (otherwise) tfi_text_add(text, "%s", otherwise);
    if (value) tfi_unmap(value, size);
}

/* Adds a date in UTC by ISO 8601. libc's functions would read the time zone's file. Years count from March of year
 * 0. */
static void add_date(struct tfi_text *text, uint64_t seconds)
{
    uint64_t days = seconds / 86400 + 719468, era = days / 146097, day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    uint64_t of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    unsigned parts[] = {(unsigned)(era * 400 + year + (month > 9)),
                        (unsigned)(month < 10 ? month + 3 : month - 9),
                        (unsigned)(of_year - (153 * month + 2) / 5 + 1),
                        (unsigned)(seconds / 3600 % 24),
                        (unsigned)(seconds / 60 % 60),
                        (unsigned)(seconds % 60)};
    tfi_text_add(text, "\"%u", parts[0]);
    for (unsigned i = 1; i < TFI_COUNT(parts); i++)
        tfi_text_add(text, "%c%u%u", "--T::"[i - 1], parts[i] / 10, parts[i] % 10);
    tfi_text_add(text, "+00:00\"");
}

void tfi_request_head(struct tfi_text *text)
{
    uint64_t began = moment("telefuser.began"), ended = moment("telefuser.ended"), now = tfi_realtime_ns();
    uint64_t calls;
    tfi_timing_of_request(&sum, &calls);
    add_json(text, "request_id", "\"\"");
    tfi_text_add(text, ",\n  \"timestamp\": ");
    add_date(text, now / 1000000000);
    tfi_text_add(text, ",\n  \"wall_clock_ms\": ");
    if (began) tfi_text_ms(text, (ended > began ? ended : now) - began);
    else add_ms(text, "", tfi_ticks() - begun);
    add_ms(text, ",\n  \"total_stages_ms\": ", sum);
    tfi_text_add(text, ",\n  \"num_stages\": %lu", (unsigned long)calls);
}

void tfi_request_stage(struct tfi_text *text, const struct tfi_timing *s)
{
    struct tfi_memory memory = s->memory;
    if (s->request == request) {
        unsigned tenths = sum ? (unsigned)((double)s->last * 1000 / (double)sum + 0.5) : 0;
        add_ms(text, ", \"duration_ms\": ", s->last);
        tfi_text_add(text, ", \"percentage\": %u.%u", tenths / 10, tenths % 10);
        if (s->snapshot.known) memory = s->snapshot;
        memory.device = s->memory.known ? s->memory.device : 0;
    }
    tfi_allocator_totals_text(text, &memory);
}

void tfi_request_tail(struct tfi_text *text)
{
    add_json(text, "metadata", "{}");
    add_json(text, "memory", NULL);
}
