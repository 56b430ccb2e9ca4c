/* client.h - this library as a client of CUPTI's activity interface: declarations for all its users.
 *
 * Threads. Any thread may make the call that starts CUPTI. CUPTI requests buffers and hands them back in threads of
 * its own or of the program, perhaps with locks of the driver held. Those callbacks only take from lists, put on
 * lists, and replace names by their numbers. The library's background thread does everything else; at the end, when
 * it has stopped, the thread that ends the trace does. The thread that converts records holds the token. No lock is
 * held round a call of CUPTI. All state lies on a page that a forked child finds empty: the child makes no call of
 * CUPTI.
 */
#ifndef TFI_CUPTI_CLIENT_H
#define TFI_CUPTI_CLIENT_H

#include "base/tfi.h"
#include "record/thread.h"

/* ---- state.c ---- */

enum tfi_cupti_phase {
    TFI_CUPTI_NEW = 0,      /* no device has been used yet */
    TFI_CUPTI_STARTING = 1, /* one thread is starting CUPTI */
    TFI_CUPTI_WAITING = 2,  /* started, but the process sleeps, or has no calling thread */
    TFI_CUPTI_READY = 3,
    TFI_CUPTI_OFF = 4,
};

struct tfi_cupti {
    uint32_t phase;      /* enum tfi_cupti_phase */
    uint32_t on;         /* CUPTI has our callbacks */
    uint32_t requested;  /* CUPTI has requested a buffer: nothing may be flushed before that */
    uint32_t last;       /* state of the last flush: 0 not requested, 1 requested, 2 done (a futex) */
    uint32_t quiet;      /* CUPTI is no longer called */
    uint32_t gen;        /* of the trace that records were written to */
    uint32_t token;      /* 1: some thread converts */
    uint64_t next_flush; /* milliseconds; used by the calling thread only */
    uint64_t kinds;      /* one bit for each kind we enabled */
};

/* The page, or zeros before the constructor has made it. */
extern struct tfi_cupti *tfi_cupti, tfi_cupti_asleep;

/* Not 0: the hardware's own tracing has been switched on, perhaps before the page was needed. */
extern uint32_t tfi_cupti_hes;

/* Number of clients of CUPTI's second interface. While there are any, the device belongs to them:
 * other_clients_v2.c. */
extern uint32_t tfi_cupti_away;

/* ---- for the rest of the library: cupti.c ---- */

/* Finds and starts CUPTI if it is wanted, and starts the calling thread; keeps errno. `runtime`: inside a call
 * of the runtime, which initialises the driver itself. */
void tfi_cupti_begin(bool runtime);

/* Called by every call that uses a device, before the original. */
static inline void tfi_cupti_device_used(bool runtime)
{
    uint32_t phase = __atomic_load_n(&tfi_cupti->phase, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(phase < TFI_CUPTI_READY)) tfi_cupti_begin(runtime);
}

/* The same when the driver has loaded this library, in cuInit: no wrapper of ours will be called. */
void tfi_cupti_injected(void);

/* Called when the process has woken: continues a start that has waited for that. */
void tfi_cupti_awake(void);

/* Job of the calling thread: converts the buffers that CUPTI hands over, and flushes. */
extern const struct tfi_job tfi_cupti_job;

/* Registers the function that is started if CUPTI cannot be had, in the call that finds that out. */
void tfi_cupti_instead(void (*begin)(void));

/* Called at the end, before the trace's generation is cleared: records that arrive from here on still belong to
 * it. */
void tfi_cupti_hold(void);
/* Called at the end while CUPTI is on, before the footer: fetches CUPTI's remaining records, within a time limit,
 * and closes our chunk. False if records that were handed over may be missing from the trace. */
bool tfi_cupti_finish(void);
/* Called after an exec that failed. */
void tfi_cupti_resume(void);
/* Called when another client gets the device to itself, and when it has given it back: other_clients_v2.c. */
void tfi_cupti_step_aside(void);
void tfi_cupti_step_back(void);
/* Called in the parent after a fork: the next device call starts the calling thread again. */
void tfi_cupti_after_fork(void);

/* ---- the library: find_library.c ---- */

/* CUPTI's functions, with C types of the same size as those of its header: API(name, parameters). */
#define TFI_CUPTI_FUNCTIONS                                                                                            \
    API(GetVersion, (uint32_t *))                                                                                      \
    API(GetTimestamp, (uint64_t *))                                                                                    \
    API(GetResultString, (int, const char **))                                                                         \
    API(ActivityRegisterCallbacks, (tfi_cupti_request_fn *, tfi_cupti_complete_fn *))                                  \
    API(ActivityEnable, (uint32_t))                                                                                    \
    API(ActivityDisable, (uint32_t))                                                                                   \
    API(ActivityFlushAll, (uint32_t))                                                                                  \
    API(ActivityGetNextRecord, (uint8_t *, size_t, void **))                                                           \
    API(ActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))                                                    \
    API(ActivitySetAttribute, (uint32_t, size_t *, void *))                                                            \
    API(ActivityEnableRuntimeApi, (uint32_t, uint8_t))                                                                 \
    API(ActivityEnableDriverApi, (uint32_t, uint8_t))                                                                  \
    API(GetCallbackName, (int, uint32_t, const char **))

typedef void tfi_cupti_request_fn(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void tfi_cupti_complete_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

struct tfi_cupti_api {
#define API(name, params) int(*name) params;
    TFI_CUPTI_FUNCTIONS
#undef API
    uint32_t version; /* as returned by GetVersion */
    char path[512];
};
extern struct tfi_cupti_api tfi_cupti_api;

/* Fills tfi_cupti_api; false, with one message, if there is no usable CUPTI. */
bool tfi_cupti_find(void);
/* Fills the text and returns true if another profiler has the device, or will have it. */
bool tfi_cupti_profiler(char *text, size_t size);

/* State of the driver: without a working one CUPTI crashes in every function, so it must not be called. */
enum tfi_cupti_driver {
    TFI_CUPTI_DRIVER_NONE,    /* not found, or cuInit has failed */
    TFI_CUPTI_DRIVER_NOT_YET, /* the program has not called cuInit: its present call fails, and has to */
    TFI_CUPTI_DRIVER_WORKS,
};
enum tfi_cupti_driver tfi_cupti_driver(bool runtime);
/* True if the driver is loaded. It is asked nothing. Takes the loader's lock, as the first call of a runtime does. */
bool tfi_cupti_driver_is_loaded(void);
/* Text of a result. */
const char *tfi_cupti_error(int result);

/* Activity kinds and the other numbers of CUPTI that are used. */
enum {
    TFI_CUPTI_MEMCPY = 1,
    TFI_CUPTI_MEMSET = 2,
    TFI_CUPTI_KERNEL = 3,
    TFI_CUPTI_DRIVER = 4,
    TFI_CUPTI_RUNTIME = 5,
    TFI_CUPTI_CONCURRENT_KERNEL = 10,
    TFI_CUPTI_OVERHEAD = 17,
    TFI_CUPTI_MEMCPY2 = 22,
    TFI_CUPTI_SYNCHRONIZATION = 38,
    TFI_CUPTI_EXTERNAL_CORRELATION = 39,
    TFI_CUPTI_GRAPH_TRACE = 51,
    TFI_CUPTI_FLUSH_FORCED = 1,
    TFI_CUPTI_ATTR_ZEROED_BUFFER = 5,
    TFI_CUPTI_ATTR_PER_THREAD_BUFFER = 9,
};

/* ---- the kinds that CUPTI records for us: kinds.c ---- */

/* Enables all kinds we want; false, with one message, if CUPTI records no kernels. */
bool tfi_kinds_enable(void);
/* Disables them. */
void tfi_kinds_disable(void);
/* Enables an API's calls again, after the whole kind was disabled. */
void tfi_kinds_enable_calls(uint32_t domain);
/* Switches the kinds in which our own actions leave records. */
void tfi_kinds_switch_own(bool on);
/* Called after a buffer of ours was read: the numbers of its device records with and without times, and whether
 * nodes of graphs are among the latter. */
void tfi_kinds_judge(uint32_t timed, uint32_t timeless, bool graphs);
/* Called in the calling thread: applies the outcome of tfi_kinds_judge(). */
void tfi_kinds_adapt(void);
/* Called when another client begins to record (before its first kind is enabled) or has ended. */
void tfi_kinds_window(bool begins);

/* ---- buffers: buffers.c ---- */

struct tfi_buffer {
    struct tfi_buffer *next;
    uint8_t *data;
    size_t valid;
    uint32_t gen; /* of the trace its names have numbers in; 0: the records are discarded */
    uint32_t out; /* CUPTI holds it */
};

/* `convert` is called in a callback: it converts the records in another client's buffer before that is handed
 * back. */
bool tfi_buffers_init(void (*convert)(uint8_t *buffer, size_t valid));
tfi_cupti_request_fn tfi_buffers_request;
tfi_cupti_complete_fn tfi_buffers_complete;
/* Returns a buffer that came back, oldest first; NULL if there is none. With the token held. */
struct tfi_buffer *tfi_buffers_take(void);
bool tfi_buffers_waiting(void);
void tfi_buffers_free(struct tfi_buffer *buffer);
/* Number of buffers that CUPTI holds. */
unsigned tfi_buffers_out(void);

/* ---- records: layout.c, wanted_calls.c, records.c ---- */

/* Finds the next record of a buffer, the first if *record is NULL; false at the end, with *whole false if it is
 * damaged. */
bool tfi_record_next(uint8_t *buffer, size_t valid, void **record, bool *whole);
uint32_t tfi_record_kind(const void *record);
/* Size in bytes of a record of that kind in the library's version, 0 if unknown. */
uint32_t tfi_record_bytes(uint32_t kind, uint32_t version);
uint32_t tfi_record_count(uint8_t *buffer, size_t valid);
/* Callback id in a record of an API call. */
uint32_t tfi_record_call(const void *record);
/* Thread that made the call: the low half of pthread_self(), or the kernel's number if another client prefers that. */
uint32_t tfi_record_thread(const void *record);
/* Thread that caused an overhead, 0 if none is named. */
uint32_t tfi_record_overhead_thread(const void *record);

/* Start time of a record in CUPTI's own nanoseconds; 0 if unknown. */
uint64_t tfi_record_start(const void *record);
/* Correlation id of a record; 0 if it has none. */
uint32_t tfi_record_correlation(const void *record);

/* Replaces the names in a buffer by their string numbers, in place, because their lifetime is not specified. */
void tfi_records_intern(uint8_t *buffer, size_t valid);
/* Converts a buffer's records into ours. With the token held. `interned`: the names are numbers; `ask`: the driver
 * may be asked. */
void tfi_records_convert(struct tfi_thread *lane, uint8_t *buffer, size_t valid, bool interned, bool ask);
/* Forgets the state of another trace. */
void tfi_records_restart(void);

/* The calls whose records are wanted: the rows of calls.def. */
struct tfi_cupti_call {
    uint16_t domain; /* TFI_CUPTI_DRIVER or TFI_CUPTI_RUNTIME */
    uint16_t number;
    char symbol[48]; /* no pointers: these would have to be relocated in every program that is started */
    char class[8];
};
extern const struct tfi_cupti_call tfi_cupti_calls[];
extern const unsigned tfi_cupti_nr_calls;
/* Index of a call, -1 if it is not wanted. */
int tfi_cupti_call_index(uint32_t domain, uint32_t number);

/* ---- clocks: device_clock.c ---- */

/* Reads the counter and CUPTI's clock together and writes a clock record. False if CUPTI gives no time. */
bool tfi_cupti_clock_read(struct tfi_thread *lane);
/* Converts a record's time, of either unit, to CUPTI's own nanoseconds; 0 stays 0. */
uint64_t tfi_cupti_clock_ns(uint64_t value);
/* Nanoseconds: a time that is a second off is of another clock. */
#define TFI_CUPTI_FAR 1000000000u
/* True if device work can have run then, in CUPTI's nanoseconds: since CUPTI was started, and not in a far future. */
bool tfi_cupti_clock_holds(uint64_t start, uint64_t end);
/* Converts CUPTI's nanoseconds to a value of the counter. */
uint64_t tfi_cupti_clock_ticks(uint64_t ns);
/* Called when another client has registered a clock of its own: all later times are in its unit. */
void tfi_cupti_clock_foreign(uint64_t (*clock)(void));
/* Reads that clock again, to convert present times. */
void tfi_cupti_clock_refresh(void);
/* Called when CUPTI was started: reads both clocks for host calls before the first record. With the token held. */
void tfi_cupti_clock_first(void);

/* ---- devices: devices.c ---- */

/* Returns the known TFI_DEVICE_* flags of a device. Writes its record the first time, if the driver may be asked
 * now. */
uint32_t tfi_cupti_device(struct tfi_thread *lane, uint32_t device, bool ask);
/* Writes the device records that were postponed. */
void tfi_cupti_devices(struct tfi_thread *lane);
void tfi_cupti_devices_restart(void);
/* True if another profiler records calls of the driver, in or beside the process: it would take ours for the program's. */
bool tfi_cupti_watched(void);
/* True if the driver may be asked about devices: no other client would take the question for the program's. */
bool tfi_cupti_may_ask(void);
/* Returns one bit for each device the process uses: it has a primary context, or there are records of its work. Asks
 * the driver. */
uint64_t tfi_cupti_devices_used(void);
/* Fills all fields but the head with the driver's description of a device; false if the driver does not answer. */
bool tfi_cupti_describe(uint32_t device, struct tfi_rec_device *rec);
/* The driver's version, 0 if it is not mapped. */
int tfi_cupti_driver_version(void);

/* ---- selection: select.c ---- */

enum tfi_verdict { TFI_VERDICT_UNKNOWN, TFI_VERDICT_INSIDE, TFI_VERDICT_OUTSIDE };

/* Called in the constructor: registers a watcher of stages. */
void tfi_select_constructor(void);
/* Called when the stages or selected stages of a thread have changed. */
void tfi_select_note(const struct tfi_thread *thread);
/* Judges a call of a thread (low half of pthread_self()) and stores the verdict under the call's id. With the
 * token held. */
enum tfi_verdict tfi_select_call(uint32_t id, uint32_t thread, uint64_t ticks);
/* Returns the verdict on the call with this id. */
enum tfi_verdict tfi_select_of(uint32_t id);
/* Judges a record without a call, by its own time. */
enum tfi_verdict tfi_select_at(uint64_t ticks);
bool tfi_select_init(void);

/* ---- device time by stage: stage_sums.c ---- */

/* Not 0 once CUPTI has been started. */
extern uint32_t tfi_sums_on;
/* With `tfi_sums_on`, called by torch.c. Begins an operator with a sequence number, or (`frame`) autograd's frame
 * round a backward operator. `forward_thread`: the thread of the forward operator for a backward one, else 0. The
 * second function ends a backward operator or a frame. */
void tfi_sums_operator(struct tfi_thread *thread, uint32_t forward_thread, int64_t sequence, bool frame);
void tfi_sums_operator_end(struct tfi_thread *thread, bool frame);
/* Called in a call that uses a device, before the original. */
void tfi_sums_look(struct tfi_thread *thread);
/* Returns the low half of pthread_self() for a thread number in a record: of a thread that has launched something it may
 * also be the kernel's number, since any client may choose that for all (cuptiSetThreadIdType). */
uint32_t tfi_sums_thread(uint32_t thread);
/* Take a call of a thread (low half of pthread_self()), in ticks, and device work of the call with this id. With
 * the token held. */
void tfi_sums_call(uint32_t id, uint32_t thread, uint64_t start, uint64_t end);
void tfi_sums_work(uint32_t id, uint64_t ns);
/* Finds the innermost stage in which the call with this id was made: the id of its range, 0 for none. `warmup`: the call
 * was made in a warm-up step, which answers leave out. False if it is not known. With the token held. */
bool tfi_sums_stage(uint32_t id, uint64_t *range, bool *warmup);
void tfi_sums_begin(void);

/* ---- sums of the device work whose records are left out: left_out.c; with the token held ---- */

/* Device work that is left out. */
struct tfi_left_out {
    uint32_t device, context, stream, flags;
    uint64_t start, duration;
};
/* Adds the work that the call with this id launched to the sums of what was left out. */
void tfi_left_out_add(struct tfi_thread *lane, uint32_t id, const struct tfi_left_out *work);
/* Writes the sums so far. */
void tfi_left_out_write(struct tfi_thread *lane);
/* Forgets the sums of a parent process or an earlier trace. */
void tfi_left_out_restart(void);

/* ---- other clients of this process: other_clients.c, other_calls.c, other_clients_v2.c ---- */

/* Called at wake: the trace records which client has the device already. */
void tfi_v2_awake(void);
/* Called in a new process. */
void tfi_v2_restart(void);

/* Returns the wrapper of a row of cupti.def, for clients that look functions up by name. */
void *tfi_other_wrapper(unsigned hook);

/* Called in the calling thread, before it calls the driver. */
void tfi_other_own_thread(void);
/* Number that is odd while another client has kinds enabled, and grows with each change. */
uint32_t tfi_other_edges(void);
/* True while that client has this kind enabled. */
bool tfi_other_wants(uint32_t kind);
/* Requests a buffer from the client, while it is active. */
bool tfi_other_request(uint8_t **buffer, size_t *size, size_t *max_records);
/* Hands the client one of its own buffers back. */
void tfi_other_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
/* Copies the records that the client asked for from a returned buffer of ours into buffers of its own. */
void tfi_other_copy_records(uint8_t *buffer, size_t valid);
/* Called when CUPTI's count of dropped records was read, which resets it. */
void tfi_other_dropped(uint64_t count);
/* Returns the timestamp callback that the client has registered; false if there is none. */
bool tfi_other_clock(uint64_t (**clock)(void));

#endif
