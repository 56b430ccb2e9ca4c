/* inputs.h - the inputs of an operator as numbers, parsed from the texts that the trace has of them. */
#ifndef TFA_ROOFLINE_INPUTS_H
#define TFA_ROOFLINE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_INPUTS = 12, MOST_AXES = 8 };

/* What the elements of a tensor are, as far as peaks depend on it. */
enum element { ELEMENT_FP64, ELEMENT_FP32, ELEMENT_FP16, ELEMENT_FP8, ELEMENT_OTHER };

struct tensor {
    double axis[MOST_AXES];
    size_t axes;  /* 0: a scalar, or no tensor */
    double bytes; /* of all elements; 0: unknown */
    enum element element;
};

struct op_inputs {
    struct tensor tensor[MOST_INPUTS];
    size_t count;
    double concrete[MOST_INPUTS][MOST_AXES]; /* numbers of an input that is no tensor: "(2,2)", "[1, 1]", "3" */
    size_t numbers[MOST_INPUTS];
    bool truth[MOST_INPUTS]; /* it is "True" */
};

/* The texts are those of struct op_detail: lists in JSON. */
void op_inputs_parse(struct op_inputs *inputs, const char *shapes, const char *types, const char *concrete);
double tensor_elements(const struct tensor *tensor);

#endif
