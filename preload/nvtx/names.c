/* names.c - keeps the handles and names that NVTX programs make, also before or without any recording.
 *
 * Handles are used in every copy of NVTX and in forked children. They therefore hold text, not numbers of the trace:
 * the number is looked up at the first use in each trace and kept beside the trace's generation. They lie in one
 * region, mapped at the first handle, filled from the front and never freed. Equal texts share a handle, so a program
 * that registers the same names over and over does not fill the region. When it is full, the handle `lost` stands for
 * all further ones.
 *
 * Nothing here takes a lock, which a forked child might find held: entries are published by compare-and-swap. Nothing
 * here wakes a sleeping process: names of categories and threads wait in a table until it wakes.
 */
#include "nvtx/names.h"

#include <errno.h>
#include <string.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "nvtx/nvtx.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "utf8.h"

#define HANDLE_MAGIC 0x4854464eu
#define REGION_BYTES (16u << 20)
#define NR_HEADS 4096u
#define NR_NAMED 1024u
/* Wide texts are converted on the stack, which may be a small one: longer ones are cut, at a whole character. */
#define WIDE_BYTES 2048u

static struct tfi_handle lost = {.magic = HANDLE_MAGIC, .stage = 1};

static struct {
    char *base;
    uint64_t used; /* 64 bits, because requests that found the region full are added too */
    struct tfi_handle *heads[NR_HEADS];
} handles;

/* A name given to a category or a thread; kept for processes that wake later. */
static struct named {
    uint32_t ready;
    uint32_t id;  /* number of the category or of the thread */
    uint32_t pid; /* a thread's process, because its number means nothing in a forked child; 0: a category */
    struct tfi_handle *domain;
    struct tfi_handle *name;
} named[NR_NAMED];
static uint32_t nr_named;

/* ---- text ---- */

static size_t utf8_of(char *out, const wchar_t *wide)
{
    size_t used = 0;
    for (; wide && *wide && used + 4 <= WIDE_BYTES; wide++) {
        uint32_t c = (uint32_t)*wide;
        used += tfi_utf8_put(out + used, c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0xfffd : c);
    }
    return used;
}

/* ---- handles ---- */

/* Takes memory of the region; NULL if it is full or could not be mapped. */
static void *keep_bytes(size_t bytes)
{
    char *base = tfi_map_once(&handles.base, REGION_BYTES);
    if (!base) return NULL;
    bytes = (bytes + 7) & ~(size_t)7;
    uint64_t at = __atomic_fetch_add(&handles.used, bytes, __ATOMIC_RELAXED);
    return at + bytes <= REGION_BYTES ? base + at : NULL;
}

/* Checks a handle that the program passed; `lost` for anything that is not one of ours. */
struct tfi_handle *tfi_handle_of(const void *pointer, enum tfi_handle_type type)
{
    const char *base = __atomic_load_n(&handles.base, __ATOMIC_ACQUIRE);
    uintptr_t at = (uintptr_t)pointer - (uintptr_t)base;
    struct tfi_handle *handle = (struct tfi_handle *)(uintptr_t)pointer;
    if (!pointer) return NULL;
    if (!base || at >= REGION_BYTES - sizeof *handle || at % 8) return &lost;
    return handle->magic == HANDLE_MAGIC && handle->type == type ? handle : &lost;
}

static bool is_stage_domain(const char *name, size_t length)
{
    static const char *const library[] = {
#define DOMAIN(pattern, who) pattern,
#include "domains.def"
#undef DOMAIN
    };
    char entry[256];
    bool stage = true;
    for (size_t i = 0; i < TFI_COUNT(library); i++)
        if (tfi_glob(library[i], name, length, true)) stage = false;
    const char *list = tfi_config.nvtx_domains ? tfi_config.nvtx_domains : "";
    while (tfi_next_name(&list, entry, sizeof entry)) {
        const char *pattern = entry + (*entry == '+' || *entry == '-');
        if (tfi_glob(pattern, name, length, true)) stage = *entry != '-';
    }
    return stage;
}

static uint32_t hash_of(enum tfi_handle_type type, const char *text, size_t length)
{
    uint32_t hash = 2166136261u ^ type;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static struct tfi_handle *find_handle(struct tfi_handle *handle, enum tfi_handle_type type, uint32_t hash,
                                      const char *text, size_t length)
{
    for (; handle; handle = handle->next) {
        if (handle->hash != hash || handle->length != length || handle->type != type) continue;
        if (memcmp(handle->text, text, length) == 0) return handle;
    }
    return NULL;
}

/* Returns the handle of a text; never NULL. Two threads may make two for one text, which does no harm. */
static TFI_COLD struct tfi_handle *handle_for(enum tfi_handle_type type, const char *text, size_t length)
{
    int saved = errno;
    uint32_t hash = hash_of(type, text, length);
    struct tfi_handle **head = &handles.heads[hash % NR_HEADS];
    struct tfi_handle *first = __atomic_load_n(head, __ATOMIC_ACQUIRE);
    struct tfi_handle *handle = find_handle(first, type, hash, text, length);
    if (!handle) {
        handle = keep_bytes(sizeof *handle + length);
        if (handle) {
            handle->hash = hash;
            handle->length = (uint32_t)length;
            handle->type = (uint8_t)type;
            handle->stage = type == TFI_HANDLE_DOMAIN && is_stage_domain(text, length);
            if (length) memcpy(handle->text, text, length);
            handle->magic = HANDLE_MAGIC;
            do handle->next = first;
            while (!__atomic_compare_exchange_n(head, &first, handle, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
        }
    }
    errno = saved;
    return handle ? handle : &lost;
}

struct tfi_handle *tfi_handle_a(enum tfi_handle_type type, const char *text)
{
    return handle_for(type, text, text ? strnlen(text, TFI_STRING_MAX) : 0);
}

TFI_COLD struct tfi_handle *tfi_handle_w(enum tfi_handle_type type, const wchar_t *wide)
{
    char text[WIDE_BYTES];
    return handle_for(type, text, utf8_of(text, wide));
}

uint32_t tfi_handle_number(struct tfi_handle *handle)
{
    if (!handle) return 0;
    if (handle == &lost) {
        tfi_count_drop(TFI_DROP_STRINGS, 1);
        return TFI_STRING_LOST;
    }
    uint64_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED);
    uint64_t cached = __atomic_load_n(&handle->number, __ATOMIC_RELAXED);
    if (TFI_LIKELY(cached >> 32 == gen && gen)) return (uint32_t)cached;
    uint32_t number = tfi_string(handle->text, handle->length);
    if (number != TFI_STRING_LOST) __atomic_store_n(&handle->number, gen << 32 | number, __ATOMIC_RELAXED);
    return number;
}

TFI_COLD uint32_t tfi_wide_number(const wchar_t *wide)
{
    char text[WIDE_BYTES];
    return wide ? tfi_string(text, utf8_of(text, wide)) : 0;
}

/* ---- names of categories and threads ---- */

static void write_name(struct tfi_thread *thread, const struct named *n)
{
    struct tfi_handle *given = __atomic_load_n(&n->name, __ATOMIC_ACQUIRE);
    uint32_t name = tfi_handle_number(given), domain = tfi_handle_number(n->domain);
    if (n->pid) {
        struct tfi_rec_thread_name *row = TFI_RESERVE(thread, thread_name);
        if (!row) return;
        row->tid = n->id;
        row->name = name;
        row->reserved = 0;
        row->time = tfi_ticks();
        tfi_commit(thread, sizeof *row);
    } else {
        struct tfi_rec_category *row = TFI_RESERVE(thread, category);
        if (!row) return;
        row->domain = domain;
        row->category = n->id;
        row->name = name;
        tfi_commit(thread, sizeof *row);
    }
}

/* Keeps a name for processes that wake later: this one, or a child forked by then. */
static void keep_name(const struct named *n)
{
    uint32_t used = __atomic_load_n(&nr_named, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used && i < NR_NAMED; i++) {
        struct named *old = &named[i];
        if (!__atomic_load_n(&old->ready, __ATOMIC_ACQUIRE)) continue;
        if (old->id != n->id || old->pid != n->pid || old->domain != n->domain) continue;
        __atomic_store_n(&old->name, n->name, __ATOMIC_RELEASE);
        return;
    }
    if (used > INT32_MAX) return;
    uint32_t place = __atomic_fetch_add(&nr_named, 1, __ATOMIC_ACQ_REL);
    if (place >= NR_NAMED) return; /* counted by tfi_nvtx_awake() */
    named[place] = *n;
    __atomic_store_n(&named[place].ready, 1, __ATOMIC_RELEASE);
}

/* Categories are always kept, for children; threads only until the process wakes. A name that is given while another
 * thread wakes the process is written by one of the two, or by both. */
static TFI_COLD void name_it(struct named n)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_NONE);
    if (!thread || !n.pid) keep_name(&n);
    if (!thread) thread = tfi_enter(TFI_WHY_NONE);
    if (!thread) return;
    write_name(thread, &n);
    tfi_leave(thread);
}

void tfi_nvtx_awake(struct tfi_thread *thread)
{
    uint32_t used = __atomic_load_n(&nr_named, __ATOMIC_ACQUIRE), pid = (uint32_t)tfi_getpid();
    if (used > NR_NAMED) tfi_count_drop(TFI_DROP_STRINGS, used - NR_NAMED);
    for (uint32_t i = 0; i < used && i < NR_NAMED; i++) {
        const struct named *n = &named[i];
        if (__atomic_load_n(&n->ready, __ATOMIC_ACQUIRE) && (!n->pid || n->pid == pid)) write_name(thread, n);
    }
}

void tfi_name_category(struct tfi_handle *domain, uint32_t category, struct tfi_handle *name)
{
    name_it((struct named){.id = category, .domain = domain, .name = name});
}

void tfi_name_thread(uint32_t tid, struct tfi_handle *name)
{
    name_it((struct named){.id = tid, .pid = (uint32_t)tfi_getpid(), .name = name});
}
