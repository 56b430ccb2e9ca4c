/* event.h - an event on its way from a source to a sink of an export: its row, phase, times, names and arguments.
 *
 * Sources: the model (export_tfr.c), a Kineto file (export_kineto.c), a dftracer file (dftracer/to_chrome.c). Between the two
 * files and the sinks one stage chooses and fans out (export/targets.h). Sinks: a Chrome trace of its own, a merged one,
 * Perfetto's format, dftracer's, an overlay.
 *
 * The model does not pass through that stage. Its events are chosen by the rows of its tables before they are made, because
 * what is made depends on the choice: ids count the events of the file, the first chosen work of a launch begins its arrow,
 * and a box of a Python function spans the chosen operators. Choosing is cheap there: of the 2.7 s that a Chrome trace of
 * 1 million operators and 1 million blocks takes (user CPU), loading and choosing are 0.6 s.
 * The model's Chrome trace needs no sink, as `struct emit` writes it: made of values that were printed afterwards, the same
 * bytes took 4.4 s, and 4.0 s where the values did not copy their keys.
 *
 * The values of an event of the model are typed values, which `struct emit` makes in place of text. An event of a file has
 * its text, and a sink that wants values splits it: their values are then JSON.
 */
#ifndef TFA_EVENT_H
#define TFA_EVENT_H

#include "read/kineto.h"

struct process;

enum value_kind {
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_COUNT,
    VALUE_INT,
    VALUE_US, /* nanoseconds, written as microseconds */
    VALUE_DOUBLE,
    VALUE_HEX,
    VALUE_TEXT,
    VALUE_JSON, /* text that is JSON */
    VALUE_OBJECT,
    VALUE_LIST, /* of both: the members follow, up to VALUE_END */
    VALUE_END,
};

struct value {
    struct slice key;
    enum value_kind kind;
    bool has_key;    /* else it is in a list */
    bool is_written; /* the key is as JSON writes it, with escapes */
    union {
        uint64_t count; /* also of a bool */
        int64_t number;
        double real;
        struct slice text;
    };
};

/* Values that grow. Their texts are places in `texts` until event_of_values. */
struct event_values {
    struct value *value;
    size_t count, capacity;
    struct text texts;
};
void values_keep(struct event_values *values, const char *key, enum value_kind kind, uint64_t bits);
/* Take a value, unless `values` is NULL. Return whether they did. */
static inline bool values_take(struct event_values *values, const char *key, enum value_kind kind, uint64_t bits)
{
    if (values) values_keep(values, key, kind, bits);
    return values;
}
bool values_take_double(struct event_values *values, const char *key, double value);
bool values_take_text(struct event_values *values, const char *key, enum value_kind kind, const char *text,
                      size_t length);
void event_values_free(struct event_values *values);

struct event {
    char phase;      /* 0: none */
    unsigned has;    /* enum kineto_has: the numbers below that are present */
    int64_t ts, dur; /* nanoseconds, in the model's time */
    int64_t pid, tid;
    int64_t device;
    uint64_t id;
    struct slice pid_text, tid_text; /* if they are strings ("stream 7") */
    struct slice category, name;     /* without `at` if absent */
    struct slice raw, args;          /* of a file: the event and its arguments, as they stand there */
    bool has_args;                   /* there is an object of arguments */
    const struct value *argument;    /* the arguments, without the object around them */
    size_t arguments;
    const struct event_values *values; /* of the model: all values of the event */
};

/* A receiver of the events of an export. Times are those of the model. */
struct event_taker {
    void *context;
    void (*begin)(void *context, const struct process *process, int64_t pid); /* pid: of the process in the events */
    void (*event)(void *context, const struct event *event);
    void (*end)(void *context);
    /* Gets a member of a PyTorch trace beside its events; may be NULL. */
    void (*member)(void *context, struct slice key, struct slice value);
    bool only_kept; /* it gets no event that the loader counts as lost */
    bool
        is_drawn; /* its events are drawn as they stand in the file: they are checked, and work that overlaps is moved */
};

/* Returns the event that the values of one event of the model make; their times count from `base`. It is valid until they
 * change. */
struct event event_of_values(struct event_values *values, int64_t base);
/* Returns an event of a file. */
struct event event_of_file(const struct kineto_event *event);
/* Splits the arguments of an event of a file into values, which lie in `room`. */
void event_split(struct event *event, struct event_values *room);

/* Returns the last argument of an event with this key, or NULL. */
const struct value *event_argument(const struct event *event, const char *key);
/* Returns the text of a value, or a number or word as JSON writes it; NULL for other values and no value. The caller
 * frees it. */
char *value_text(const struct value *value);
bool value_int(const struct value *value, int64_t *number);
double value_real(const struct value *value); /* a number of the model; NAN for other values */
/* Returns JSON that is an object; a slice without `at` for other values and no value. */
struct slice value_object(const struct value *value);
static inline bool value_has_key(const struct value *value, const char *key)
{
    return value->has_key && (value->is_written ? json_is_key(value->key, key) : slice_is(value->key, key));
}
/* Returns the number of values of which a value consists. */
size_t value_length(const struct value *value);
/* Writes the key in quotes, as it stands in the file. */
struct out;
void value_print_key(struct out *out, const struct value *value);
/* Prints a value of the model, with its members. Returns the number of values of which it consists. */
struct emit;
size_t value_print(struct emit *e, const struct value *value);

#endif
