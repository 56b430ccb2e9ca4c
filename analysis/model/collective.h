/* collective.h - one collective on one rank, as every loader fills it and the questions on communication read it.
 *
 * A collective is an operation of a communicator: all_reduce, send, barrier and so on (include/collectives.def). A rank
 * has one entry for each collective that it took part in, with the span of its call on the host, the span of its
 * work, or both. A loader may add a call and its kernels as entries of their own with the same `link`;
 * collectives_finish joins them. Times are nanoseconds on the model's axis once the process is finished.
 * The stage of a collective is that of its kernel (`work`) or of its call (`thread` and `call_start`).
 */
#ifndef TFA_COLLECTIVE_H
#define TFA_COLLECTIVE_H

#include "base/util.h"

enum collective_op {
#define COLLECTIVE(id, name, bus, whole, meets) COLLECTIVE_##id,
#include "collectives.def"
    NR_COLLECTIVE_OPS
};

enum collective_bus { BUS_ONE, BUS_SHARE, BUS_TWICE };
enum collective_whole { WHOLE_EITHER, WHOLE_INPUT, WHOLE_OUTPUT };

struct collective_kind {
    const char *name;
    enum collective_bus bus;
    enum collective_whole whole;
    bool meets; /* no rank can leave before all have come */
};
extern const struct collective_kind collective_kinds[NR_COLLECTIVE_OPS];
/* Returns the factor between algorithm and bus bandwidth of `ranks` ranks; NAN if their number is unknown. */
double collective_bus_factor(enum collective_op op, int64_t ranks);

#define UNKNOWN_TIME INT64_MIN
#define UNKNOWN_COUNT UINT64_MAX
#define UNKNOWN_NUMBER (-1)

struct collective {
    uint32_t communicator; /* name number: process group, or the hash of the communicator's id; NAME_NONE: unknown */
    uint32_t nccl_communicator; /* the hash alone, also where `communicator` is a process group; NAME_NONE: unknown */
    uint32_t members;     /* name number: the group's global ranks as a text, such as "[0, 1]"; NAME_NONE: unknown */
    uint32_t description; /* name number: the group's name for people; NAME_NONE: none */
    uint32_t name;        /* name number: the operation's or the kernel's name as recorded */
    uint32_t datatype;    /* name number: the element type, by torch's name; NAME_NONE: unknown */
    uint8_t op;           /* enum collective_op */
    int64_t sequence;     /* number in the communicator, as recorded; UNKNOWN_NUMBER: not recorded */
    uint64_t elements_in, elements_out, bytes_in, bytes_out; /* of this rank; UNKNOWN_COUNT: unknown */
    int64_t root;         /* of broadcast, reduce, gather and scatter; UNKNOWN_NUMBER: none or unknown */
    int64_t source, peer; /* of send and recv: the ranks that send and receive; UNKNOWN_NUMBER: none or unknown */
    int64_t size, rank;   /* ranks in the communicator, and this rank's number in it; UNKNOWN_NUMBER: unknown */
    int64_t call_start, call_end; /* span of the call on the host; UNKNOWN_TIME: not recorded */
    int64_t start, end; /* first start and last end of its kernels on the device; UNKNOWN_TIME: not recorded */
    uint32_t algorithm, protocol; /* name numbers: NCCL's choice, RING and LL; NAME_NONE: unknown */
    int64_t channels, warps;      /* the same; UNKNOWN_NUMBER: unknown */
    uint64_t link;                /* entries of a process with the same link are one collective; NO_LINK: it is whole */
    uint32_t work;                /* index in process->works of its first kernel; NO_WORK: none */
    uint32_t thread;              /* serial of the thread of the call; 0: unknown */
    uint64_t replay;              /* of a captured call: number of the run, from 1; 0: it ran when it was called */
    bool is_annotated;            /* what it is and its elements come from the annotation round its launch */
    bool is_captured;             /* only during loading: it runs with each replay of its graph */
};
#define NO_LINK UINT64_MAX
#define NO_WORK UINT32_MAX

/* Calls that were captured in CUDA graphs, and their runs. */
struct replays {
    uint64_t captured; /* calls */
    uint64_t idle;     /* of these: never replayed */
    uint64_t untimed;  /* runs in graphs that were recorded as a whole */
    uint64_t kernels;  /* that belong to captured calls */
    uint64_t left_out; /* runs beyond the limit of a trace */
};

struct collectives {
    struct collective *collective;
    size_t count, capacity;
    struct map of_work; /* index in `collective` by index in process->works */
    struct replays replays;
};

/* Adds an entry in which everything is unknown, and returns it. The pointer is valid until the next call. */
struct collective *collectives_add(struct collectives *collectives);
/* Fills in the bytes that follow from the elements and the element type's size, 0 if that is unknown. */
void collective_size(struct collective *collective, unsigned bytes_of_element);
/* Takes the peer of a call: the root of a collective, or the other rank of a message. Negative: there is none. */
void collective_set_peer(struct collective *collective, int64_t peer);
/* Adds to all times; the unknown ones stay unknown. */
void collectives_move(struct collectives *collectives, int64_t by);
/* Called after loading: joins the entries with the same link, in the order of their first ones. */
void collectives_finish(struct collectives *collectives);
void collectives_free(struct collectives *collectives);

/* ---- names ---- */
/* Returns the operation that the name of a collective or a kernel contains; COLLECTIVE_OTHER if it contains none. */
enum collective_op collective_op_of(const char *name, size_t length);
/* Returns the bytes of an element; 0 if the type is unknown. `tracelens`: among the types that TraceLens knows. */
unsigned collective_type_bytes(const char *type, bool tracelens);

#endif
