/* nccl_group.c - groups of calls, and the kernels that execute them.
 *
 * The end of a group launches one kernel for each communicator, with all its collectives, sends and receives, as in
 * NCCL. Jobs make communicators, each in a thread of its own. Outside a group the call waits for its job, and inside
 * one the end of the group does. The job of a communicator that does not block runs in the background.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_sim.h"

#define MAX_TASKS 256
#define MAX_JOBS 64

struct job {
    ncclResult_t (*work)(void *);
    void *data;
    int *state; /* for a communicator that does not block */
    pthread_t thread;
    ncclResult_t result;
};

static __thread struct {
    unsigned depth, nr_jobs;
    size_t nr_tasks;
    struct task *task[MAX_TASKS];
    struct job job[MAX_JOBS];
} group;

/* The work of one kernel. A captured kernel repeats it at each replay. */
struct plan {
    ncclComm_t comm;
    bool lost;
    size_t count;
    struct task *task[MAX_TASKS];
};

bool simnccl_in_group(void)
{
    return group.depth > 0;
}

/* ---- kernels ---- */

static void log_plan(const struct plan *plan, uint64_t start, uint64_t end, const uint64_t *starts, bool complete)
{
    char tasks[12000] = "", all[2048] = "";
    size_t n = 0, m = 0;
    for (size_t i = 0; i < plan->count && n < sizeof tasks - 600; i++) {
        char one[600];
        simnccl_task_text(one, sizeof one, plan->task[i]);
        n += (size_t)snprintf(tasks + n, sizeof tasks - n, "%s{%s}", i ? "," : "", one);
    }
    for (int r = 0; r < plan->comm->ranks && starts[r]; r++)
        m += (size_t)snprintf(all + m, sizeof all - m, "%s%llu", r ? "," : "", (unsigned long long)starts[r]);
    simnccl_log(
        "{\"t\":\"kernel\",\"comm\":\"%s\",\"rank\":%d,\"start\":%llu,\"end\":%llu,\"complete\":%s,\"starts\":[%s],"
        "\"tasks\":[%s]}",
        plan->comm->id, plan->comm->rank, (unsigned long long)start, (unsigned long long)end,
        complete ? "true" : "false", all, tasks);
}

static uint64_t run(void *user, uint64_t start, uint64_t cost)
{
    struct plan *plan = user;
    struct task *mail[MAX_TASKS];
    uint64_t latest = start, starts[MAX_RANKS] = {0};
    size_t nr_mail = 0;
    bool complete = !plan->lost;
    pthread_mutex_lock(&plan->comm->running);
    for (size_t i = 0; complete && i < plan->count; i++)
        if (plan->task[i]->function >= SEND) mail[nr_mail++] = plan->task[i];
        else complete = simnccl_exchange(plan->task[i], start, &latest, starts);
    if (complete) complete = simnccl_mail(mail, nr_mail, start, &latest);
    uint64_t now = simnccl_clock(), end = complete || now < latest + cost ? latest + cost : now;
    log_plan(plan, start, end, starts, complete);
    pthread_mutex_unlock(&plan->comm->running);
    return end;
}

static const char *const types[] = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                    "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};

/* Sets `name` to the mangled name of NCCL's kernel. */
static void name_kernel(char *name, size_t size, const struct plan *plan)
{
    static const char *const reductions[] = {"Sum", "Prod", "MinMax", "MinMax", "SumPostDiv"};
    const struct task *t = plan->task[0];
    char plain[128];
    bool reduces = t->reduction >= 0;
    if (t->function >= ALL_TO_ALL) snprintf(plain, sizeof plain, "ncclDevKernel_SendRecv");
    else if (plan->count > 1) snprintf(plain, sizeof plain, "ncclDevKernel_Generic_4");
    else if (!reduces) snprintf(plain, sizeof plain, "ncclDevKernel_%s_RING_LL", simnccl_name(t->function));
    else
        snprintf(plain, sizeof plain, "ncclDevKernel_%s_%s_%s_RING_LL", simnccl_name(t->function),
                 t->reduction <= ncclAvg ? reductions[t->reduction] : "PreMulSum", types[t->type]);
    snprintf(name, size, "_Z%zu%s24ncclDevKernelArgsStorageILm4096EE", strlen(plain), plain);
}

static ncclResult_t launch(struct plan *plan)
{
    const struct driver *driver = simnccl_driver();
    char name[256];
    uint64_t delay = 0, bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct task *t = plan->task[i];
        enum fault fault = simnccl_fault(t, &delay);
        if (fault == FAULT_DELAY) usleep((useconds_t)(delay / 1000));
        if (fault == FAULT_LOSE) plan->comm->lost = true;
        t->mismatched = fault == FAULT_MISMATCH;
        bytes += t->count * simnccl_type_bytes(t->type);
    }
    plan->lost = plan->comm->lost;
    name_kernel(name, sizeof name, plan);
    unsigned channels = (unsigned)(bytes / 65536 < 1 ? 1 : bytes / 65536 > 32 ? 32 : bytes / 65536);
    CUlaunchConfig config = {.gridDimX = channels,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 96,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = (CUstream)plan->task[0]->stream};
    CUfunction kernel = simnccl_kernel(name);
    driver->next_kernel(run, plan);
    if (kernel && driver->cuLaunchKernelEx(&config, kernel, NULL, NULL) == CUDA_SUCCESS) {
        simnccl_plugin_enqueued(plan->task, plan->count);
        return ncclSuccess;
    }
    driver->next_kernel(NULL, NULL);
    return ncclUnhandledCudaError;
}

/* Launches one kernel for each communicator, in the order of their first calls. */
static ncclResult_t launch_all(void)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < group.nr_tasks; i++) {
        if (!group.task[i]) continue;
        struct plan *plan = calloc(1, sizeof *plan);
        plan->comm = group.task[i]->comm;
        for (size_t j = i; j < group.nr_tasks; j++) {
            if (!group.task[j] || group.task[j]->comm != plan->comm) continue;
            plan->task[plan->count++] = group.task[j];
            group.task[j] = NULL;
        }
        ncclResult_t one = launch(plan);
        if (one != ncclSuccess) result = one;
    }
    group.nr_tasks = 0;
    return result;
}

ncclResult_t simnccl_add(const struct task *task)
{
    if (group.nr_tasks == MAX_TASKS) return ncclInternalError;
    struct task *copy = malloc(sizeof *copy);
    *copy = *task;
    group.task[group.nr_tasks++] = copy;
    return group.depth ? ncclSuccess : launch_all();
}

/* ---- jobs ---- */

static void *work(void *data)
{
    struct job *job = data;
    job->result = job->work(job->data);
    if (job->state) __atomic_store_n(job->state, (int)job->result, __ATOMIC_RELEASE);
    return NULL;
}

ncclResult_t simnccl_job(ncclResult_t (*function)(void *), const void *data, size_t bytes, bool blocking, int *state)
{
    struct job job = {.work = function, .data = malloc(bytes)};
    memcpy(job.data, data, bytes);
    if (group.depth) {
        if (group.nr_jobs == MAX_JOBS) return ncclInternalError;
        group.job[group.nr_jobs++] = job;
        return ncclSuccess;
    }
    if (blocking) return function(job.data);
    struct job *kept = malloc(sizeof *kept);
    *kept = job;
    kept->state = state;
    __atomic_store_n(state, ncclInProgress, __ATOMIC_RELEASE);
    if (pthread_create(&kept->thread, NULL, work, kept) != 0) return ncclSystemError;
    pthread_detach(kept->thread);
    return ncclInProgress;
}

static ncclResult_t finish_jobs(void)
{
    ncclResult_t result = ncclSuccess;
    for (unsigned i = 0; i < group.nr_jobs; i++) pthread_create(&group.job[i].thread, NULL, work, &group.job[i]);
    for (unsigned i = 0; i < group.nr_jobs; i++) {
        pthread_join(group.job[i].thread, NULL);
        if (group.job[i].result != ncclSuccess) result = group.job[i].result;
    }
    group.nr_jobs = 0;
    return result;
}

/* ---- the API ---- */

PUBLIC ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclGroupEnd(void)
{
    if (!group.depth) return ncclInvalidUsage;
    if (--group.depth) return ncclSuccess;
    ncclResult_t made = finish_jobs(), launched = launch_all();
    return made != ncclSuccess ? made : launched;
}

PUBLIC ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    if (!group.depth) return ncclInvalidUsage;
    if (--group.depth) return ncclSuccess;
    if (info) info->estimatedTime = (float)group.nr_tasks;
    group.nr_tasks = group.nr_jobs = 0;
    return ncclSuccess;
}
