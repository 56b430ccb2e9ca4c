/* kineto_event.c - scans an event in place in one pass, member by member.
 *
 * Keys may come in any order. If a member appears twice, the last one counts. Other members are skipped.
 * torch_npu gives the tasks of its devices no category, and the export of a list of FunctionEvents has none at all; they
 * get one here, so that all readers know them.
 */
#include "read/kineto_event.h"

#include <stdlib.h>
#include <string.h>

enum key {
    KEY_NONE,
    KEY_PH,
    KEY_CAT,
    KEY_NAME,
    KEY_TS,
    KEY_DUR,
    KEY_PID,
    KEY_TID,
    KEY_ID,
    KEY_ARGS,
    KEY_OTHER, /* of events, but unused */
    KEY_STREAM,
    KEY_DEVICE,
    KEY_CORRELATION,
    KEY_EXTERNAL,
    KEY_COLLECTIVE,
    KEY_TASK,
    KEY_GRAPH,
    KEY_NODE,
    KEY_KERNEL,
};

static const struct {
    const char *text;
    enum key key;
    bool in_args;
} key_rows[] = {
    {"ph", KEY_PH, false},
    {"cat", KEY_CAT, false},
    {"name", KEY_NAME, false},
    {"ts", KEY_TS, false},
    {"dur", KEY_DUR, false},
    {"pid", KEY_PID, false},
    {"tid", KEY_TID, false},
    {"id", KEY_ID, false},
    {"args", KEY_ARGS, false},
    {"s", KEY_OTHER, false},
    {"bp", KEY_OTHER, false},
    {"stream", KEY_STREAM, true},
    {"sycl queue", KEY_STREAM, true}, /* of XPUs */
    {"device", KEY_DEVICE, true},
    {"correlation", KEY_CORRELATION, true},
    {"External id", KEY_EXTERNAL, true},
    {"external id", KEY_EXTERNAL, true},
    {"Collective name", KEY_COLLECTIVE, true},
    {"Task Type", KEY_TASK, true},
    {"graph id", KEY_GRAPH, true},
    {"graph node id", KEY_NODE, true},
    {"kernel", KEY_KERNEL, true},
};

void scanner_init(struct kineto_scanner *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(key_rows); i++)
        keys_add(&s->keys[key_rows[i].in_args], key_rows[i].text, key_rows[i].key);
}

/* ---- an event ---- */

static int64_t signed_of(const struct number *number)
{
    return number->negative ? -(int64_t)number->magnitude : (int64_t)number->magnitude;
}

/* Reads a number into `*to` and sets `flag` if there is one. Returns `p` itself if the value is no number. */
static inline const char *scan_number(struct kineto_event *event, const char *p, unsigned flag, int64_t *to)
{
    struct number number;
    const char *after = json_number(p, 0, &number);
    event->has &= ~flag;
    if (number.state == NUMBER_GOOD && number.magnitude <= INT64_MAX) {
        *to = signed_of(&number);
        event->has |= flag;
    }
    return after;
}

/* Reads an id: 64 bits, unsigned. Ids of flows are often strings, also hexadecimal ones. */
static const char *scan_id(struct kineto_event *event, const char *p, unsigned flag, uint64_t *to)
{
    struct number number;
    event->has &= ~flag;
    if (p[0] == '"' && p[1] == '0' && p[2] == 'x') {
        char *end;
        char digits[24] = {0};
        memcpy(digits, p + 3, 17);
        *to = strtoull(digits, &end, 16);
        event->has |= end > digits && end <= digits + 16 && *end == '"' && digits[0] != '-' ? flag : 0;
        return p;
    }
    const char *after = json_number(p, 0, &number);
    if (number.state == NUMBER_GOOD && !number.negative) {
        *to = number.magnitude;
        event->has |= flag;
    }
    return after;
}

/* Reads microseconds as nanoseconds. A value out of range becomes INT64_MAX or INT64_MIN. */
static inline const char *scan_time(struct kineto_event *event, const char *p, unsigned flag, unsigned is_float,
                                    int64_t *to)
{
    struct number number;
    const char *after = json_number(p, 3, &number);
    event->has &= ~(flag | is_float);
    if (number.state == NUMBER_NONE) return after;
    event->has |= flag | (number.is_float ? is_float : 0);
    *to = number.magnitude > INT64_MAX ? (number.negative ? INT64_MIN : INT64_MAX) : signed_of(&number);
    return after;
}

/* Reads a string as written; its escapes are resolved once the event is complete. */
static inline const char *scan_text(const char *p, struct slice *text, bool *escaped)
{
    *text = (struct slice){0};
    *escaped = false;
    if (*p != '"') return p;
    const char *quote = json_string_end(p + 1, escaped);
    *text = (struct slice){p + 1, (size_t)(quote - p - 1)};
    return quote + 1;
}

/* Tells whether the bytes at `p` are those of a guess, as far as they count. */
static inline bool is_guess(const char *p, const char *bytes, unsigned mask)
{
    return mask && (tfi_sixteen_bits(tfi_sixteen_at(p) == tfi_sixteen_at(bytes)) & mask) == mask;
}

/* Reads the pid or tid of a row: a number, bare or in a string, or another string. Most events have that of the one
 * before, which comparing finds faster than parsing. */
static inline const char *scan_row(struct kineto_event *event, const char *p, unsigned flag, struct row_guess *guess,
                                   int64_t *to, struct slice *text)
{
    bool escaped;
    *text = (struct slice){0};
    if (is_guess(p, guess->bytes, guess->mask)) {
        *to = guess->number;
        event->has |= flag;
        return p + guess->length;
    }
    const char *after = scan_number(event, p, flag, to);
    size_t length = (size_t)(after - p);
    if (*p == '"') return scan_text(p, text, &escaped);
    if (event->has & flag && *after == ',' && length < sizeof guess->bytes) {
        *guess = (struct row_guess){.mask = (uint16_t)((2u << length) - 1), .length = (uint8_t)length, .number = *to};
        memcpy(guess->bytes, p, sizeof guess->bytes);
    }
    return after;
}

/* Reads the phase, one letter; '?' stands for a longer or empty string. */
static inline const char *scan_phase(struct kineto_event *event, const char *p)
{
    struct slice phase;
    bool escaped;
    char plain[6];
    p = scan_text(p, &phase, &escaped);
    if (__builtin_expect(escaped && phase.length <= sizeof plain, 0))
        phase = (struct slice){plain, json_unescape(plain, phase.at, phase.length)};
    event->phase = phase.length == 1 ? *phase.at : phase.at ? '?' : 0;
    return p;
}

static inline const char *scan_member(struct kineto_scanner *s, struct kineto_event *event, enum key key, const char *p)
{
    bool escaped;
    switch (key) {
    case KEY_PH: return scan_phase(event, p);
    case KEY_CAT: return scan_text(p, &event->category, &s->escaped_category);
    case KEY_NAME: return scan_text(p, &event->name, &s->escaped_name);
    case KEY_TS: return scan_time(event, p, HAS_TS, HAS_FLOAT_TS, &event->ts);
    case KEY_DUR: return scan_time(event, p, HAS_DUR, HAS_FLOAT_DUR, &event->dur);
    case KEY_PID: return scan_row(event, p, HAS_PID, &s->row[0], &event->pid, &event->pid_text);
    case KEY_TID: return scan_row(event, p, HAS_TID, &s->row[1], &event->tid, &event->tid_text);
    case KEY_ID: return scan_id(event, p, HAS_ID, &event->id);
    case KEY_STREAM: return scan_number(event, p, HAS_STREAM, &event->stream);
    case KEY_DEVICE: return scan_number(event, p, HAS_DEVICE, &event->device);
    case KEY_CORRELATION: return scan_id(event, p, HAS_CORRELATION, &event->correlation);
    case KEY_EXTERNAL: return scan_id(event, p, HAS_EXTERNAL, &event->external);
    case KEY_COLLECTIVE: event->has |= HAS_COLLECTIVE; return p;
    case KEY_TASK: return scan_text(p, &event->task, &escaped);
    case KEY_GRAPH: return scan_id(event, p, HAS_GRAPH, &event->graph);
    case KEY_NODE: return scan_id(event, p, HAS_NODE, &event->node);
    case KEY_KERNEL: return scan_text(p, &event->kernel, &escaped);
    default: return p;
    }
}

/* Returns the position behind white space, a colon and white space; NULL without a colon. */
static inline const char *skip_colon(const char *p, const char **stopped)
{
    *stopped = p = json_space(p);
    return *p == ':' ? json_space(p + 1) : NULL;
}

/* Finds the key whose text begins at `text`, and remembers it. Returns the position of its value, or NULL if no colon
 * follows. */
static __attribute__((noinline)) const char *find_key(struct kineto_scanner *s, struct key_guess *guess,
                                                      const bool in_args, const char *text, const char **stopped)
{
    bool escaped = false;
    const char *quote = json_string_end(text, &escaped), *value = skip_colon(quote + 1, stopped);
    size_t length = (size_t)(quote - text), most = sizeof guess->bytes;
    unsigned key =
        escaped ? keys_find_escaped(&s->keys[in_args], text, length) : keys_find(&s->keys[in_args], text, length);
    *guess = (struct key_guess){.key = (uint8_t)key};
    if (!value || escaped || length >= most) return value;
    size_t whole = (size_t)(value - text);
    guess->length = (uint8_t)(whole <= most ? whole : length + 1);
    guess->mask = (uint16_t)((1u << guess->length) - 1);
    memcpy(guess->bytes, text, most);
    return value;
}

/* The same, and sets the guess's key to it.
 *
 * Events of one kind have the same keys in the same order. Comparing with the key that was here last frees the
 * processor from waiting for the quote's position, on which all that follows depends. */
static inline const char *scan_key(struct kineto_scanner *s, struct key_guess *guess, const bool in_args,
                                   const char *text, const char **stopped)
{
    if (!is_guess(text, guess->bytes, guess->mask)) return find_key(s, guess, in_args, text, stopped);
    const char *p = text + guess->length;
    return p[-1] == '"' ? skip_colon(p, stopped) : json_space(p);
}

/* Reads the members of an event or of its args. Returns the position behind it, or NULL: *stopped has the position
 * of the error. */
static inline __attribute__((always_inline)) const char *scan_members(struct kineto_scanner *s,
                                                                      struct kineto_event *event, const char *p,
                                                                      const char **stopped, const bool in_args);

static __attribute__((noinline)) const char *scan_args(struct kineto_scanner *s, struct kineto_event *event,
                                                       const char *p, const char **stopped)
{
    const char *start = p;
    event->has &=
        ~(unsigned)(HAS_STREAM | HAS_DEVICE | HAS_CORRELATION | HAS_EXTERNAL | HAS_COLLECTIVE | HAS_GRAPH | HAS_NODE);
    event->args = event->task = event->kernel = (struct slice){0};
    if (*p != '{') return json_skip(p, stopped);
    p = scan_members(s, event, p, stopped, true);
    if (p) event->args = (struct slice){start, (size_t)(p - start)};
    return p;
}

static inline const char *scan_members(struct kineto_scanner *s, struct kineto_event *event, const char *p,
                                       const char **stopped, const bool in_args)
{
    p = json_space(p + 1);
    if (*p == '}') return p + 1;
    struct key_guess *guesses = s->guess[in_args][in_args ? event->category.length % GUESSED_KINDS : 0];
    for (size_t member = 0;; member += member < GUESSED_MEMBERS - 1) {
        *stopped = p;
        if (*p != '"') return NULL;
        if (!in_args) guesses = s->guess[false][event->phase == 'X'];
        struct key_guess *guess = &guesses[member];
        if (!(p = scan_key(s, guess, in_args, p + 1, stopped))) return NULL;
        enum key key = (enum key)guess->key;
        const char *after = key == KEY_NONE ? p : scan_member(s, event, key, p);
        if (!in_args && key == KEY_ARGS) after = scan_args(s, event, p, stopped);
        else if (after == p) after = json_skip(p, stopped);
        if (!after) return NULL;
        *stopped = p = json_space(after);
        if (*p != ',') return *p == '}' ? p + 1 : NULL;
        p = json_space(p + 1);
    }
}

/* Resolves all texts of an event at once, because growing the scratch buffer moves it. */
static void resolve_escapes(struct kineto_scanner *s, struct kineto_event *event)
{
    struct slice *texts[] = {s->escaped_name ? &event->name : NULL, s->escaped_category ? &event->category : NULL};
    size_t need = 0;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) need += texts[i] ? texts[i]->length : 0;
    s->scratch.data = mem_grow(s->scratch.data, &s->scratch.capacity, need + 1, 1);
    char *to = s->scratch.data;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (texts[i]) {
            texts[i]->length = json_unescape(to, texts[i]->at, texts[i]->length);
            texts[i]->at = to;
            to += texts[i]->length;
        }
    }
    s->scratch.length = (size_t)(to - s->scratch.data);
}

/* ---- tasks of NPUs ---- */

/* The first word that is part of a task's type gives its category; other types are kernels (AI_CORE, MIX_AIV ...). */
static const struct {
    const char *word, *category;
} tasks[] = {
    {"WAIT", "npu_sync"},     {"RECORD", "npu_task"}, {"WRITE_VALUE", "npu_task"},   {"PLACE_HOLDER", "npu_task"},
    {"MODEL_", "npu_task"},   {"PROFIL", "npu_task"}, {"COMMUNICATION", "npu_task"}, {"RDMA", "npu_task"},
    {"MEMCPY", "npu_memcpy"}, {"DMA", "npu_memcpy"},
};

/* Gives a task of a device, or a collective operation of HCCL, its category and its device. torch_npu packs the device
 * into the low five bits of a row's pid. */
static void take_task(struct kineto_event *event)
{
    const char *category = "npu_kernel";
    bool is_collective = event->name.length > 5 && memcmp(event->name.at, "hcom_", 5) == 0;
    if (event->phase != 'X' || (!event->task.length && !is_collective)) return;
    for (size_t i = 0; i < ARRAY_SIZE(tasks) && event->task.length; i++) {
        if (!memmem(event->task.at, event->task.length, tasks[i].word, strlen(tasks[i].word))) continue;
        category = tasks[i].category;
        break;
    }
    event->category = (struct slice){category, strlen(category)};
    if (!(event->has & HAS_PID) || event->has & HAS_DEVICE) return;
    event->device = event->pid & 31;
    event->has |= HAS_DEVICE;
}

/* ---- the export of a list of events ---- */

/* FunctionEvents of torch.autograd's profilers are exported without categories: the row says where they ran. */
static void take_function(struct kineto_event *event)
{
    const char *category = slice_is(event->pid_text, "CPU functions")    ? "cpu_op"
                           : slice_is(event->pid_text, "CUDA functions") ? "kernel"
                                                                         : NULL;
    if (category && event->phase == 'X') event->category = (struct slice){category, strlen(category)};
}

const char *scan_event(struct kineto_scanner *s, const char *p, struct kineto_event *event, const char **stopped)
{
    const char *start = p;
    const struct slice none = {0};
    event->category = event->name = event->pid_text = event->tid_text = event->args = event->task = event->kernel =
        none;
    event->has = 0; /* fields without a flag are never read; clearing all costs as much as a member */
    event->phase = 0;
    s->escaped_name = s->escaped_category = false;
    p = scan_members(s, event, p, stopped, false);
    if (p && __builtin_expect(s->escaped_name || s->escaped_category, 0)) resolve_escapes(s, event);
    if (p) event->raw = (struct slice){start, (size_t)(p - start)};
    if (p && !event->category.at) take_task(event);
    if (p && !event->category.at && event->pid_text.at) take_function(event);
    return p;
}

bool is_event_key(const struct kineto_scanner *s, const char *text, size_t length)
{
    return keys_find(&s->keys[false], text, length) != KEY_NONE;
}

void scanner_free(struct kineto_scanner *s)
{
    text_free(&s->scratch);
}
