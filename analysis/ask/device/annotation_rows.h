/* annotation_rows.h - kernels under each user annotation: by the stack of annotations they were launched in. */
#ifndef TFA_ANNOTATION_ROWS_H
#define TFA_ANNOTATION_ROWS_H

#include "ask/scope.h"
#include "base/sets/rows_by_key.h"

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
    struct left_rows left;
};

/* Adds up the chosen work of all processes, which are loaded with the command's needs. Work belongs to the innermost annotation
 * of its launch (ask/attribute.h). */
void annotations_of(struct annotation_rows *rows, const struct selection *chosen);
void annotations_free(struct annotation_rows *rows);

#endif
