/* annotations.h - kernels under each user annotation: by the stack of annotations they were launched in, or as HTA does. */
#ifndef TFA_ANNOTATIONS_H
#define TFA_ANNOTATIONS_H

#include "ask/hta_frame.h"
#include "base/sets/keyed.h"

enum { ANNOTATIONS_WANT = WANT_DEVICE | WANT_RANGES | WANT_LAUNCHES | WANT_LAUNCHERS };

/* An annotation with the annotations around it. Equal stacks are one path. */
struct annotation_path {
    uint32_t name, parent; /* parent: index of the path around it; NO_PLACE: none */
    uint32_t is_outside;   /* 1: work in no annotation; its stack is empty */
};

struct annotation_paths {
    KEYED_ROWS(struct annotation_path); /* a parent comes before its children */
};

struct annotation_row {
    int64_t rank;
    uint32_t path;            /* with the rank the key */
    uint64_t kernels, copies; /* copies: and sets of memory */
    int64_t kernel_time, copy_time;
};

struct annotation_rows {
    struct annotation_paths paths;
    KEYED_ROWS(struct annotation_row); /* by rank, then the most kernel time first */
    uint64_t works;
};

/* Adds up the chosen work of all processes, which are loaded with ANNOTATIONS_WANT. Work belongs to the innermost annotation
 * of its launch (ask/attribute.h). */
void annotations_of(struct annotation_rows *rows, const struct selection *chosen);
void annotations_free(struct annotation_rows *rows);

/* An annotation of one rank by HTA 0.5.0: get_gpu_kernels_with_user_annotations, counted and added up by annotation, and
 * its row of get_gpu_user_annotation_breakdown. */
struct hta_annotation {
    uint32_t name; /* NAME_OUTSIDE: kernels without an annotation */
    uint64_t kernels;
    __int128 kernel_time;
    uint64_t calls; /* rows of the annotation itself */
    int64_t min, max;
    __int128 sum;
    double squares; /* sum of squared distances from the mean */
};

struct hta_annotations {
    bool knows_kernels;                /* false: a row has a negative duration, and HTA raises an exception */
    struct hta_annotation *annotation; /* the most kernel time first */
    size_t count, capacity;
};

/* True if an annotation of any process is on a device. HTA has no answer otherwise. */
bool hta_has_annotations(const struct hta_frames *frames);
void hta_annotations(struct hta_annotations *annotations, const struct hta_frame *frame, const struct names *names);
void hta_annotations_free(struct hta_annotations *annotations);

#endif
