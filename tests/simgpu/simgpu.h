/* simgpu.h - what the simulated GPU shows beyond the vendor's API: the interface of a simulated CUPTI, and of its runtime.
 *
 * Times are CLOCK_MONOTONIC nanoseconds; device times may lie in the future, for nothing waits unless SIMGPU_REAL is
 * set. The outermost call of a thread gives its correlation id to the calls nested in it. Callbacks run inside the call
 * (or in a worker thread, after a host function) and may not call CUDA. An activity is reported as soon as its end is
 * known; the strings live as long as the process.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <stdint.h>

enum simgpu_domain { SIMGPU_DRIVER, SIMGPU_RUNTIME };

struct simgpu_call {
    const char *symbol;
    uint32_t domain;
    uint32_t correlation;
    uint32_t exit; /* 0 at entry, 1 at exit, when result is valid */
    int32_t result;
    uint64_t time;
    uint64_t thread; /* pthread_self() */
    uint32_t tid;
    uint32_t context; /* id of the current context, 0 without one */
};

enum simgpu_kind {
    SIMGPU_KERNEL,
    SIMGPU_MEMCPY,
    SIMGPU_MEMSET,
    SIMGPU_HOST,
    SIMGPU_SYNC /* name: context, stream, event or wait; start and end are the host's */
};
enum simgpu_memory { SIMGPU_PAGEABLE, SIMGPU_PINNED, SIMGPU_DEVICE, SIMGPU_ARRAY, SIMGPU_MANAGED };

struct simgpu_activity {
    uint32_t kind;
    const char *name;
    uint32_t device, context, stream;
    uint32_t correlation;
    uint64_t sequence; /* in order of becoming known, one counter for the process */
    uint64_t submitted, start, end;
    uint32_t grid[3], block[3];
    uint32_t shared_static, shared_dynamic, registers;
    uint64_t bytes;
    uint32_t value;          /* of a memset */
    uint32_t source, target; /* of a copy: enum simgpu_memory */
    uint32_t source_device, target_device;
    uint32_t async;
    uint32_t graph; /* id of the executable graph, 0 outside graphs */
    uint64_t node;
};

struct simgpu_subscriber {
    void *user;
    void (*call)(void *user, const struct simgpu_call *call);
    void (*activity)(void *user, const struct simgpu_activity *activity);
};

/* Adds or removes a subscriber, which must stay where it is; up to four. 0, or -1 when there is no room. */
int simgpu_subscribe(const struct simgpu_subscriber *subscriber);
void simgpu_unsubscribe(const struct simgpu_subscriber *subscriber);

/* One API call of a library on top of the driver. begin returns an error that is to be returned instead of calling. */
struct simgpu_frame {
    const char *symbol;
    uint64_t start;
    uint32_t domain, correlation;
};
int simgpu_begin(struct simgpu_frame *frame, uint32_t domain, const char *symbol);
int simgpu_end(struct simgpu_frame *frame, int result);

/* The anchor of a device's virtual clock, in both host clocks; 0 where there is no such device. */
int simgpu_anchor(unsigned device, uint64_t *monotonic, uint64_t *realtime);
/* Takes memory of a device away, as CUPTI's own pools do. */
void simgpu_hold(unsigned device, uint64_t bytes);
/* The virtual now: the host's clock, or the last time waited for if that is later. */
uint64_t simgpu_now(void);

#endif
