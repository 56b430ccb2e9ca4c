/* log.h - messages for people, on stderr and in the trace. */
#ifndef TFI_LOG_H
#define TFI_LOG_H

#include "config.h"

struct tfi_thread;

/* Forgets the lock of a parent process. */
void tfi_log_restart(void);

/* One line `tfinject: ...`, if TFI_LOG allows; any message at warn or worse is also kept for the trace. */
void tfi_log(enum tfi_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Name of an error number, without strerror's locale and allocation. */
const char *tfi_error_name(int error);

/* Writes what is kept as message records of this thread. */
void tfi_log_flush(struct tfi_thread *thread);

#endif
