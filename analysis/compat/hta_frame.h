/* hta_frame.h - the device work of a rank as HTA 0.5.0 defines it: the rows of its frame that have a stream. */
#ifndef TFA_HTA_FRAME_H
#define TFA_HTA_FRAME_H

#include "ask/selection.h"
#include "base/sets/intervals.h"

/* Above the number of calls with one correlation id in any trace that HTA can read. Where a row counts as often as it is
 * in the frame, it counts no more often than this. */
enum { HTA_MOST_TIMES = 16 };

struct hta_row {
    int64_t start, end; /* nanoseconds since the file's base; `end` may be before `start` */
    uint32_t name;
    uint32_t times; /* how often the row is in the frame */
    uint32_t work;  /* index in the process's works; NO_PLACE: an operator with a stream */
    uint8_t kind;   /* enum work_kind */
};

struct hta_frame {
    const struct process *process;
    const char *path;
    int64_t rank;
    bool by_steps;        /* only rows before the last step are kept */
    int64_t last;         /* with by_steps: start of the last step; INT64_MIN: no step */
    uint32_t first_times; /* how often the file's first event is in the frame; 0 without event numbers */
    struct hta_row *row;
    size_t count, capacity;
    struct hta_row *unstreamed; /* device rows without a stream: waits */
    size_t unstreamed_count, unstreamed_capacity;
    struct hta_row *hidden; /* rows that --device and --stream leave out: HTA fails or not by the whole frame */
    size_t hidden_count, hidden_capacity;
};

struct hta_frames {
    struct hta_frame *frame;
    size_t count;
    uint64_t rows;
};

/* The times of a row, with HTA's rounding. */
struct interval hta_times(const struct process *process, int64_t start, int64_t end);
/* True if HTA takes a work for a device row, which has a stream and a correlation id. */
bool hta_is_device(const struct process *process, size_t work, const struct names *names);
int64_t hta_stream(const struct process *process, size_t work); /* -1: none */
/* True if a host row that starts then is in the frame. */
bool hta_keeps(const struct hta_frame *frame, int64_t start);

/* One frame per process, in rank order, with the rows that --device and --stream choose. The selection keeps the frames
 * for the next question. */
const struct hta_frames *hta_frames(const struct selection *chosen);

#endif
