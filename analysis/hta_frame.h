/* hta_frame.h - what HTA 0.5.0 takes for the device work of a rank: the rows of its frame that have a stream. */
#ifndef TFA_HTA_FRAME_H
#define TFA_HTA_FRAME_H

#include "session.h"

struct hta_row {
    int64_t start, end; /* nanoseconds since the file's base; `end` may be before `start` */
    uint32_t name;
    uint32_t times; /* how often it is in the frame */
    uint8_t kind;   /* enum work_kind */
};

struct hta_frame {
    const char *path;
    int64_t rank;
    struct hta_row *row;
    size_t count, capacity;
};

struct hta_frames {
    struct hta_frame *frame;
    size_t count;
    uint64_t rows;
};

/* A frame a process, in the order of the ranks; of what --device and --stream choose. */
void hta_frames(struct hta_frames *frames, const struct session *session);
void hta_frames_free(struct hta_frames *frames);
/* Ends the answer, whose totals have begun: their counts, what is not known, the exit status. */
void hta_end(struct hta_frames *frames, struct session *session);

#endif
