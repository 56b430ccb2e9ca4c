/* pickle_machine.h - a machine for the opcodes of plain data in pickles, which executes nothing.
 *
 * Only opcodes for dictionaries, lists, tuples, texts, numbers, true, false and none are accepted, of protocols 2 to 5.
 * Every other opcode is refused: REDUCE, GLOBAL, BUILD, INST, persistent ids and all others that name a function or a
 * class. Sizes, nesting, and the memo are limited, and a container may be used again but not changed again, so that no
 * value contains itself.
 *
 * The machine knows texts and containers by numbers. What they hold is the business of a builder.
 */
#ifndef TFA_PICKLE_MACHINE_H
#define TFA_PICKLE_MACHINE_H

#include "read/stream/stream.h"

enum pickle_type {
    PICKLE_MARK,
    PICKLE_NONE,
    PICKLE_FALSE,
    PICKLE_TRUE,
    PICKLE_INTEGER, /* value: two's complement */
    PICKLE_FLOAT,   /* value: its bits */
    PICKLE_TEXT,    /* value: the number that the builder gave */
    PICKLE_LIST,    /* lists and tuples; value: their number: containers count from 0 */
    PICKLE_DICT
};

struct pickle_item {
    uint64_t value;
    uint8_t type;   /* enum pickle_type */
    bool is_sealed; /* it came from the memo, or is no list or dictionary: it may not be changed */
};

/* Each function returns NULL, or what is wrong with the pickle. */
struct pickle_builder {
    void *context;
    const char *(*text)(void *context, const char *bytes, size_t length, uint32_t *number);
    /* Makes the next container. */
    const char *(*begin)(void *context, bool is_dict);
    /* Adds items to a list, or keys, each with its value behind it, to a dictionary. There are no marks among them. */
    const char *(*add)(void *context, const struct pickle_item *to, const struct pickle_item *item, size_t count);
    /* The container is whole. Called once for each container, before it is added to another one. */
    const char *(*end)(void *context, uint32_t container);
};

/* The caller sets the first four members, and frees the machine in every case. */
struct pickle_machine {
    struct stream *stream; /* open */
    const struct pickle_builder *builder;
    uint64_t most_values;
    size_t longest_text; /* in bytes */
    /* The rest is private to pickle_machine.c. */
    uint64_t values, opcode_at;
    struct pickle_item *stack;
    size_t count, capacity;
    uint64_t *memo; /* type << 32 | value of an item; PICKLE_MARK: none */
    size_t memos, memo_capacity;
    uint8_t *state; /* of each container: its nesting, OPEN, FROZEN */
    size_t containers, state_capacity;
    const char *fault; /* what is wrong; NULL: nothing */
    char *long_fault;  /* the same, if there are numbers in it */
};

/* Both take the first bytes of a file. */
bool is_pickle(const char *bytes, size_t length);
/* Returns the first key of the dictionary that the pickle seems to be; NULL: it has none. */
const char *pickle_first_key(const char *bytes, size_t length, size_t *key_length);
/* Executes the pickle up to its STOP, behind which the stream stays. Returns NULL, or the opcode that is refused, its
 * offset and the reason, which the caller frees. */
char *pickle_execute(struct pickle_machine *machine, struct pickle_item *result);
void pickle_machine_free(struct pickle_machine *machine);

#endif
