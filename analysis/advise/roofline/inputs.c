/* inputs.c - parses the shapes, types and concrete values of an operator's inputs. What is malformed is unknown. */
#include "advise/roofline/inputs.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct type {
    const char *word;
    double bytes;
    enum element element;
} types_known[] = {
    {"double", 8, ELEMENT_FP64}, {"bfloat16", 2, ELEMENT_FP16}, {"half", 2, ELEMENT_FP16},
    {"float8", 1, ELEMENT_FP8},  {"float16", 2, ELEMENT_FP16},  {"float", 4, ELEMENT_FP32},
    {"long", 8, ELEMENT_OTHER},  {"int64", 8, ELEMENT_OTHER},   {"char", 1, ELEMENT_OTHER},
    {"bool", 1, ELEMENT_OTHER},  {"int", 4, ELEMENT_OTHER},
};

double tensor_elements(const struct tensor *tensor)
{
    double elements = 1;
    for (size_t i = 0; i < tensor->axes; i++) elements *= tensor->axis[i];
    return elements;
}

/* Reads "[[1, 2], [], 3]": the axes of each input. An input of several tensors counts as none. */
static void parse_shapes(struct op_inputs *inputs, const char *p)
{
    int depth = 0;
    size_t input = 0;
    for (; *p; p++) {
        if (*p == '[') depth++;
        else if (*p == ']') depth--;
        else if (*p == ',' && depth == 1) input++;
        if (input >= MOST_INPUTS) return;
        struct tensor *t = &inputs->tensor[input];
        if (depth > 2) t->axes = 0;
        if (*p < '0' || *p > '9' || depth != 2) continue;
        char *end;
        double axis = strtod(p, &end);
        if (t->axes < MOST_AXES) t->axis[t->axes++] = axis;
        p = end - 1;
        inputs->count = input + 1;
    }
}

/* Returns the text of the next item of a list of strings, or NULL, and moves on. */
static const char *next_text(const char **p, size_t *length)
{
    const char *begin = strchr(*p, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
    if (!end) return NULL;
    *length = (size_t)(end - begin - 1);
    *p = end + 1;
    return begin + 1;
}

static void parse_types(struct op_inputs *inputs, const char *p)
{
    size_t length, n = 0;
    for (const char *text; n < MOST_INPUTS && (text = next_text(&p, &length)) != NULL; n++) {
        struct tensor *t = &inputs->tensor[n];
        if (length >= 3 && strncmp(text, "c10::", 5) == 0) text += 5, length -= 5;
        t->element = ELEMENT_OTHER;
        for (size_t i = 0; i < sizeof types_known / sizeof *types_known; i++) {
            size_t word = strlen(types_known[i].word);
            if (length < word || strncasecmp(text, types_known[i].word, word) != 0) continue;
            t->element = types_known[i].element;
            t->bytes = t->axes ? types_known[i].bytes * tensor_elements(t) : 0;
            break;
        }
    }
}

static void parse_concrete(struct op_inputs *inputs, const char *p)
{
    size_t length, n = 0;
    for (const char *text; n < MOST_INPUTS && (text = next_text(&p, &length)) != NULL; n++) {
        inputs->truth[n] = length == 4 && strncmp(text, "True", 4) == 0;
        for (const char *at = text; at < text + length && inputs->numbers[n] < MOST_AXES; at++) {
            char *end;
            if ((*at < '0' || *at > '9') && *at != '-') continue;
            inputs->concrete[n][inputs->numbers[n]++] = strtod(at, &end);
            at = end > at ? end - 1 : at;
        }
    }
}

void op_inputs_parse(struct op_inputs *inputs, const char *shapes, const char *types, const char *concrete)
{
    memset(inputs, 0, sizeof *inputs);
    parse_shapes(inputs, shapes);
    parse_types(inputs, types);
    parse_concrete(inputs, concrete);
}
