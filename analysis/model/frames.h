/* frames.h - handles call stacks: lists of frames, innermost first, each a text `function<TAB>file<TAB>line`, or as
 * torch writes it.
 *
 * In a model a stack is a name made of the numbers of its frames' names: equal stacks have one number, and the text
 * of a frame is stored once. NAME_NONE stands for no stack.
 */
#ifndef TFA_FRAMES_H
#define TFA_FRAMES_H

#include "model/names.h"
#include "read/json/json.h"
#include "tfi_trace.h"

/* ---- in a model ---- */
uint32_t stack_add(struct names *names, const uint32_t *frame, size_t count);
size_t stack_depth(const struct names *names, uint32_t stack);
/* Returns the name of the i-th frame. */
uint32_t stack_frame(const struct names *names, uint32_t stack, size_t i);
/* Compares two stacks for sorting, frame by frame as names_order compares names. */
int stack_order(const struct names *names, uint32_t a, uint32_t b);
/* Appends all frames as torch writes them, joined with semicolons: Kineto's argument `Call stack`. */
void stack_line(const struct names *names, uint32_t stack, struct text *line);

/* ---- a frame ---- */
struct frame {
    const char *function, *file, *line; /* not zero-terminated, except for the line */
    size_t function_length, file_length;
};
/* Returns false if the text does not have the three parts. */
bool frame_parse(struct frame *frame, const char *text, size_t length);
/* Appends the frame as torch writes it: `file(line): function`. A native frame has no line and becomes `library:
 * function`. */
void frame_text(const struct name *name, struct text *text);
/* Splits such a text of a Python frame. Returns false for a frame of another form. */
bool frame_take_apart(struct slice frame, struct slice *file, struct slice *line, struct slice *function);

/* ---- in a file: STACK strings ---- */
#define BAD_STACKS "%llu call stacks contain missing or invalid frames, shown as (lost)"
struct stack_list {
    uint32_t frame[TFI_STACK_FRAMES]; /* string ids; TFI_STRING_LOST: lost, or not a frame */
    size_t count;
};
/* Returns false if the stack is missing or partly or wholly invalid. */
bool stack_read(const struct strings *strings, uint64_t id, struct stack_list *list);

/* Display forms of the frames of one file, each computed once. */
struct shown_frames {
    struct map place; /* by string id */
    struct shown_frame *frame;
    size_t count, capacity;
};
/* Returns the stack for the model: the Python frames, then the native ones that are not folded (frame_folds.def),
 * demangled. A stack of folded frames alone is shown whole. */
uint32_t stack_shown(struct shown_frames *shown, struct strings *strings, struct names *names,
                     const struct stack_list *list);
void shown_frames_free(struct shown_frames *shown);
/* Appends its frames as they stand in the file, one per line. Returns the result of stack_read. */
bool stack_lines(const struct strings *strings, uint64_t id, struct text *text);

#endif
