/* joined.c - writes a given execution trace with the times and the device work of its functions.
 *
 * This is what Chakra's trace_link makes of an execution trace and a Kineto trace, with its names: a node gets
 * inclusive_dur, exclusive_dur and ts in microseconds. Behind it comes a node for each kernel, copy and set that the
 * function launched: a copy of the function's node with an id of its own, with the function as ctrl_deps, and with cat,
 * ph and stream. Everything else in the file stays as it is.
 *
 * A small file could ask for a huge answer, with one large node and many kernels, or with many nodes of one function. So
 * the copies of large nodes have a limit in all; beyond it a node of device work has no inputs, outputs and attributes.
 * And the work follows the first node of its function only.
 */
#include "write/execution/joined.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sets/bits.h"
#include "read/json/clean.h"
#include "read/torch/execution_file.h"

#define LARGEST_ID (INT64_MAX / 2)
enum { LARGE_NODE = 16 << 10 };
#define LARGE_COPIES (UINT64_C(256) << 20) /* bytes of copies of large nodes */

struct join {
    struct out *out;
    const struct joining *with;
    struct joined_counts *counts;
    struct strict strict;
    int64_t id; /* the next one */
    uint64_t copied;
    struct bits written; /* calls that have a node */
    bool has_node, has_member, in_nodes;
};

/* ---- numbers of a node ---- */

static bool id_of(struct slice node, int64_t *id)
{
    return *node.at == '{' && json_int(json_member(node, "id"), id) && *id >= 0 && *id <= LARGEST_ID;
}

/* Returns the node's rf_id, an attribute or, before schema 1.0.2, a member; 0 if it has none. */
static uint64_t function_of(struct slice node)
{
    struct slice attributes = json_member(node, "attrs"), key, attribute;
    int64_t number;
    if (json_int(json_member(node, "rf_id"), &number)) return number > 0 ? (uint64_t)number : 0;
    while (attributes.at && json_next(&attributes, &key, &attribute)) {
        struct slice name = *attribute.at == '{' ? json_member(attribute, "name") : (struct slice){0};
        if (!name.at || !slice_is(name, "\"rf_id\"")) continue;
        return json_int(json_member(attribute, "value"), &number) && number > 0 ? (uint64_t)number : 0;
    }
    return 0;
}

static bool has_name(struct slice node, uint64_t name)
{
    char *text = json_text(json_member(node, "name"));
    bool has = !name || (text && hash_text(text, strlen(text)) == name);
    free(text);
    return has;
}

/* ---- nodes ---- */

static void put_times(struct join *j, int64_t start, int64_t inclusive, int64_t exclusive)
{
    out_puts(j->out, ",\"inclusive_dur\":");
    out_us(j->out, inclusive);
    out_puts(j->out, ",\"exclusive_dur\":");
    out_us(j->out, exclusive);
    out_puts(j->out, ",\"ts\":");
    out_us(j->out, start - j->with->base);
}

static void begin_node(struct join *j)
{
    out_puts(j->out, j->has_node ? ",\n" : "\n");
    j->has_node = true;
}

/* Writes the members that a node of device work has from its function's node. */
static void put_copied(struct join *j, struct slice node)
{
    static const char *const own[] = {"id", "ctrl_deps", "name", "cat", "ph", "inclusive_dur", "exclusive_dur",
                                      "ts", "stream"};
    struct slice key, value;
    while (json_next(&node, &key, &value)) {
        bool is_own = false;
        for (size_t i = 0; i < ARRAY_SIZE(own); i++) is_own |= json_is_key(key, own[i]);
        if (is_own) continue;
        out_puts(j->out, ",\"");
        out_write(j->out, key.at, key.length);
        out_puts(j->out, "\":");
        out_write(j->out, value.at, value.length);
    }
}

static void put_work(struct join *j, struct slice node, int64_t parent, uint32_t work)
{
    static const char *const categories[] = {
        [CLASS_KERNEL] = "kernel", [CLASS_MEMCPY] = "gpu_memcpy", [CLASS_MEMSET] = "gpu_memset"};
    const struct process *p = j->with->process;
    const struct works *w = &p->works;
    const struct name *name = names_get(j->with->names, w->name[work]);
    int64_t duration = MAX(w->end[work] - w->start[work], 0);
    begin_node(j);
    out_format(j->out, "{\"id\":%" PRId64 ",\"ctrl_deps\":%" PRId64 ",\"name\":", j->id++, parent);
    out_json_string(j->out, name->text, name->length);
    bool is_large = node.length > LARGE_NODE, fits = !is_large || j->copied + node.length <= LARGE_COPIES;
    if (fits) put_copied(j, node);
    j->copied += is_large && fits ? node.length : 0;
    j->counts->bare += !fits;
    out_format(j->out, ",\"cat\":\"%s\",\"ph\":\"X\"", categories[w->event_class[work]]);
    put_times(j, w->start[work], duration, duration);
    out_format(j->out, ",\"stream\":%" PRId64 "}", p->lane[w->lane[work]].stream);
    j->counts->works++;
}

static void put_joined(struct join *j, struct slice node, int64_t id, const struct function_call *call)
{
    size_t place = (size_t)(call - j->with->functions->call);
    bool is_first = !bits_have(&j->written, place);
    bits_add(&j->written, place);
    begin_node(j);
    out_write(j->out, node.at, node.length - 1);
    put_times(j, call->start, call->end - call->start, call->own);
    out_puts(j->out, "}");
    for (uint32_t i = 0; is_first && i < call->works; i++)
        put_work(j, node, id, j->with->functions->work[call->first + i]);
    j->counts->joined++;
    j->counts->repeated += !is_first;
}

/* Returns the call that a node is of; NULL, and counts why, if its times are not known. */
static const struct function_call *call_of(struct join *j, struct slice node)
{
    uint64_t number = function_of(node);
    if (!number) return NULL;
    uint32_t at = map_get(&j->with->functions->by_number, number);
    bool is_timed = json_member(node, "ts").at || json_member(node, "inclusive_dur").at;
    bool is_misnamed = at != MAP_NONE && !has_name(node, j->with->functions->call[at].name);
    j->counts->nodes++;
    if (is_timed) j->counts->timed++;
    else if (at == MAP_NONE) j->counts->unmatched++;
    else if (is_misnamed) j->counts->misnamed++;
    return is_timed || at == MAP_NONE || is_misnamed ? NULL : &j->with->functions->call[at];
}

static void on_node(void *context, struct slice raw)
{
    struct join *j = context;
    int64_t id;
    if (j->out->failed) return;
    if (!j->in_nodes) out_format(j->out, "%s\n\"nodes\":[", j->has_member ? "," : "");
    j->has_member = j->in_nodes = true;
    struct slice node = strict_json(&j->strict, raw);
    bool is_node = id_of(node, &id);
    const struct function_call *call = is_node ? call_of(j, node) : NULL;
    j->counts->bad += !is_node;
    if (call) {
        put_joined(j, node, id, call);
    } else {
        begin_node(j);
        out_write(j->out, node.at, node.length);
    }
}

static void on_end_of_nodes(void *context)
{
    struct join *j = context;
    if (!j->in_nodes) out_format(j->out, "%s\n\"nodes\":[", j->has_member ? "," : "");
    out_puts(j->out, "\n]");
    j->has_member = true;
    j->in_nodes = false;
}

static void put_value(struct join *j, struct slice raw)
{
    struct slice valid = strict_json(&j->strict, raw);
    out_write(j->out, valid.at, valid.length);
}

static void on_member(void *context, struct slice key, struct slice value)
{
    struct join *j = context;
    out_puts(j->out, j->has_member ? ",\n" : "\n");
    put_value(j, key);
    out_puts(j->out, ":");
    put_value(j, value);
    j->has_member = true;
}

/* ---- the file ---- */

static void look_at_node(void *context, struct slice node)
{
    struct joining *joining = context;
    int64_t id;
    if (id_of(node, &id)) joining->span.largest = MAX(joining->span.largest, id);
}

static void look_at_member(void *context, struct slice key, struct slice value)
{
    struct joining *joining = context;
    int64_t pid;
    if (slice_is(key, "\"pid\"") && json_int(value, &pid) && pid > 0) joining->span.pid = pid;
}

static void look_at_end(void *context)
{
    (void)context;
}

bool joined_look(const char *path, struct joining *joining, struct notes *notes)
{
    struct execution_sink sink = {joining, look_at_member, look_at_node, look_at_end};
    struct execution_damage damage;
    joining->span = (struct execution_span){0, -1};
    return execution_file_read(path, &sink, &damage, notes);
}

bool joined_write(struct out *out, const char *path, const struct joining *joining, struct joined_counts *counts)
{
    struct join j = {.out = out, .with = joining, .counts = counts, .id = joining->span.largest + 1};
    struct execution_sink sink = {&j, on_member, on_node, on_end_of_nodes};
    struct execution_damage damage;
    struct notes notes = {0};
    *counts = (struct joined_counts){0};
    out_puts(out, "{");
    bool read = execution_file_read(path, &sink, &damage, &notes);
    out_puts(out, j.in_nodes ? "\n]}\n" : "}\n");
    notes_free(&notes);
    strict_free(&j.strict);
    bits_free(&j.written);
    return read;
}
