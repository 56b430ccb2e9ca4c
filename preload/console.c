/* console.c - TELEFUSER_PROFILE_DEBUG: one line on stderr for each stage that has ended, in the words TeleFuser has for it.
 *
 *     [Rank 0] [Timing] denoise: 150.00 ms, memory: 1024/2048 MB (peak: 4000/4096 MB)
 *
 * Time from entry to exit; allocated/reserved at the exit and the most of both in between, in MiB, of the device that has
 * most. These lines have no prefix, so that what reads TeleFuser's finds them. TeleFuser's own stages are left out: its logger
 * says theirs in every case (preload/shim_telefuser.py).
 */
#include "console.h"

#include <errno.h>

#include "clock.h"
#include "config.h"
#include "fmt.h"
#include "memory.h"
#include "rank.h"
#include "stage.h"
#include "stderr.h"
#include "strings.h"
#include "thread.h"

static unsigned long mib(uint64_t bytes)
{
    return (unsigned long)((bytes + (1u << 19)) >> 20);
}

void tfi_console_stage(const struct tfi_open *open, uint64_t now)
{
    struct tfi_memory memory;
    char line[896];
    struct tfi_text text = {line, sizeof line - 1, 0, 0};
    size_t length;
    int error = errno;
    const char *name = tfi_string_text(open->name, &length); /* without a zero at its end */
    if (!name || !open->start || open->flags & TFI_RANGE_TELEFUSER) return;
    uint64_t hundredths = (uint64_t)((double)(now - open->start) * tfi_clock_ns_per_tick() / 1e4 + 0.5);
    tfi_text_add(&text, "[Rank %u] [Timing] ", tfi_rank());
    tfi_text_bytes(&text, name, length < 640 ? length : 640);
    tfi_text_add(&text, ": %lu.%c%c ms", (unsigned long)(hundredths / 100), (char)('0' + hundredths / 10 % 10),
                 (char)('0' + hundredths % 10));
    if (tfi_memory_of(open->id, open->start, &memory))
        tfi_text_add(&text, ", memory: %lu/%lu MB (peak: %lu/%lu MB)", mib(memory.allocated), mib(memory.reserved),
                     mib(memory.peak_allocated), mib(memory.peak_reserved));
    line[text.used++] = '\n';
    tfi_stderr_write(line, text.used);
    errno = error;
}
