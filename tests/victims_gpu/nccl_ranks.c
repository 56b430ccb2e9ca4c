/* nccl_ranks.c - one rank of a program on NCCL: collectives whose data it checks, groups, splits, graphs, and waits.
 *
 * nccl_ranks RANK RANKS FILE all             everything once; rank 0 leaves the unique id in FILE
 * nccl_ranks RANK RANKS FILE late WHO MS N   two collectives, then N in stages, to which WHO is MS milliseconds late
 * nccl_ranks RANK RANKS FILE graphs          captured collectives, replayed in stages
 * nccl_ranks RANK RANKS FILE once            one collective, and a wait for it
 * nccl_ranks RANK RANKS FILE absent WHO      the same, but WHO sleeps and never calls a collective
 * nccl_ranks RANK RANKS FILE abort           the same; the last rank is lost, and the others abort and shrink the group
 * nccl_ranks RANK RANKS FILE endless        collectives of the world and of its halves, until it is killed; FILE.RANK counts them
 * nccl_ranks RANK RANKS FILE mixed           a group of two communicators, with collectives of all sizes in no order
 *
 * Prints "ok"; exits 1 at the first wrong result.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>
#include <nccl.h>

#include "../../include/tfinject.h"
#include "check.h"

#define MOST 70000
#define NCCL(call) EXPECT((call) == ncclSuccess)

static int rank, ranks;
static CUstream stream;
static cudaStream_t on;
static ncclComm_t world;
static float *from, *to;

static ncclUniqueId unique_id(const char *path)
{
    ncclUniqueId id;
    char new[4096];
    snprintf(new, sizeof new, "%s.new", path);
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        FILE *f = fopen(new, "w");
        EXPECT(f && fwrite(&id, sizeof id, 1, f) == 1 && fclose(f) == 0 && rename(new, path) == 0);
    }
    while (access(path, R_OK) != 0) usleep(1000);
    FILE *f = fopen(path, "r");
    EXPECT(f && fread(&id, sizeof id, 1, f) == 1 && fclose(f) == 0);
    return id;
}

static void prepare(void)
{
    CUcontext context;
    CUdeviceptr a, b;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    on = (cudaStream_t)stream;
    CHECK(cuMemAlloc(&a, MOST * sizeof(float) * 16));
    CHECK(cuMemAlloc(&b, MOST * sizeof(float) * 16));
    from = (float *)a;
    to = (float *)b;
}

/* Returns a rank's value at an index. The values are so small that every sum is exact. */
static float value(int of, int i)
{
    return (float)(of * 3 + i % 7);
}

static void fill(int n)
{
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) from[i] = value(rank, i), to[i] = -1;
}

static float sum(int i)
{
    float s = 0;
    for (int r = 0; r < ranks; r++) s += value(r, i);
    return s;
}

static void whole(int n, int root)
{
    fill(n);
    NCCL(ncclAllReduce(from, to, (size_t)n, ncclFloat, ncclSum, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == sum(i));
    fill(n);
    NCCL(ncclAllReduce(from, to, (size_t)n, ncclFloat, ncclMax, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == value(ranks - 1, i));
    fill(n);
    NCCL(ncclReduce(from, to, (size_t)n, ncclFloat, ncclAvg, root, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == (rank == root ? (float)((double)sum(i) / ranks) : -1));
    fill(n);
    NCCL(ncclBroadcast(from, to, (size_t)n, ncclFloat, root, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == value(root, i));
    fill(n);
    NCCL(ncclBcast(from, (size_t)n, ncclFloat, root, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(from[i] == value(root, i));
}

/* Checks the collectives that move `n` elements of each rank. */
static void parts(int n, int root)
{
    fill(n * ranks);
    NCCL(ncclAllGather(from, to, (size_t)n, ncclFloat, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n * ranks; i++) EXPECT(to[i] == value(i / n, i % n));
    fill(n * ranks);
    NCCL(ncclReduceScatter(from, to, (size_t)n, ncclFloat, ncclSum, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == sum(rank * n + i));
    fill(n * ranks);
    NCCL(ncclAlltoAll(from, to, (size_t)n, ncclFloat, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n * ranks; i++) EXPECT(to[i] == value(i / n, rank * n + i % n));
    fill(n * ranks);
    NCCL(ncclGather(from, to, (size_t)n, ncclFloat, root, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n * ranks; i++) EXPECT(to[i] == (rank == root ? value(i / n, i % n) : -1));
    fill(n * ranks);
    NCCL(ncclScatter(from, to, (size_t)n, ncclFloat, root, world, on));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == value(root, rank * n + i));
}

/* Sums one element of each other type. */
static void types(void)
{
    static const ncclDataType_t all[] = {ncclInt8,  ncclUint8,  ncclInt32,  ncclUint32,
                                         ncclInt64, ncclUint64, ncclFloat64};
    CHECK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        memset(from, 0, 64);
        memset(to, 0, 64);
        double mine = rank + 1, total = 0;
        if (all[i] == ncclFloat64) memcpy(from, &mine, sizeof mine);
        else *(char *)from = (char)(rank + 1);
        NCCL(ncclAllReduce(from, to, 1, all[i], ncclSum, world, on));
        CHECK(cuStreamSynchronize(stream));
        memcpy(&total, to, sizeof total);
        if (all[i] == ncclFloat64) EXPECT(total == ranks * (ranks + 1) / 2);
        else EXPECT(*(char *)to == ranks * (ranks + 1) / 2);
    }
    uint16_t half = 0x3c00, brain = 0x3f80; /* one */
    memcpy(from, &half, 2);
    NCCL(ncclAllReduce(from, to, 1, ncclFloat16, ncclProd, world, on));
    memcpy((char *)from + 64, &brain, 2);
    NCCL(ncclAllReduce((char *)from + 64, (char *)to + 64, 1, ncclBfloat16, ncclMin, world, on));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(to, &half, 2) == 0 && memcmp((char *)to + 64, &brain, 2) == 0);
}

/* Sends around a ring more than a mailbox holds, then runs two collectives and a send in one kernel. */
static void groups(int n)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    fill(n);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(from, (size_t)n, ncclFloat, next, world, on));
    NCCL(ncclRecv(to, (size_t)n, ncclFloat, last, world, on));
    NCCL(ncclGroupEnd());
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) EXPECT(to[i] == value(last, i));
    fill(64);
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(from, to, 16, ncclFloat, ncclSum, world, on));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(from, to + 16, 8, ncclFloat, ncclMin, world, on));
    NCCL(ncclGroupEnd());
    if (rank == 0) NCCL(ncclSend(from, 5, ncclFloat, ranks - 1, world, on));
    if (rank == ranks - 1) NCCL(ncclRecv(to + 32, 5, ncclFloat, 0, world, on));
    NCCL(ncclGroupEnd());
    CHECK(cuStreamSynchronize(stream));
    EXPECT(to[3] == sum(3) && to[17] == value(0, 1) && to[32] == (rank == ranks - 1 ? value(0, 0) : -1));
}

static void use(ncclComm_t comm, int members)
{
    int mine, count;
    NCCL(ncclCommUserRank(comm, &mine));
    NCCL(ncclCommCount(comm, &count));
    EXPECT(count == members && mine < members);
    CHECK(cuStreamSynchronize(stream));
    from[0] = 1;
    NCCL(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, comm, on));
    NCCL(ncclAllReduce(from, to + 1, 1, ncclFloat, ncclSum, comm, on));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(to[0] == (float)members && to[1] == (float)members);
}

static void children(void)
{
    ncclComm_t half, pair, none, rest;
    int parity = rank % 2, members = (ranks + 1 - parity) / 2, excluded[] = {ranks - 1};
    NCCL(ncclCommSplit(world, parity, -rank, &half, NULL));
    use(half, members);
    NCCL(ncclGroupStart());
    NCCL(ncclCommSplit(world, rank / 2, 0, &pair, NULL));
    NCCL(ncclGroupEnd());
    use(pair, rank / 2 * 2 + 1 < ranks ? 2 : 1);
    NCCL(ncclCommSplit(world, rank ? NCCL_SPLIT_NOCOLOR : 5, 0, &none, NULL));
    EXPECT((none == NULL) == (rank != 0));
    if (rank != ranks - 1) {
        NCCL(ncclCommShrink(world, excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
        use(rest, ranks - 1);
        NCCL(ncclCommDestroy(rest));
    }
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommDestroy(pair));
}

static void wait_for(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        usleep(500);
    }
    EXPECT(state == ncclSuccess);
}

/* Asks after each step whether it is done, as PyTorch does for communicators that do not block. */
static void without_blocking(const char *path)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm, child;
    char name[4096];
    snprintf(name, sizeof name, "%s.2", path);
    config.blocking = 0;
    EXPECT(ncclCommInitRankConfig(&comm, ranks, unique_id(name), rank, &config) == ncclInProgress);
    wait_for(comm);
    EXPECT(ncclCommSplit(comm, 0, rank, &child, NULL) == ncclInProgress);
    wait_for(comm);
    use(child, ranks);
    NCCL(ncclCommFinalize(child));
    NCCL(ncclCommDestroy(child));
    NCCL(ncclCommDestroy(comm));
}

/* Captures calls of all kinds: single ones, groups of one and of two communicators, sends and receives. */
static CUgraph capture_all(ncclComm_t pair)
{
    CUgraph graph;
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NCCL(ncclAllReduce(from, to, 8, ncclFloat, ncclSum, world, on));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(from, to + 8, 4, ncclFloat, ncclMax, world, on));
    NCCL(ncclReduceScatter(from, to + 16, 2, ncclFloat, ncclSum, world, on));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclBroadcast(from, to + 24, 3, ncclFloat, ranks - 1, world, on));
    NCCL(ncclAllReduce(from, to + 32, 1, ncclFloat, ncclMin, pair, on));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclSend(from, 5, ncclFloat, next, world, on));
    NCCL(ncclRecv(to + 40, 5, ncclFloat, last, world, on));
    NCCL(ncclGroupEnd());
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraph capture_gather(int n)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NCCL(ncclAllGather(from, to, (size_t)n, ncclFloat, world, on));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* Replays a graph; the last rank is late by `ms` milliseconds. */
static void replay(CUgraphExec exec, int ms)
{
    CHECK(cuStreamSynchronize(stream));
    memset(to, 0, 64 * sizeof *to);
    tfi_range_push("replay");
    if (rank == ranks - 1) usleep((useconds_t)ms * 1000);
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    tfi_range_pop();
}

/* Replays two executable graphs made from one, then one with a graph inside; a third graph is never replayed. */
static void captured(void)
{
    CUgraph graph, outer;
    CUgraphNode node;
    CUgraphExec exec[2], whole;
    ncclComm_t pair;
    NCCL(ncclCommSplit(world, rank / 2, 0, &pair, NULL));
    fill(64);
    tfi_range_push("prepare");
    graph = capture_all(pair);
    for (int i = 0; i < 2; i++) CHECK(cuGraphInstantiateWithFlags(&exec[i], graph, 0));
    CHECK(cuGraphCreate(&outer, 0));
    CHECK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, capture_gather(6)));
    CHECK(cuGraphInstantiateWithFlags(&whole, outer, 0));
    tfi_range_pop();
    for (int i = 0; i < 4; i++) {
        replay(exec[i % 2], i * 5);
        EXPECT(to[0] == sum(0) && to[9] == value(ranks - 1, 1) && to[16] == sum(2 * rank));
        EXPECT(to[25] == value(ranks - 1, 1) && to[32] == value(rank / 2 * 2, 0));
        EXPECT(to[40] == value((rank + ranks - 1) % ranks, 0));
    }
    for (int i = 0; i < 2; i++) {
        replay(whole, 0);
        EXPECT(to[6] == value(1, 0) && to[6 * ranks - 1] == value(ranks - 1, 5));
    }
    capture_gather(7);
    NCCL(ncclAllReduce(from, to, 9, ncclFloat, ncclSum, world, on));
    CHECK(cuStreamSynchronize(stream));
    NCCL(ncclCommDestroy(pair));
}

static void memory(void)
{
    void *block, *handle;
    ncclWindow_t window;
    ncclRedOp_t scaled;
    float by = 0.5f;
    NCCL(ncclMemAlloc(&block, 4096));
    NCCL(ncclCommRegister(world, block, 4096, &handle));
    NCCL(ncclCommWindowRegister(world, block, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclRedOpCreatePreMulSum(&scaled, &by, ncclFloat, ncclScalarHostImmediate, world));
    fill(4);
    NCCL(ncclAllReduce(from, to, 4, ncclFloat, scaled, world, on));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(to[2] == sum(2) / 2);
    NCCL(ncclRedOpDestroy(scaled, world));
    NCCL(ncclCommWindowDeregister(world, window));
    NCCL(ncclCommDeregister(world, handle));
    NCCL(ncclMemFree(block));
    EXPECT(ncclBroadcast(from, to, 4, ncclFloat, ranks, world, on) == ncclInvalidArgument);
    EXPECT(ncclBroadcast(from, to, 4, ncclFloat, 0, world, on) == ncclSuccess);
    CHECK(cuStreamSynchronize(stream));
}

static void everything(const char *path)
{
    whole(100, ranks - 1);
    whole(MOST, 0);
    parts(11, 0);
    parts(MOST / 8, ranks - 1);
    types();
    groups(MOST);
    children();
    captured();
    memory();
    without_blocking(path);
}

/* Opens the journal of a rank: the calls begun so far in the world and in the rank's half, which outlive the rank. */
static volatile unsigned *journal(const char *path, int of)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, of);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0);
    volatile unsigned *calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(calls != MAP_FAILED);
    return calls;
}

/* Waits until the other ranks are about to make their call number `number`. */
static void wait_for_others(const char *path, unsigned number)
{
    for (int r = 0; r < ranks; r++) {
        volatile unsigned *calls = journal(path, r);
        while (r != rank && *calls < number) usleep(500);
        munmap((void *)calls, 4096);
    }
}

static void late(const char *path, int who, int ms, int times)
{
    volatile unsigned *calls = journal(path, rank);
    NCCL(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, world, on));
    NCCL(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, world, on));
    for (int i = 0; i < times; i++) {
        tfi_range_push("step");
        tfi_range_push("compute");
        if (rank == who) wait_for_others(path, (unsigned)i + 1);
        if (rank == who) usleep((useconds_t)ms * 1000);
        tfi_range_pop();
        ++*calls;
        NCCL(ncclAllReduce(from, to, 1000, ncclFloat, ncclSum, world, on));
        CHECK(cuStreamSynchronize(stream));
        tfi_range_pop();
    }
}

static void once(bool recovers)
{
    ncclResult_t state = ncclSuccess;
    ncclComm_t rest;
    int excluded[] = {ranks - 1};
    NCCL(ncclAllReduce(from, to, 1000, ncclFloat, ncclSum, world, on));
    CHECK(cuStreamSynchronize(stream));
    if (!recovers || rank == ranks - 1) return;
    NCCL(ncclCommGetAsyncError(world, &state));
    EXPECT(state == ncclRemoteError);
    NCCL(ncclCommShrink(world, excluded, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    use(rest, ranks - 1);
}

static void mixed(const char *path)
{
    ncclComm_t half;
    char name[4096];
    NCCL(ncclCommSplit(world, rank % 2, rank, &half, NULL));
    use(half, (ranks + 1 - rank % 2) / 2);
    NCCL(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, world, on));
    NCCL(ncclGroupStart());
    for (size_t n = 1; n <= 64; n *= 8) {
        NCCL(ncclAllReduce(from, to, n, ncclFloat, ncclSum, half, on));
        NCCL(ncclAllReduce(from, to, n, ncclFloat, ncclSum, world, on));
        NCCL(ncclAllGather(from, to, n, ncclFloat, world, on));
        NCCL(ncclReduceScatter(from, to, n, ncclFloat, ncclSum, world, on));
    }
    for (int root = 0; root < ranks; root++) NCCL(ncclBroadcast(from, to, 64, ncclFloat, root, world, on));
    NCCL(ncclGroupEnd());
    CHECK(cuStreamSynchronize(stream));
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommDestroy(world));
    snprintf(name, sizeof name, "%s.2", path);
    NCCL(ncclCommInitRank(&world, ranks, unique_id(name), rank)); /* the plugin is loaded anew */
    NCCL(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, world, on));
    CHECK(cuStreamSynchronize(stream));
}

/* Calls collectives in the same order on all ranks. Some calls follow each other without a wait. */
static void endless(const char *path)
{
    ncclComm_t half;
    volatile unsigned *calls = journal(path, rank);
    NCCL(ncclCommSplit(world, rank % 2, rank, &half, NULL));
    for (unsigned i = 0;; i++) {
        bool in_half = i % 3 == 2;
        ncclComm_t comm = in_half ? half : world;
        calls[in_half]++;
        if (i % 5 == 4) NCCL(ncclAllGather(from, to, 16, ncclFloat, comm, on));
        else NCCL(ncclAllReduce(from, to, 1000, ncclFloat, ncclSum, comm, on));
        if (i % 4 != 1) CHECK(cuStreamSynchronize(stream));
        if (i % 7 == 0) usleep((useconds_t)(rank * 300));
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    rank = atoi(argv[1]);
    ranks = atoi(argv[2]);
    prepare();
    NCCL(ncclCommInitRank(&world, ranks, unique_id(argv[3]), rank));
    if (strcmp(argv[4], "all") == 0) everything(argv[3]);
    else if (strcmp(argv[4], "graphs") == 0) captured();
    else if (strcmp(argv[4], "late") == 0) late(argv[3], atoi(argv[5]), atoi(argv[6]), atoi(argv[7]));
    else if (strcmp(argv[4], "mixed") == 0) mixed(argv[3]);
    else if (strcmp(argv[4], "endless") == 0) endless(argv[3]);
    else if (strcmp(argv[4], "absent") == 0 && rank == atoi(argv[5])) pause();
    else once(strcmp(argv[4], "abort") == 0);
    if (strcmp(argv[4], "abort") == 0) NCCL(ncclCommAbort(world));
    else NCCL(ncclCommDestroy(world));
    puts("ok");
    return 0;
}
