/* strings.c - keeps the table of names: a hash table that is read without a lock and only ever grows.
 *
 * A new string goes, under a lock, into private memory (to compare with) and into the string region of the live file
 * (so that it survives). Its hash table entry is stored last, so readers see an entry whole or not at all. A full
 * region is appended to the trace and emptied. The table is bounded, so a program that makes names without end does
 * not run out of memory by it: further names get TFI_STRING_LOST and are counted.
 */
#include "record/strings.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/pool.h"
#include "record/writer.h"

#define MAX_STRINGS (1u << 20)
#define MAX_BYTES (64u << 20)
#define PAGE_TEXTS 4096u
#define FIRST_SLOTS 256u /* of half a page: most processes have few names */
#define ARENA (1u << 20)

struct text {
    uint32_t length;
    char bytes[];
};

struct table {
    uint32_t mask;
    uint64_t entry[]; /* hash << 32 | number, 0 if empty */
};

static struct table *table;
static struct text **pages[MAX_STRINGS / PAGE_TEXTS + 1];
static uint32_t count;
static char *arena;
static size_t arena_left, total;
static struct tfi_lock lock;

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t hash(const char *text, size_t length)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ length, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        h = mix(h ^ word, 0xd6e8feb86659fd93u);
    }
    word = 0;
    memcpy(&word, text, length);
    h = mix(h ^ word, 0xa0761d6478bd642fu);
    return (uint32_t)(h ^ (h >> 32));
}

static struct table *new_table(uint32_t slots)
{
    struct table *t = tfi_map(sizeof *t + (size_t)slots * 8);
    if (t) t->mask = slots - 1;
    return t;
}

/* Also makes room for the first names, and fails without it: otherwise a process could record calls without names. */
bool tfi_strings_init(void)
{
    table = new_table(FIRST_SLOTS);
    memset(pages, 0, sizeof pages);
    pages[0] = tfi_map(PAGE_TEXTS * sizeof(struct text *));
    arena = tfi_map(ARENA);
    arena_left = arena ? ARENA : 0;
    count = 0;
    total = 0;
    lock = (struct tfi_lock){0};
    return table && pages[0] && arena;
}

uint32_t tfi_strings_count(void)
{
    return __atomic_load_n(&count, __ATOMIC_RELAXED);
}

uint64_t tfi_strings_bytes(void)
{
    return __atomic_load_n(&total, __ATOMIC_RELAXED);
}

static const struct text *text_of(uint32_t number)
{
    return pages[number / PAGE_TEXTS][number % PAGE_TEXTS];
}

const char *tfi_string_text(uint32_t number, size_t *length)
{
    *length = 0;
    if (number == 0 || number > tfi_strings_count()) return NULL;
    const struct text *text = text_of(number);
    *length = text->length;
    return text->bytes;
}

static uint32_t find_string(const struct table *t, uint32_t h, const char *bytes, size_t length)
{
    for (uint32_t i = h & t->mask;; i = (i + 1) & t->mask) {
        uint64_t entry = __atomic_load_n(&t->entry[i], __ATOMIC_ACQUIRE);
        if (!entry) return 0;
        if ((uint32_t)(entry >> 32) != h) continue;
        const struct text *text = text_of((uint32_t)entry);
        if (text->length == length && memcmp(text->bytes, bytes, length) == 0) return (uint32_t)entry;
    }
}

static void insert(struct table *t, uint64_t entry)
{
    uint32_t i = (uint32_t)(entry >> 32) & t->mask;
    while (t->entry[i]) i = (i + 1) & t->mask;
    __atomic_store_n(&t->entry[i], entry, __ATOMIC_RELEASE);
}

/* Keeps the table at most half full. The old table stays mapped, because a reader may still use it. */
static bool grow(void)
{
    if (count + 1 < (table->mask + 1) / 2) return true;
    struct table *larger = new_table((table->mask + 1) * 2);
    if (!larger) return false;
    for (uint32_t i = 0; i <= table->mask; i++)
        if (table->entry[i]) insert(larger, table->entry[i]);
    __atomic_store_n(&table, larger, __ATOMIC_RELEASE);
    return true;
}

static struct text *keep_text(const char *bytes, size_t length)
{
    size_t need = (sizeof(struct text) + length + 7) & ~(size_t)7;
    if (count + 1 >= MAX_STRINGS || total + need > MAX_BYTES) return NULL;
    if (need > arena_left) {
        arena = tfi_map(ARENA);
        arena_left = arena ? ARENA : 0;
        if (!arena) return NULL;
    }
    struct text ***page = &pages[(count + 1) / PAGE_TEXTS];
    if (!*page) *page = tfi_map(PAGE_TEXTS * sizeof(struct text *));
    if (!*page) return NULL;
    struct text *text = (struct text *)arena;
    arena += need;
    arena_left -= need;
    total += need;
    text->length = (uint32_t)length;
    memcpy(text->bytes, bytes, length);
    return text;
}

/* Puts the string into the live file's region; false if there is no room and none can be made. */
static bool store(uint32_t number, const char *bytes, size_t length)
{
    struct tfi_string head = {number, (uint32_t)length};
    size_t need = (sizeof head + length + 7) & ~(size_t)7;
    if (!tfi_pool_has_strings(tfi_pool_strings_used() + need) &&
        !(tfi_writer_reset_strings() && tfi_pool_has_strings(need)))
        return false;
    char *to = tfi_pool_strings() + tfi_pool_strings_used();
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, bytes, length);
    memset(to + sizeof head + length, 0, need - sizeof head - length);
    tfi_pool_use_strings(tfi_pool_strings_used() + need);
    return true;
}

static TFI_COLD uint32_t add_string(uint32_t h, const char *bytes, size_t length)
{
    int error = errno, cancel;
    uint32_t number;
    cancel = tfi_cancel_off();
    if (!tfi_lock(&lock)) {
        tfi_cancel_on(cancel);
        errno = error;
        return TFI_STRING_LOST;
    }
    number = find_string(table, h, bytes, length);
    if (number) goto out;
    number = TFI_STRING_LOST;
    struct text *text = grow() ? keep_text(bytes, length) : NULL;
    if (!text || !store(count + 1, bytes, length)) {
        tfi_count_drop(TFI_DROP_STRINGS, 1);
        goto out;
    }
    number = count + 1;
    pages[number / PAGE_TEXTS][number % PAGE_TEXTS] = text;
    __atomic_store_n(&count, number, __ATOMIC_RELEASE);
    insert(table, (uint64_t)h << 32 | number);
out:
    tfi_unlock(&lock);
    tfi_cancel_on(cancel);
    errno = error;
    return number;
}

uint32_t tfi_string(const char *text, size_t length)
{
    if (!text) return 0;
    if (length > TFI_STRING_MAX) length = TFI_STRING_MAX;
    uint32_t h = hash(text, length);
    uint32_t number = find_string(__atomic_load_n(&table, __ATOMIC_ACQUIRE), h, text, length);
    return TFI_LIKELY(number) ? number : add_string(h, text, length);
}
