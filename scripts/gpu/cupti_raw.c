/* cupti_raw.c - a client of CUPTI that keeps its buffers unchanged, or discards them; gpu-check preloads it.
 *
 *     CUPTI_RAW_LIBRARY=PATH CUPTI_RAW_KINDS=10,1,2 [CUPTI_RAW_OUT=FILE] LD_PRELOAD=libcupti_raw.so program
 *
 *     CUPTI_RAW_CLOCK=before|after|again   registers a timestamp callback before or after the kinds are enabled, or twice
 *     CUPTI_RAW_LATE=KIND                  enables this kind half a second after the first request of a buffer
 *
 * Without FILE it costs as much as CUPTI itself: every profiler on CUPTI costs at least that. FILE begins with a line
 * of JSON about the version that wrote it. A block for each buffer follows: the letter B, three uint32_t (bytes,
 * records, texts), the bytes, {uint32_t offset, kind} of each record, {uint64_t pointer, uint32_t length, bytes} of
 * each text that its records point to. FILE_MAX bounds its size. It shares no code with libtfinject.so: it shows that
 * library's input. Threads: CUPTI requests and returns buffers on any of its threads; one lock guards the file.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include <cupti.h>

#define BUFFER_BYTES (1u << 20)
#define FILE_MAX (8u << 20)
#define FLUSH_MS 1000     /* like the library */
#define KEEP_FLUSH_MS 100 /* if FILE must be complete at the end */

// clang-format off
#define FUNCTIONS(F) \
    F(cuptiActivityEnable) F(cuptiActivityFlushAll) F(cuptiActivityFlushPeriod) F(cuptiActivityGetNextRecord) \
    F(cuptiActivityRegisterCallbacks) F(cuptiActivityRegisterTimestampCallback) F(cuptiGetVersion)
// clang-format on

#define MEMBER(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(MEMBER)
} cupti;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static size_t written;

static void put(const void *data, size_t size)
{
    if (fwrite(data, 1, size, out) == size) written += size;
}

/* Returns the text of a record; NULL if its kind has none. Kernel records have the name at its place since 12.0. */
static const char *text_of(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return ((const CUpti_ActivityKernel9 *)record)->name;
    case CUPTI_ACTIVITY_KIND_NAME: return ((const CUpti_ActivityName *)record)->name;
    default: return NULL;
    }
}

/* The head counts records and texts, so this walks the records once to count, and once for each list. */
static void keep(uint8_t *buffer, size_t valid)
{
    uint32_t head[3] = {(uint32_t)valid, 0, 0};
    CUpti_Activity *record = NULL;
    while (cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        head[1]++;
        if (text_of(record)) head[2]++;
    }
    put("B", 1);
    put(head, sizeof head);
    put(buffer, valid);
    for (record = NULL; cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS;) {
        uint32_t at[2] = {(uint32_t)((uint8_t *)record - buffer), (uint32_t)record->kind};
        put(at, sizeof at);
    }
    for (record = NULL; cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS;) {
        const char *text = text_of(record);
        uint64_t pointer = (uintptr_t)text;
        uint32_t length = text ? (uint32_t)strlen(text) : 0;
        if (!text) continue;
        put(&pointer, sizeof pointer);
        put(&length, sizeof length);
        put(text, length);
    }
    fflush(out);
}

static void at_end(void)
{
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

static uint64_t CUPTIAPI ticks(void)
{
    return __rdtsc();
}

/* True if a timestamp callback is to be registered at that moment. */
static int clock_at(const char *moment)
{
    const char *asked = getenv("CUPTI_RAW_CLOCK");
    return asked && (strcmp(asked, moment) == 0 || strcmp(asked, "again") == 0);
}

/* CUPTI is not called in its own callbacks. */
static void *late(void *kind)
{
    const struct timespec half = {.tv_nsec = 500000000};
    nanosleep(&half, NULL);
    if (kind) cupti.cuptiActivityEnable((CUpti_ActivityKind)strtoul(kind, NULL, 10));
    else cupti.cuptiActivityRegisterTimestampCallback(ticks);
    return NULL;
}

static void first_request(void)
{
    const char *kind = getenv("CUPTI_RAW_LATE"), *asked = getenv("CUPTI_RAW_CLOCK");
    pthread_t thread;
    atexit(at_end);
    if (kind || (asked && strcmp(asked, "again") == 0)) pthread_create(&thread, NULL, late, (void *)kind);
}

/* The first request comes when the driver works, so the exit handler runs before the driver's own. */
static void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *most)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, first_request);
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

static void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&lock);
    if (out && valid && written + valid < FILE_MAX) keep(buffer, valid);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static int find(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return fprintf(stderr, "cupti_raw: %s\n", dlerror());
#define FIND(name)                                                                                                     \
    *(void **)&cupti.name = dlsym(library, #name);                                                                     \
    if (!cupti.name) return fprintf(stderr, "cupti_raw: no " #name "\n");
    FUNCTIONS(FIND)
    return 0;
}

static void open_file(const char *path, const char *kinds)
{
    uint32_t version = 0;
    cupti.cuptiGetVersion(&version);
    if (path) out = fopen(path, "wb");
    if (out)
        fprintf(out, "{\"format\": \"cupti-raw 1\", \"version\": %u, \"headers\": %u, \"asked_for\": [%s]}\n", version,
                CUPTI_API_VERSION, kinds);
}

/* A refused kind is reported, and the others continue. Programs that this one starts are not profiled. */
__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CUPTI_RAW_LIBRARY"), *kinds = getenv("CUPTI_RAW_KINDS");
    if (!path || !kinds || find(path)) return;
    unsetenv("CUPTI_RAW_LIBRARY");
    open_file(getenv("CUPTI_RAW_OUT"), kinds);
    cupti.cuptiActivityRegisterCallbacks(requested, completed);
    if (clock_at("before")) cupti.cuptiActivityRegisterTimestampCallback(ticks);
    for (const char *k = kinds; *k; k += strcspn(k, ","), k += *k == ',') {
        CUptiResult result = cupti.cuptiActivityEnable((CUpti_ActivityKind)strtoul(k, NULL, 10));
        if (result != CUPTI_SUCCESS)
            fprintf(stderr, "cupti_raw: kind %.*s: error %d\n", (int)strcspn(k, ","), k, (int)result);
    }
    if (clock_at("after")) cupti.cuptiActivityRegisterTimestampCallback(ticks);
    cupti.cuptiActivityFlushPeriod(out ? KEEP_FLUSH_MS : FLUSH_MS);
}
