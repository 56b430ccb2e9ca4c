/* signature.h - what stages were called with: the description that stands for each of them. */
#ifndef TFA_SIGNATURE_H
#define TFA_SIGNATURE_H

#include "report.h"

/* Of a stage that is a function: its last call that was described. */
struct stage_signature {
    uint32_t stage; /* as the report names it */
    const struct process *process;
    int64_t first; /* when the stage was described first, which orders them */
    int64_t time;
    uint64_t range;
    uint32_t arguments; /* JSON: {name: description}; see preload/shim_signature.py */
    uint32_t result;    /* JSON: a description; NAME_NONE: not known */
    size_t different;   /* calls that were described, as they differed from all before */
    size_t place;       /* in the order in which the stages were met */
    int64_t latest;     /* when the result was described */
    bool exact;         /* it is that of the call the arguments are of */
};

/* Those of the lowest rank that has a stage. To be freed. */
struct stage_signature *signatures_find(const struct report *report, size_t *count);

/* A JSON string with its quotes; bytes that are no UTF-8 become question marks. */
void put_json_string(struct text *to, const char *bytes, size_t length);

/* The members of a stage's object in TeleFuser's format, from "stage_name" on, without the braces. */
void signature_put(struct text *to, const struct report *report, const struct stage_signature *signature);

#endif
