/* startup.c - keeps the pieces of a process's start until there is a trace.
 *
 * Most of them are over before the first event that wakes the process, and a process that never wakes leaves no file. A
 * forked child does not have its parent's start.
 */
#include "control/startup.h"

#include <string.h>

#include "base/sys.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"

#define MOST 2048u

/* A kept piece; its name lies in `names`. */
struct kept {
    uint64_t start, end, own;
    uint32_t what, depth, tid, name, length;
};

static struct tfi_lock lock;
static struct kept *kept; /* MOST */
static char *names;
static uint32_t count, used; /* pieces; bytes of `names` */
static uint64_t too_many;
static pid_t owner;

enum { NAME_BYTES = 64u << 10 };

static void write_piece(struct tfi_thread *t, const struct kept *piece, const char *name)
{
    uint32_t string = tfi_string(name, piece->length);
    TFI_WRITE(t, startup, .name = string, .time = piece->start, .duration = piece->end - piece->start,
              .own = piece->own, .what = piece->what, .depth = piece->depth, .tid = piece->tid);
}

/* Keeps a piece; the caller holds the lock. */
static void keep_piece(struct kept *piece, const char *name)
{
    pid_t pid = tfi_getpid();
    if (owner != pid) {
        count = used = 0;
        too_many = 0;
        owner = pid;
    }
    if (!tfi_map_once(&kept, MOST * sizeof *kept) || !tfi_map_once(&names, NAME_BYTES)) return;
    if (count == MOST || NAME_BYTES - used < piece->length) {
        too_many++;
        return;
    }
    piece->name = used;
    memcpy(names + used, name, piece->length);
    used += piece->length;
    kept[count++] = *piece;
}

void tfi_startup_add(const struct tfi_startup *piece)
{
    struct kept kept_piece = {piece->start,
                              piece->end,
                              piece->own,
                              piece->what,
                              piece->depth,
                              (uint32_t)tfi_gettid(),
                              0,
                              (uint32_t)(piece->length < 200 ? piece->length : 200)};
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (t) {
        write_piece(t, &kept_piece, piece->name);
        tfi_leave(t);
    } else if (tfi_lock_within(&lock, 0)) {
        keep_piece(&kept_piece, piece->name);
        tfi_unlock(&lock);
    }
}

void tfi_startup_awake(struct tfi_thread *t)
{
    if (owner != tfi_getpid() || !tfi_lock_within(&lock, 10)) return;
    for (uint32_t i = 0; i < count; i++) write_piece(t, &kept[i], names + kept[i].name);
    count = used = 0;
    tfi_unlock(&lock);
}
