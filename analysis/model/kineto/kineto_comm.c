/* kineto_comm.c - reads collectives from a Kineto trace.
 *
 * torch describes a collective of a device in the arguments of its record_param_comms operator, and Kineto repeats them
 * in the kernels that the operator launched: all of them have the same external id. Older traces have kernels without a
 * description: what they do is what the annotation round their launch says, and only without one what their name says. A
 * kernel with any name communicates if it is the operator's own (COMMUNICATION_OPERATOR). Backends of the host, such as
 * gloo, have an annotation alone, which lasts until the work is done. The annotations of a device's backend last as long as
 * the call; those without a kernel count only in a trace without anything else.
 */
#include "model/kineto/kineto_comm.h"

#include <stdlib.h>
#include <string.h>

#include "model/communication.h"

/* ---- the description in the arguments ---- */

static uint32_t text_name(struct kineto_comm *comm, struct slice value)
{
    bool is_list = value.length && *value.at == '[';
    char *text = is_list ? NULL : json_text(value);
    uint32_t name = is_list ? names_add(comm->names, value.at, value.length)
                    : text  ? names_add(comm->names, text, strlen(text))
                            : NAME_NONE;
    free(text);
    return name;
}

static void take_count(struct slice value, uint64_t *to)
{
    int64_t number;
    if (json_int(value, &number) && number >= 0) *to = (uint64_t)number;
}

static void take_number(struct slice value, int64_t *to)
{
    int64_t number;
    if (json_int(value, &number) && number >= 0) *to = number;
}

static void take_description(struct kineto_comm *comm, struct slice args, struct collective *c)
{
    struct slice key, value;
    const struct {
        const char *key;
        uint32_t *to;
    } texts[] = {{"Collective name", &c->name},
                 {"dtype", &c->datatype},
                 {"Process Group Name", &c->communicator},
                 {"Process Group Description", &c->description},
                 {"Process Group Ranks", &c->members}};
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = {{"In msg nelems", &c->elements_in}, {"Out msg nelems", &c->elements_out}};
    const struct {
        const char *key;
        int64_t *to;
    } numbers[] = {{"Group size", &c->size}, {"Seq", &c->sequence}, {"Src Rank", &c->source}, {"Dst Rank", &c->peer}};
    while (args.at && json_next(&args, &key, &value)) {
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
            if (slice_is(key, texts[i].key)) *texts[i].to = text_name(comm, value);
        for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
            if (slice_is(key, counts[i].key)) take_count(value, counts[i].to);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
            if (slice_is(key, numbers[i].key)) take_number(value, numbers[i].to);
    }
}

/* Completes an entry from its names. `stand_in` is its name if the description has none. */
static void complete(struct kineto_comm *comm, struct collective *c, uint32_t stand_in)
{
    struct name name = names_copy(comm->names, c->name), other = names_copy(comm->names, stand_in);
    c->op = (uint8_t)collective_op_of(name.text, name.length);
    if (c->op == COLLECTIVE_OTHER) c->op = (uint8_t)collective_op_of(other.text, other.length);
    if (c->name == NAME_NONE) c->name = stand_in;
    if (c->datatype != NAME_NONE)
        collective_size(c, collective_type_bytes(names_copy(comm->names, c->datatype).text, false));
}

/* ---- events ---- */

static bool communicates(struct kineto_comm *comm, struct slice text, uint32_t name)
{
    uint32_t known = map_get(&comm->is_kernel_of, name);
    if (known == MAP_NONE) {
        const struct name shown = names_copy(comm->names, name); /* demangled, where `text` is not */
        bool is_shown = slice_is(text, shown.text);
        known = (!is_shown && is_communication(text.at, text.length, false)) ||
                names_communication(comm->names, shown.text, shown.length);
        map_put(&comm->is_kernel_of, name, known);
    }
    return known;
}

bool comm_describes(const struct kineto_event *event)
{
    struct slice args = event->args, key, value;
    bool found = false;
    while (event->has & HAS_COLLECTIVE && args.at && json_next(&args, &key, &value)) {
        if (!slice_is(key, "Collective name")) continue;
        char *text = json_text(value);
        found = text && collective_op_of(text, strlen(text)) != COLLECTIVE_OTHER;
        free(text);
    }
    return found;
}

static void keep_plain(struct kineto_comm *comm, const struct plain_kernel *kernel)
{
    comm->plain = mem_grow(comm->plain, &comm->plain_capacity, comm->plains + 1, sizeof *comm->plain);
    comm->plain[comm->plains++] = *kernel;
}

void comm_take_kernel(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                      uint32_t name, struct needs needs)
{
    struct plain_kernel plain = {.correlation = event->has & HAS_CORRELATION ? event->correlation : NO_ID,
                                 .external = event->has & HAS_EXTERNAL ? event->external : 0,
                                 .start = event->ts,
                                 .end = event->ts + event->dur,
                                 .name = name,
                                 .work = needs.device ? (uint32_t)process->works.table.count - 1 : NO_WORK,
                                 .entry = NO_PLACE};
    if (!communicates(comm, event->name, name) && !comm_describes(event)) {
        /* Old traces repeat the correlation id where they know no operator. */
        if (plain.external && plain.external != plain.correlation) keep_plain(comm, &plain);
        return;
    }
    if (!needs.collectives) return;
    struct collective *c = collectives_add(&process->collectives);
    take_description(comm, event->args, c);
    c->start = event->ts;
    c->end = event->ts + event->dur;
    c->work = (uint32_t)process->works.table.count - 1;
    bool described = c->name != NAME_NONE; /* only then is the external id that of its record_param_comms */
    if (described && event->has & HAS_EXTERNAL && event->external) c->link = event->external;
    complete(comm, c, name);
    comm->others++;
    plain.entry = (uint32_t)process->collectives.count - 1;
    if (!described) keep_plain(comm, &plain);
}

void comm_take_operator(struct kineto_comm *comm, const struct kineto_event *event)
{
    if (!(event->has & HAS_EXTERNAL) || !event->external ||
        !is_communication_operator(event->name.at, event->name.length))
        return;
    uint32_t name = names_add(&comm->operators, event->name.at, event->name.length);
    if (name == comm->ops) {
        comm->op = mem_grow(comm->op, &comm->op_capacity, comm->ops + 1, sizeof *comm->op);
        comm->op[comm->ops++] = (uint32_t)collective_op_of(event->name.at, event->name.length);
    }
    map_put(&comm->operator_of, event->external, comm->op[name]);
}

void comm_take_call(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                    uint32_t thread)
{
    struct collective *c = collectives_add(&process->collectives);
    take_description(comm, event->args, c);
    if (c->name != NAME_NONE) complete(comm, c, NAME_NONE);
    if (c->name == NAME_NONE || c->op == COLLECTIVE_OTHER) { /* not described, or no collective: init, wait */
        process->collectives.count--;
        return;
    }
    c->call_start = event->ts;
    c->call_end = event->ts + event->dur;
    c->thread = thread;
    if (event->has & HAS_EXTERNAL && event->external) c->link = event->external;
    comm->others++;
}

static const struct {
    const char *prefix;
    bool on_device;
} backends[] = {{"gloo:", false}, {"mpi:", false}, {"ucc:", false}, {"nccl:", true}, {"xccl:", true}};

static size_t backend_of(struct slice name)
{
    size_t i = 0;
    for (; i < ARRAY_SIZE(backends); i++) {
        size_t length = strlen(backends[i].prefix);
        if (name.length > length && memcmp(name.at, backends[i].prefix, length) == 0) break;
    }
    return i;
}

bool is_backend_work(struct slice name)
{
    return backend_of(name) < ARRAY_SIZE(backends);
}

/* Takes the elements and their type from the inputs, as the profiler writes them with record_shapes. */
static void take_inputs(struct kineto_comm *comm, struct slice args, struct collective *c)
{
    struct slice dims = json_member(args, "Input Dims"), types = json_member(args, "Input type"), key, shape, type,
                 size;
    uint64_t elements = 0;
    if (!dims.length || *dims.at != '[' || !types.length || *types.at != '[') return;
    while (json_next(&dims, &key, &shape) && json_next(&types, &key, &type)) {
        uint64_t product = 1;
        bool known = shape.length && *shape.at == '[';
        uint32_t name = text_name(comm, type);
        while (known && json_next(&shape, &key, &size)) {
            int64_t number;
            known =
                json_int(size, &number) && number >= 0 && !__builtin_mul_overflow(product, (uint64_t)number, &product);
        }
        if (!known || (c->datatype != NAME_NONE && name != c->datatype) ||
            __builtin_add_overflow(elements, product, &elements))
            return; /* tensors of several types have no common element */
        c->datatype = name;
    }
    if (c->datatype != NAME_NONE) c->elements_in = elements;
}

void comm_take_annotation(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                          uint32_t thread)
{
    size_t backend = backend_of(event->name), prefix = strlen(backends[backend].prefix);
    struct collective *c = collectives_add(&process->collectives);
    if (event->args.at) take_inputs(comm, event->args, c);
    complete(comm, c, names_add(comm->names, event->name.at + prefix, event->name.length - prefix));
    c->call_start = event->ts;
    c->call_end = event->ts + event->dur;
    c->thread = thread;
    if (backends[backend].on_device) {
        comm->annotation =
            mem_grow(comm->annotation, &comm->annotation_capacity, comm->annotations + 1, sizeof *comm->annotation);
        comm->annotation[comm->annotations++] = (uint32_t)process->collectives.count - 1;
    } else {
        c->start = c->call_start;
        c->end = c->call_end;
        comm->others++;
    }
}

/* ---- the whole trace ---- */

/* Finds the kernels that communicate because of their operator. */
static void take_operators_kernels(struct kineto_comm *comm, struct process *process, struct needs needs)
{
    for (size_t i = 0; i < comm->plains; i++) {
        const struct plain_kernel *kernel = &comm->plain[i];
        uint32_t op = kernel->entry == NO_PLACE ? map_get(&comm->operator_of, kernel->external) : MAP_NONE;
        if (op == MAP_NONE) continue;
        if (kernel->work != NO_WORK) map_put(&process->described, kernel->work, 1);
        if (!needs.collectives) continue;
        struct collective *c = collectives_add(&process->collectives);
        c->start = kernel->start;
        c->end = kernel->end;
        c->work = kernel->work;
        complete(comm, c, kernel->name);
        if (op != COLLECTIVE_OTHER) c->op = (uint8_t)op;
        comm->others++;
    }
}

/* An annotation of a device's backend. */
struct annotated {
    uint32_t thread, entry;
    int64_t start, end;
};

static int by_thread_and_start(const void *a, const void *b)
{
    const struct annotated *x = a, *y = b;
    return x->thread != y->thread ? by_number(x->thread, y->thread) : by_number(x->start, y->start);
}

static struct annotated *sort_annotations(const struct kineto_comm *comm, const struct collectives *c)
{
    struct annotated *sorted = mem_zero(comm->annotations, sizeof *sorted);
    for (size_t i = 0; i < comm->annotations; i++) {
        const struct collective *of = &c->collective[comm->annotation[i]];
        sorted[i] = (struct annotated){of->thread, comm->annotation[i], of->call_start, of->call_end};
    }
    if (comm->annotations) qsort(sorted, comm->annotations, sizeof *sorted, by_thread_and_start);
    return sorted;
}

/* Returns the annotation that a call is inside of, the innermost if it is the last to begin; NULL: none. */
static const struct annotated *annotation_round(const struct annotated *sorted, size_t count,
                                                const struct call_or_work *call)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct annotated *a = &sorted[middle];
        if (a->thread < call->thread || (a->thread == call->thread && a->start <= call->start)) low = middle + 1;
        else high = middle;
    }
    return low && sorted[low - 1].thread == call->thread && sorted[low - 1].end >= call->start ? &sorted[low - 1]
                                                                                               : NULL;
}

/* Joins each kernel with the annotation that its launch is inside of, which says what it does. */
static void join_annotations(struct kineto_comm *comm, struct collectives *c, const struct kineto_judge *judge)
{
    struct annotated *sorted = sort_annotations(comm, c);
    for (size_t i = 0; i < comm->plains && comm->annotations; i++) {
        const struct plain_kernel *kernel = &comm->plain[i];
        const struct call_or_work *call =
            kernel->entry == NO_PLACE ? NULL : call_of_correlation(judge, kernel->correlation);
        const struct annotated *round = call ? annotation_round(sorted, comm->annotations, call) : NULL;
        if (!round) continue;
        struct collective *of = &c->collective[kernel->entry], *annotation = &c->collective[round->entry];
        annotation->link = of->link = UINT64_C(1) << 63 | round->entry; /* external ids are smaller */
        if (annotation->op == COLLECTIVE_OTHER) continue;
        of->is_annotated = annotation->is_annotated = true;
        of->op = annotation->op;
        of->name = annotation->name;
    }
    free(sorted);
}

/* Drops the annotations of devices' backends that have no kernel. */
static void drop_annotations(struct kineto_comm *comm, struct collectives *c)
{
    size_t kept = 0, next = 0;
    for (size_t i = 0; i < c->count; i++) {
        bool is_annotation = next < comm->annotations && comm->annotation[next] == i;
        next += is_annotation;
        if (!is_annotation || c->collective[i].link != NO_LINK) c->collective[kept++] = c->collective[i];
    }
    c->count = kept;
}

void comm_conclude(struct kineto_comm *comm, struct process *process, const struct kineto_judge *judge,
                   struct needs needs)
{
    take_operators_kernels(comm, process, needs);
    join_annotations(comm, &process->collectives, judge);
    if (comm->others) drop_annotations(comm, &process->collectives);
    collectives_finish(&process->collectives);
}

void comm_free(struct kineto_comm *comm)
{
    map_free(&comm->is_kernel_of);
    map_free(&comm->operator_of);
    names_free(&comm->operators);
    free(comm->op);
    free(comm->annotation);
    free(comm->plain);
}
