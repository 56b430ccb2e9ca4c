/* engine.c - work in virtual time: points of the timeline, execution of operations, jobs, and waiting for them.
 *
 * An operation starts when its predecessors have ended, but not before its submission plus the script's latency. The
 * script tells its duration. So its times are known at once, and the submitting call executes it, with two exceptions: a
 * kernel that waits for other processes, and an operation that depends, directly or not, on such a kernel or on a host
 * function that has not returned. These become jobs for the workers. There are as many workers as operations that block
 * at the same time. Streams do not compete: any number of kernels run in parallel.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

struct job {
    struct job *next;
    struct op op;
    struct where where;
    struct point *deps;
    size_t nr_deps;
    struct ticket *ticket;
};

static struct job *jobs, **jobs_end = &jobs; /* in order of submission */
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static unsigned idle_workers;

/* ---- points ---- */

static void unref(struct ticket *ticket)
{
    if (ticket && --ticket->refs == 0) free(ticket);
}

bool sim_point_known(struct point *point)
{
    if (!point->pending) return true;
    if (!point->pending->done) return false;
    if (point->pending->end > point->time) point->time = point->pending->end;
    unref(point->pending);
    point->pending = NULL;
    return true;
}

struct point sim_point_copy(struct point *from)
{
    sim_point_known(from);
    if (from->pending) from->pending->refs++;
    return *from;
}

void sim_point_drop(struct point *point)
{
    unref(point->pending);
    *point = (struct point){0};
}

void sim_point_set(struct point *to, struct point from)
{
    sim_point_drop(to);
    *to = from;
}

/* ---- execution ---- */

static void sleep_until(uint64_t time)
{
    struct timespec t = {(time_t)(time / 1000000000), (long)(time % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

static void move(const struct copy *c)
{
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(c->dst + z * c->dst_slice + y * c->dst_pitch, c->src + z * c->src_slice + y * c->src_pitch,
                    c->width);
}

static void fill(const struct set *s)
{
    for (size_t y = 0; y < s->height; y++) {
        char *row = s->dst + y * s->pitch;
        if (s->element == 1) memset(row, (int)s->value, s->width);
        else
            for (size_t x = 0; x < s->width; x++) memcpy(row + x * s->element, &s->value, s->element);
    }
}

static const char *copy_name(const struct copy *c)
{
    bool from_host = c->source <= SIMGPU_PINNED, to_host = c->target <= SIMGPU_PINNED;
    if (from_host) return to_host ? "memcpy_htoh" : "memcpy_htod";
    if (to_host) return "memcpy_dtoh";
    return c->source_device != c->target_device ? "memcpy_ptop" : "memcpy_dtod";
}

static void describe_kernel(struct simgpu_activity *a, const CUDA_KERNEL_NODE_PARAMS_v2 *k)
{
    const struct CUfunc_st *f = (const struct CUfunc_st *)k->func;
    const unsigned grid[3] = {k->gridDimX, k->gridDimY, k->gridDimZ},
                   block[3] = {k->blockDimX, k->blockDimY, k->blockDimZ};
    memcpy(a->grid, grid, sizeof grid);
    memcpy(a->block, block, sizeof block);
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2], threads = blocks * block[0] * block[1] * block[2];
    a->kind = SIMGPU_KERNEL;
    a->name = f->name;
    a->shared_dynamic = k->sharedMemBytes;
    a->shared_static = (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    a->registers = (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS];
    a->end = a->start + sim_cost(f->cost, blocks, threads, 0);
}

static void describe_copy(struct simgpu_activity *a, const struct copy *c)
{
    a->kind = SIMGPU_MEMCPY;
    a->name = copy_name(c);
    a->bytes = (uint64_t)c->width * c->height * c->depth;
    a->source = c->source;
    a->target = c->target;
    a->source_device = (uint32_t)c->source_device;
    a->target_device = (uint32_t)c->target_device;
    a->async = c->async;
    a->end = a->start + sim_cost(sim_cost_of(a->name), 0, 0, a->bytes);
}

static void describe_set(struct simgpu_activity *a, const struct set *s)
{
    const struct region *r = sim_region(s->dst);
    a->kind = SIMGPU_MEMSET;
    a->name = "memset";
    a->bytes = (uint64_t)s->width * s->height * s->element;
    a->value = s->value;
    a->target = r ? r->memory : SIMGPU_DEVICE;
    a->async = 1;
    a->end = a->start + sim_cost(sim_cost_of(a->name), 0, 0, a->bytes);
}

/* Releases the lock while the kernel waits for other processes. */
static void wait_for_others(struct simgpu_activity *a, const struct op *op)
{
    pthread_mutex_unlock(sim_mutex());
    uint64_t end = op->wait(op->wait_user, a->start, a->end - a->start);
    pthread_mutex_lock(sim_mutex());
    a->end = end;
}

/* Releases the lock while the program's function runs, in real time. */
static void call_host(struct simgpu_activity *a, const struct op *op, struct CUctx_st *ctx)
{
    pthread_mutex_unlock(sim_mutex());
    if (sim_real) sleep_until(a->start);
    uint64_t before = sim_clock();
    sim_in_host_function = true;
    if (op->host.fn) op->host.fn(op->host.user);
    else op->host.callback(op->host.stream, (CUresult)ctx->error, op->host.user);
    sim_in_host_function = false;
    uint64_t after = sim_clock();
    pthread_mutex_lock(sim_mutex());
    a->kind = SIMGPU_HOST;
    a->name = "host";
    if (before > a->start) a->start = before;
    a->end = a->start + (after - before);
}

static bool reached(const struct op *op)
{
    uint64_t now = 0, value = op->write.value;
    memcpy(&now, op->write.to, op->write.size);
    switch (op->write.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return op->write.size == 4 ? (int32_t)(now - value) >= 0 : (int64_t)(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return (op->write.size == 4 ? (uint32_t) ~(now | value) : ~(now | value)) != 0;
    }
}

/* Waits until the value is written; returns the time at which it saw the value. */
static uint64_t poll(const struct op *op, uint64_t base)
{
    while (!reached(op)) {
        pthread_mutex_unlock(sim_mutex());
        usleep(20);
        pthread_mutex_lock(sim_mutex());
    }
    uint64_t now = sim_clock();
    return now > base ? now : base;
}

static uint64_t record_event(const struct where *where, uint64_t base)
{
    uint64_t time = base > where->submitted ? base : where->submitted;
    sim_log_event(where, time);
    return time;
}

/* Needs the lock. Returns the end of the operation; `base` is the time at which all its predecessors have ended. */
static uint64_t perform(const struct where *where, const struct op *op, uint64_t base)
{
    struct simgpu_activity a = {.device = (uint32_t)where->ctx->device,
                                .context = where->ctx->head.id,
                                .stream = where->stream_id,
                                .correlation = where->correlation,
                                .submitted = where->submitted,
                                .graph = where->graph,
                                .node = where->node};
    uint64_t earliest = where->submitted + sim_latency();
    a.start = base > earliest ? base : earliest;
    switch (op->kind) {
    case OP_KERNEL:
        describe_kernel(&a, &op->kernel);
        if (op->wait) wait_for_others(&a, op);
        break;
    case OP_COPY:
        move(&op->copy);
        describe_copy(&a, &op->copy);
        break;
    case OP_SET:
        fill(&op->set);
        describe_set(&a, &op->set);
        break;
    case OP_HOST: call_host(&a, op, where->ctx); break;
    case OP_FREE: sim_free(op->memory.base, SIMGPU_DEVICE); return base;
    case OP_WRITE: memcpy(op->write.to, &op->write.value, op->write.size); return base;
    case OP_POLL: return poll(op, base);
    case OP_RECORD: return record_event(where, base);
    default: return base;
    }
    sim_report(&a);
    return a.end;
}

/* ---- jobs ---- */

static bool runnable(struct job *job, uint64_t *base)
{
    *base = 0;
    for (size_t i = 0; i < job->nr_deps; i++) {
        if (!sim_point_known(&job->deps[i])) return false;
        if (job->deps[i].time > *base) *base = job->deps[i].time;
    }
    return true;
}

static struct job *take(uint64_t *base)
{
    for (struct job **at = &jobs; *at; at = &(*at)->next) {
        struct job *job = *at;
        if (!runnable(job, base)) continue;
        if (!(*at = job->next)) jobs_end = at;
        return job;
    }
    return NULL;
}

static void *worker(void *unused);

static bool blocks(const struct op *op)
{
    return op->kind == OP_HOST || op->kind == OP_POLL || op->wait;
}

static void another_worker(void)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, worker, NULL) == 0) {
        idle_workers++; /* it counts as idle until it runs */
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void *worker(void *unused)
{
    uint64_t base;
    pthread_mutex_lock(sim_mutex());
    idle_workers--;
    for (;;) {
        struct job *job = take(&base);
        if (!job) {
            idle_workers++;
            pthread_cond_wait(&progress, sim_mutex());
            idle_workers--;
            continue;
        }
        if (jobs && !idle_workers && blocks(&job->op)) another_worker();
        job->ticket->end = perform(&job->where, &job->op, base);
        job->ticket->done = true;
        unref(job->ticket);
        free(job->deps);
        free(job);
        pthread_cond_broadcast(&progress);
    }
    return unused;
}

/* Runs an operation once all points in `deps` are reached: at once if they are known and the operation does not block,
 * otherwise later on a worker. The caller holds the lock. The function takes over the references of the points in
 * `deps`, but not the array. The caller owns the new point in `*done`. */
CUresult sim_run(const struct where *where, const struct op *op, struct point *deps, size_t nr_deps, struct point *done)
{
    uint64_t base = 0;
    bool known = !blocks(op);
    for (size_t i = 0; i < nr_deps; i++) {
        if (!sim_point_known(&deps[i])) known = false;
        if (deps[i].time > base) base = deps[i].time;
    }
    if (known) {
        *done = (struct point){.time = perform(where, op, base)};
        return CUDA_SUCCESS;
    }
    struct job *job = calloc(1, sizeof *job);
    job->op = *op;
    job->where = *where;
    job->deps = malloc((nr_deps + 1) * sizeof *deps);
    memcpy(job->deps, deps, nr_deps * sizeof *deps);
    job->nr_deps = nr_deps;
    job->ticket = calloc(1, sizeof *job->ticket);
    job->ticket->refs = 2;
    *jobs_end = job;
    jobs_end = &job->next;
    *done = (struct point){.pending = job->ticket};
    if (!idle_workers) another_worker();
    pthread_cond_broadcast(&progress);
    return CUDA_SUCCESS;
}

/* Needs the lock. Replaces points by one that all of them reach first. */
static void join_points(struct CUctx_st *ctx, struct point *deps, size_t *nr_deps)
{
    struct where where = {.ctx = ctx, .submitted = simgpu_now()};
    struct point all;
    sim_run(&where, &(struct op){.kind = OP_EMPTY}, deps, *nr_deps, &all);
    deps[0] = all;
    *nr_deps = 1;
}

/* Needs the lock. Collects the points that work in this stream has to wait for. The legacy stream waits for all
 * blocking streams, and they wait for it. `room` is at least 4. */
void sim_stream_base(struct CUstream_st *stream, struct point *deps, size_t *nr_deps, size_t room)
{
    struct CUctx_st *ctx = stream->head.ctx;
    deps[(*nr_deps)++] = sim_point_copy(&stream->last);
    if (stream != ctx->legacy) {
        if (stream->blocking) deps[(*nr_deps)++] = sim_point_copy(&ctx->legacy->last);
        return;
    }
    for (struct CUstream_st *s = ctx->streams; s; s = s->next) {
        if (s == stream || !s->blocking) continue;
        struct point p = sim_point_copy(&s->last), *same = &deps[*nr_deps - 1];
        if (!p.pending && !same->pending) { /* the later of two known times stands for both */
            same->time = p.time > same->time ? p.time : same->time;
            continue;
        }
        if (*nr_deps == room) join_points(ctx, deps, nr_deps);
        deps[(*nr_deps)++] = p;
    }
}

#define MAX_DEPS 256
static CUresult submit(struct CUstream_st *stream, const struct op *op, struct point *dep)
{
    struct point deps[MAX_DEPS], done;
    size_t n = 0;
    struct where where = {.ctx = stream->head.ctx,
                          .stream = stream,
                          .stream_id = stream->head.id,
                          .correlation = sim_correlation(),
                          .submitted = simgpu_now()};
    if (dep) deps[n++] = *dep;
    sim_stream_base(stream, deps, &n, MAX_DEPS);
    TRY(sim_run(&where, op, deps, n, &done));
    sim_point_set(&stream->last, done);
    return CUDA_SUCCESS;
}

/* Needs the lock. Called before a stream is destroyed: the context remembers its unfinished work. */
void sim_leave_behind(struct CUstream_st *stream)
{
    struct CUctx_st *ctx = stream->head.ctx;
    struct where where = {.ctx = ctx, .submitted = simgpu_now()};
    struct point deps[] = {sim_point_copy(&ctx->left), sim_point_copy(&stream->last)}, done;
    sim_run(&where, &(struct op){.kind = OP_EMPTY}, deps, 2, &done);
    sim_point_set(&ctx->left, done);
}

/* Needs the lock. Adds an operation to the stream, or to the graph that the stream captures. */
CUresult sim_submit(struct CUstream_st *stream, const struct op *op)
{
    TRY(sim_capture_refuse(stream));
    if (stream->capture) return sim_capture_op(stream, op);
    return submit(stream, op, NULL);
}

/* Needs the lock. Lets later work in the stream follow the point; takes ownership of it. */
CUresult sim_submit_after(struct CUstream_st *stream, struct point dep)
{
    return submit(stream, &(struct op){.kind = OP_WAIT}, &dep);
}

/* Needs the lock, but releases it while it waits. */
void sim_wait(struct point *point)
{
    struct point p = sim_point_copy(point);
    while (!sim_point_known(&p)) pthread_cond_wait(&progress, sim_mutex());
    if (p.time > sim_waited) sim_waited = p.time;
    if (sim_real) {
        pthread_mutex_unlock(sim_mutex());
        sleep_until(p.time);
        pthread_mutex_lock(sim_mutex());
    } else {
        sim_advance(p.time);
    }
}

/* The child of a fork has no workers. Unfinished jobs belong to the parent. */
void sim_engine_fork(void)
{
    jobs = NULL;
    jobs_end = &jobs;
    idle_workers = 0;
    pthread_cond_init(&progress, NULL);
}
