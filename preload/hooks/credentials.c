/* credentials.c - ends the background thread before the process changes its user or groups.
 *
 * The kernel keeps credentials by thread, and libc changes those of all threads that it knows. It does not know the
 * background thread (base/bare_thread.c): that would keep the rights that the program gives up. The next closed chunk
 * starts it again, with the new credentials. They may not open the trace, which therefore stays open from here on.
 */
#include <errno.h>
#include <grp.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "record/background.h"
#include "record/writer.h"

#define CHANGE(name, params, args)                                                                                     \
    TFI_EXPORT int name params                                                                                         \
    {                                                                                                                  \
        int(*real) params = (int(*) params)tfi_real(TFI_HOOK_##name);                                                  \
        int result = -1;                                                                                               \
        tfi_writer_keep();                                                                                             \
        tfi_background_before_fork();                                                                                  \
        if (real) result = real args;                                                                                  \
        else errno = ENOSYS;                                                                                           \
        tfi_background_after_fork();                                                                                   \
        return result;                                                                                                 \
    }

CHANGE(setuid, (uid_t uid), (uid))
CHANGE(seteuid, (uid_t uid), (uid))
CHANGE(setreuid, (uid_t ruid, uid_t euid), (ruid, euid))
CHANGE(setresuid, (uid_t ruid, uid_t euid, uid_t suid), (ruid, euid, suid))
CHANGE(setgid, (gid_t gid), (gid))
CHANGE(setegid, (gid_t gid), (gid))
CHANGE(setregid, (gid_t rgid, gid_t egid), (rgid, egid))
CHANGE(setresgid, (gid_t rgid, gid_t egid, gid_t sgid), (rgid, egid, sgid))
CHANGE(setgroups, (size_t size, const gid_t *list), (size, list))
CHANGE(initgroups, (const char *user, gid_t group), (user, group))
