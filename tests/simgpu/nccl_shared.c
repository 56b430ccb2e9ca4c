/* nccl_shared.c - the shared memory of a communicator: joining it, barriers, and waits with a time limit.
 *
 * Device and host have separate barriers, because a split on the host may overtake a kernel that has not run.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nccl_sim.h"

uint64_t simnccl_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t patience(void)
{
    const char *text = getenv("SIMNCCL_TIMEOUT_MS");
    return (text && *text ? strtoull(text, NULL, 10) : 20000) * 1000000;
}

/* Waits until the word is at least `least`; false if the communicator is aborted or the time is up. */
bool simnccl_until(ncclComm_t comm, const uint32_t *word, uint32_t least)
{
    uint64_t end = simnccl_clock() + patience();
    for (int i = 0; (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - least) < 0; i++) {
        if (__atomic_load_n(&comm->aborted, __ATOMIC_RELAXED)) return false;
        if (i > 100) usleep(i < 2000 ? 20 : 1000); /* ranks that hang leave the processors to others */
        if (simnccl_clock() > end) {
            simnccl_log("{\"t\":\"timeout\",\"comm\":\"%s\",\"rank\":%d}", comm->id, comm->rank);
            __atomic_store_n(&comm->state, ncclRemoteError, __ATOMIC_RELEASE);
            return false;
        }
    }
    return true;
}

bool simnccl_barrier(ncclComm_t comm, enum barrier which)
{
    uint32_t phase = ++comm->phase[which];
    __atomic_store_n(&comm->shared->rank[comm->rank].phase[which], phase, __ATOMIC_RELEASE);
    for (int r = 0; r < comm->ranks; r++)
        if (!simnccl_until(comm, &comm->shared->rank[r].phase[which], phase)) return false;
    return true;
}

char *simnccl_window(ncclComm_t comm, int rank)
{
    return comm->shared->memory + (size_t)rank * WINDOW;
}

struct mailbox *simnccl_mailbox(ncclComm_t comm, int from, int to)
{
    struct mailbox *first = (struct mailbox *)simnccl_window(comm, comm->ranks);
    return &first[from * comm->ranks + to];
}

/* All ranks open the segment by the group's id. Once all have joined, the first rank removes its name. */
bool simnccl_join(ncclComm_t comm)
{
    size_t n = (size_t)comm->ranks;
    size_t bytes = sizeof(struct segment) + n * WINDOW + n * n * sizeof(struct mailbox);
    char name[256] = "/";
    for (size_t i = 0; comm->id[i]; i++) name[i + 1] = comm->id[i], name[i + 2] = 0;
    int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    void *memory =
        ftruncate(fd, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED) return false;
    comm->shared = memory;
    __atomic_store_n(&comm->shared->rank[comm->rank].joined, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < comm->ranks; r++)
        if (!simnccl_until(comm, &comm->shared->rank[r].joined, 1)) return false;
    if (!simnccl_barrier(comm, ON_HOST)) return false;
    if (comm->rank == 0) shm_unlink(name);
    return true;
}
