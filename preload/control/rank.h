/* rank.h - identifies this process in its job and decides where its files go. */
#ifndef TFI_RANK_H
#define TFI_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_dir;
struct tfi_text;

/* Rank and number of ranks by the launcher's variables at wake, else those at start; 0 and 1 if there are none. */
uint32_t tfi_rank(void);
uint32_t tfi_world(void);
/* True if a launcher has numbered this process and says nothing of a job of one rank. */
bool tfi_rank_is_numbered(void);

/* Name of this host, usable in a file name. */
const char *tfi_host(void);

/* Decides the run directory, unless a parent has; `minute` is the local time for its name. Also makes TFI_LIVE_DIR absolute
 * before the program changes its directory. Called in the constructor. */
void tfi_run_dir_begin(const char *minute);

/* Applies the program's own choice of where files go: a directory, or, if the user set none, the pipeline in the
 * default name (NULL: no choice). It has effect until the directory is made. Sets `place` to the directory that was
 * chosen, or to the one in effect; false if the two differ. */
bool tfi_run_dir_choose(const char *dir, const char *pipeline, char *place, size_t size);

/* Passes it on to children in the environment, after it was decided or chosen. Only where locks of libc may be taken. */
void tfi_run_dir_pass_on(void);

/* "TFI_RUN_DIR=..." for a child's environment; NULL before the constructor has run. */
const char *tfi_run_dir_entry(void);

/* True if the run directory was to lie in the working directory, which had been deleted: it lies in /tmp. */
bool tfi_run_dir_is_lost(void);

/* Creates and opens the run directory of this process; false with errno set. Called at wake. */
bool tfi_run_dir_make(struct tfi_dir *dir);

/* Opens the run directory if a process of this run has made it; false with errno set. Only one thread at a time. */
bool tfi_run_dir_open(struct tfi_dir *dir);

/* Returns the name of the run: the number of the process that decided on its directory, a minus sign and more; "" if its
 * launcher gave no name. */
const char *tfi_run_token(void);

/* True if this process decided on the run directory, perhaps before an exec, or has left that of its parent. */
bool tfi_run_is_mine(void);

/* Adds the pairs that identify this process: host, boot_id, pid, start_time, rank, command ... */
void tfi_rank_header(struct tfi_text *text);

#endif
