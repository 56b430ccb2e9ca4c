/* leftovers.h - removes what killed processes have left in /dev/shm. */
#ifndef TFI_LEFTOVERS_H
#define TFI_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>

struct tfi_dir;

/* Keeps a file that this process maps from being removed, as long as the mapping exists; false if another one holds it, or the
 * file system has no locks. */
bool tfi_leftover_hold(int fd);

/* Removes our user's files of this library that nobody holds, a day after they were first found so: until then
 * tfanalyze may want them. Only one thread at a time. */
void tfi_leftovers_remove(struct tfi_dir *dir);

#endif
