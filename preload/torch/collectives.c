/* collectives.c - reads the collectives of torch.distributed: group, elements, type, and root or peer.
 *
 * A call of a process group runs an operator c10d::... in the calling thread, whichever backend the group has. Its
 * inputs are the rank's tensors, then the group, then numbers. A backend of the host such as gloo does the work later, in
 * a thread of its own. It runs a range round the work, such as gloo:all_reduce, whose inputs are the same tensors.
 *
 * An operator's group is an object of TorchScript with one slot, which holds the c10d::ProcessGroup. The first group is
 * read by way of the kernel, so that an unknown layout does no harm. A group counts only if it has the table of virtual
 * functions that libtorch exports for this class.
 *
 * Backends of devices, such as NCCL's, run the operator record_param_comms inside that one. While it is open, libtorch
 * keeps a description of the collective for the thread, whether or not a profiler runs.
 */
#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "base/tfi.h"
#include "record/strings.h"
#include "record/thread.h"
#include "torch/cxx.h"
#include "torch/values.h"

static struct {
    const struct tfi_cxx_string *(*name)(const void *group);
    const struct tfi_cxx_string *(*description)(const void *group);
    const char *class; /* the table of virtual functions */
    const char *(*info)(const void *kind);
    const void *const *info_kind; /* the kind of a collective's description */
    const char *info_class;       /* its table of virtual functions */
} torch;

#define TABLE_HEAD (2 * sizeof(void *)) /* of a table of virtual functions */
#define MOST_MEMBERS 128u

static bool trusted; /* a group was read, so the layout fits */

void tfi_torch_groups_init(void *library)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZNK4c10d12ProcessGroup12getGroupNameB5cxx11Ev", &torch.name, "_ZNK4c10d12ProcessGroup12getGroupNameEv"},
        {"_ZNK4c10d12ProcessGroup12getGroupDescB5cxx11Ev", &torch.description,
         "_ZNK4c10d12ProcessGroup12getGroupDescEv"},
        {"_ZTVN4c10d12ProcessGroupE", &torch.class, NULL},
    };
    tfi_torch_find(library, functions, TFI_COUNT(functions));
    torch.info =
        (const char *(*)(const void *))tfi_dlsym(library, "_ZN3c1020ThreadLocalDebugInfo3getENS_13DebugInfoKindE");
    torch.info_kind = tfi_dlsym(library, "_ZN3c1013DebugInfoKind16PARAM_COMMS_INFOE");
    torch.info_class = tfi_dlsym(library, "_ZTVN5torch19ParamCommsDebugInfoE");
}

static const char described[] = "record_param_comms";

bool tfi_torch_is_described(const char *name)
{
    return strcmp(name, described) == 0;
}

bool tfi_torch_is_call(const char *name)
{
    return strncmp(name, "c10d::", 6) == 0 || tfi_torch_is_described(name);
}

bool tfi_torch_is_work(const char *name)
{
    return strncmp(name, "gloo:", 5) == 0 || strncmp(name, "mpi:", 4) == 0;
}

/* ---- groups ---- */

/* Returns what the first slot of an object holds; NULL if it holds something else. */
static const void *slot_of(const struct value *object)
{
    const char *impl = pointer(object, 0);
    bool tried = __atomic_load_n(&trusted, __ATOMIC_RELAXED);
    if (!tried && !tfi_torch_readable(impl + tfi_torch_at.slots, sizeof(void *))) return NULL;
    const struct value *slot = pointer(impl, tfi_torch_at.slots);
    if (!tried && !tfi_torch_readable(slot, sizeof *slot)) return NULL;
    if (slot->tag != tfi_torch_at.capsule) return NULL;
    const void *held = pointer(slot, 0);
    return tried || tfi_torch_readable(held, tfi_torch_at.group_size + 8u) ? held : NULL;
}

static int32_t number(const void *base, size_t offset)
{
    int32_t value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static const void *group_of(const struct value *object)
{
    const void *group = torch.name && torch.class ? slot_of(object) : NULL;
    bool is_group = group && pointer(group, 0) == torch.class + TABLE_HEAD;
    int32_t rank = is_group ? number(group, tfi_torch_at.group_rank) : -1;
    if (rank < 0 || rank >= number(group, tfi_torch_at.group_size)) return NULL;
    __atomic_store_n(&trusted, true, __ATOMIC_RELAXED);
    return group;
}

/* Returns a name of the group as a string of the trace. libtorch throws if the group has no backend; the exception
 * passes through here to libtorch, which continues, so the thread's guard is clear meanwhile. */
static uint32_t name_of(const struct tfi_cxx_string *(*function)(const void *group), const void *group)
{
    if (!function) return 0;
    tfi_frame guard = tfi_self->guard;
    tfi_guard_clear(tfi_self);
    struct tfi_cxx_text text = tfi_cxx_text(function(group));
    tfi_guard_put(tfi_self, guard);
    return text.length ? tfi_string(text.bytes, text.length) : 0;
}

/* ---- tensors ---- */

/* Adds up the tensors of an input: a tensor, a list of them, or a list of such lists. */
struct sum {
    const struct value *first; /* of the tensors */
    uint32_t tensors;
    int64_t elements; /* -1: some tensor has no known size */
};

static void add_tensor(struct sum *sum, const struct value *value)
{
    struct tensor t = tensor_of(value);
    int64_t elements = t.sizes ? 1 : -1;
    for (uint32_t i = 0; i < t.dims && elements >= 0; i++)
        if (t.sizes[i] < 0 || __builtin_mul_overflow(elements, t.sizes[i], &elements)) elements = -1;
    if (!sum->tensors++) sum->first = value;
    if (elements < 0 || sum->elements < 0 || __builtin_add_overflow(sum->elements, elements, &sum->elements))
        sum->elements = -1;
}

static void add_list(struct sum *sum, const struct value *value)
{
    if (value->tag == tfi_torch_at.tensor) add_tensor(sum, value);
    if (value->tag != tfi_torch_at.list) return;
    struct values list = elements_of(value);
    for (size_t i = 0; i < list.count; i++)
        if (list.first[i].tag == tfi_torch_at.tensor) add_tensor(sum, &list.first[i]);
}

static struct sum sum_of(const struct value *value)
{
    struct sum sum = {0};
    struct values list = value->tag == tfi_torch_at.list ? elements_of(value) : (struct values){0};
    bool nested = list.count && list.first[0].tag == tfi_torch_at.list;
    if (!nested) add_list(&sum, value);
    for (size_t i = 0; nested && i < list.count; i++) add_list(&sum, &list.first[i]);
    return sum;
}

static void take_tensors(struct tfi_torch_collective *c, const struct sum *sum)
{
    if (!sum->first) return;
    c->tensor = (uint64_t)pointer(sum->first, 0);
    c->tensors = sum->tensors;
    c->type = tensor_of(sum->first).type & 0xff;
}

static const struct tfi_torch_collective nothing = {
    .sequence = -1, .in = -1, .out = -1, .type = -1, .rank = -1, .peer = -1};

/* ---- libtorch's description ---- */

static uint32_t string_at(const char *info, size_t offset)
{
    struct tfi_cxx_text text = tfi_cxx_text(info + offset);
    return text.length ? tfi_string(text.bytes, text.length) : 0;
}

static uint32_t members_of(const char *info)
{
    char room[8 * MOST_MEMBERS];
    struct tfi_text text = {room, sizeof room, 0, 0};
    const int64_t *rank = pointer(info, tfi_torch_at.info_members), *end = pointer(info, tfi_torch_at.info_members + 8);
    if (rank == end || (size_t)(end - rank) > MOST_MEMBERS) return 0;
    for (const char *before = "["; rank < end; rank++, before = ", ") tfi_text_add(&text, "%s%ld", before, (long)*rank);
    tfi_text_add(&text, "]");
    return text.full ? 0 : tfi_string(text.data, text.used);
}

const char *tfi_torch_description(void)
{
    if (!tfi_torch_at.info_name || !torch.info || !torch.info_kind || !torch.info_class) return NULL;
    const char *info = torch.info(*torch.info_kind);
    return info && pointer(info, 0) == torch.info_class + TABLE_HEAD ? info : NULL;
}

static bool read_description(struct tfi_torch_collective *c)
{
    const char *info = tfi_torch_description();
    if (!info) return false;
    *c = nothing;
    c->name = string_at(info, tfi_torch_at.info_collective);
    c->group = string_at(info, tfi_torch_at.info_name);
    c->description = string_at(info, tfi_torch_at.info_description);
    c->members = members_of(info);
    c->rank = number(info, tfi_torch_at.info_rank);
    c->ranks = (uint32_t)number(info, tfi_torch_at.info_size);
    c->in = (int64_t)word(info, tfi_torch_at.info_in);
    c->out = (int64_t)word(info, tfi_torch_at.info_out);
    c->type = (uint8_t)info[tfi_torch_at.info_type];
    c->sequence = (int64_t)word(info, tfi_torch_at.info_sequence);
    return true;
}

/* ---- the operators ---- */

/* The operators whose first number after the group is a root or a peer. */
static bool has_peer(const char *name)
{
    static const char *const names[] = {"broadcast_", "reduce_", "gather_", "scatter_", "send", "recv_"};
    for (size_t i = 0; i < TFI_COUNT(names); i++)
        if (strcmp(name + 6, names[i]) == 0) return true;
    return false;
}

static int32_t first_number(struct values inputs, size_t from)
{
    for (size_t i = from; i < inputs.count; i++)
        if (inputs.first[i].tag == tfi_torch_at.integer) return (int32_t)inputs.first[i].payload;
    return -1;
}

bool tfi_torch_call(const void *function, const char *name, struct tfi_torch_collective *c)
{
    if (tfi_torch_is_described(name)) return read_description(c);
    struct values inputs = inputs_of(function);
    size_t at = 0;
    while (at < inputs.count && inputs.first[at].tag != tfi_torch_at.object) at++;
    const void *group = at && at < inputs.count && at <= 2 ? group_of(&inputs.first[at]) : NULL;
    if (!group) return false;
    *c = nothing;
    c->group = name_of(torch.name, group);
    c->description = name_of(torch.description, group);
    c->rank = number(group, tfi_torch_at.group_rank);
    c->ranks = (uint32_t)number(group, tfi_torch_at.group_size);
    if (has_peer(name)) c->peer = first_number(inputs, at + 1);
    if (strstr(name, "barrier")) return true; /* its tensor only names the device */
    struct sum first = sum_of(&inputs.first[0]), second = at == 2 ? sum_of(&inputs.first[1]) : first;
    take_tensors(c, &first);
    take_tensors(c, &second);
    c->out = first.elements;
    c->in = second.elements;
    return true;
}

void tfi_torch_work(const void *function, struct tfi_torch_collective *c)
{
    struct values inputs = inputs_of(function);
    struct sum sum = {0};
    *c = nothing;
    for (size_t i = 0; i < inputs.count && inputs.count <= TFI_TORCH_INPUTS; i++) add_list(&sum, &inputs.first[i]);
    take_tensors(c, &sum);
    if (sum.tensors) c->in = sum.elements;
}
