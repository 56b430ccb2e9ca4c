/* python_frames.h - the calling thread's frames of CPython, with or without the interpreter's lock. */
#ifndef TFI_PYTHON_FRAMES_H
#define TFI_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_text;

struct tfi_python_frame {
    const char *code; /* the code object; alive as long as the frame is */
    int64_t at;       /* bytes into its instructions; where frames are asked for, not read: the line */
    uint64_t name;    /* who it is beside its address, which may be used again */
    bool first;       /* the interpreter was called from native code for this frame */
};

/* Looks for an interpreter in this process; cheap when it is known. True if its frames can be had. */
bool tfi_python_find(void);

/* The innermost `max` frames of the calling thread, innermost first; how many. 0 in a thread the interpreter does not
 * know, and where neither its layout is known nor its lock is held. Calls nothing of the interpreter without its lock
 * but PyGILState_GetThisThreadState and the questions whether it runs and ends, all of which only read. */
uint32_t tfi_python_frames(struct tfi_python_frame *frames, uint32_t max);

/* Adds function, file and line of a frame just taken, separated by tabs. */
void tfi_python_describe(struct tfi_text *text, const struct tfi_python_frame *frame);

/* The function that runs Python code; NULL without an interpreter. */
const void *tfi_python_evaluator(void);

#endif
