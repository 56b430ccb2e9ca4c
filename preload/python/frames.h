/* frames.h - reads the calling thread's frames of CPython, with or without the interpreter's lock. */
#ifndef TFI_PYTHON_FRAMES_H
#define TFI_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_text;

struct tfi_python_frame {
    const char *code; /* the code object; alive as long as the frame is */
    int64_t at;       /* offset into its instructions in bytes; for frames from the interpreter: the line */
    uint64_t name;    /* tells apart code objects at one address, which may be used again */
    bool first;       /* the interpreter was called from native code for this frame */
};

/* Looks for an interpreter in this process; cheap once it is known. True if its frames can be read or asked for. */
bool tfi_python_find(void);

/* Writes the innermost `max` frames of the calling thread, innermost first, and returns their number. 0 in a
 * thread that the interpreter does not know, and if neither its layout is known nor its lock is held. Without the
 * lock it calls only PyGILState_GetThisThreadState and the queries whether the interpreter runs or ends, all of
 * which only read. */
uint32_t tfi_python_frames(struct tfi_python_frame *frames, uint32_t max);

/* Adds function, file and line of a frame just taken, separated by tabs. */
void tfi_python_describe(struct tfi_text *text, const struct tfi_python_frame *frame);

/* The function that runs Python code; NULL without an interpreter. */
const void *tfi_python_evaluator(void);

#endif
