/* stacks.h - call stacks: frames, the innermost first, each a text `function<TAB>file<TAB>line`, or as torch writes it.
 *
 * In a model a stack is a name, made of the numbers of its frames' names: equal stacks have one number, and the text of a
 * frame is there once. No stack is NAME_NONE.
 */
#ifndef TFA_STACKS_H
#define TFA_STACKS_H

#include "names.h"
#include "tfi_trace.h"

/* ---- in a model ---- */
uint32_t stack_add(struct names *names, const uint32_t *frame, size_t count);
size_t stack_depth(const struct names *names, uint32_t stack);
/* The name of the i-th frame. */
uint32_t stack_frame(const struct names *names, uint32_t stack, size_t i);
/* All frames as torch writes them, with a semicolon between: Kineto's argument `Call stack`. */
void stack_line(const struct names *names, uint32_t stack, struct text *line);

/* ---- a frame ---- */
struct frame {
    const char *function, *file, *line; /* not zero-terminated, but for the line */
    size_t function_length, file_length;
};
/* False if the text is not made of the three. */
bool frame_parse(struct frame *frame, const char *text, size_t length);
/* Adds it as torch writes it: `file(line): function`; a native one, which has no line, as `library: function`. */
void frame_text(const struct name *name, struct text *text);

/* ---- in a file: STACK strings ---- */
#define BAD_STACKS "%llu call stacks name frames that are not there or are none: shown as (lost)"
struct stack_list {
    uint32_t frame[TFI_STACK_FRAMES]; /* strings; TFI_STRING_LOST: it was lost, or is no frame */
    size_t count;
};
/* False if the file has no such stack, or one that makes no sense, wholly or in part. */
bool stack_read(const struct strings *strings, uint64_t id, struct stack_list *list);

/* The frames of one file as people are shown them, each worked out once. */
struct shown_frames {
    struct map place; /* by string */
    struct shown_frame *frame;
    size_t count, capacity;
};
/* The stack of a model: the frames of Python, then the native ones that are not folded (folded.def), their names in C++.
 * A stack of folded frames alone is shown whole. */
uint32_t stack_shown(struct shown_frames *shown, struct strings *strings, struct names *names,
                     const struct stack_list *list);
void shown_frames_free(struct shown_frames *shown);
/* Adds its frames as they stand in the file, a line each; returns as stack_read. */
bool stack_lines(const struct strings *strings, uint64_t id, struct text *text);

#endif
