/* call.c - the steps of every API call: correlation, log, subscribers, injected errors; and reports of device work. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model.h"

__thread unsigned sim_per_thread;
__thread bool sim_in_host_function;
__thread uint64_t sim_waited;
static __thread uint32_t depth, current;
static __thread uint32_t tid;
static uint32_t correlations;
static uint64_t sequence;

#define MAX_SUBSCRIBERS 4
static const struct simgpu_subscriber *subscribers[MAX_SUBSCRIBERS];

PUBLIC int simgpu_subscribe(const struct simgpu_subscriber *subscriber)
{
    LOCKED;
    for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
        if (subscribers[i]) continue;
        __atomic_store_n(&subscribers[i], subscriber, __ATOMIC_RELEASE);
        return 0;
    }
    return -1;
}

PUBLIC void simgpu_unsubscribe(const struct simgpu_subscriber *subscriber)
{
    LOCKED;
    for (int i = 0; i < MAX_SUBSCRIBERS; i++)
        if (subscribers[i] == subscriber) __atomic_store_n(&subscribers[i], NULL, __ATOMIC_RELEASE);
}

static void tell(const struct simgpu_frame *frame, uint32_t leaving, int result, uint64_t time)
{
    for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
        const struct simgpu_subscriber *s = __atomic_load_n(&subscribers[i], __ATOMIC_ACQUIRE);
        if (!s || !s->call) continue;
        const struct CUctx_st *ctx = sim_ctx_current();
        struct simgpu_call call = {.symbol = frame->symbol,
                                   .domain = frame->domain,
                                   .correlation = frame->correlation,
                                   .exit = leaving,
                                   .result = result,
                                   .time = time,
                                   .thread = (uint64_t)pthread_self(),
                                   .tid = tid,
                                   .context = ctx ? ctx->head.id : 0};
        s->call(s->user, &call);
    }
}

static bool before_init(const char *symbol)
{
    static const char *const allowed[] = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetError",
                                          "cuGetExportTable"};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strncmp(symbol, allowed[i], strlen(allowed[i])) == 0) return true;
    return false;
}

/* True for errors that leave a context unusable. */
static bool is_sticky(int code)
{
    return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_HARDWARE_STACK_ERROR ||
           (code >= CUDA_ERROR_ILLEGAL_ADDRESS && code <= CUDA_ERROR_LAUNCH_TIMEOUT &&
            code != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) ||
           (code >= CUDA_ERROR_ASSERT && code <= CUDA_ERROR_LAUNCH_FAILED);
}

PUBLIC int simgpu_begin(struct simgpu_frame *frame, uint32_t domain, const char *symbol)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, sim_configure);
    if (!tid) tid = (uint32_t)syscall(SYS_gettid);
    if (depth++ == 0) {
        current = __atomic_add_fetch(&correlations, 1, __ATOMIC_RELAXED);
        sim_waited = 0;
    }
    frame->symbol = symbol;
    frame->domain = domain;
    frame->correlation = current;
    frame->start = sim_clock();
    tell(frame, 0, 0, frame->start);
    int error = sim_injected(symbol);
    if (error && is_sticky(error) && sim_ctx_current()) sim_ctx_current()->error = error;
    return error;
}

PUBLIC int simgpu_end(struct simgpu_frame *frame, int result)
{
    uint64_t end = sim_clock();
    tell(frame, 1, result, end);
    depth--;
    if (sim_logging())
        sim_log(
            "{\"t\":\"call\",\"domain\":\"%s\",\"symbol\":\"%s\",\"correlation\":%u,\"depth\":%u,\"pid\":%d,\"tid\":%u,"
            "\"thread\":%llu,\"start\":%llu,\"end\":%llu,\"told\":%llu,\"waited\":%llu,\"result\":%d}",
            frame->domain == SIMGPU_DRIVER ? "driver" : "runtime", frame->symbol, frame->correlation, depth,
            (int)getpid(), tid, (unsigned long long)pthread_self(), (unsigned long long)frame->start,
            (unsigned long long)end, (unsigned long long)sim_clock(), (unsigned long long)sim_waited, result);
    return result;
}

int sim_begin(struct simgpu_frame *frame, const char *symbol)
{
    int error = simgpu_begin(frame, SIMGPU_DRIVER, symbol);
    if (!error && sim_in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    if (error || (sim_initialised && !sim_forked) || before_init(symbol)) return error;
    return CUDA_ERROR_NOT_INITIALIZED;
}

uint32_t sim_correlation(void)
{
    return current;
}

/* Escapes a name for JSON: the kernels of a binary may have any name. */
static const char *escaped(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from && n + 7 < size; from++)
        if (*from == '"' || *from == '\\' || (unsigned char)*from < ' ')
            n += (size_t)snprintf(to + n, size - n, "\\u%04x", (unsigned)(unsigned char)*from);
        else to[n++] = *from;
    to[n] = 0;
    return to;
}

static void log_activity(const struct simgpu_activity *a)
{
    static const char *const kinds[] = {"kernel", "memcpy", "memset", "host", "sync"};
    uint64_t anchor = sim_devices[a->device].anchor;
    char name[4096];
    sim_log(
        "{\"t\":\"%s\",\"name\":\"%s\",\"device\":%u,\"context\":%u,\"stream\":%u,\"correlation\":%u,\"sequence\":%llu,"
        "\"submitted\":%llu,\"start\":%llu,\"end\":%llu,\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":[%u,%u],"
        "\"registers\":%u,\"bytes\":%llu,\"value\":%u,\"from\":[%u,%u],\"to\":[%u,%u],\"async\":%u,\"graph\":%u,"
        "\"node\":%llu}",
        kinds[a->kind], escaped(name, sizeof name, a->name), a->device, a->context, a->stream, a->correlation,
        (unsigned long long)a->sequence, (unsigned long long)(a->submitted - anchor),
        (unsigned long long)(a->start - anchor), (unsigned long long)(a->end - anchor), a->grid[0], a->grid[1],
        a->grid[2], a->block[0], a->block[1], a->block[2], a->shared_static, a->shared_dynamic, a->registers,
        (unsigned long long)a->bytes, a->value, a->source, a->source_device, a->target, a->target_device, a->async,
        a->graph, (unsigned long long)a->node);
}

/* Needs the lock. */
void sim_report(struct simgpu_activity *activity)
{
    activity->sequence = ++sequence;
    if (sim_logging()) log_activity(activity);
    for (int i = 0; i < MAX_SUBSCRIBERS; i++)
        if (subscribers[i] && subscribers[i]->activity) subscribers[i]->activity(subscribers[i]->user, activity);
}

/* Needs the lock. Reports a synchronisation from `start` until now. */
void sim_report_sync(const char *what, struct CUctx_st *ctx, uint32_t stream, uint64_t start)
{
    struct simgpu_activity a = {.kind = SIMGPU_SYNC,
                                .name = what,
                                .device = (uint32_t)ctx->device,
                                .context = ctx->head.id,
                                .stream = stream,
                                .correlation = sim_correlation(),
                                .submitted = start,
                                .start = start,
                                .end = sim_clock()};
    sim_report(&a);
}
