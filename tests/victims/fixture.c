/* fixture.c - a small pipeline that logs what a trace of it must contain: fixture LOG whole|killed.
 *
 * It uses what the first version of the format records: nested and crossing ranges, recursion, ranges that another
 * thread ends, marks, categories, colours, payloads, names of threads, calls. The log is JSON, with readings of the
 * clock just outside and just inside of each event. tests/data/ holds such logs with traces that must stay readable for
 * ever. `killed` ends by SIGKILL: ranges are open, one thread is inside a call, and one thread's records are already in
 * the .tfr.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#include "dummy.h"

static FILE *log_file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvtxDomainHandle_t domain;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static unsigned tid(void)
{
    return (unsigned)syscall(SYS_gettid);
}

static void note(const char *format, ...)
{
    static const char *separator = "[\n ";
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&lock);
    fputs(separator, log_file);
    vfprintf(log_file, format, list);
    separator = ",\n ";
    pthread_mutex_unlock(&lock);
    va_end(list);
}

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* ---- ranges ---- */

struct range {
    const char *name, *domain;
    unsigned tid;
    int depth; /* -1: started, not pushed */
    uint64_t id, before, after;
};

static nvtxEventAttributes_t event(const char *text, unsigned category, unsigned color)
{
    nvtxEventAttributes_t a = {0};
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = text;
    a.category = category;
    a.colorType = color ? NVTX_COLOR_ARGB : NVTX_COLOR_UNKNOWN;
    a.color = color;
    return a;
}

/* Pushes into `domain`; into the default one if `in` is NULL. A `payload` of 0 is none. */
static struct range push(const char *name, const char *in, unsigned category, unsigned color, int64_t payload)
{
    nvtxEventAttributes_t a = event(name, category, color);
    a.payloadType = payload ? NVTX_PAYLOAD_TYPE_INT64 : NVTX_PAYLOAD_UNKNOWN;
    a.payload.llValue = payload;
    struct range r = {.name = name, .domain = in ? in : "", .tid = tid(), .before = now()};
    r.depth = in ? nvtxDomainRangePushEx(domain, &a) : nvtxRangePushEx(&a);
    r.after = now();
    note("{\"kind\": \"range_begin\", \"name\": \"%s\", \"domain\": \"%s\", \"tid\": %u, \"depth\": %d, \"category\": "
         "%u, "
         "\"color\": %u, \"payload\": %" PRId64 ", \"between\": [%" PRIu64 ", %" PRIu64 "]}",
         name, r.domain, r.tid, r.depth, category, color, payload, r.before, r.after);
    return r;
}

static void said_end(const struct range *r, uint64_t before)
{
    note("{\"kind\": \"range_end\", \"name\": \"%s\", \"domain\": \"%s\", \"tid\": %u, \"opener\": %u, \"depth\": %d, "
         "\"between\": [%" PRIu64 ", %" PRIu64 "], \"begun\": [%" PRIu64 ", %" PRIu64 "]}",
         r->name, r->domain, tid(), r->tid, r->depth, before, now(), r->before, r->after);
}

static void pop(const struct range *r)
{
    uint64_t before = now();
    if (*r->domain) nvtxDomainRangePop(domain);
    else nvtxRangePop();
    said_end(r, before);
}

static struct range start(const char *name)
{
    struct range r = {.name = name, .domain = "", .tid = tid(), .depth = -1, .before = now()};
    r.id = nvtxRangeStartA(name);
    r.after = now();
    note("{\"kind\": \"range_begin\", \"name\": \"%s\", \"domain\": \"\", \"tid\": %u, \"depth\": -1, \"category\": 0, "
         "\"color\": 0, \"payload\": 0, \"between\": [%" PRIu64 ", %" PRIu64 "]}",
         name, r.tid, r.before, r.after);
    return r;
}

static void end(const struct range *r)
{
    uint64_t before = now();
    nvtxRangeEnd(r->id);
    said_end(r, before);
}

static void mark(const char *name, unsigned category, unsigned color, double payload)
{
    nvtxEventAttributes_t a = event(name, category, color);
    a.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    a.payload.dValue = payload;
    uint64_t before = now();
    nvtxDomainMarkEx(domain, &a);
    note("{\"kind\": \"mark\", \"name\": \"%s\", \"domain\": \"pipeline\", \"tid\": %u, \"category\": %u, \"color\": "
         "%u, "
         "\"payload\": %g, \"between\": [%" PRIu64 ", %" PRIu64 "]}",
         name, tid(), category, color, payload, before, now());
}

/* ---- calls ---- */

static void said_call(const char *name, uint64_t before, int64_t result, int error, const char *args)
{
    note("{\"kind\": \"call\", \"name\": \"%s\", \"tid\": %u, \"result\": %" PRId64 ", \"error\": %d, \"args\": {%s}, "
         "\"between\": [%" PRIu64 ", %" PRIu64 "]}",
         name, tid(), result, error, args, before, now());
}

static void add(long x)
{
    char args[64];
    errno = 0;
    uint64_t before = now();
    long result = dummy_add(x);
    snprintf(args, sizeof args, "\"x\": %ld", x);
    said_call("dummy_add", before, result, errno, args);
}

static void other_calls(void)
{
    uint64_t out, before = now();
    errno = 0;
    int result = dummy_fail(11, -5);
    said_call("dummy_fail", before, result, errno, "\"error\": 11, \"result\": -5");
    errno = 0;
    before = now();
    dummy_store(&out, 77);
    said_call("dummy_store", before, 0, errno, "\"stored\": 77, \"x\": 77");
    before = now();
    dummy_many(-1, INT64_MIN, NULL, NULL, 4096, 171);
    said_call("dummy_many", before, 0, errno, "\"a\": -1, \"b\": -9223372036854775808, \"e\": 4096, \"f\": 171");
}

/* ---- the pipeline ---- */

static void load(void)
{
    struct range whole = push("load", NULL, 3, 0xff102030, -9);
    mark("first", 7, 0xff00ff00, 0.25);
    struct range tokens = push("tokens", "pipeline", 7, 0, 0);
    struct range encode = push("encode", NULL, 0, 0, 0);
    add(41);
    pause_ms(2);
    pop(&tokens); /* the two ranges cross */
    other_calls();
    pop(&encode);
    pop(&whole);
}

static void recurse(int levels)
{
    struct range step = push("step", NULL, 0, 0, 0);
    pause_ms(1);
    if (levels > 1) recurse(levels - 1);
    pop(&step);
}

static void *work(void *upload)
{
    pthread_setname_np(pthread_self(), "worker");
    note("{\"kind\": \"thread\", \"tid\": %u, \"name\": \"worker\"}", tid());
    for (int i = 0; i < 3; i++) {
        struct range denoise = push("denoise", NULL, 0, 0, i + 1);
        for (int k = 0; k < 6; k++) add(100 * i + k);
        pause_ms(1);
        pop(&denoise);
    }
    end(upload);
    return NULL;
}

static void *hang(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "hangs");
    note("{\"kind\": \"thread\", \"tid\": %u, \"name\": \"hangs\"}", tid());
    push("waiting", NULL, 0, 0, 0);
    note("{\"kind\": \"never_returned\", \"name\": \"dummy_sleep\", \"tid\": %u}", tid());
    dummy_sleep(100000);
    return NULL;
}

static void killed(void)
{
    pthread_t thread;
    pause_ms(200); /* the library writes the worker's records to the .tfr */
    pthread_create(&thread, NULL, hang, NULL);
    pause_ms(50);
    push("decode", NULL, 0, 0, 0);
    push("frame", NULL, 0, 0xff0000ff, 5);
    start("save");
    mark("last", 7, 0, -1.5);
    add(2026);
    note("{\"kind\": \"end\", \"reason\": \"killed\"}\n]\n");
    fflush(log_file);
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    log_file = argc == 3 ? fopen(argv[1], "w") : NULL;
    if (!log_file) return 2;
    note("{\"kind\": \"process\", \"pid\": %d, \"between\": [%" PRIu64 ", 0]}", (int)getpid(), now());
    note("{\"kind\": \"thread\", \"tid\": %u, \"name\": \"pipeline thread\"}", tid());
    domain = nvtxDomainCreateA("pipeline");
    nvtxNameOsThreadA(tid(), "pipeline thread");
    nvtxDomainNameCategoryA(domain, 7, "frames");
    nvtxNameCategoryA(3, "files");
    note("{\"kind\": \"category\", \"domain\": \"pipeline\", \"category\": 7, \"name\": \"frames\"}");
    note("{\"kind\": \"category\", \"domain\": \"\", \"category\": 3, \"name\": \"files\"}");
    load();
    recurse(3);
    struct range upload = start("upload");
    pthread_create(&thread, NULL, work, &upload);
    pthread_join(thread, NULL);
    note("{\"kind\": \"unmatched\", \"returned\": %d}", nvtxRangePop());
    if (strcmp(argv[2], "killed") == 0) killed();
    note("{\"kind\": \"end\", \"reason\": \"exit\"}\n]\n");
    return fclose(log_file) != 0;
}
