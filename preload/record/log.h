/* log.h - gives messages to the user, on stderr and in the trace. */
#ifndef TFI_LOG_H
#define TFI_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define LEVEL(name, word) TFI_LOG_##name,
enum tfi_log_level {
#include "env.def"
};

/* Sets the least important level that goes to stderr; until then only errors do. Called in the constructor. */
void tfi_log_set_level(enum tfi_log_level level);

/* Has `may_say` decide whether this process writes messages of a kind to stderr: once a run is enough. The kind is the
 * message's format, or its text where that is all of it. Called in the constructor. */
void tfi_log_asks(bool (*may_say)(const char *kind));

/* Forgets the messages of a parent process, and those that an earlier trace of this process has. Messages that came
 * before the first trace stay for it. */
void tfi_log_restart(void);

/* Writes one line `tfinject: ...` to stderr if its level is shown. A message at warn or worse is also kept for the
 * trace. */
void tfi_log(enum tfi_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Name of an error number, without strerror's locale and allocation. */
const char *tfi_error_name(int error);

/* A message that is kept for the trace. */
struct tfi_kept {
    uint64_t time;
    enum tfi_log_level level;
    char text[400];
};

/* Calls `take` with each kept message that was not taken yet. Stops when `take` returns false; that message comes
 * again. */
void tfi_log_each(bool (*take)(void *context, const struct tfi_kept *message), void *context);

#endif
