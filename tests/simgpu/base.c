/* base.c - configuration, the lock, time, and objects of the driver.
 *
 * Environment: SIMGPU_DEVICES (default 2), SIMGPU_MEMORY (bytes of each device, default 16 GiB), SIMGPU_REAL,
 * SIMGPU_LOG (log.c), SIMGPU_SCRIPT and SIMGPU_FAIL (script.c), SIMGPU_LACK (symbols.c). With SIMGPU_REAL=1 a
 * synchronising call waits until the work has ended. Without it the call returns at once, and the virtual clock runs
 * ahead of the host's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

struct device sim_devices[MAX_DEVICES];
int sim_nr_devices, sim_physical[MAX_DEVICES];
bool sim_initialised, sim_real, sim_forked;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t advanced; /* the latest time that a call waited for */
#define MIN_FREE 256
static struct {
    struct object *first, *last;
    unsigned n;
} free_objects[NR_MAGICS]; /* first in, first out, so that a stale handle stays invalid for long */
static uint32_t ids[NR_MAGICS];

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

int sim_lock(void)
{
    pthread_mutex_lock(&lock);
    return 1;
}

void sim_unlock(int *held)
{
    if (*held) pthread_mutex_unlock(&lock);
}

/* For the engine, which waits on conditions with it. */
pthread_mutex_t *sim_mutex(void)
{
    return &lock;
}

uint64_t sim_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

PUBLIC uint64_t simgpu_now(void)
{
    uint64_t now = sim_clock(), late = __atomic_load_n(&advanced, __ATOMIC_RELAXED);
    return now > late ? now : late;
}

void sim_advance(uint64_t until)
{
    uint64_t old = __atomic_load_n(&advanced, __ATOMIC_RELAXED);
    while (old < until &&
           !__atomic_compare_exchange_n(&advanced, &old, until, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

PUBLIC int simgpu_anchor(unsigned device, uint64_t *monotonic, uint64_t *realtime)
{
    if (device >= (unsigned)sim_nr_devices) return 0;
    *monotonic = sim_devices[device].anchor;
    *realtime = sim_devices[device].anchor_real;
    return 1;
}

static uint64_t setting(const char *name, uint64_t missing)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : missing;
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}
/* A child of a process that used the device cannot use it, as with the real driver. */
static void in_child(void)
{
    sim_forked = sim_initialised;
    sim_engine_fork();
    sim_log_open();
    for (int i = 0; i < sim_nr_devices; i++) sim_log_device(i);
    pthread_mutex_unlock(&lock);
}

/* CUDA_VISIBLE_DEVICES chooses and renumbers the devices, by their numbers; a wrong one ends the list. */
static void choose_devices(int physical)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    sim_nr_devices = 0;
    for (int i = 0; !text && i < physical; i++) sim_physical[sim_nr_devices++] = i;
    while (text && *text && sim_nr_devices < MAX_DEVICES) {
        char *end;
        long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= physical) return;
        sim_physical[sim_nr_devices++] = (int)number;
        text = end + (*end == ',');
    }
}

/* Reads both host clocks at one moment: the narrowest of a few readings. */
static void read_anchor(struct device *d)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        struct timespec real;
        uint64_t before = sim_clock();
        clock_gettime(CLOCK_REALTIME, &real);
        uint64_t width = sim_clock() - before;
        if (width >= best) continue;
        best = width;
        d->anchor = before + width / 2;
        d->anchor_real = (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec;
    }
}

/* Runs once in a process, at its first call. */
void sim_configure(void)
{
    uint64_t devices = setting("SIMGPU_DEVICES", 2), memory = setting("SIMGPU_MEMORY", (uint64_t)16 << 30);
    choose_devices(devices > MAX_DEVICES ? MAX_DEVICES : (int)devices);
    sim_real = setting("SIMGPU_REAL", 0) != 0;
    sim_script_load();
    sim_log_open();
    sim_say("simgpu: a simulated GPU: %d device(s), kernels do nothing, times are computed\n", sim_nr_devices);
    for (int i = 0; i < sim_nr_devices; i++) {
        read_anchor(&sim_devices[i]);
        sim_devices[i].total = memory;
        sim_log_device(i);
    }
    pthread_atfork(before_fork, after_fork, in_child);
}

/* Needs the lock. Returns a zeroed object with a new id. */
void *sim_new(enum magic magic, size_t size, struct CUctx_st *ctx)
{
    struct object *o = free_objects[magic].first;
    if (free_objects[magic].n > MIN_FREE) {
        free_objects[magic].first = o->next_free;
        free_objects[magic].n--;
    } else {
        o = malloc(size);
    }
    memset(o, 0, size);
    o->magic = magic;
    o->id = ++ids[magic];
    o->ctx = ctx;
    return o;
}

/* Needs the lock. Only an object of the same kind reuses the memory, so reading a stale handle does no harm. */
void sim_delete(void *object)
{
    struct object *o = object;
    enum magic magic = (enum magic)o->magic;
    o->next_free = NULL;
    if (free_objects[magic].n++) free_objects[magic].last->next_free = o;
    else free_objects[magic].first = o;
    free_objects[magic].last = o;
    o->magic = DEAD;
}

/* Needs the lock. Makes room for one more than n elements; the array doubles. */
void *sim_grow(void *array, size_t n, size_t size)
{
    if (n & (n - 1)) return array;
    return realloc(array, (n ? n * 2 : 1) * size);
}

/* Needs the lock. Returns the only copy of the text, which is never freed. */
const char *sim_intern(const char *text)
{
    static struct entry {
        struct entry *next;
        char text[];
    } * table[1024];
    uint32_t hash = 5381;
    for (const char *c = text; *c; c++) hash = hash * 33 + (unsigned char)*c;
    struct entry **slot = &table[hash % 1024];
    for (struct entry *e = *slot; e; e = e->next)
        if (strcmp(e->text, text) == 0) return e->text;
    struct entry *e = malloc(sizeof *e + strlen(text) + 1);
    strcpy(e->text, text);
    e->next = *slot;
    *slot = e;
    return e->text;
}
