/* tables.c - keeps what samples refer to, each once: code objects, texts of frames, stacks.
 *
 * A code object is known by its address, and by a guard: those bytes of it that tell it from another one that was given the
 * same memory later. Its names count only if the guard is the same before and after they were read.
 * All tables are bounded. Keys are hashes of 64 bits, and nothing compares what they stand for: among a million entries
 * two have the same hash once in 10^7 runs.
 */
#include "sample/tables.h"

#include <string.h>
#include <sys/uio.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "sample/outside.h"

enum {
    HEAD = 144, /* bytes of a code object that are read */
    MOST_CODES = 12288,
    MOST_AT_ONCE = 1024,
    PREFIX_ROOM = 4 << 20,
    PREFIX_MOST = 4096,
    TABLE_BYTES = 1 << 18, /* a longer line table is not searched */
    MOST_MEMOS = 1 << 16,
    PAGE = 1024, /* items */
    PAGES = 256,
    BLOCK = 1 << 20,
    MOST_TEXT_BYTES = 32 << 20,
    MOST_FRAMES = 8 << 20,
    FIRST_SLOTS = 1024,
};

/* ---- a table of numbers by key ---- */

struct slot {
    uint64_t key; /* 0: free */
    uint64_t value;
};

struct numbers {
    struct slot *slots;
    uint32_t count, mask;
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    __uint128_t product = (__uint128_t)(hash ^ value ^ 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static struct slot *slot_of(const struct numbers *numbers, uint64_t key)
{
    uint32_t i = (uint32_t)mix(key, 0) & numbers->mask;
    while (numbers->slots[i].key && numbers->slots[i].key != key) i = (i + 1) & numbers->mask;
    return &numbers->slots[i];
}

/* The number of a key; 0: it has none. */
static uint64_t number_of(const struct numbers *numbers, uint64_t key)
{
    return numbers->slots ? slot_of(numbers, key)->value : 0;
}

static bool make_larger(struct numbers *numbers)
{
    uint32_t slots = numbers->slots ? (numbers->mask + 1) * 2 : FIRST_SLOTS;
    struct numbers larger = {tfi_map(slots * sizeof(struct slot)), numbers->count, slots - 1};
    if (!larger.slots) return false;
    for (uint32_t i = 0; numbers->slots && i <= numbers->mask; i++)
        if (numbers->slots[i].key) *slot_of(&larger, numbers->slots[i].key) = numbers->slots[i];
    if (numbers->slots) tfi_unmap(numbers->slots, ((size_t)numbers->mask + 1) * sizeof(struct slot));
    *numbers = larger;
    return true;
}

static bool set_number(struct numbers *numbers, uint64_t key, uint64_t value)
{
    if ((!numbers->slots || numbers->count >= numbers->mask / 2) && !make_larger(numbers)) return false;
    struct slot *slot = slot_of(numbers, key);
    numbers->count += !slot->key;
    *slot = (struct slot){key, value};
    return true;
}

static void empty_numbers(struct numbers *numbers)
{
    if (numbers->slots) memset(numbers->slots, 0, ((size_t)numbers->mask + 1) * sizeof(struct slot));
    numbers->count = 0;
}

/* ---- what stays ---- */

struct piece {
    const void *data;
    uint32_t count; /* bytes of a text, frames of a stack */
    uint32_t is_import;
};

struct pieces {
    struct piece *page[PAGES];
    uint32_t count;       /* the next number */
    struct numbers known; /* by hash */
    char *room;
    size_t left, total, most;
    uint32_t limit;
};

static struct pieces texts = {.count = 1, .limit = TFI_SAMPLE_TEXTS, .most = MOST_TEXT_BYTES};
static struct pieces stacks = {.count = 1, .limit = TFI_SAMPLE_STACKS, .most = MOST_FRAMES * sizeof(uint32_t)};

static const struct piece *piece_at(const struct pieces *pieces, uint32_t number)
{
    static const struct piece none;
    if (!number || number >= __atomic_load_n(&pieces->count, __ATOMIC_ACQUIRE)) return &none;
    return &pieces->page[number / PAGE][number % PAGE];
}

static uint32_t add_piece(struct pieces *p, uint64_t hash, const void *data, size_t bytes, uint32_t count)
{
    uint32_t number = p->count;
    size_t need = (bytes + 7) & ~(size_t)7;
    if (number >= p->limit || number >= PAGE * PAGES || p->total + need > p->most || need > BLOCK) return 0;
    if (need > p->left) {
        p->room = tfi_map(BLOCK);
        p->left = p->room ? BLOCK : 0;
        if (!p->room) return 0;
    }
    struct piece **page = &p->page[number / PAGE];
    if (!*page && !(*page = tfi_map(PAGE * sizeof **page))) return 0;
    if (!set_number(&p->known, hash, number)) return 0;
    memcpy(p->room, data, bytes);
    (*page)[number % PAGE] = (struct piece){.data = p->room, .count = count};
    p->room += need;
    p->left -= need;
    p->total += need;
    __atomic_store_n(&p->count, number + 1, __ATOMIC_RELEASE);
    return number;
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    const char *at = data;
    uint64_t hash = bytes, word;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        memcpy(&word, at, 8);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, at, bytes);
    hash = mix(hash, word);
    return hash ? hash : 1;
}

static uint32_t piece_of(struct pieces *pieces, const void *data, size_t bytes, uint32_t count)
{
    uint64_t hash = hash_of(data, bytes);
    uint32_t number = (uint32_t)number_of(&pieces->known, hash);
    return number ? number : add_piece(pieces, hash, data, bytes, count);
}

uint32_t tfi_sample_stack(const uint32_t *frames, uint32_t count)
{
    return piece_of(&stacks, frames, count * sizeof *frames, count);
}

const char *tfi_sample_text(uint32_t number, uint32_t *length)
{
    const struct piece *piece = piece_at(&texts, number);
    *length = piece->count;
    return piece->data;
}

const uint32_t *tfi_sample_frames(uint32_t number, uint32_t *count)
{
    const struct piece *piece = piece_at(&stacks, number);
    *count = piece->count;
    return piece->data;
}

bool tfi_text_is_import(uint32_t text)
{
    return piece_at(&texts, text)->is_import;
}

/* ---- code objects ---- */

static struct {
    struct tfi_code *code;
    uint32_t count, numbers;
    struct numbers at; /* index + 1, by address */
    char *prefix;
    uint32_t prefix_used;
    struct numbers memo; /* texts, by code and instruction */
} codes;

static struct {
    char head[MOST_AT_ONCE][HEAD];
    struct iovec here[MOST_AT_ONCE], there[MOST_AT_ONCE];
    char str[TFI_OUTSIDE_STR], text[PREFIX_MOST + 16], table[TABLE_BYTES];
} * room;

static bool has_room(void)
{
    if (!room) room = tfi_map(sizeof *room);
    if (!codes.code) codes.code = tfi_map(MOST_CODES * sizeof *codes.code);
    if (!codes.prefix) codes.prefix = tfi_map(PREFIX_ROOM);
    return room && codes.code && codes.prefix;
}

/* Forgets all code objects if there may be no room for those of one more stack. */
static void make_way(void)
{
    if (codes.count + MOST_AT_ONCE <= MOST_CODES && codes.prefix_used + PREFIX_ROOM / 4 <= PREFIX_ROOM &&
        codes.memo.count <= MOST_MEMOS)
        return;
    codes.count = codes.prefix_used = 0;
    empty_numbers(&codes.at);
    empty_numbers(&codes.memo);
}

static unsigned head_bytes(void)
{
    return (unsigned)tfi_outside.layout->lines + 8;
}

/* The parts of a code object that never change, and so tell it from others. */
static void guard_of(char *guard, const char *head)
{
    const struct tfi_python_layout *o = tfi_outside.layout;
    memset(guard, 0, sizeof((struct tfi_code *)0)->guard);
    if (o->minor <= 10) {
        memcpy(guard, head + 16, 28);
        memcpy(guard + 28, head + o->filename, 24);
        return;
    }
    memcpy(guard, head + TFI_OBJECT_LENGTH, 8);
    memcpy(guard + 8, head + 64, 20);
    memcpy(guard + 28, head + o->filename, 32);
    if (o->version >= 0) memcpy(guard + 60, head + o->version, 4);
}

static uint64_t frame_bytes_of(const char *head)
{
    enum { STACK_SIZE = 68, LOCALS = 76, HEAD_WORDS = 9 }; /* 3.11 */
    const struct tfi_python_layout *o = tfi_outside.layout;
    if (o->chunk < 0) return 0;
    int words = o->frame >= 0 ? int_at(head, o->frame) : int_at(head, STACK_SIZE) + int_at(head, LOCALS) + HEAD_WORDS;
    return words > 0 && words < 1 << 20 ? 8 * (uint64_t)words : 0;
}

/* Takes in the code object whose head was read. */
static bool take_in(uint64_t address, const char *head)
{
    const struct tfi_python_layout *o = tfi_outside.layout;
    struct tfi_text text = {room->text, PREFIX_MOST, 0, 0};
    char again[HEAD], guard[sizeof codes.code->guard];
    uint64_t index = number_of(&codes.at, address);
    if (!index && codes.count == MOST_CODES) return false;
    if (!tfi_outside_name(&text, tfi_pointer_in(head, o->qualified >= 0 ? o->qualified : o->name), room->str))
        return false;
    tfi_text_bytes(&text, "\t", 1);
    if (!tfi_outside_name(&text, tfi_pointer_in(head, o->filename), room->str)) return false;
    tfi_text_bytes(&text, "\t", 1);
    if (text.full || codes.prefix_used + text.used > PREFIX_ROOM) return false;
    if (!tfi_outside_pull(again, address, head_bytes())) return false;
    if (!index && !set_number(&codes.at, address, index = codes.count + 1)) return false;
    struct tfi_code *code = &codes.code[index - 1];
    if (index > codes.count) codes.count++;
    *code = (struct tfi_code){.address = address,
                              .size = o->minor <= 10 ? 0 : 2 * tfi_pointer_in(head, TFI_OBJECT_LENGTH),
                              .frame_bytes = frame_bytes_of(head),
                              .lines = tfi_pointer_in(head, o->lines),
                              .number = ++codes.numbers,
                              .first = int_at(head, o->first),
                              .prefix = codes.prefix_used,
                              .prefix_bytes = (uint32_t)text.used};
    guard_of(code->guard, head);
    guard_of(guard, again);
    bool same = memcmp(guard, code->guard, sizeof guard) == 0;
    if (!same) memset(code->guard, 0xff, sizeof code->guard); /* the next look reads it anew */
    memcpy(codes.prefix + codes.prefix_used, text.data, text.used);
    codes.prefix_used += (uint32_t)text.used;
    return same;
}

const struct tfi_code *tfi_code_find(uint64_t address)
{
    uint64_t index = number_of(&codes.at, address);
    return index ? &codes.code[index - 1] : NULL;
}

bool tfi_codes_check(const uint64_t *addresses, unsigned count, bool *news)
{
    char guard[sizeof codes.code->guard];
    if (count > MOST_AT_ONCE || !has_room()) return false;
    make_way();
    for (unsigned i = 0; i < count; i++) {
        room->here[i] = (struct iovec){room->head[i], head_bytes()};
        room->there[i] = (struct iovec){(void *)(uintptr_t)addresses[i], head_bytes()};
    }
    if (count && !tfi_outside_pull_all(room->here, room->there, count)) return false;
    for (unsigned i = 0; i < count; i++) {
        const char *head = room->head[i];
        if (tfi_pointer_in(head, TFI_OBJECT_TYPE) != tfi_outside.code) return false;
        const struct tfi_code *code = tfi_code_find(addresses[i]);
        guard_of(guard, head);
        if (code && memcmp(code->guard, guard, sizeof guard) == 0) continue;
        *news = true;
        if (!take_in(addresses[i], head)) return false;
    }
    return true;
}

uint32_t tfi_code_text(const struct tfi_code *code, int64_t at, bool *news)
{
    static const char import[] = "<frozen importlib._bootstrap";
    uint64_t key = (uint64_t)code->number << 32 | (uint32_t)at;
    uint32_t number = (uint32_t)number_of(&codes.memo, key);
    if (number) return number;
    struct tfi_text text = {room->text, sizeof room->text, 0, 0};
    *news = true;
    tfi_text_bytes(&text, codes.prefix + code->prefix, code->prefix_bytes);
    tfi_text_add(&text, "%d", tfi_outside_line(code->lines, at, code->first, room->table, sizeof room->table));
    number = piece_of(&texts, text.data, text.used, (uint32_t)text.used);
    if (!number) return 0;
    if (memmem(text.data, text.used, import, sizeof import - 1))
        texts.page[number / PAGE][number % PAGE].is_import = true;
    set_number(&codes.memo, key, number);
    return number;
}

void tfi_sample_tables_lose(void)
{
    memset(&codes, 0, sizeof codes);
    texts = (struct pieces){.count = 1, .limit = texts.limit, .most = texts.most};
    stacks = (struct pieces){.count = 1, .limit = stacks.limit, .most = stacks.most};
}
