/* leftovers.c - removes what killed processes have left in /dev/shm, where it would take memory for ever.
 *
 * A file there is held by a lock on its open file, which lives as long as the process maps it: the kernel releases the
 * lock when the process is gone, in whatever pid namespace it was. A fork's child that inherits the mapping holds it too.
 * Times say little, because writing to a mapping changes none. So the first process that finds a file free sets its time
 * and its sticky bit.
 */
#include "base/leftovers.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"

#define KEPT_SECONDS 86400
#define FOUND S_ISVTX

bool tfi_leftover_hold(int fd)
{
    return syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0;
}

static void look_at(struct tfi_dir *dir, const char *name)
{
    char begin[40];
    struct stat st;
    size_t length = tfi_fmt(begin, sizeof begin, "tfinject.%u.", (unsigned)geteuid());
    int fd = strncmp(name, begin, length) == 0 ? tfi_dir_open_own(dir, name, O_RDONLY, &st) : -1;
    if (fd < 0) return;
    if (syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0) {
        if (!(st.st_mode & FOUND)) {
            syscall(SYS_utimensat, fd, NULL, NULL, 0);
            syscall(SYS_fchmod, fd, (st.st_mode & 0777) | FOUND);
        } else if (st.st_mtime < time(NULL) - KEPT_SECONDS) {
            tfi_dir_remove(dir, name);
        }
    }
    syscall(SYS_close, fd);
}

void tfi_leftovers_remove(struct tfi_dir *dir)
{
    tfi_dir_each(dir, look_at);
}
