/* snapshot_build.c - keeps lists as spans of rows, and gives each container its kind. */
#include "read/torch/snapshot_build.h"

#include <stdlib.h>
#include <string.h>

#include "tfi_trace.h"

enum { MOST_FRAME_BYTES = 1 << 28 };

#define WORD(name, text) text,
static const char *const words[] = {
#include "read/torch/snapshot_words.def"
};
#undef WORD

/* The words come first among the texts, so that their numbers are those of the enum. */
void snapshot_building_init(struct snapshot_building *b, struct snapshot *snapshot)
{
    *b = (struct snapshot_building){.snapshot = snapshot, .free_open = SNAPSHOT_NONE};
    for (size_t i = 0; i < NR_WORDS; i++) snapshot_pool_add(&snapshot->texts, words[i], strlen(words[i]));
    snapshot->list = mem_grow(snapshot->list, &snapshot->list_capacity, 1, sizeof *snapshot->list);
    snapshot->list[snapshot->lists++] = (struct snapshot_list){0}; /* stands for every empty list */
}

void snapshot_building_free(struct snapshot_building *b)
{
    for (size_t i = 0; i < b->opens; i++) free(b->open[i].span);
    free(b->open);
    free(b->kind);
    free(b->id);
    free(b->numbers);
    free(b->history);
    *b = (struct snapshot_building){0};
}

/* ---- texts and containers ---- */

static const char *take_text(void *context, const char *bytes, size_t length, uint32_t *number)
{
    struct snapshot_building *b = context;
    *number = snapshot_pool_add(&b->snapshot->texts, bytes, length);
    return NULL;
}

static const char *begin_container(void *context, bool is_dict)
{
    struct snapshot_building *b = context;
    (void)is_dict;
    b->kind = mem_grow(b->kind, &b->kind_capacity, b->containers + 1, sizeof *b->kind);
    b->id = mem_grow(b->id, &b->id_capacity, b->containers + 1, sizeof *b->id);
    b->kind[b->containers] = KIND_EMPTY;
    b->id[b->containers++] = SNAPSHOT_NONE;
    return NULL;
}

/* ---- dictionaries ---- */

static const char *add_to_dict(struct snapshot_building *b, uint64_t container, const struct pickle_item *item,
                               size_t count)
{
    struct fields fields = {0};
    if (b->kind[container] > KIND_OTHER) return "it changes a dictionary of the snapshot that has its items already";
    for (size_t i = 0; i < count; i += 2)
        if (item[i].type == PICKLE_TEXT && item[i].value < NR_KEYS) fields.value[item[i].value] = item[i + 1];
    b->kind[container] = snapshot_row(b, &fields, &b->id[container]);
    if (b->kind[container] != KIND_FRAME) return NULL;
    return b->frame_bytes <= MOST_FRAME_BYTES ? NULL : "its frames have more than 268,435,456 bytes";
}

/* ---- lists ---- */

static struct open_list *open_list(struct snapshot_building *b, uint64_t container)
{
    uint32_t at = b->id[container];
    if (at != SNAPSHOT_NONE) return &b->open[at];
    at = b->free_open;
    if (at == SNAPSHOT_NONE) {
        b->open = mem_grow(b->open, &b->open_capacity, b->opens + 1, sizeof *b->open);
        at = (uint32_t)b->opens++;
        b->open[at] = (struct open_list){0};
    } else {
        b->free_open = b->open[at].next;
    }
    b->id[container] = at;
    b->kind[container] = LIST_OF;
    return &b->open[at];
}

/* Returns what an item is in its list, and its number there. */
static uint8_t kind_of(const struct snapshot_building *b, const struct pickle_item *item, uint32_t *id)
{
    *id = SNAPSHOT_NONE;
    if (item->type == PICKLE_INTEGER) return KIND_NUMBERS;
    if (item->type < PICKLE_LIST) return KIND_OTHER;
    uint8_t kind = b->kind[item->value];
    *id = b->id[item->value];
    if (item->type == PICKLE_DICT) return kind;
    if (kind == KIND_EMPTY) *id = 0; /* the list that stands for every empty one */
    return kind == KIND_EMPTY || kind == (LIST_OF | KIND_EVENT) ? KIND_LIST : KIND_OTHER;
}

static void add_item(struct open_list *list, uint32_t id)
{
    struct snapshot_span *last = list->spans ? &list->span[list->spans - 1] : NULL;
    if (last && last->first + last->count == id) {
        last->count++;
        return;
    }
    list->span = mem_grow(list->span, &list->capacity, list->spans + 1, sizeof *list->span);
    list->span[list->spans++] = (struct snapshot_span){id, 1};
}

static const char *add_to_list(struct snapshot_building *b, uint64_t container, const struct pickle_item *item,
                               size_t count)
{
    if (!count) return NULL;
    struct open_list *list = open_list(b, container);
    for (size_t i = 0; i < count; i++) {
        uint32_t id;
        uint8_t kind = kind_of(b, &item[i], &id);
        if (kind == KIND_NUMBERS && list->numbers < 2) list->number[list->numbers++] = item[i].value;
        if (kind <= KIND_NUMBERS || (list->of && list->of != kind)) {
            list->others++;
            continue;
        }
        list->of = kind;
        add_item(list, id);
    }
    return NULL;
}

static const char *add_items(void *context, const struct pickle_item *to, const struct pickle_item *item, size_t count)
{
    return (to->type == PICKLE_DICT ? add_to_dict : add_to_list)(context, to->value, item, count);
}

/* ---- whole lists ---- */

/* The innermost frames that a stack of the model can have. */
static uint32_t make_stack(struct snapshot_building *b, const struct open_list *list)
{
    uint32_t frame[TFI_STACK_FRAMES];
    size_t frames = 0, all = 0;
    for (size_t i = 0; i < list->spans; i++) {
        all += list->span[i].count;
        for (uint32_t k = 0; k < list->span[i].count && frames < TFI_STACK_FRAMES; k++)
            frame[frames++] = list->span[i].first + k;
    }
    b->snapshot->deep += all > frames;
    return snapshot_pool_add(&b->snapshot->stacks, frame, frames * sizeof *frame);
}

static uint32_t make_list(struct snapshot *s, const struct open_list *list)
{
    struct snapshot_list made = {.first = s->spans, .spans = list->spans};
    s->span = mem_grow(s->span, &s->span_capacity, s->spans + list->spans, sizeof *s->span);
    memcpy(s->span + s->spans, list->span, list->spans * sizeof *list->span);
    s->spans += list->spans;
    for (size_t i = 0; i < list->spans; i++) made.items += list->span[i].count;
    s->list = mem_grow(s->list, &s->list_capacity, s->lists + 1, sizeof *s->list);
    s->list[s->lists] = made;
    return (uint32_t)s->lists++;
}

static uint32_t make_numbers(struct snapshot_building *b, const struct open_list *list)
{
    b->numbers = mem_grow(b->numbers, &b->number_capacity, b->number_count + 1, sizeof *b->numbers);
    memcpy(b->numbers[b->number_count], list->number, sizeof list->number);
    return (uint32_t)b->number_count++;
}

/* Gives a list that was open its kind and its number. */
static const char *end_container(void *context, uint32_t container)
{
    struct snapshot_building *b = context;
    uint32_t at = b->id[container];
    if (b->kind[container] != LIST_OF) return NULL; /* a dictionary, or an empty list */
    struct open_list *list = &b->open[at];
    b->kind[container] = KIND_OTHER;
    if (list->of == KIND_FRAME) {
        b->kind[container] = KIND_STACK;
        b->id[container] = make_stack(b, list);
    } else if (list->of) {
        b->kind[container] = LIST_OF | list->of;
        b->id[container] = make_list(b->snapshot, list);
    } else if (list->numbers == 2) {
        b->kind[container] = KIND_NUMBERS;
        b->id[container] = make_numbers(b, list);
    }
    if (list->of) b->snapshot->bad += list->others;
    free(list->span);
    *list = (struct open_list){.next = b->free_open};
    b->free_open = at;
    return NULL;
}

struct pickle_builder snapshot_builder(struct snapshot_building *building)
{
    return (struct pickle_builder){building, take_text, begin_container, add_items, end_container};
}

bool snapshot_is_built(const struct snapshot_building *b, const struct pickle_item *item)
{
    return item->type == PICKLE_DICT && b->kind[item->value] == KIND_ROOT;
}
