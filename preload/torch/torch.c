/* torch.c - turns libtorch's RecordFunction into records: user ranges become stages, all other functions operators.
 *
 * libtorch calls at::addGlobalCallback's pair of functions round every range and operator, in the thread that runs
 * it. Its libraries are opened RTLD_LOCAL, so they are looked up by name once Python has imported torch
 * (shim_torch.py); none of their headers is needed. Two things have to match libtorch: the callback's structure,
 * which is passed by value, and the offsets of layout.def. Both are tried with ranges and operators that leave no
 * trace before anything is recorded; a part that does not fit is not used.
 *
 * libtorch keeps the start callback's result and passes it to the end callback, which may run in another thread (a
 * future's). libtorch then deletes it as a C++ object with a virtual destructor. `struct op` therefore begins with a
 * pointer to a table of two destructors, as the C++ ABI of Linux has it. The deleting destructor returns the object
 * to a list of the thread it came from; that thread's part outlives the thread. Objects are never unmapped.
 *
 * Ranges are started ranges of stage.c: any thread may end them, in any order. Operators are written at their end, calls of
 * collectives at their entry too: the process may die inside. A thread's lists and its cache belong to its state.
 */
#include "torch/torch.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "control/config.h"
#include "cuda/graphs.h"
#include "cupti/client.h"
#include "hooks/hooks.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/stage.h"
#include "stage/recording_state.h"
#include "stage/watch.h"

#define SCOPES 10         /* at::RecordScope::NUM_SCOPES */
#define MAX_LOGICAL 4096u /* number of libtorch's own thread numbers that are kept */
#define SLAB_BYTES 16384u
#define OPEN_NAMES 64u /* kept names of open operators, the outermost ones */

/* at::RecordFunctionCallback. A release with further fields finds zeros in them. */
struct callback {
    void *start, *end;
    double probability;
    bool scopes[SCOPES];
    bool needs_inputs, needs_outputs, needs_ids;
    char behind[24];
};

/* A range or operator between its start and its end. */
struct op {
    const void *const *destructors;
    struct op *free;
    struct tfi_torch_thread *owner; /* part of the thread it began in */
    uint64_t start;
    uint64_t range; /* id of the stage, 0 for an operator */
    int64_t sequence;
    struct tfi_torch_inputs inputs;
    uint32_t name;
    uint32_t gen;
    uint32_t forward; /* serial of the thread of the forward operator */
    uint32_t stack;
    uint32_t modules; /* string of the modules of TorchScript around it; 0: none */
    uint16_t scope;
    bool evaluates; /* autograd's frame round a backward operator */
    bool unwritten; /* it began while nothing was recorded: only its name is kept while it is open */
    bool is_collective;
    bool is_executed;                       /* the record of its start is written (execution.c) */
    uint32_t depth;                         /* number of operators that were open in its thread */
    struct tfi_torch_collective collective; /* if is_collective */
};

/* Cache entry of a name. A name usually comes by the same address, but an address may come with another name. */
struct name {
    const char *address;
    uint32_t number; /* of the string, 0 if the entry is empty */
    bool evaluates;  /* name of a frame of autograd */
    bool calls;      /* name of an operator that calls a process group */
    char text[82];   /* the longest common name is that of autograd's frame round AccumulateGrad */
};
#define NAMES 256u    /* a power of two */
#define NAMES_WAYS 2u /* autograd builds names anew: those of equal length take turns at one address */

struct tfi_torch_thread {
    uint32_t serial; /* of the thread */
    struct op *free;
    struct op *returned; /* returned by other threads, with atomic operations */
    struct op *last;     /* the one begun last, if it is still open */
    uint32_t pool;       /* its number of OpenMP threads, as last recorded */
    uint32_t depth;      /* open operators; one that another thread ended counts until the one round it ends */
    uint32_t open[OPEN_NAMES];
    struct tfi_torch_cache *cache;
    struct tfi_torch_execution *execution;
    struct name names[NAMES / NAMES_WAYS][NAMES_WAYS];
    struct name long_one; /* the last name that is too long for an entry */
    uint32_t turn;
};

static struct {
    const char *(*name)(const void *function);
    uint64_t (*add)(struct callback callback);
    void (*remove)(uint64_t handle);
    uint64_t (*thread)(void);
} torch;

static enum { OFF, TRYING, ON } state;
static enum tfi_torch_how how;
static bool imported;        /* the import of torch has ended, and its callbacks were tried */
static bool direct;          /* there is a layout for this release */
static pid_t trying;         /* the thread that runs the trial */
static struct tfi_text seen; /* description of the first function that began since the last reading */
static uint64_t handles[4];
static unsigned nr_handles;
static uint32_t serials[MAX_LOGICAL]; /* serials of our threads, by libtorch's number */

/* ---- objects ---- */

static void destroy(struct op *op)
{
    (void)op;
}

static void delete (struct op *op)
{
    struct tfi_torch_thread *owner = op->owner;
    if (TFI_LIKELY(tfi_self && tfi_self->torch == owner)) {
        op->free = owner->free;
        owner->free = op;
        return;
    }
    op->free = __atomic_load_n(&owner->returned, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&owner->returned, &op->free, op, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

/* The C++ table: offset to the top and type information, which nobody reads, then the two destructors. */
static const void *const class[] = {NULL, NULL, (const void *)destroy, (const void *)delete};

static TFI_COLD struct op *more(struct tfi_torch_thread *own)
{
    own->free = __atomic_exchange_n(&own->returned, NULL, __ATOMIC_ACQUIRE);
    struct op *slab = own->free ? NULL : tfi_map(SLAB_BYTES);
    for (size_t i = 0; slab && i < SLAB_BYTES / sizeof *slab; i++) {
        slab[i].free = own->free;
        own->free = &slab[i];
    }
    return own->free;
}

/* Returns the thread's own part; NULL if there is no memory. A thread that has the state of an ended one takes the
 * part over. A forked child's threads have new parts, as its strings have new numbers. */
static TFI_COLD struct tfi_torch_thread *own_part(struct tfi_thread *t)
{
    if (!t->torch) t->torch = tfi_map(sizeof *t->torch);
    struct tfi_torch_thread *own = t->torch;
    if (own && !own->cache) own->cache = tfi_torch_cache_new();
    if (!own || !own->cache) return NULL;
    own->serial = t->serial;
    own->last = NULL;
    own->depth = own->pool = 0;
    __atomic_store_n(&serials[torch.thread() % MAX_LOGICAL], t->serial, __ATOMIC_RELAXED);
    return own;
}

static inline struct op *take_op(struct tfi_thread *t)
{
    struct tfi_torch_thread *own = t->torch;
    if (TFI_UNLIKELY(!own || own->serial != t->serial)) own = own_part(t);
    if (TFI_UNLIKELY(!own)) return NULL;
    struct op *op = own->free;
    if (TFI_UNLIKELY(!op)) op = more(own);
    if (TFI_UNLIKELY(!op)) return NULL;
    own->free = op->free;
    op->destructors = class + 2;
    op->owner = own;
    op->gen = t->gen;
    return op;
}

/* ---- trial ---- */

static TFI_COLD void note(const void *function, bool inputs)
{
    if (state != TRYING || !seen.data || seen.used || tfi_gettid() != trying) return;
    seen.full = 0;
    tfi_text_add(&seen, "%s\n", torch.name(function));
    if (inputs) tfi_torch_inputs_text(how, function, &seen);
}

/* ---- collectives ---- */

static TFI_COLD void write_collective(struct tfi_thread *t, const struct op *op, uint64_t now, uint32_t flags)
{
    struct tfi_rec_framework_collective *rec = TFI_RESERVE(t, framework_collective);
    if (!rec) return;
    rec->name = op->collective.name ? op->collective.name : op->name;
    rec->time = op->start;
    rec->duration = now - op->start;
    rec->group = op->collective.group;
    rec->description = op->collective.description;
    rec->in = op->collective.in;
    rec->out = op->collective.out;
    rec->tensor = op->collective.tensor;
    rec->tensors = op->collective.tensors;
    rec->type = op->collective.type;
    rec->rank = op->collective.rank;
    rec->ranks = op->collective.ranks;
    rec->peer = op->collective.peer;
    rec->thread = op->owner->serial;
    rec->flags = flags | (op->collective.name ? TFI_FRAMEWORK_DESCRIPTION : 0);
    rec->sequence = op->collective.sequence;
    rec->members = op->collective.members;
    tfi_commit(t, sizeof *rec);
}

/* ---- ranges ---- */

/* Describes the inputs of a range. Most have none; those of c10d's backends have the tensors of the collective. */
static void describe_range(const struct op *op, const void *function, const char *name, struct tfi_range *range)
{
    struct tfi_torch_inputs inputs = {0};
    if (how == TFI_TORCH_DIRECT && tfi_torch_async(function)) range->flags |= TFI_RANGE_ASYNC;
    if (!tfi_recording(TFI_ACTIVITY_OPS)) return;
    if (TFI_UNLIKELY(tfi_config.with_modules != 0)) range->modules = tfi_torch_modules(op->owner->cache);
    if (!tfi_config.record_shapes) return;
    if (how != TFI_TORCH_DIRECT) return;
    tfi_torch_inputs(op->owner->cache, how, function, range->name, name, &inputs);
    range->shapes = inputs.shapes;
    range->types = inputs.types;
    range->concrete = inputs.concrete;
    range->strides = inputs.strides;
}

static inline bool wants_tensors(void)
{
    return TFI_UNLIKELY(tfi_config.tensor_addresses != 0) && how == TFI_TORCH_DIRECT;
}

/* Another thread than that of the start may end a function, and uses its own state then. */
static void end_execution(struct tfi_thread *t, const struct op *op, const void *function)
{
    struct tfi_torch_thread *own = t->torch;
    struct tfi_torch_execution **own_state = own && own->serial == t->serial ? &own->execution : NULL;
    if (op->is_executed) tfi_torch_execution_end(t, own_state, function, op->modules);
}

static void *start_range(void **object, const void *function)
{
    *object = NULL;
    if (TFI_UNLIKELY(state != ON)) return note(function, false), object;
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    if (!t) return object;
    struct op *op = take_op(t);
    if (op) {
        const char *name = torch.name(function);
        struct tfi_range range = {.name = tfi_string(name, strlen(name)), .flags = TFI_RANGE_STAGE | TFI_RANGE_TORCH};
        describe_range(op, function, name, &range);
        op->modules = range.modules;
        op->is_collective = how == TFI_TORCH_DIRECT && tfi_torch_is_work(name) && tfi_recording(TFI_ACTIVITY_OPS);
        if (op->is_collective) {
            tfi_torch_work(function, &op->collective);
            op->name = range.name;
            op->start = tfi_ticks();
        }
        op->range = tfi_stage_start(t, &range);
        op->owner->last = NULL;
        op->is_executed = wants_tensors() && tfi_torch_execution_begin(t, &op->owner->execution, function, range.name,
                                                                       name, TFI_SCOPE_USER);
        *object = op;
    }
    tfi_leave(t);
    return object;
}

static void end_range(const void *function, const struct op *op)
{
    struct tfi_thread *t = op ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (!t) return;
    if (op->gen == t->gen) {
        if (op->is_collective) write_collective(t, op, tfi_ticks(), TFI_FRAMEWORK_WORK);
        end_execution(t, op, function);
        tfi_stage_end(t, op->range);
    }
    tfi_leave(t);
}

/* ---- operators ---- */

/* Attaches the calling thread, which has no state yet. */
static TFI_COLD struct tfi_thread *attach(void)
{
    uint32_t now = __atomic_load_n(&tfi_process->state, __ATOMIC_RELAXED);
    if (now == TFI_NEW && tfi_config.select != TFI_SELECT_ALL) {
        tfi_note_work();
        return NULL;
    }
    return now == TFI_NEW || now == TFI_AWAKE ? tfi_call_attach() : NULL;
}

static inline struct tfi_thread *current(void)
{
    struct tfi_thread *t = tfi_self;
    if (TFI_LIKELY(t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    return attach();
}

static TFI_COLD const struct name *new_name(struct tfi_torch_thread *own, struct name *set, const char *name)
{
    static const char evaluates[] = "autograd::engine::evaluate_function: ";
    size_t length = strlen(name);
    struct name *entry = length < sizeof entry->text ? &set[own->turn++ % NAMES_WAYS] : &own->long_one;
    entry->number = tfi_string(name, length);
    entry->evaluates = strncmp(name, evaluates, sizeof evaluates - 1) == 0;
    entry->calls = tfi_torch_is_call(name);
    if (entry == &own->long_one) return entry;
    entry->address = name;
    memcpy(entry->text, name, length + 1);
    return entry;
}

static inline const struct name *name_of(struct tfi_torch_thread *own, const char *name)
{
    struct name *set = own->names[((uintptr_t)name >> 4 ^ (uintptr_t)name >> 12) & (NAMES / NAMES_WAYS - 1)];
    for (uint32_t i = 0; i < NAMES_WAYS; i++)
        if (set[i].address == name && set[i].number && strcmp(set[i].text, name) == 0) return &set[i];
    return new_name(own, set, name);
}

/* Gives the frame that autograd puts round a backward operator that operator's numbers, as torch.profiler does. */
static void link_frame(const struct op *op)
{
    struct op *frame = op->owner->last;
    if (!frame || !frame->evaluates) return;
    frame->sequence = op->sequence;
    frame->forward = op->forward;
}

static void fill(struct op *op, const void *function, uint16_t scope)
{
    const char *text = torch.name(function);
    const struct name *name = name_of(op->owner, text);
    op->range = 0;
    op->name = name->number;
    op->scope = scope;
    op->sequence = -1;
    op->forward = 0;
    op->evaluates = scope == TFI_SCOPE_FUNCTION && name->evaluates;
    op->is_collective =
        TFI_UNLIKELY(name->calls) && how == TFI_TORCH_DIRECT && tfi_torch_call(function, text, &op->collective);
    if (how == TFI_TORCH_DIRECT) {
        uint64_t forward = tfi_torch_forward(function);
        op->sequence = tfi_torch_sequence(function);
        if (forward) op->forward = __atomic_load_n(&serials[forward % MAX_LOGICAL], __ATOMIC_RELAXED);
    }
    op->inputs = (struct tfi_torch_inputs){0};
    bool names_modules = TFI_UNLIKELY(tfi_config.with_modules != 0) && scope != TFI_SCOPE_BACKWARD;
    op->modules = names_modules ? tfi_torch_modules(op->owner->cache) : 0;
    if (tfi_recording(TFI_RECORDING_SHAPES))
        tfi_torch_inputs(op->owner->cache, how, function, op->name, text, &op->inputs);
    if (scope == TFI_SCOPE_BACKWARD) link_frame(op);
    op->owner->last = op;
}

static void open_op(struct op *op)
{
    struct tfi_torch_thread *own = op->owner;
    op->depth = own->depth++;
    if (op->depth < OPEN_NAMES) own->open[op->depth] = op->name;
}

/* Returns the string of the innermost open operator of the calling thread `t`; 0 if there is none. */
static uint32_t open_operator(const struct tfi_thread *t)
{
    const struct tfi_torch_thread *own = t->torch;
    if (!own || own->serial != t->serial || !own->depth) return 0;
    return own->open[own->depth <= OPEN_NAMES ? own->depth - 1 : OPEN_NAMES - 1];
}

/* Keeps the name of an operator that is not recorded: while a stream is being captured, its kernels may be
 * replayed and recorded later. */
static TFI_COLD void *start_unwritten(void **object, struct tfi_thread *t, const void *function)
{
    if (!__atomic_load_n(&tfi_graph_captures, __ATOMIC_RELAXED) || tfi_guarded(t)) return object;
    tfi_guard_set(t);
    struct op *op = take_op(t);
    if (op) {
        op->name = name_of(op->owner, torch.name(function))->number;
        op->evaluates = op->is_collective = op->is_executed = false;
        op->unwritten = true;
        open_op(op);
        *object = op;
    }
    tfi_guard_clear(t);
    return object;
}

static inline void *start_op(void **object, const void *function, uint16_t scope)
{
    *object = NULL;
    if (TFI_UNLIKELY(state != ON)) return note(function, true), object;
    struct tfi_thread *t = current();
    if (!t) return object;
    if (!tfi_call_wanted(t) || !tfi_recording(TFI_ACTIVITY_OPS)) return start_unwritten(object, t, function);
    if (tfi_guarded(t)) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return object;
    }
    tfi_guard_set(t);
    struct op *op = take_op(t);
    if (op) {
        fill(op, function, scope);
        if (!op->owner->depth) tfi_torch_openmp(t, &op->owner->pool);
        if (TFI_UNLIKELY(tfi_sums_on)) tfi_sums_operator(t, op->forward, op->sequence, op->evaluates);
        open_op(op);
        op->unwritten = false;
        op->stack = tfi_callstack(t);
        *object = op;
        op->start = tfi_ticks();
        if (TFI_UNLIKELY(op->is_collective && !op->collective.name)) /* a description lies in a call */
            write_collective(t, op, op->start, TFI_FRAMEWORK_BEGUN);
        if (wants_tensors()) tfi_torch_write_tensors(t, op->name, op->start, function, 1);
        op->is_executed = wants_tensors() && tfi_torch_execution_begin(t, &op->owner->execution, function, op->name,
                                                                       torch.name(function), scope);
    }
    tfi_guard_clear(t);
    return object;
}

static void write_op(struct tfi_thread *t, const struct op *op, uint64_t now)
{
    struct tfi_rec_op *rec = TFI_RESERVE(t, op);
    if (!rec) return;
    rec->name = op->name;
    rec->time = op->start;
    rec->duration = now - op->start;
    rec->sequence = op->sequence;
    rec->shapes = op->inputs.shapes;
    rec->types = op->inputs.types;
    rec->concrete = op->inputs.concrete;
    rec->scope = op->scope;
    rec->forward_thread = op->forward;
    rec->stack = op->stack;
    rec->flops = op->inputs.flops;
    rec->strides = op->inputs.strides;
    rec->modules = op->modules;
    tfi_commit(t, sizeof *rec);
}

static void end_op(const void *function, const struct op *op)
{
    uint64_t now = tfi_ticks();
    struct tfi_thread *t = op ? current() : NULL;
    if (!t || tfi_guarded(t)) return;
    tfi_guard_set(t);
    if (TFI_LIKELY(op->gen == t->gen && !op->unwritten)) {
        bool backward = op->evaluates || op->scope == TFI_SCOPE_BACKWARD;
        write_op(t, op, now);
        if (TFI_UNLIKELY(op->is_collective)) write_collective(t, op, now, 0);
        if (TFI_UNLIKELY(tfi_sums_on) && backward) tfi_sums_operator_end(t, op->evaluates);
        if (wants_tensors()) tfi_torch_write_tensors(t, op->name, op->start, function, 2);
        if (TFI_UNLIKELY(op->is_executed)) end_execution(t, op, function);
    }
    if (TFI_LIKELY(op->owner == t->torch)) op->owner->depth = op->depth;
    if (op->owner->last == op) op->owner->last = NULL;
    tfi_guard_clear(t);
}

/* Each common scope has a callback of its own, so that its number need not be read; all other scopes share one.
 * More callbacks would cost time: autograd has libtorch look through all of them for each node. */
static void *start_function(void **object, const void *function)
{
    return start_op(object, function, TFI_SCOPE_FUNCTION);
}

static void *start_backward(void **object, const void *function)
{
    return start_op(object, function, TFI_SCOPE_BACKWARD);
}

static void *start_other(void **object, const void *function)
{
    return start_op(object, function, how == TFI_TORCH_DIRECT ? tfi_torch_scope(function) : TFI_SCOPE_OTHER);
}

/* ---- attaching and detaching ---- */

#define ONLY(scope) (1u << (scope))

static void add_callback(unsigned scopes, void *(*start)(void **object, const void *function))
{
    bool range = scopes == ONLY(TFI_SCOPE_USER);
    struct callback callback = {.start = (void *)start, .end = range ? (void *)end_range : (void *)end_op};
    callback.probability = 1.0;
    callback.needs_inputs = tfi_torch_operators() && (tfi_config.record_shapes || tfi_config.tensor_addresses);
    callback.needs_outputs = tfi_config.tensor_addresses;
    callback.needs_ids = tfi_torch_executes();
    for (unsigned scope = 0; scope < SCOPES; scope++) callback.scopes[scope] = scopes >> scope & 1;
    handles[nr_handles++] = torch.add(callback);
}

/* libtorch boxes arguments as soon as anybody asks for operators. Called again if a program selects stages later. */
static void add_callbacks(void)
{
    const unsigned common = ONLY(TFI_SCOPE_FUNCTION) | ONLY(TFI_SCOPE_BACKWARD) | ONLY(TFI_SCOPE_USER);
    if (!nr_handles) add_callback(ONLY(TFI_SCOPE_USER), start_range);
    if (!tfi_torch_operators() || nr_handles > 1) return;
    add_callback(ONLY(TFI_SCOPE_FUNCTION), start_function);
    add_callback(ONLY(TFI_SCOPE_BACKWARD), start_backward);
    add_callback(((1u << SCOPES) - 1) & ~common, start_other);
}

#ifdef TFI_TEST_HOOKS
/* Simulates a RecordFunction of an unknown layout. */
static const char *other_name(const void *function)
{
    return function ? "?" : "";
}
#endif

bool tfi_torch_operators(void)
{
    if (__atomic_load_n(&tfi_config.select, __ATOMIC_RELAXED) == TFI_SELECT_NOTHING) return false;
    return tfi_config.activities & TFI_ACTIVITY_OPS || tfi_config.trigger.signal || tfi_config.trigger.path;
}

const char *tfi_torch_attach(const char *version)
{
    if (nr_handles) return add_callbacks(), NULL;
#ifdef TFI_TEST_HOOKS
    if (getenv("TORCH_VERSION")) version = getenv("TORCH_VERSION");
#endif
    if (version[0] < '2' && version[1] == '.') return "it is older than 2.0"; /* its callbacks have another form */
    void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return "libtorch_cpu.so is not loaded";
    torch.name = (const char *(*)(const void *))tfi_dlsym(library, "_ZNK2at14RecordFunction4nameEv");
    torch.add =
        (uint64_t(*)(struct callback))tfi_dlsym(library, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    torch.remove = (void (*)(uint64_t))tfi_dlsym(library, "_ZN2at14removeCallbackEm");
    torch.thread = (uint64_t(*)(void))tfi_dlsym(library, "_ZN2at14RecordFunction15currentThreadIdEv");
    if (!torch.name || !torch.add || !torch.remove || !torch.thread)
        return "it does not export the functions of its callbacks";
#ifdef TFI_TEST_HOOKS
    if (getenv("TORCH_CALLBACK")) torch.name = other_name;
#endif
    direct = tfi_torch_inputs_init(library, version);
    tfi_torch_groups_init(library);
    tfi_torch_hierarchy_init(library);
    tfi_torch_execution_init(library);
    tfi_torch_streams_init();
    tfi_torch_openmp_init(library);
    state = OFF;
    tfi_graphs_operators(open_operator);
    add_callbacks();
    return NULL;
}

bool tfi_torch_try(enum tfi_torch_how which)
{
    static char room[4096];
    if ((which == TFI_TORCH_DIRECT && !direct) || (which == TFI_TORCH_EXPORTED && !tfi_torch_exported())) return false;
    seen = (struct tfi_text){room, sizeof room - 1, 0, 0};
    trying = tfi_gettid();
    how = which;
    state = TRYING;
    return true;
}

const char *tfi_torch_seen(void)
{
    if (state != TRYING) return "";
    seen.data[seen.used] = 0;
    seen.used = 0;
    return seen.data;
}

void tfi_torch_use(enum tfi_torch_how which)
{
    how = which;
    state = ON;
    imported = true;
}

bool tfi_torch_imported(void)
{
    return imported;
}

void tfi_torch_detach(void)
{
    state = OFF;
    imported = true;
    while (nr_handles) torch.remove(handles[--nr_handles]);
}

void tfi_torch_restart(void)
{
    memset(serials, 0, sizeof serials);
}
