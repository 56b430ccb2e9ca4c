/* simgpu.h - the simulated GPU's own interface beside the vendor's API, for the simulated CUPTI and runtime.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Device times may lie in the future, because no call waits unless SIMGPU_REAL
 * is set. The outermost call of a thread gives its correlation id to the calls nested in it. Callbacks run inside the
 * call, or in a worker thread after a host function, and may not call CUDA. The driver reports an activity as soon as
 * it knows its end. The strings live as long as the process.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <stdint.h>

enum simgpu_domain { SIMGPU_DRIVER, SIMGPU_RUNTIME };

struct simgpu_call {
    const char *symbol;
    uint32_t domain;
    uint32_t correlation;
    uint32_t exit; /* 0 at entry, 1 at exit; `result` is valid at exit */
    int32_t result;
    uint64_t time;
    uint64_t thread; /* pthread_self() */
    uint32_t tid;
    uint32_t context; /* id of the current context; 0: none */
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
    uint64_t sequence; /* order of the reports, one counter for the process */
    uint64_t submitted, start, end;
    uint32_t grid[3], block[3];
    uint32_t shared_static, shared_dynamic, registers;
    uint64_t bytes;
    uint32_t value;          /* for a memset */
    uint32_t source, target; /* for a copy: enum simgpu_memory */
    uint32_t source_device, target_device;
    uint32_t async;
    uint32_t graph; /* id of the executable graph; 0 outside graphs */
    uint64_t node;
};

struct simgpu_subscriber {
    void *user;
    void (*call)(void *user, const struct simgpu_call *call);
    void (*activity)(void *user, const struct simgpu_activity *activity);
};

/* Adds or removes a subscriber, which must stay at its address. Four fit. Returns 0, or -1 if there is no room. */
int simgpu_subscribe(const struct simgpu_subscriber *subscriber);
void simgpu_unsubscribe(const struct simgpu_subscriber *subscriber);

/* One API call of a library above the driver. If begin returns an error, the call has to return it at once. */
struct simgpu_frame {
    const char *symbol;
    uint64_t start;
    uint32_t domain, correlation;
};
int simgpu_begin(struct simgpu_frame *frame, uint32_t domain, const char *symbol);
int simgpu_end(struct simgpu_frame *frame, int result);

/* Makes the thread's next kernel wait for other processes. Whenever the kernel runs, the driver calls `wait` with its
 * start and its cost; the result is its end. `wait` may block, but may not call CUDA. `user` must stay valid. */
typedef uint64_t (*simgpu_wait)(void *user, uint64_t start, uint64_t cost);
void simgpu_next_kernel(simgpu_wait wait, void *user);

/* Reads the anchor of a device's virtual clock in both host clocks; returns 0 if the device does not exist. */
int simgpu_anchor(unsigned device, uint64_t *monotonic, uint64_t *realtime);
/* Returns 1 once the driver's own exit handler has run, which it registers when it is initialised. */
int simgpu_ended(void);
/* Takes memory away from a device, as CUPTI's own pools do. */
void simgpu_hold(unsigned device, uint64_t bytes);
/* Returns the virtual time: the host's clock, or the latest time that a call waited for if that is later. */
uint64_t simgpu_now(void);

#endif
