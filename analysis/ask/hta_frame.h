/* hta_frame.h - the device work of a rank as HTA 0.5.0 defines it: the rows of its frame that have a stream. */
#ifndef TFA_HTA_FRAME_H
#define TFA_HTA_FRAME_H

#include "ask/selection.h"

struct hta_row {
    int64_t start, end; /* nanoseconds since the file's base; `end` may be before `start` */
    uint32_t name;
    uint32_t times; /* how often the row is in the frame */
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

/* One frame per process, in rank order, with the rows that --device and --stream choose. */
void hta_frames(struct hta_frames *frames, const struct selection *chosen);
void hta_frames_free(struct hta_frames *frames);

#endif
