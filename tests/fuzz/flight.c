/* flight.c - feeds arbitrary bytes to the reader of pickles and to the loader of the flight recorder's dumps, and checks
 * the invariants of both.
 *
 * Every value of a pickle comes from the stack or the memo, so that no value contains itself, and none is nested deeper
 * than 32 levels. A small pickle may describe a huge tree, because its parts may be shared: the walk has a limit.
 */
#include <jansson.h>
#include <string.h>

#include "fuzz.h"
#include "model/load/load_kineto.h"
#include "read/torch/pickle_in.h"

enum { MOST_NESTING = 32, MOST_STEPS = 100000 };

struct place {
    json_t *value;
    size_t next; /* of a list */
    void *key;   /* of an object: its next key */
};

static bool is_container(const json_t *value)
{
    return json_is_array(value) || json_is_object(value);
}

/* Returns the next value inside a container; NULL: there is none left. */
static json_t *next_inside(struct place *at)
{
    if (json_is_array(at->value)) return json_array_get(at->value, at->next++);
    json_t *value = at->key ? json_object_iter_value(at->key) : NULL;
    at->key = at->key ? json_object_iter_next(at->value, at->key) : NULL;
    return value;
}

static struct place place_of(json_t *value)
{
    return (struct place){value, 0, json_is_object(value) ? json_object_iter(value) : NULL};
}

static void walk(json_t *root)
{
    struct place path[MOST_NESTING + 1];
    size_t depth = 0, steps = 0;
    if (is_container(root)) path[depth++] = place_of(root);
    while (depth && steps++ < MOST_STEPS) {
        json_t *value = next_inside(&path[depth - 1]);
        if (!value) depth--;
        if (!value || !is_container(value)) continue;
        require(depth < MOST_NESTING, "values are nested in 32 levels at most");
        for (size_t i = 0; i < depth; i++) require(path[i].value != value, "no value contains itself");
        path[depth++] = place_of(value);
    }
}

static void check_pickle(const uint8_t *bytes, size_t size)
{
    char *why = NULL;
    json_t *value = pickle_read(bytes, size, &why);
    require(!value == (why != NULL), "a pickle has a value, or is refused with a reason");
    if (value) walk(value);
    json_decref(value);
    free(why);
}

static void check_process(const struct process *p, const struct names *names)
{
    for (size_t i = 0; i < p->collectives.count; i++) {
        const struct collective *c = &p->collectives.collective[i];
        require(c->call_start >= p->first && c->call_start <= p->last, "a call lies in its process");
        require(c->call_end == UNKNOWN_TIME || c->call_end >= c->call_start, "no call ends before it begins");
        require(c->end == UNKNOWN_TIME || c->end >= c->start, "no collective ends before it begins");
        require(c->communicator < names->count && c->members < names->count && c->name < names->count, "names exist");
        require(c->op < NR_COLLECTIVE_OPS, "the operation exists");
        require(c->size == UNKNOWN_NUMBER || c->size > 0, "a group has members");
    }
    for (size_t i = 0; i < p->silences; i++) require(find_thread(p, p->silence[i].serial), "frames are of a thread");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct names names;
    struct process process;
    struct notes notes = {0};
    check_pickle(bytes, size);
    names_init(&names);
    process_init(&process, "memory_3", "flight");
    bool usable = load_flight_bytes((const char *)bytes, size, "memory_3", &names, &process, &notes);
    require(usable == !notes_have(&notes, UNUSABLE), "an unusable dump gives a note");
    require(!usable || process.rank == 3, "the name of the file ends in the rank");
    require(!usable || process.complete == !notes_have(&notes, LOSS), "a loss gives a note");
    if (usable) check_process(&process, &names);
    notes_free(&notes);
    process_free(&process);
    names_free(&names);
    return 0;
}
