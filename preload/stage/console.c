/* console.c - writes one line on stderr for each stage that has ended (TELEFUSER_PROFILE_DEBUG), in TeleFuser's format.
 *
 *     [Rank 0] [Timing] denoise: 150.00 ms, memory: 1024/2048 MB (peak: 4000/4096 MB)
 *
 * The line shows the time from entry to exit. In a program that uses a device it says `ms launch`, unless the stage
 * waited for the device: the work launched in it may run longer. It also shows allocated/reserved at the exit, and the
 * peak of both in between, in MiB, of the device with the highest peak. These lines have no prefix, so that tools which
 * read TeleFuser's lines find them. TeleFuser's own stages are left out, because its logger always shows them
 * (preload/python/shim/shim_telefuser.py).
 */
#include "stage/console.h"

#include <errno.h>

#include "base/fmt.h"
#include "base/stderr.h"
#include "control/config.h"
#include "control/rank.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/allocator_totals.h"
#include "stage/stage.h"
#include "stage/watch.h"

static uint32_t device_used;

static unsigned long mib(uint64_t bytes)
{
    return (unsigned long)((bytes + (1u << 19)) >> 20);
}

static void show(struct tfi_thread *t, const struct tfi_open *open, uint64_t now)
{
    struct tfi_memory memory;
    char line[896];
    struct tfi_text text = {line, sizeof line - 1, 0, 0};
    size_t length;
    int error = errno;
    (void)t;
    const char *name = tfi_string_text(open->name, &length); /* not zero-terminated */
    if (!name || !open->start || open->flags & TFI_RANGE_TELEFUSER) return;
    uint64_t hundredths = (uint64_t)((double)(now - open->start) * tfi_clock_ns_per_tick() / 1e4 + 0.5);
    tfi_text_add(&text, "[Rank %u] [Timing] ", tfi_rank());
    tfi_text_bytes(&text, name, length < 640 ? length : 640);
    bool launch = !tfi_stage_waits(open->flags) && __atomic_load_n(&device_used, __ATOMIC_RELAXED);
    tfi_text_add(&text, ": %lu.%c%c ms%s", (unsigned long)(hundredths / 100), (char)('0' + hundredths / 10 % 10),
                 (char)('0' + hundredths % 10), launch ? " launch" : "");
    if (tfi_allocator_totals_of(open->id, open->start, &memory))
        tfi_text_add(&text, ", memory: %lu/%lu MB (peak: %lu/%lu MB)", mib(memory.allocated), mib(memory.reserved),
                     mib(memory.peak_allocated), mib(memory.peak_reserved));
    tfi_text_plain(line, text.used);
    line[text.used++] = '\n';
    tfi_stderr_write(line, text.used);
    errno = error;
}

static const struct tfi_watcher watcher = {.ending = show};

void tfi_console_device_used(void)
{
    __atomic_store_n(&device_used, 1, __ATOMIC_RELAXED);
}

void tfi_console_constructor(void)
{
    if (tfi_config.profile_debug) tfi_watch(&watcher);
}
