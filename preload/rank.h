/* rank.h - which process of which job this is, and where its files go. */
#ifndef TFI_RANK_H
#define TFI_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_text;

/* Rank and number of ranks by the launcher's variables, as they are at wake, or were at start: 0 and 1 if there is none. */
uint32_t tfi_rank(void);
uint32_t tfi_world(void);

/* Name of this host, fit for a file name. */
const char *tfi_host(void);

/* In the constructor: decides the run directory, if nobody before has, and passes it on in TFI_RUN_DIR; also
 * makes TFI_LIVE_DIR absolute, before the program changes its directory. */
void tfi_run_dir_pass_on(void);

/* "TFI_RUN_DIR=..." for a child's environment; NULL before the constructor has run. */
const char *tfi_run_dir_entry(void);

/* At wake: the directory of this process, created; false with errno set. */
bool tfi_run_dir_make(char *path, size_t size);

/* True for one process of this run: that one gives the warnings. Leaves an empty file that says so. */
bool tfi_run_dir_claim(const char *path);

/* Adds the pairs that say who this process is: host, boot_id, pid, start_time, rank, command ... */
void tfi_rank_header(struct tfi_text *text);

#endif
