/* nvml_sim.c - the simulated NVML: clocks, power, temperature and clock event reasons of the simulated GPUs, by a script.
 *
 * It knows all GPUs of the machine by UUID and PCI id, whatever CUDA_VISIBLE_DEVICES says. Nothing here comes from
 * NVIDIA: the prototypes are those of the public API reference. Environment:
 *
 *   SIMNVML_SCRIPT  a file; a line is `GPU MS KEY=VALUE ...`: from MS milliseconds after the start of NVML in this process
 *                   the GPU (a number or *) has these values; later lines win. Keys: sm, memory (MHz), power (mW),
 *                   temperature, busy, memory_busy (%), reasons (bits)
 *   SIMNVML_FAIL    `symbol=code[:after N],...`: calls fail with NVML's code, after N calls that pass
 *   SIMNVML_HANG    `symbol[:after N]`: such a call never returns
 *   SIMNVML_MIG     1: no GPU is found by its UUID, because the program uses parts of GPUs
 *   SIMNVML_LOG     the reference for tests: a line of JSON for each call; `%p` becomes the process id
 *
 * With -DOLD it is an older driver's: the functions with newer names are missing.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { GPUS = 16, MAX_LINES = 256 };
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum value { SM, MEMORY, POWER, TEMPERATURE, BUSY, MEMORY_BUSY, REASONS, VALUES };
static const char *const value_names[VALUES] = {"sm",   "memory",      "power",  "temperature",
                                                "busy", "memory_busy", "reasons"};
static const uint64_t usual[VALUES] = {1980, 2619, 300000, 45, 90, 40, 0};

struct line {
    int gpu; /* -1: all */
    uint64_t after;
    bool has[VALUES];
    uint64_t value[VALUES];
};
static struct line lines[MAX_LINES];
static size_t nr_lines;
static uint64_t started; /* 0: NVML is not initialised */
static int log_fd = -1;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void write_text(int fd, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (fd >= 0 && n > 0) syscall(SYS_write, fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* ---- the environment ---- */

static void read_line(char *text)
{
    struct line *line = &lines[nr_lines];
    char *next, *word = strtok_r(text, " \t\r\n", &next);
    if (!word || *word == '#' || nr_lines == MAX_LINES) return;
    *line = (struct line){.gpu = strcmp(word, "*") == 0 ? -1 : atoi(word)};
    if (!(word = strtok_r(NULL, " \t\r\n", &next))) return;
    line->after = strtoull(word, NULL, 10) * 1000000;
    while ((word = strtok_r(NULL, " \t\r\n", &next))) {
        char *equal = strchr(word, '=');
        int v = 0;
        if (equal) *equal = 0;
        while (v < VALUES && strcmp(value_names[v], word) != 0) v++;
        if (!equal || v == VALUES) {
            write_text(2, "simnvml: a line of the script is not understood: %s\n", word);
            continue;
        }
        line->has[v] = true;
        line->value[v] = strtoull(equal + 1, NULL, 0);
    }
    nr_lines++;
}

static void prepare(void)
{
    const char *path = getenv("SIMNVML_SCRIPT"), *pattern = getenv("SIMNVML_LOG"), *p;
    FILE *f = path && *path ? fopen(path, "re") : NULL;
    char text[512], file[4096];
    write_text(2, "simnvml: a simulated NVML: all values come from a script\n");
    while (f && fgets(text, sizeof text, f)) read_line(text);
    if (f) fclose(f);
    if (!pattern || !*pattern) return;
    p = strstr(pattern, "%p");
    if (p) snprintf(file, sizeof file, "%.*s%d%s", (int)(p - pattern), pattern, (int)getpid(), p + 2);
    else snprintf(file, sizeof file, "%s", pattern);
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

/* Looks for `symbol` in a list of `symbol=code:after N`; false if it is not there, or fewer than N calls came before. */
static bool is_in(const char *list, const char *symbol, long before, int *code)
{
    size_t length = strlen(symbol);
    for (const char *item = list; item && *item; item = strchr(item, ',') ? strchr(item, ',') + 1 : NULL) {
        const char *rest = item + length, *after = strstr(item, ":after "), *stop = strchr(item, ',');
        if (strncmp(item, symbol, length) != 0 || !strchr("=:,", *rest)) continue;
        *code = *rest == '=' ? atoi(rest + 1) : 0;
        return before >= (after && (!stop || after < stop) ? atol(after + 7) : 0);
    }
    return false;
}

/* ---- one call ---- */

struct call {
    const char *symbol;
    uint64_t start;
};

/* Returns the code with which the call must return at once. `calls` counts those of the function. */
static int begin(struct call *call, const char *symbol, long *calls)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int code = 0;
    pthread_once(&once, prepare);
    *call = (struct call){symbol, now_ns()};
    long before = __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    while (is_in(getenv("SIMNVML_HANG"), symbol, before, &code)) {
        write_text(log_fd, "{\"t\":\"hang\",\"func\":\"hangs in %s\",\"gpu\":-1}\n", symbol);
        pause();
    }
    if (is_in(getenv("SIMNVML_FAIL"), symbol, before, &code)) return code;
    return started || strncmp(symbol, "nvmlInit", 8) == 0 ? SUCCESS : UNINITIALIZED;
}

static int end(const struct call *call, int gpu, uint64_t value, int result)
{
    write_text(log_fd,
               "{\"t\":\"call\",\"func\":\"%s\",\"gpu\":%d,\"value\":%llu,\"result\":%d,\"start\":%llu,\"end\":%llu,"
               "\"tid\":%d,\"pid\":%d}\n",
               call->symbol, gpu, (unsigned long long)value, result, (unsigned long long)call->start,
               (unsigned long long)now_ns(), (int)syscall(SYS_gettid), (int)getpid());
    return result;
}

/* The value that the script gives a GPU now. */
static uint64_t now_has(int gpu, enum value which)
{
    uint64_t value = usual[which], age = now_ns() - started;
    for (size_t i = 0; i < nr_lines; i++)
        if ((lines[i].gpu < 0 || lines[i].gpu == gpu) && lines[i].after <= age && lines[i].has[which])
            value = lines[i].value[which];
    return value;
}

static char handles[GPUS]; /* a handle is an address in here */

static int gpu_of(const void *handle)
{
    uintptr_t gpu = (uintptr_t)handle - (uintptr_t)handles;
    return gpu < GPUS ? (int)gpu : -1;
}

static int give(const char *symbol, long *calls, const void *handle, enum value which, uint64_t *value)
{
    struct call call;
    int result = begin(&call, symbol, calls), gpu = gpu_of(handle);
    if (result == SUCCESS && gpu < 0) result = INVALID_ARGUMENT;
    if (result == SUCCESS) *value = now_has(gpu, which);
    return end(&call, gpu, result == SUCCESS ? *value : 0, result);
}

/* ---- the API ---- */

#ifdef OLD
#define INIT nvmlInit
#define BY_PCI nvmlDeviceGetHandleByPciBusId
#define GET_REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define INIT nvmlInit_v2
#define BY_PCI nvmlDeviceGetHandleByPciBusId_v2
#define GET_REASONS nvmlDeviceGetCurrentClocksEventReasons
#endif
#define TEXT(symbol) #symbol
#define NAME(symbol) TEXT(symbol)

PUBLIC int INIT(void);
int INIT(void)
{
    static long calls;
    struct call call;
    int result = begin(&call, NAME(INIT), &calls);
    if (result == SUCCESS && !started) started = now_ns();
    return end(&call, -1, 0, result);
}

static int found(const struct call *call, int gpu, void **handle, int result)
{
    if (result == SUCCESS && (gpu < 0 || gpu >= GPUS)) result = NOT_FOUND;
    if (result == SUCCESS) *handle = &handles[gpu];
    return end(call, gpu, 0, result);
}

PUBLIC int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    static long calls;
    struct call call;
    const char *mig = getenv("SIMNVML_MIG");
    int result = begin(&call, "nvmlDeviceGetHandleByUUID", &calls), gpu = -1;
    unsigned number;
    if (!(mig && *mig == '1') && sscanf(uuid, "GPU-73696d75-6c61-7465-642d-6770752d%4x", &number) == 1)
        gpu = (int)number;
    return found(&call, gpu, handle, result);
}

PUBLIC int BY_PCI(const char *id, void **handle);
int BY_PCI(const char *id, void **handle)
{
    static long calls;
    struct call call;
    int result = begin(&call, NAME(BY_PCI), &calls), gpu = -1;
    unsigned domain, bus;
    if (sscanf(id, "%x:%x:", &domain, &bus) == 2 && domain == 0) gpu = (int)bus - 0xa0;
    return found(&call, gpu, handle, result);
}

PUBLIC int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz);
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz)
{
    static long calls[2];
    uint64_t value = 0;
    int result = give(type == 1 ? "nvmlDeviceGetClockInfo" : "nvmlDeviceGetClockInfo/memory", &calls[type != 1], handle,
                      type == 1 ? SM : MEMORY, &value);
    if (result == SUCCESS) *mhz = (unsigned)value;
    return result;
}

PUBLIC int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts);
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts)
{
    static long calls;
    uint64_t value = 0;
    int result = give("nvmlDeviceGetPowerUsage", &calls, handle, POWER, &value);
    if (result == SUCCESS) *milliwatts = (unsigned)value;
    return result;
}

PUBLIC int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees);
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees)
{
    static long calls;
    uint64_t value = 0;
    if (sensor != 0) return INVALID_ARGUMENT;
    int result = give("nvmlDeviceGetTemperature", &calls, handle, TEMPERATURE, &value);
    if (result == SUCCESS) *degrees = (unsigned)value;
    return result;
}

struct utilization {
    unsigned gpu, memory;
};
PUBLIC int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates);
int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *rates)
{
    static long calls;
    uint64_t value = 0;
    int result = give("nvmlDeviceGetUtilizationRates", &calls, handle, BUSY, &value);
    if (result == SUCCESS)
        *rates = (struct utilization){(unsigned)value, (unsigned)now_has(gpu_of(handle), MEMORY_BUSY)};
    return result;
}

PUBLIC int GET_REASONS(void *handle, unsigned long long *reasons);
int GET_REASONS(void *handle, unsigned long long *reasons)
{
    static long calls;
    uint64_t value = 0;
    int result = give(NAME(GET_REASONS), &calls, handle, REASONS, &value);
    if (result == SUCCESS) *reasons = value;
    return result;
}

/* ---- what a simulated GPU does not have: links to others, and a list of its processes ---- */

static int not_supported(const char *symbol, long *calls, const void *handle)
{
    struct call call;
    int result = begin(&call, symbol, calls);
    return end(&call, gpu_of(handle), 0, result == SUCCESS ? NOT_SUPPORTED : result);
}

PUBLIC int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *processes);
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *processes)
{
    static long calls;
    (void)count, (void)processes;
    return not_supported("nvmlDeviceGetComputeRunningProcesses", &calls, handle);
}

PUBLIC int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type)
{
    static long calls;
    (void)link, (void)type;
    return not_supported("nvmlDeviceGetNvLinkRemoteDeviceType", &calls, handle);
}

PUBLIC int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, void *info);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, void *info)
{
    static long calls;
    (void)link, (void)info;
    return not_supported("nvmlDeviceGetNvLinkRemotePciInfo_v2", &calls, handle);
}

PUBLIC int nvmlDeviceGetGpuFabricInfoV(void *handle, void *info);
int nvmlDeviceGetGpuFabricInfoV(void *handle, void *info)
{
    static long calls;
    (void)info;
    return not_supported("nvmlDeviceGetGpuFabricInfoV", &calls, handle);
}

PUBLIC int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    static long calls;
    struct call call;
    int (*ask)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
    int result = begin(&call, "nvmlSystemGetCudaDriverVersion_v2", &calls);
    if (result == SUCCESS) result = ask && ask(version) == 0 ? SUCCESS : NOT_FOUND;
    return end(&call, -1, result == SUCCESS ? (uint64_t)*version : 0, result);
}

PUBLIC const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success (simulated)";
    case UNINITIALIZED: return "Uninitialized (simulated)";
    case INVALID_ARGUMENT: return "Invalid Argument (simulated)";
    case NOT_SUPPORTED: return "Not Supported (simulated)";
    case 4: return "Insufficient Permissions (simulated)";
    case NOT_FOUND: return "Not Found (simulated)";
    case 15: return "GPU is lost (simulated)";
    default: return "Unknown Error (simulated)";
    }
}
