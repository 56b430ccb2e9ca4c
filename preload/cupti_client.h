/* cupti_client.h - this library as a client of CUPTI's activity interface: what its parts and the rest of the library share.
 *
 * Threads. Any thread may make the call that starts it. CUPTI asks for buffers and hands them back in threads of its own
 * or of the program, perhaps with locks of the driver held: those callbacks only take from lists and put on lists, and
 * give names their numbers. Everything else is done by the library's background thread; at the end, when that has
 * stopped, by the thread that ends the trace. Whoever converts records holds the token; no lock is held round a call of
 * CUPTI. All state lies on a page that a forked child finds empty: it makes no call of CUPTI.
 */
#ifndef TFI_CUPTI_CLIENT_H
#define TFI_CUPTI_CLIENT_H

#include "tfi.h"
#include "thread.h"

/* ---- the rest of the library's side: cupti.c ---- */

enum tfi_cupti_phase {
    TFI_CUPTI_NEW = 0,      /* no device was used yet */
    TFI_CUPTI_STARTING = 1, /* one thread is starting it */
    TFI_CUPTI_WAITING = 2,  /* started, but the process sleeps, or has no background thread */
    TFI_CUPTI_READY = 3,
    TFI_CUPTI_OFF = 4,
};

struct tfi_cupti {
    uint32_t phase;      /* enum tfi_cupti_phase */
    uint32_t on;         /* CUPTI has our callbacks */
    uint32_t requested;  /* it has asked for a buffer: before that nothing may be flushed */
    uint32_t last;       /* of the last flush: 0 not asked for, 1 asked for, 2 done (a futex) */
    uint32_t quiet;      /* from here on CUPTI is not called any more */
    uint32_t gen;        /* of the trace that records went to */
    uint32_t token;      /* 1: somebody converts */
    uint64_t next_flush; /* milliseconds; the background thread's */
    uint64_t kinds;      /* bits of the kinds we enabled */
};

/* The page, or zeros before it is needed. */
extern struct tfi_cupti *tfi_cupti;

/* Not 0: somebody, perhaps before the page was needed, has switched the hardware's own tracing on. */
extern uint32_t tfi_cupti_hes;

/* Finds and starts CUPTI where it is wanted, starts the background thread; keeps errno. `runtime`: in a call of the
 * runtime, which initialises the driver itself. */
void tfi_cupti_begin(bool runtime);

/* To be called by every call that uses a device, before the original is called. */
static inline void tfi_cupti_device_used(bool runtime)
{
    uint32_t phase = __atomic_load_n(&tfi_cupti->phase, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(phase < TFI_CUPTI_READY)) tfi_cupti_begin(runtime);
}

/* The same where the driver has loaded this library, in cuInit: no wrapper of ours is going to be called. */
void tfi_cupti_injected(void);

/* When the process has woken: what has waited for that goes on. */
void tfi_cupti_awake(void);

/* For the background thread: does one piece of work; false if there is none. */
bool tfi_cupti_work(void);
/* How long it may sleep then, at most `most` milliseconds. */
unsigned tfi_cupti_wait(unsigned most);

/* True while the background thread is in a call of CUPTI, which may hang: it has nothing of ours in its hands then. */
bool tfi_cupti_calling(void);

/* At the end, before the trace's generation goes: records that come from here on still belong to it. */
void tfi_cupti_hold(void);
/* At the end, before the footer: fetches what CUPTI still has, within a limit, and closes our chunk. False if records
 * that were handed over may not be in the trace. */
bool tfi_cupti_finish(void);
/* After an exec that failed. */
void tfi_cupti_resume(void);
/* Another client gets the device to itself, and has given it back: broker_v2.c. */
void tfi_cupti_step_aside(void);
void tfi_cupti_step_back(void);
/* In the parent, when it has forked: the next device call starts the background thread again. */
void tfi_cupti_after_fork(void);

/* In a callback: records in a buffer that is somebody else's are turned into ours before it is given away. */
void tfi_cupti_convert_now(uint8_t *buffer, size_t valid);

/* ---- the library: cupti_find.c ---- */

/* Its functions, with C types of the same size as those of its header: API(name, parameters). */
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
    uint32_t version; /* as its GetVersion says */
    char path[512];
};
extern struct tfi_cupti_api tfi_cupti_api;

/* Fills it; false, with one line said, if there is no CUPTI that can be used. */
bool tfi_cupti_find(void);

/* Whether CUPTI may be called, as far as the driver goes: it crashes in every function where there is none that works. */
enum tfi_cupti_driver {
    TFI_CUPTI_DRIVER_NONE,    /* not to be found, or cuInit has failed */
    TFI_CUPTI_DRIVER_NOT_YET, /* the program has not called cuInit: what it calls now fails, and has to */
    TFI_CUPTI_DRIVER_WORKS,
};
enum tfi_cupti_driver tfi_cupti_driver(bool runtime);
/* Text of a result. */
const char *tfi_cupti_error(int result);

/* Activity kinds, and what else of CUPTI's numbers is used. */
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

/* ---- what CUPTI is to record for us: cupti_kinds.c ---- */

/* All of it; false, with one line said, if it records no kernels. */
bool tfi_kinds_enable(void);
/* Takes it back. */
void tfi_kinds_disable(void);
/* An API's calls once more, after the whole kind was disabled. */
void tfi_kinds_enable_calls(uint32_t domain);
/* Kinds that our own doings have records of. */
void tfi_kinds_switch_own(bool on);
/* After a buffer of ours was read: of how many records of device work how many had no times, nodes of graphs among them? */
void tfi_kinds_judge(uint32_t timed, uint32_t timeless, bool graphs);
/* For the background thread: does what that has come to. */
void tfi_kinds_adapt(void);
/* Another client's session begins (before its first kind is enabled) or has ended. */
void tfi_kinds_session(bool begins);

/* ---- buffers: cupti_buffers.c ---- */

struct tfi_buffer {
    struct tfi_buffer *next;
    uint8_t *data;
    size_t valid;
    uint32_t gen; /* of the trace its names have numbers in; 0: not to be kept */
    uint32_t out; /* CUPTI has it */
};

bool tfi_buffers_init(void);
tfi_cupti_request_fn tfi_buffers_request;
tfi_cupti_complete_fn tfi_buffers_complete;
/* A buffer that came back, oldest first; NULL if there is none. With the token. */
struct tfi_buffer *tfi_buffers_take(void);
bool tfi_buffers_waiting(void);
void tfi_buffers_free(struct tfi_buffer *buffer);
/* How many CUPTI still has. */
unsigned tfi_buffers_out(void);

/* ---- records: cupti_records.c, cupti_calls.c ---- */

/* The next record of a buffer, the first if *record is NULL; false at the end, with *whole false if it is damaged. */
bool tfi_record_next(uint8_t *buffer, size_t valid, void **record, bool *whole);
uint32_t tfi_record_kind(const void *record);
/* Bytes of a record of that kind in the library's version, 0 if unknown. */
uint32_t tfi_record_bytes(uint32_t kind, uint32_t version);
uint32_t tfi_record_count(uint8_t *buffer, size_t valid);
/* The number of the function in a record of an API. */
uint32_t tfi_record_call(const void *record);
/* The thread that made it: the low half of pthread_self(). */
uint32_t tfi_record_thread(const void *record);

/* When what it is about began, in CUPTI's own nanoseconds; 0 if that is not known. */
uint64_t tfi_record_start(const void *record);
/* The id of the call it belongs to; 0 if it has none. */
uint32_t tfi_record_correlation(const void *record);

/* Gives the names in a buffer their numbers, in place: nothing says how long they live. */
void tfi_records_intern(uint8_t *buffer, size_t valid);
/* Turns a buffer's records into ours. With the token. `interned`: the names are numbers; `ask`: the driver may be asked. */
void tfi_records_convert(struct tfi_thread *lane, uint8_t *buffer, size_t valid, bool interned, bool ask);
/* Forgets what belongs to another trace. */
void tfi_records_restart(void);

/* Calls whose records are wanted: the rows of cupti_calls.def. */
struct tfi_cupti_call {
    uint16_t domain; /* TFI_CUPTI_DRIVER or TFI_CUPTI_RUNTIME */
    uint16_t number;
    char symbol[48]; /* no pointers: they would have to be relocated in every program that is started */
    char class[8];
};
extern const struct tfi_cupti_call tfi_cupti_calls[];
extern const unsigned tfi_cupti_nr_calls;
/* Index of a call, -1 if it is not wanted. */
int tfi_cupti_call_index(uint32_t domain, uint32_t number);

/* ---- clocks: cupti_clock.c ---- */

/* Reads counter and CUPTI's clock together; writes a clock record. False if CUPTI has no time. */
bool tfi_cupti_clock_read(struct tfi_thread *lane);
/* A time of a record in CUPTI's own nanoseconds, whatever unit it came in; 0 stays 0. */
uint64_t tfi_cupti_clock_ns(uint64_t value);
/* The counter at that moment. */
uint64_t tfi_cupti_clock_ticks(uint64_t ns);
/* Another client has registered a clock of its own: all times after this count in it. */
void tfi_cupti_clock_foreign(uint64_t (*clock)(void));
/* Reads that clock again, for values of now. */
void tfi_cupti_clock_refresh(void);
/* When CUPTI was started: reads both clocks for host calls before the first record. With the token. */
void tfi_cupti_clock_first(void);

/* ---- devices: cupti_device.c ---- */

/* Returns TFI_DEVICE_* of a device, as far as it is known. Writes its record when it is first met, if the driver may be
 * asked now. */
uint32_t tfi_cupti_device(struct tfi_thread *lane, uint32_t device, bool ask);
/* Writes the records that were put off. */
void tfi_cupti_devices(struct tfi_thread *lane);
void tfi_cupti_devices_restart(void);
/* The driver's version, 0 if it is not mapped. */
int tfi_cupti_driver_version(void);

/* ---- selection: cupti_select.c ---- */

enum tfi_verdict { TFI_VERDICT_UNKNOWN, TFI_VERDICT_INSIDE, TFI_VERDICT_OUTSIDE };

/* To be called by stage.c whenever stages or selected stages of a thread have changed. */
void tfi_select_note(const struct tfi_thread *thread);
/* Where a call of a thread (low half of pthread_self()) was made; kept under its id. With the token. */
enum tfi_verdict tfi_select_call(uint32_t id, uint32_t thread, uint64_t ticks);
/* What was found for the call with this id. */
enum tfi_verdict tfi_select_of(uint32_t id);
/* For a record of no call, by its own time. */
enum tfi_verdict tfi_select_at(uint64_t ticks);
bool tfi_select_init(void);
void tfi_select_restart(void);

/* ---- device time by stage: cupti_sums.c ---- */

/* Not 0 from the moment on when CUPTI is started. */
extern uint32_t tfi_sums_on;
/* With `tfi_sums_on`, for stage.c: the calling thread has put a stage on its stack, has taken one away (from its top or
 * not), or all. The first stage of a thread was opened, or its last one closed. Another thread ends a stage of a thread. */
void tfi_sums_opened(struct tfi_thread *thread);
void tfi_sums_closed(struct tfi_thread *thread, const struct tfi_open *open, bool top);
void tfi_sums_emptied(struct tfi_thread *thread);
void tfi_sums_thread(struct tfi_thread *thread);
void tfi_sums_ended(const struct tfi_thread *thread, uint32_t name);
/* With `tfi_sums_on`, for torch.c: an operator with a sequence number begins (a backward one has the thread of its forward
 * one, else 0), or autograd's frame round a backward one; a backward one or a frame ends. */
void tfi_sums_operator(struct tfi_thread *thread, uint32_t forward_thread, int64_t sequence, bool frame);
void tfi_sums_operator_end(struct tfi_thread *thread, bool frame);
/* In a call that uses a device, before the original is called. */
void tfi_sums_look(struct tfi_thread *thread);
/* A call of a thread (low half of pthread_self()), in ticks; work of the call with this id. With the token. */
void tfi_sums_call(uint32_t id, uint32_t thread, uint64_t start, uint64_t end);
void tfi_sums_work(uint32_t id, uint64_t ns);
void tfi_sums_begin(void);
/* At wake. */
void tfi_sums_restart(void);
/* At the end, when no record comes any more: adds all to the stages' times. Returns how many records of the device belong to
 * no known stage because there was no room. */
uint64_t tfi_sums_finish(void);

/* ---- the other client of this process: broker.c ---- */

/* Clients of CUPTI's second interface, to which the device belongs while there are any: broker_v2.c. */
extern uint32_t tfi_cupti_away;
/* At wake: the trace is told who has the device already. */
void tfi_v2_awake(void);
/* In a new process. */
void tfi_v2_restart(void);

/* The wrapper of a row of cupti.def, for clients that look functions up by name. */
void *tfi_broker_wrapper(unsigned hook);

/* To be called in the background thread, before it calls the driver. */
void tfi_broker_own_thread(void);
/* A number that is odd while another client has kinds enabled, and grows with each change. */
uint32_t tfi_broker_session(void);
/* True while it has a kind enabled. */
bool tfi_broker_wants(uint32_t kind);
/* A buffer of the client's, while it is active. */
bool tfi_broker_request(uint8_t **buffer, size_t *size, size_t *max_records);
/* Hands it a buffer of its own back. */
void tfi_broker_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
/* Copies what it asked for from a buffer of ours that came back into buffers of its own. */
void tfi_broker_copy(uint8_t *buffer, size_t valid);
/* Called when CUPTI's count of dropped records was read, which resets it. */
void tfi_broker_dropped(uint64_t count);
/* The timestamp callback it has registered; false if there is none. */
bool tfi_broker_clock(uint64_t (**clock)(void));

#endif
