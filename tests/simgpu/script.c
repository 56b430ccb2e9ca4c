/* script.c - the cost of work (SIMGPU_SCRIPT) and the calls that fail (SIMGPU_FAIL).
 *
 * A line of the script is `glob cost`; the first that matches counts. A cost is a sum of `time` and `time*unit`, with
 * the units blocks, threads and bytes: `*gemm* 10us + 5ns*blocks`. Copies and sets have the names memcpy_htod,
 * memcpy_dtoh, memcpy_dtod, memcpy_htoh, memcpy_ptop and memset. `latency time` is the time from a submission to the
 * earliest start. All sums are whole picoseconds, rounded down to nanoseconds at the end, so that a test can compute
 * the same values. SIMGPU_FAIL is `symbol=code[:after N][:times M]`, separated by commas: the first N calls pass, M
 * later ones fail.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

struct cost {
    char *glob;
    uint64_t fixed, block, thread, byte; /* picoseconds */
};
struct failure {
    char *symbol;
    int code;
    long after, times;
};
static struct cost *costs;
static size_t nr_costs;
static struct failure *failures;
static size_t nr_failures;
static uint64_t latency = 1000;

static const char standard[] = "memcpy_dtod 1us + 0.001ns*bytes\nmemcpy_* 1us + 0.04ns*bytes\n"
                               "memset 1us + 0.001ns*bytes\n* 2us + 10ns*blocks\n";

/* Parses `12.5us` into picoseconds; `*end` stays `text` if there is no duration. */
static uint64_t duration(const char *text, const char **end)
{
    static const struct {
        const char *name;
        uint64_t ps;
    } units[] = {{"ns", 1000}, {"us", 1000000}, {"ms", 1000000000}, {"s", 1000000000000}};
    uint64_t whole = 0, part = 0, scale = 1;
    const char *c = text;
    if (!isdigit((unsigned char)*c)) return 0;
    for (; isdigit((unsigned char)*c); c++) whole = whole * 10 + (uint64_t)(*c - '0');
    if (*c == '.')
        for (c++; isdigit((unsigned char)*c); c++)
            if (scale < 1000000) part = part * 10 + (uint64_t)(*c - '0'), scale *= 10;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strncmp(c, units[i].name, strlen(units[i].name)) != 0) continue;
        *end = c + strlen(units[i].name);
        return whole * units[i].ps + part * units[i].ps / scale;
    }
    return 0;
}

static bool parse_cost(const char *text, struct cost *cost)
{
    for (;;) {
        const char *end = text += strspn(text, " \t");
        uint64_t ps = duration(text, &end);
        uint64_t *to = &cost->fixed;
        if (end == text) return false;
        if (*end == '*') {
            size_t n = strspn(++end, "abcdefghijklmnopqrstuvwxyz");
            to = strncmp(end, "blocks", n) == 0    ? &cost->block
                 : strncmp(end, "threads", n) == 0 ? &cost->thread
                                                   : &cost->byte;
            end += n;
        }
        *to += ps;
        text = end + strspn(end, " \t\r\n");
        if (!*text) return true;
        if (*text++ != '+') return false;
    }
}

static void parse_line(char *line)
{
    char *name = line + strspn(line, " \t"), *rest = name + strcspn(name, " \t\r\n");
    struct cost cost = {0};
    const char *end;
    if (!*name || *name == '#' || rest == name) return;
    if (*rest) *rest++ = 0;
    if (strcmp(name, "latency") == 0) {
        latency = duration(rest + strspn(rest, " \t"), &end) / 1000;
    } else if (parse_cost(rest, &cost)) {
        cost.glob = strdup(name);
        costs = sim_grow(costs, nr_costs, sizeof *costs);
        costs[nr_costs++] = cost;
    } else {
        sim_say("simgpu: SIMGPU_SCRIPT: invalid line: %s %s\n", name, rest);
    }
}

static void parse_failures(char *text)
{
    char *next;
    for (char *item = strtok_r(text, ",;", &next); item; item = strtok_r(NULL, ",;", &next)) {
        char *equal = strchr(item, '='), *option;
        if (!equal) continue;
        *equal = 0;
        struct failure f = {.symbol = strdup(item), .code = (int)strtol(equal + 1, NULL, 0), .times = -1};
        if ((option = strstr(equal + 1, ":after "))) f.after = strtol(option + 7, NULL, 0);
        if ((option = strstr(equal + 1, ":times "))) f.times = strtol(option + 7, NULL, 0);
        failures = sim_grow(failures, nr_failures, sizeof *failures);
        failures[nr_failures++] = f;
    }
}

void sim_script_load(void)
{
    const char *path = getenv("SIMGPU_SCRIPT"), *fail = getenv("SIMGPU_FAIL");
    char line[1024], *copy, *next;
    FILE *f = path && *path ? fopen(path, "re") : NULL;
    if (path && *path && !f) sim_say("simgpu: SIMGPU_SCRIPT: cannot read %s\n", path);
    while (f && fgets(line, sizeof line, f)) parse_line(line);
    if (f) fclose(f);
    copy = strdup(standard);
    for (char *l = strtok_r(copy, "\n", &next); l; l = strtok_r(NULL, "\n", &next)) parse_line(l);
    free(copy);
    if (!fail) return;
    copy = strdup(fail);
    parse_failures(copy);
    free(copy);
}

uint64_t sim_latency(void)
{
    return latency;
}

/* Returns the first line that matches the name; one always does. */
const struct cost *sim_cost_of(const char *name)
{
    size_t i = 0;
    while (i < nr_costs - 1 && fnmatch(costs[i].glob, name, 0) != 0) i++;
    return &costs[i];
}

uint64_t sim_cost(const struct cost *cost, uint64_t blocks, uint64_t threads, uint64_t bytes)
{
    return (cost->fixed + cost->block * blocks + cost->thread * threads + cost->byte * bytes) / 1000;
}

/* Returns the error that this call has to return at once; 0 if there is none. */
int sim_injected(const char *symbol)
{
    for (size_t i = 0; i < nr_failures; i++) {
        struct failure *f = &failures[i];
        if (strcmp(f->symbol, symbol) != 0) continue;
        if (__atomic_sub_fetch(&f->after, 1, __ATOMIC_RELAXED) >= 0) continue;
        if (f->times < 0 || __atomic_sub_fetch(&f->times, 1, __ATOMIC_RELAXED) >= 0) return f->code;
    }
    return 0;
}
