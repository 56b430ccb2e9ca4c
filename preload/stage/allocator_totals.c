/* allocator_totals.c - keeps allocated and reserved bytes by device, with their peaks in each open stage.
 *
 * Allocators report totals, so the last report is the memory in use. A report takes no lock: it stores the totals, adds
 * to a sum and raises a peak if needed. The peak counts from the last stage edge on. An edge folds the peak into a
 * part: each open stage has a part with the highest value between its own beginning and the beginning of the next open
 * stage. The peak of a stage is the highest of its own part and all later ones. A stage that ends merges its part into
 * the one before it. So stages may nest, overlap and end in any order and thread, no stage disturbs the peak of
 * another, and an edge costs a few instructions when stages nest. A stage opened before a device's first report has
 * everything since that report.
 *
 * Host allocators report outside their lock, device allocators under it. So of two threads' reports the older total may
 * come last; it then stays until the next report. Peaks are not affected.
 */
#include "stage/allocator_totals.h"

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "record/clock.h"
#include "record/thread.h"
#include "stage/timing.h"
#include "stage/watch.h"

#define MAX_DEVICES 33u /* the host and 32 devices */
#define MAX_OPEN 65536u

/* An open stage's part, for one device. */
struct part {
    uint64_t id;
    uint64_t allocated, reserved;           /* when it was opened */
    uint64_t sum_allocated, sum_freed;      /* of the device when the stage was opened */
    uint64_t peak_allocated, peak_reserved; /* from then to the beginning of the next part */
};

static struct device {
    /* changed by any thread, with atomic operations */
    uint64_t first; /* ticks of the first report, 0 if there was none */
    uint64_t allocated, reserved;
    uint64_t sum_allocated, sum_freed;
    uint64_t peak_allocated, peak_reserved; /* since the last edge */
    /* protected by the lock */
    struct part before; /* the time before all parts: begins with the first report */
    struct part *part;  /* by the order in which the stages were opened */
    uint32_t nr_parts, max_parts;
} __attribute__((aligned(64))) devices[MAX_DEVICES];

static uint64_t active; /* devices that have reported, as bits */
static struct tfi_lock lock;
static const struct tfi_watcher watcher;

/* ---- reports ---- */

static inline void raise(uint64_t *peak, uint64_t value)
{
    uint64_t known = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (value > known && !__atomic_compare_exchange_n(peak, &known, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

/* Starts a device: its first report also tells the totals before it. */
static TFI_COLD void first_report(struct device *d, int64_t bytes, uint64_t allocated, uint64_t reserved)
{
    int cancel = tfi_cancel_off();
    tfi_watch(&watcher); /* before `active` names the device, which the watcher's functions test */
    bool locked = tfi_lock_quick(&lock);
    if (locked && !d->first) {
        d->before.allocated = d->peak_allocated = allocated - (uint64_t)bytes;
        d->before.reserved = d->peak_reserved = reserved;
        __atomic_store_n(&d->first, tfi_ticks(), __ATOMIC_RELEASE);
        __atomic_or_fetch(&active, (uint64_t)1 << (d - devices), __ATOMIC_RELEASE);
    }
    if (locked) tfi_unlock_quick(&lock);
    tfi_cancel_on(cancel);
}

uint64_t tfi_allocator_totals_report(int32_t device, int64_t bytes, uint64_t allocated, uint64_t reserved)
{
    if (device < TFI_HOST || device + 1 >= (int32_t)MAX_DEVICES) return 0;
    struct device *d = &devices[device + 1];
    uint64_t before = __atomic_load_n(&d->reserved, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(!__atomic_load_n(&d->first, __ATOMIC_ACQUIRE))) {
        bool is_only = bytes > 0 && allocated == (uint64_t)bytes;
        first_report(d, bytes, allocated, reserved);
        before = is_only ? 0 : reserved;
    }
    __atomic_store_n(&d->allocated, allocated, __ATOMIC_RELAXED);
    __atomic_store_n(&d->reserved, reserved, __ATOMIC_RELAXED);
    raise(&d->peak_allocated, allocated);
    raise(&d->peak_reserved, reserved);
    if (bytes > 0) __atomic_add_fetch(&d->sum_allocated, (uint64_t)bytes, __ATOMIC_RELAXED);
    else __atomic_sub_fetch(&d->sum_freed, (uint64_t)bytes, __ATOMIC_RELAXED);
    return reserved > before ? reserved - before : 0;
}

void tfi_allocator_totals_returned(int32_t device, uint64_t bytes)
{
    if (device < 0 || device + 1 >= (int32_t)MAX_DEVICES) return;
    struct device *d = &devices[device + 1];
    if (__atomic_load_n(&d->reserved, __ATOMIC_RELAXED) >= bytes)
        __atomic_sub_fetch(&d->reserved, bytes, __ATOMIC_RELAXED);
}

/* ---- edges; the caller holds the lock ---- */

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct part *last_part(struct device *d)
{
    return d->nr_parts ? &d->part[d->nr_parts - 1] : &d->before;
}

/* Folds the peak since the last edge into the last part. */
static void fold(struct device *d)
{
    struct part *p = last_part(d);
    uint64_t allocated = __atomic_load_n(&d->allocated, __ATOMIC_RELAXED);
    uint64_t reserved = __atomic_load_n(&d->reserved, __ATOMIC_RELAXED);
    p->peak_allocated = higher(p->peak_allocated, __atomic_exchange_n(&d->peak_allocated, allocated, __ATOMIC_RELAXED));
    p->peak_reserved = higher(p->peak_reserved, __atomic_exchange_n(&d->peak_reserved, reserved, __ATOMIC_RELAXED));
}

static struct part now_of(const struct device *d, uint64_t id)
{
    return (struct part){
        .id = id,
        .allocated = __atomic_load_n(&d->allocated, __ATOMIC_RELAXED),
        .reserved = __atomic_load_n(&d->reserved, __ATOMIC_RELAXED),
        .sum_allocated = __atomic_load_n(&d->sum_allocated, __ATOMIC_RELAXED),
        .sum_freed = __atomic_load_n(&d->sum_freed, __ATOMIC_RELAXED),
    };
}

static TFI_COLD bool grow(struct device *d)
{
    uint32_t max = d->max_parts ? d->max_parts * 2 : 256;
    struct part *larger = max > MAX_OPEN ? NULL : tfi_map(max * sizeof *larger);
    if (!larger) return false;
    if (d->nr_parts) memcpy(larger, d->part, d->nr_parts * sizeof *larger);
    d->part = larger; /* the smaller array stays mapped: all of them together are smaller than this one */
    d->max_parts = max;
    return true;
}

static void open_part(struct device *d, uint64_t id)
{
    fold(d);
    if (d->nr_parts == d->max_parts && !grow(d)) tfi_count_drop(TFI_DROP_RANGES, 1);
    else d->part[d->nr_parts++] = now_of(d, id);
}

/* Finds a stage's part, with the peaks since the stage's beginning; called after fold(). Returns its index, -1 if the
 * stage began before the device's first report and so has everything since then, -2 if it has no part. */
static int64_t find_part(struct device *d, uint64_t id, uint64_t start, struct part *found)
{
    uint64_t allocated = 0, reserved = 0;
    int64_t i = d->nr_parts;
    while (i-- > 0) {
        allocated = higher(allocated, d->part[i].peak_allocated);
        reserved = higher(reserved, d->part[i].peak_reserved);
        if (d->part[i].id == id) break;
    }
    if (i < 0 && (!start || start >= d->first)) return -2;
    *found = i < 0 ? d->before : d->part[i];
    found->peak_allocated = higher(found->peak_allocated, allocated);
    found->peak_reserved = higher(found->peak_reserved, reserved);
    return i;
}

static void close_part(struct device *d, int64_t i)
{
    struct part *before = i > 0 ? &d->part[i - 1] : &d->before, *p = &d->part[i];
    before->peak_allocated = higher(before->peak_allocated, p->peak_allocated);
    before->peak_reserved = higher(before->peak_reserved, p->peak_reserved);
    d->nr_parts--;
    memmove(p, p + 1, (d->nr_parts - (uint32_t)i) * sizeof *p);
}

/* ---- records ---- */

static void write_record(struct tfi_thread *t, int32_t device, uint64_t id, uint64_t now, const struct part *p,
                         const struct part *at_end)
{
    struct tfi_rec_stage_memory *rec = TFI_RESERVE(t, stage_memory);
    if (!rec) return;
    rec->device = device;
    rec->time = now;
    rec->id = id;
    rec->allocated_before = p->allocated;
    rec->reserved_before = p->reserved;
    rec->allocated_after = at_end->allocated;
    rec->reserved_after = at_end->reserved;
    rec->allocated_peak = p->peak_allocated;
    rec->reserved_peak = p->peak_reserved;
    rec->allocated = at_end->sum_allocated - p->sum_allocated;
    rec->freed = at_end->sum_freed - p->sum_freed;
    tfi_commit(t, sizeof *rec);
}

/* True if `a` is shown rather than `b`: a device goes before the host, then the one with the higher peak. */
static bool matters_more(const struct tfi_memory *a, const struct tfi_memory *b)
{
    if (!b->known || (a->device == TFI_HOST) != (b->device == TFI_HOST)) return !b->known || b->device == TFI_HOST;
    return a->peak_allocated > b->peak_allocated;
}

/* The host reserves nothing: what is in use counts as reserved in TeleFuser's lines and files, which know no null. */
static struct tfi_memory summary(int32_t device, const struct part *p, const struct part *now)
{
    bool host = device == TFI_HOST;
    return (struct tfi_memory){device,
                               1,
                               now->allocated,
                               host ? now->allocated : now->reserved,
                               p->peak_allocated,
                               host ? p->peak_allocated : p->peak_reserved};
}

static void add_to(struct tfi_memory *sum, struct tfi_memory one)
{
    if (sum->known && sum->device == one.device) {
        one.peak_allocated = higher(one.peak_allocated, sum->peak_allocated);
        one.peak_reserved = higher(one.peak_reserved, sum->peak_reserved);
    } else if (!matters_more(&one, sum)) {
        return;
    }
    *sum = one;
}

/* ---- stage events and queries ---- */

#define EACH_ACTIVE(i)                                                                                                 \
    for (uint32_t i = 0; i < MAX_DEVICES; i++)                                                                         \
        if (active >> i & 1)

static inline bool any_active(void)
{
    return __atomic_load_n(&active, __ATOMIC_RELAXED) != 0;
}

static void opened(struct tfi_thread *t, const struct tfi_open *open)
{
    (void)t;
    if (!any_active() || !tfi_lock_quick(&lock)) return;
    EACH_ACTIVE(i) open_part(&devices[i], open->id);
    tfi_unlock_quick(&lock);
}

static void ended(struct tfi_thread *t, const struct tfi_open *open, uint64_t now, struct tfi_timing *timing)
{
    struct part part, at_end;
    struct tfi_memory *sum = timing ? &timing->memory : NULL;
    if (!any_active()) return;
    EACH_ACTIVE(i)
    {
        struct device *d = &devices[i];
        if (!tfi_lock_quick(&lock)) return;
        fold(d);
        int64_t index = find_part(d, open->id, open->start, &part);
        if (index >= 0) close_part(d, index);
        at_end = now_of(d, open->id);
        if (sum && index > -2) add_to(sum, summary((int32_t)i - 1, &part, &at_end));
        tfi_unlock_quick(&lock);
        if (index > -2) write_record(t, (int32_t)i - 1, open->id, now, &part, &at_end);
    }
}

static void forgotten(const struct tfi_open *open)
{
    struct part part;
    if (!any_active() || !tfi_lock_quick(&lock)) return;
    EACH_ACTIVE(i)
    {
        int64_t index = find_part(&devices[i], open->id, 0, &part);
        if (index >= 0) close_part(&devices[i], index);
    }
    tfi_unlock_quick(&lock);
}

bool tfi_allocator_totals_of(uint64_t id, uint64_t start, struct tfi_memory *memory)
{
    struct part part;
    *memory = (struct tfi_memory){.known = 0};
    if (!any_active() || !tfi_lock_quick(&lock)) return false;
    EACH_ACTIVE(i)
    {
        struct device *d = &devices[i];
        fold(d);
        if (find_part(d, id, start, &part) < -1) continue;
        struct part now = now_of(d, id);
        struct tfi_memory one = summary((int32_t)i - 1, &part, &now);
        if (matters_more(&one, memory)) *memory = one;
    }
    tfi_unlock_quick(&lock);
    return memory->known;
}

static void add_mib(struct tfi_text *text, const char *key, uint64_t bytes)
{
    uint64_t parts = bytes * 25, hundredths = parts >> 18, rest = parts & 0x3ffff; /* bytes * 100 / 2^20 */
    if (rest > 0x20000 || (rest == 0x20000 && hundredths & 1)) hundredths++;       /* rounded as Python does it */
    tfi_text_add(text, "\"%s\": %lu.%u%u", key, (unsigned long)(hundredths / 100), (unsigned)(hundredths / 10 % 10),
                 (unsigned)(hundredths % 10));
}

void tfi_allocator_totals_text(struct tfi_text *text, const struct tfi_memory *memory)
{
    if (!memory->known) return;
    tfi_text_add(text, ", \"memory\": {");
    add_mib(text, "allocated_mb", memory->allocated);
    tfi_text_add(text, ", ");
    add_mib(text, "reserved_mb", memory->reserved);
    tfi_text_add(text, ", ");
    add_mib(text, "peak_allocated_mb", memory->peak_allocated);
    tfi_text_add(text, ", ");
    add_mib(text, "peak_reserved_mb", memory->peak_reserved);
    tfi_text_add(text, ", \"device\": %d}", memory->device);
}

static void restart(void)
{
    for (uint32_t i = 0; i < MAX_DEVICES; i++)
        devices[i] = (struct device){.part = devices[i].part, .max_parts = devices[i].max_parts};
    active = 0;
    lock = (struct tfi_lock){0};
}

static const struct tfi_watcher watcher = {
    .restart = restart, .opened = opened, .ended = ended, .forgotten = forgotten};
