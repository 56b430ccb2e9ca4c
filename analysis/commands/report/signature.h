/* signature.h - the description chosen for each stage's arguments and result. */
#ifndef TFA_SIGNATURE_H
#define TFA_SIGNATURE_H

#include "commands/report/report.h"

/* The last described call of a stage that is a function. */
struct stage_signature {
    uint32_t stage; /* name in the report */
    const struct process *process;
    int64_t first; /* time of the stage's first description; the sort key */
    int64_t time;
    uint64_t range;
    uint32_t arguments; /* JSON: {name: description}; see preload/python/shim/shim_signature.py */
    uint32_t result;    /* JSON: a description; NAME_NONE: unknown */
    size_t different;   /* number of described calls: those that differed from all before */
    size_t place;       /* number in order of first appearance */
    int64_t latest;     /* time of the result's description */
    bool exact;         /* the result and the arguments are of the same call */
};

/* Returns one description per stage, from the lowest rank that has the stage. The caller frees the array. */
struct stage_signature *signatures_find(const struct report *report, size_t *count);

/* Writes a JSON string with its quotes. Bytes that are not UTF-8 become question marks. */
void put_json_string(struct text *to, const char *bytes, size_t length);

/* Writes the members of a stage's object in TeleFuser's format, from "stage_name" on, without the braces. */
void signature_put(struct text *to, const struct report *report, const struct stage_signature *signature);

#endif
