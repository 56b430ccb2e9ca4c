/* question.h - a question that `tfanalyze mcp` asks in a process of its own, and the part of its answer that fits. */
#ifndef TFA_QUESTION_H
#define TFA_QUESTION_H

#include <jansson.h>
#include <sys/types.h>

#include "commands/mcp/pieces.h"
#include "commands/mcp/tools.h"

/* The lines of an output from one line on, as many as fit. */
struct extract {
    struct text kept;
    size_t from, line; /* the first line to keep, and the current one */
    size_t begin;      /* of the current line, in `kept` */
    size_t next;       /* the first line that does not fit; 0: all fit */
    bool ends_open;    /* the current line has begun */
};

struct question {
    struct words words;
    struct extract answer, said; /* stdout and stderr */
    struct pieces pieces;        /* of stdout, if it is JSON */
    int answer_fd, said_fd;      /* -1: at its end, or not begun */
    pid_t process;
};

/* Begins in a process of its own, which sees the served directories alone. Returns false if there is none to be had. */
bool question_begin(struct question *question, const struct command *commands, const struct served *served);
/* Reads what there is of one of its outputs, of which stdout has pieces; at the end, closes it. */
void question_read(int *fd, struct extract *extract, struct pieces *pieces);
/* Waits for the end of the process, whose outputs are at their end, and returns the result of the call. */
json_t *question_result(struct question *question);
void question_kill(const struct question *question);
void question_free(struct question *question);
/* Returns the result of a call that was not asked, for this reason. */
json_t *question_refusal(const char *why);

#endif
