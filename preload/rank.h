/* rank.h - which process of which job this is, and where its files go. */
#ifndef TFI_RANK_H
#define TFI_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_dir;
struct tfi_text;

/* Rank and number of ranks by the launcher's variables, as they are at wake, or were at start: 0 and 1 if there is none. */
uint32_t tfi_rank(void);
uint32_t tfi_world(void);

/* Name of this host, fit for a file name. */
const char *tfi_host(void);

/* In the constructor: decides the run directory, if nobody before has, and passes it on in TFI_RUN_DIR; also
 * makes TFI_LIVE_DIR absolute, before the program changes its directory. */
void tfi_run_dir_pass_on(void);

/* The program's own word on where files go: a directory, or, where none is set, the pipeline in the default's name (NULL:
 * nothing is said). It counts until the directory is made. `place` becomes what holds; false if that is not what was said. */
bool tfi_run_dir_choose(const char *dir, const char *pipeline, char *place, size_t size);

/* "TFI_RUN_DIR=..." for a child's environment; NULL before the constructor has run. */
const char *tfi_run_dir_entry(void);

/* At wake: the directory of this process, created and opened; false with errno set. */
bool tfi_run_dir_make(struct tfi_dir *dir);

/* True for one process of this run: that one gives the warnings. Leaves an empty file that says so. */
bool tfi_run_dir_claim(struct tfi_dir *dir, const char *name);

/* Adds the pairs that say who this process is: host, boot_id, pid, start_time, rank, command ... */
void tfi_rank_header(struct tfi_text *text);

#endif
