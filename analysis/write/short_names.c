/* short_names.c - shortens the kernel names of one answer as far as they stay distinct.
 *
 * Names that are equal without template arguments and parameters (kernel_names.c) get back arguments in which they
 * differ: first the one that distinguishes most of them, then the next, until all are distinct. Parameters are used
 * only if arguments do not suffice. An argument is shortened in the same way among the arguments in its position: to
 * the name of its function or class if that is enough. `…` marks an omission. Names that are still equal stay whole.
 */
#include "write/short_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"

enum { DEEPEST = 4, MOST_ARGS = 96, MOST_KEPT = 8 };
#define DOTS "\xe2\x80\xa6"

/* One argument. */
struct arg {
    char bracket;
    uint32_t text; /* number in texts */
    size_t part;   /* its list: an index into left.item */
};

struct item {
    const char *name;
    uint32_t base, prefix; /* texts: the short name; the prefix is that name or its last part */
    struct left_outs left;
    struct arg arg[MOST_ARGS];
    size_t args;
    struct text result;
};

/* ---- parts of a name ---- */

static uint32_t intern(struct names *texts, const char *from, size_t length)
{
    return names_add(texts, from, length);
}

static void add_arg(struct names *texts, struct item *item, size_t part, const char *from, const char *to)
{
    while (from < to && *from == ' ') from++;
    while (from < to && to[-1] == ' ') to--;
    if (item->args < MOST_ARGS) {
        item->arg[item->args++] =
            (struct arg){item->left.item[part].bracket, intern(texts, from, (size_t)(to - from)), part};
    }
}

/* Adds the words and numbers of a mangled list: 5Array, Li128E. */
static void add_mangled_args(struct names *texts, struct item *item, size_t part)
{
    const struct left_out *left = &item->left.item[part];
    for (const char *p = left->from; p < left->to;) {
        bool is_literal = p[0] == 'L' && islower((unsigned char)p[1]) && isdigit((unsigned char)p[2]);
        char *word;
        unsigned long length = isdigit((unsigned char)*p) ? strtoul(p, &word, 10) : 0;
        if (is_literal) {
            const char *end = p + 2 + strspn(p + 2, "0123456789");
            add_arg(texts, item, part, p + 2, end);
            p = end;
        } else if (length && length <= (size_t)(left->to - word)) {
            add_arg(texts, item, part, word, word + length);
            p = word + length;
        } else {
            p++;
        }
    }
}

static void add_args(struct names *texts, struct item *item, size_t part)
{
    const struct left_out *left = &item->left.item[part];
    const char *from = left->from;
    if (strncmp(item->name, "_Z", 2) == 0) {
        add_mangled_args(texts, item, part);
        return;
    }
    for (const char *p = left->from; p < left->to && left->bracket != ' ';) {
        const char *end = strchr("<({[", *p) ? after_brackets(p) : NULL;
        if (*p == ',') {
            add_arg(texts, item, part, from, p);
            from = p + 1;
        }
        p = end && end <= left->to ? end : p + 1;
    }
    add_arg(texts, item, part, from, left->to);
}

static bool is_wrapping(const char *part, size_t length)
{
    static const char *const words[] = {"{", "'lambda", "operator()", "(anonymous", "(", "_FUN"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);
        if (length >= n && memcmp(part, words[i], n) == 0) return true;
    }
    return length == 0;
}

/* Returns the last telling part of a name: Gelu for at::native::Gelu::{lambda#2}::operator(). */
static uint32_t last_part(struct names *texts, const char *base)
{
    const char *best = base, *from = base, *p = base;
    size_t length = 0;
    for (;; p++) {
        if (!*p || strncmp(p, "::", 2) == 0) {
            if (!is_wrapping(from, (size_t)(p - from))) {
                best = from;
                length = (size_t)(p - from);
            }
            if (!*p) break;
            from = p + 2;
            p++;
        }
    }
    return intern(texts, best, length ? length : strlen(best));
}

static void take_apart(struct names *texts, struct item *item, bool whole)
{
    struct text base = {0};
    short_name(item->name, &base, &item->left);
    item->base = intern(texts, base.data, base.length);
    item->prefix = whole ? item->base : last_part(texts, base.data);
    for (size_t i = 0; i < item->left.count; i++) add_args(texts, item, i);
    text_free(&base);
}

/* ---- choice of the arguments that distinguish names ---- */

/* Items with the same prefix, and the kept parts of their names. */
struct group {
    struct item **item;
    size_t count;
    uint32_t *alike; /* by item: its class; items of one class are still equal */
    size_t classes;
    bool kept[MOST_ARGS];
    bool by_base; /* the prefix is the whole short name */
};

static uint32_t text_at(const struct item *item, size_t arg, char bracket)
{
    bool has = arg < item->args && item->arg[arg].bracket == bracket;
    return has ? item->arg[arg].text : UINT32_MAX - 1;
}

/* Returns the number of classes if this argument (SIZE_MAX: the base) distinguishes too; stores them if `keep` is set. */
static size_t classes_with(struct group *g, size_t arg, char bracket, bool keep)
{
    struct map numbers = {0};
    for (size_t i = 0; i < g->count; i++) {
        uint32_t text = arg == SIZE_MAX ? g->item[i]->base : text_at(g->item[i], arg, bracket);
        uint64_t key = (uint64_t)g->alike[i] << 32 | text;
        uint32_t number = map_get(&numbers, key);
        if (number == MAP_NONE) map_put(&numbers, key, number = (uint32_t)numbers.count);
        if (keep) g->alike[i] = number;
    }
    size_t classes = numbers.count;
    map_free(&numbers);
    return classes;
}

/* True for an argument with a name, which is clearer to people than a number or a truth value. */
static bool is_telling(const struct names *texts, const struct group *g, size_t arg)
{
    const char *text = arg < g->item[0]->args ? names_get(texts, g->item[0]->arg[arg].text)->text : "";
    return isalpha((unsigned char)*text) && strcmp(text, "true") != 0 && strcmp(text, "false") != 0;
}

static bool keep_best(const struct names *texts, struct group *g, char bracket)
{
    size_t best = SIZE_MAX, most = g->classes;
    bool telling = false;
    for (size_t arg = 0; arg < MOST_ARGS; arg++) {
        size_t classes = g->kept[arg] ? 0 : classes_with(g, arg, bracket, false);
        bool better = classes == most && best != SIZE_MAX && !telling && is_telling(texts, g, arg);
        if (classes > most || better) {
            most = classes;
            best = arg;
            telling = is_telling(texts, g, arg);
        }
    }
    if (best != SIZE_MAX) {
        g->kept[best] = true;
        g->classes = classes_with(g, best, bracket, true);
    }
    return best != SIZE_MAX;
}

static bool keep_base(struct group *g)
{
    if (g->by_base || classes_with(g, SIZE_MAX, 0, false) == g->classes) return false;
    g->by_base = true;
    g->classes = classes_with(g, SIZE_MAX, 0, true);
    return true;
}

static void choose(const struct names *texts, struct group *g)
{
    for (int kept = 0; g->classes < g->count && kept < MOST_KEPT; kept++)
        if (!keep_best(texts, g, '<') && !keep_base(g) && !keep_best(texts, g, '(') && !keep_best(texts, g, ' ')) break;
}

/* ---- short names from the kept parts ---- */

static void name_items(struct names *texts, struct item *item, size_t count, int depth);

/* The shortened texts of one argument; `place` maps a text to its index in `item`. */
struct shown {
    struct item *item;
    size_t count, capacity;
    struct map place;
};

static void free_items(struct item *item, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(item[i].left.item);
        text_free(&item[i].result);
    }
    free(item);
}

static void show_slot(struct names *texts, const struct group *g, size_t arg, struct shown *shown, int depth)
{
    for (size_t i = 0; i < g->count; i++) {
        uint32_t text = arg < g->item[i]->args ? g->item[i]->arg[arg].text : UINT32_MAX;
        if (text != UINT32_MAX && map_get(&shown->place, text) == MAP_NONE) {
            shown->item = mem_grow(shown->item, &shown->capacity, shown->count + 1, sizeof *shown->item);
            map_put(&shown->place, text, (uint32_t)shown->count);
            shown->item[shown->count++] = (struct item){.name = names_get(texts, text)->text};
        }
    }
    name_items(texts, shown->item, shown->count, depth + 1);
}

/* Writes the kept arguments of one list. */
static void put_list(struct text *out, const struct group *g, const struct item *item, size_t part,
                     const struct shown *shown)
{
    char bracket = item->left.item[part].bracket;
    bool any = false, gap = false;
    for (size_t s = 0; s < item->args; s++) {
        if (item->arg[s].part != part) continue;
        if (!g->kept[s]) {
            gap = true;
            continue;
        }
        const struct item *argument = &shown[s].item[map_get(&shown[s].place, item->arg[s].text)];
        text_puts(out, any ? "" : bracket == '<' ? "<" : bracket == '(' ? "(" : " ");
        text_puts(out, gap ? DOTS : any ? ", " : "");
        text_puts(out, argument->result.data ? argument->result.data : "");
        any = true;
        gap = false;
    }
    if (any) {
        text_puts(out, gap ? DOTS : "");
        text_puts(out, bracket == '<' ? ">" : bracket == '(' ? ")" : "");
    }
}

static void put_item(struct names *texts, const struct group *g, struct item *item, const struct shown *shown)
{
    const struct name *prefix = names_get(texts, g->by_base ? item->base : item->prefix);
    size_t at = 0;
    for (size_t i = 0; i < item->left.count; i++) {
        size_t to = g->by_base ? MIN(item->left.item[i].at, prefix->length) : prefix->length;
        text_add(&item->result, prefix->text + at, to - at);
        at = to;
        put_list(&item->result, g, item, i, shown);
    }
    text_add(&item->result, prefix->text + at, prefix->length - at);
}

static void name_group(struct names *texts, struct item **item, size_t count, int depth)
{
    struct shown shown[MOST_ARGS] = {{0}};
    struct group g = {.item = item, .count = count, .classes = 1, .by_base = depth == 0};
    g.alike = mem_zero(count, sizeof *g.alike);
    if (depth < DEEPEST) choose(texts, &g);
    for (size_t s = 0; s < MOST_ARGS; s++)
        if (g.kept[s]) show_slot(texts, &g, s, &shown[s], depth);
    for (size_t i = 0; i < count; i++) put_item(texts, &g, item[i], shown);
    for (size_t s = 0; s < MOST_ARGS; s++) {
        free_items(shown[s].item, shown[s].count);
        map_free(&shown[s].place);
    }
    free(g.alike);
}

/* Restores whole names for items with equal short forms, until all differ. Whole names all differ. */
static void make_distinct(struct names *texts, struct item *item, size_t count)
{
    bool changed = true;
    while (changed) {
        struct map first = {0};
        changed = false;
        for (size_t i = 0; i < count; i++) {
            uint32_t text = intern(texts, item[i].result.data ? item[i].result.data : "", item[i].result.length);
            uint32_t other = map_get(&first, text);
            const size_t both[] = {i, other};
            map_put(&first, text, other == MAP_NONE ? (uint32_t)i : other);
            for (size_t k = 0; k < ARRAY_SIZE(both) && other != MAP_NONE; k++) {
                struct item *same = &item[both[k]];
                if (strcmp(same->result.data ? same->result.data : "", same->name) != 0) {
                    text_free(&same->result);
                    text_puts(&same->result, same->name);
                    changed = true;
                }
            }
        }
        map_free(&first);
    }
}

static int by_prefix(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    return x->prefix != y->prefix ? (x->prefix > y->prefix) - (x->prefix < y->prefix) : (x > y) - (x < y);
}

static void name_items(struct names *texts, struct item *item, size_t count, int depth)
{
    struct item **order = mem_zero(count, sizeof(void *));
    for (size_t i = 0; i < count; i++) {
        take_apart(texts, &item[i], depth == 0);
        order[i] = &item[i];
    }
    if (count) qsort(order, count, sizeof *order, by_prefix);
    for (size_t i = 0, from = 0; i <= count; i++) {
        if (i > from && (i == count || order[i]->prefix != order[from]->prefix)) {
            name_group(texts, order + from, i - from, depth);
            from = i;
        }
    }
    make_distinct(texts, item, count);
    free(order);
}

void short_names_init(struct short_names *shorts, struct names *names, const uint32_t *name, size_t count)
{
    struct names texts;
    struct item *item = mem_zero(count, sizeof *item);
    uint32_t *whole = mem_zero(count, sizeof *whole);
    size_t items = 0;
    *shorts = (struct short_names){0};
    names_init(&texts);
    for (size_t i = 0; i < count; i++) {
        if (map_get(&shorts->of, name[i]) == MAP_NONE) {
            map_put(&shorts->of, name[i], name[i]);
            whole[items] = name[i];
            item[items++].name = names_get(names, name[i])->text;
        }
    }
    name_items(&texts, item, items, 0);
    for (size_t i = 0; i < items; i++) {
        const struct text *result = &item[i].result;
        if (strcmp(result->data ? result->data : "", item[i].name) != 0)
            map_put(&shorts->of, whole[i], names_add(names, result->data, result->length));
    }
    free_items(item, items);
    free(whole);
    names_free(&texts);
}

uint32_t short_names_get(const struct short_names *shorts, uint32_t name)
{
    uint32_t number = map_get(&shorts->of, name);
    return number == MAP_NONE ? name : number;
}

void short_names_free(struct short_names *shorts)
{
    map_free(&shorts->of);
}

/* ---- stages ---- */

enum { LONG_WORD = 24, SOME_DIGITS = 3, KEPT_OF_WORD = 5 };

/* True for a long word of lower-case letters and digits: a checksum or the like. A reader needs only its beginning. */
static bool is_made_up(const char *word, size_t length)
{
    size_t digits = 0;
    for (size_t i = 0; i < length; i++) {
        if (!islower((unsigned char)word[i]) && !isdigit((unsigned char)word[i])) return false;
        digits += isdigit((unsigned char)word[i]) != 0;
    }
    return length >= LONG_WORD && digits >= SOME_DIGITS && digits < length;
}

void short_stage(const char *name, size_t length, struct text *out)
{
    text_puts(out, "");
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && name[end] != ' ') end++;
        bool cut = is_made_up(name + at, end - at);
        text_add(out, name + at, cut ? KEPT_OF_WORD : end - at);
        text_puts(out, cut ? DOTS : "");
        text_add(out, " ", end < length);
        at = end + 1;
    }
}
