/* cupti_config.c - a simulated CUPTI: the settings from the environment.
 *
 * SIMCUPTI_VERSION            12.0 … 13.5 (default by the library's name: 12.8 or 13.0): sizes of records, version
 *                             number, existing functions and callback ids; 13.0 is its first update, 13.0.0 the
 *                             release before
 * SIMCUPTI_NASTY              list of name or name=value, of cupti_nasty.def: late,zero=5,names
 * SIMCUPTI_FAIL               function=CUPTI_ERROR_…[:after N][:times M], separated by commas; a number is an error, too
 * SIMCUPTI_LACK               functions that are missing from the library
 * SIMCUPTI_FIRST_CORRELATION  the id of the first API call, default 1; ids wrap at 2^32
 * SIMCUPTI_STATS              a file for one JSON line at exit: counts of records written, spoiled, dropped and kept
 *
 * Some behaviour of CUPTI needs no switch. There is one subscriber slot. The last cuptiActivityRegisterCallbacks wins
 * silently, also for buffers requested before. A timestamp callback changes the unit of every client's records. A
 * buffer comes back when it is full or flushed. With 13.x every thread has a buffer of its own. A refused buffer drops
 * the record, and from 12.9 on the STATE domain reports it. Records come in no order.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cupti_sim.h"

/* Marks the simulated CUPTI, which works on the simulated driver only. */
__attribute__((visibility("default"))) const char simgpu_cupti = 1;

static const struct {
    const char *name;
    unsigned value;
} nasties[] = {
#define NASTY(name, value, what) {#name, value},
#include "cupti_nasty.def"
#undef NASTY
};
static const struct {
    const char *name;
    CUptiResult value;
} results[] = {
#define DRIVER_CBID(name, value)
#define RUNTIME_CBID(name, value)
#define RESULT(name, value) {#name, (CUptiResult)(value)},
#include "cupti_cbids.h"
#undef DRIVER_CBID
#undef RUNTIME_CBID
#undef RESULT
};
/* From each release's headers: the version number, and the first callback ids beyond the release's, runtime and driver.
 * 12.7 was never published. */
static const struct {
    unsigned version;
    uint32_t number, cbids[2];
} versions[] = {{1200, 18, {445, 701}},     {1201, 18, {445, 712}},     {1202, 20, {451, 718}},
                {1203, 21, {465, 733}},     {1204, 22, {468, 754}},     {1205, 23, {470, 761}},
                {1206, 24, {480, 763}},     {1208, 26, {487, 782}},     {1209, 28, {487, 784}},
                {1300, 130001, {523, 807}}, {1301, 130101, {550, 846}}, {1302, 130202, {559, 846}},
                {1303, 130301, {559, 860}}, {1304, 130401, {566, 868}}, {1305, 130500, {567, 877}}};

static struct failure {
    char *function;
    CUptiResult result;
    long after, times;
} * failures;
static size_t nr_failures;
static struct sim_config config;
static bool inherited;

/* Bypasses stdio and write(): a profiler that wraps them would record the message as the program's. */
void sim_say(const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n > 0) syscall(SYS_write, 2, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void *sim_resize(void *array, size_t bytes)
{
    return realloc(array, bytes);
}

const char *sim_result_name(CUptiResult result)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].value == result) return results[i].name;
    return NULL;
}

static CUptiResult result_of(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (strncmp(results[i].name, text, length) == 0 && !results[i].name[length]) return results[i].value;
    long number = strtol(text, NULL, 0);
    if (number == 0) sim_say("simcupti: SIMCUPTI_FAIL: unknown result: %.*s\n", (int)length, text);
    return number ? (CUptiResult)number : CUPTI_ERROR_UNKNOWN;
}

static void parse_nasties(const char *list)
{
    char *copy = strdup(list), *next;
    for (char *item = strtok_r(copy, ", ", &next); item; item = strtok_r(NULL, ", ", &next)) {
        char *equal = strchr(item, '=');
        size_t i = 0;
        if (equal) *equal = 0;
        while (i < NR_NASTIES && strcmp(nasties[i].name, item) != 0) i++;
        if (i == NR_NASTIES) sim_say("simcupti: SIMCUPTI_NASTY: unknown switch: %s\n", item);
        else config.nasty[i] = equal ? (unsigned)strtoul(equal + 1, NULL, 0) : nasties[i].value;
    }
    free(copy);
}

static void parse_failures(const char *list)
{
    char *copy = strdup(list), *next;
    for (char *item = strtok_r(copy, ",;", &next); item; item = strtok_r(NULL, ",;", &next)) {
        char *equal = strchr(item, '='), *option;
        if (!equal) continue;
        *equal++ = 0;
        struct failure f = {.function = strdup(item), .result = result_of(equal, strcspn(equal, ":")), .times = -1};
        if ((option = strstr(equal, ":after "))) f.after = strtol(option + 7, NULL, 0);
        if ((option = strstr(equal, ":times "))) f.times = strtol(option + 7, NULL, 0);
        failures = sim_resize(failures, (nr_failures + 1) * sizeof *failures);
        failures[nr_failures++] = f;
    }
    free(copy);
}

static void parse_version(const char *text)
{
    unsigned major = 13, minor = 0, update = 1;
    if (sim_is_12()) major = 12, minor = 8;
    if (text && *text) sscanf(text, "%u.%u.%u", &major, &minor, &update);
    config.version = major * 100 + minor;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        if (versions[i].version != config.version) continue;
        config.api_version = versions[i].number;
        config.cbids[SIMGPU_RUNTIME] = versions[i].cbids[0];
        config.cbids[SIMGPU_DRIVER] = versions[i].cbids[1];
    }
    if (config.version == 1300 && update == 0) config.api_version = 130000;
    if (config.api_version) return;
    sim_say("simcupti: SIMCUPTI_VERSION: %s is not simulated, using 13.0\n", text);
    parse_version("13.0");
}

static void in_child(void)
{
    inherited = true;
}

static void configure(void)
{
    const char *nasty = getenv("SIMCUPTI_NASTY"), *fail = getenv("SIMCUPTI_FAIL");
    const char *first = getenv("SIMCUPTI_FIRST_CORRELATION");
    parse_version(getenv("SIMCUPTI_VERSION"));
    if (nasty) parse_nasties(nasty);
    if (fail) parse_failures(fail);
    if (first && *first) config.correlation_offset = (uint32_t)strtoul(first, NULL, 0) - 1;
    sim_thread_buffers = config.version >= 1300;
    pthread_atfork(NULL, NULL, in_child);
}

const struct sim_config *sim_config(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
    return &config;
}

bool sim_inherited(void)
{
    return inherited;
}

CUptiResult sim_enter(const char *function)
{
    sim_config();
    sim_trap_driverless();
    if (inherited && strncmp(function, "cuptiGet", 8) != 0) return CUPTI_ERROR_NOT_INITIALIZED;
    for (size_t i = 0; i < nr_failures; i++) {
        struct failure *f = &failures[i];
        if (strcmp(f->function, function) != 0) continue;
        if (__atomic_sub_fetch(&f->after, 1, __ATOMIC_RELAXED) >= 0) continue;
        if (f->times < 0 || __atomic_sub_fetch(&f->times, 1, __ATOMIC_RELAXED) >= 0) return f->result;
    }
    return CUPTI_SUCCESS;
}
