/* nccl_plugin.c - calls the profiler plugin of this process as an NCCL without manners would.
 *
 * nccl_plugin VERSION: looks ncclProfiler_vVERSION up, prints "none" if there is none, hands over one honest collective,
 * then events without sense, from several threads, in a child, and after the end; prints "ok".
 * Events are bytes at the offsets of the public headers.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/tfinject.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) printf("%d: not so: %s\n", __LINE__, #condition), exit(1);                                   \
    } while (0)

enum { COLLECTIVE = 2, PEER = 4, EVENT_BYTES = 192 };

static int version;
static const struct {
    const char *name;
    void *init;
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*state)(void *, int, void *);
    int (*finalize)(void *);
} * plugin;

static void *init(uint64_t communicator)
{
    void *context = NULL;
    int mask = 0, result;
    if (version == 3) {
        result = ((int (*)(void **, int *))plugin->init)(&context, &mask);
    } else if (version == 4) {
        result = ((int (*)(void **, int *, const char *, uint64_t, int, int, int, void *))plugin->init)(
            &context, &mask, NULL, communicator, 1, 8, 3, NULL);
    } else {
        result = ((int (*)(void **, uint64_t, int *, const char *, int, int, int, void *))plugin->init)(
            &context, communicator, &mask, NULL, 1, 8, 3, NULL);
    }
    EXPECT(result == 0 && context && mask == (COLLECTIVE | PEER));
    return context;
}

static void put(char *event, size_t at, const void *value, size_t size)
{
    memcpy(event + at, value, size);
}

/* Hands over an event; `type` is the element type. */
static void hand(void *context, uint64_t kind, const char *function, const char *type, size_t count,
                 const char *algorithm, uint8_t channels)
{
    char event[EVENT_BYTES] = {0};
    size_t head = version == 3 ? 40 : 24; /* the parts that all versions have begin here */
    int rank = 3, peer = -2;
    void *handle = event;
    if (version < 5) event[0] = (char)kind;
    else put(event, 0, &kind, sizeof kind);
    put(event, 16, &rank, sizeof rank);
    if (kind == PEER) { /* function, buffer, type, count, peer */
        put(event, head, &function, sizeof function);
        put(event, head + 16, &type, sizeof type);
        put(event, head + 24, &count, sizeof count);
        put(event, head + 32, &peer, sizeof peer);
        put(event, head + 36, &channels, sizeof channels);
    } else { /* number, function, send, receive, count, root, type, channels, warps, algorithm, protocol */
        put(event, head + 8, &function, sizeof function);
        put(event, head + 32, &count, sizeof count);
        put(event, head + 48, &type, sizeof type);
        put(event, head + 56, &channels, sizeof channels);
        put(event, head + 57, &channels, sizeof channels);
        put(event, head + 64, &algorithm, sizeof algorithm);
        put(event, head + 72, &algorithm, sizeof algorithm);
    }
    EXPECT(plugin->start(context, &handle, event) == 0 && handle == NULL);
}

static void *storm(void *unused)
{
    for (int i = 0; i < 200; i++) {
        void *context = init((uint64_t)i);
        hand(context, COLLECTIVE, "AllReduce", "ncclFloat32", 10, "TREE", 2);
        EXPECT(plugin->finalize(context) == 0);
    }
    return unused;
}

static void nonsense(void *context)
{
    static const uint64_t kinds[] = {0, 1, 8, 16, 32, 64, 128, 255, 256, 1024, 1u << 20, UINT64_MAX, COLLECTIVE | PEER};
    static char endless[1 << 16];
    void *handle = endless;
    memset(endless, 'x', sizeof endless - 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (version < 5 && kinds[i] > 255) continue; /* one byte: other kinds */
        hand(context, kinds[i], "AllReduce", "ncclFloat32", 10, "TREE", 2);
    }
    EXPECT(plugin->start(context, &handle, NULL) == 0 && plugin->start(NULL, NULL, NULL) == 0);
    EXPECT(plugin->stop(NULL) == 0 && plugin->stop(endless) == 0);
    EXPECT(plugin->state(NULL, -1, NULL) == 0 && plugin->state(endless, 1 << 30, endless) == 0);
    EXPECT(plugin->finalize(NULL) == 0);
    hand(context, COLLECTIVE, NULL, NULL, 10, NULL, 0);
    hand(NULL, COLLECTIVE, endless, endless, SIZE_MAX, endless, 255);
    hand(context, COLLECTIVE, "AllReduce", "ncclFloat64", SIZE_MAX, "\033[31m\xff\n", 255);
    hand(context, COLLECTIVE, "", "nccl99999999999999999999", 1, "", 1);
    hand(context, PEER, NULL, NULL, SIZE_MAX, NULL, 255);
    hand(context, PEER, "Send", "ncclInt8", 1, NULL, 9);
}

int main(int argc, char **argv)
{
    char symbol[32];
    pthread_t thread[4];
    int status;
    if (argc != 2) return 2;
    version = atoi(argv[1]);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    void *library = dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    if (!(plugin = dlsym(library, symbol))) return puts("none"), 0;
    void *asleep = init(1);
    hand(asleep, COLLECTIVE, "AllReduce", "ncclFloat32", 10, "TREE", 2); /* no trace is open yet */
    tfi_range_push("stage");
    void *context = init(0xabcdef);
    hand(context, COLLECTIVE, "AllGather", "ncclBfloat16", 100, "RING", 7);
    nonsense(context);
    for (int i = 0; i < 1500; i++) init((uint64_t)i); /* never ended */
    for (int i = 0; i < 4; i++) EXPECT(pthread_create(&thread[i], NULL, storm, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    EXPECT(plugin->finalize(context) == 0 && plugin->finalize(context) == 0);
    hand(context, COLLECTIVE, "Reduce", "ncclInt8", 5, "TREE", 1);
    dlclose(library);
    pid_t child = fork();
    if (!child) {
        storm(NULL);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    hand(context, COLLECTIVE, "Reduce", "ncclInt8", 6, "TREE", 1);
    tfi_range_pop();
    puts("ok");
    return 0;
}
