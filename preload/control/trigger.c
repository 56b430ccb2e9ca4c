/* trigger.c - switches recording from outside while the program runs: by a signal, or by a file's content.
 *
 * TFI_TRIGGER=signal:N: recording is off at first, and each signal switches it. The handler only counts, then calls the
 * handler that the program had. It is installed at wake. If the program installs another handler later, that one stays
 * and the trigger has no effect any more; a warning says so once.
 *
 * With TFI_MODE=flight a signal switches nothing: recording is on from the start, and the seconds before the signal are kept.
 *
 * TFI_TRIGGER=file:PATH: the words of the file, read at most every 100 ms, switch recording. Without a file, and with
 * an empty one, recording is off. `on` records all of TFI_ACTIVITIES. `off` records nothing. `-ops` records without
 * operators. `+ops` adds them again, which only has an effect after `-ops` in the same file. An activity that is not in
 * TFI_ACTIVITIES can't be added, because its hooks are not installed. With TFI_MODE=flight, each content that has the word
 * `keep` has the seconds before it kept.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/files.h"
#include "base/tfi.h"
#include "control/config.h"
#include "control/schedule.h"
#include "flight/moments.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/log.h"

#define FILE_BYTES 1024

static uint32_t signals; /* signals received */
static uint32_t signals_seen;
static bool installed, told_taken, told_word, told_kind;
static struct sigaction before;
static bool switched_on;
static char seen[FILE_BYTES]; /* the file's last content */
static bool file_known;

/* ---- the signal ---- */

/* Has the seconds before now kept. */
static void keep_seconds(void)
{
    uint64_t end = tfi_ticks();
    if (tfi_moment_ask(TFI_MOMENT_TRIGGER, 0, end, end, 0)) tfi_background_signal();
}

static void caught(int number, siginfo_t *info, void *context)
{
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
    if (tfi_config.mode == TFI_MODE_FLIGHT) keep_seconds();
    if (before.sa_flags & SA_SIGINFO) {
        if (before.sa_sigaction) before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

/* True if another handler is installed now. No handler at all does not count: Python removes its handlers at exit. */
static bool is_taken(void)
{
    struct sigaction is;
    if (sigaction((int)tfi_config.trigger.signal, NULL, &is) != 0) return false;
    return is.sa_flags & SA_SIGINFO ? is.sa_sigaction != caught : is.sa_handler != SIG_DFL;
}

void tfi_trigger_start(void)
{
    int number = (int)tfi_config.trigger.signal;
    if (!number || installed) return; /* once: a later handler may call ours, and ours would then call it */
    if (sigaction(number, NULL, &before) != 0) return;
    bool handled = before.sa_flags & SA_SIGINFO || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
    /* If the program handles this signal, its handler's mask and flags are kept (without SA_RESETHAND, with
     * SA_SIGINFO): its interrupted system calls then return as before. */
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    if (handled) action.sa_flags = (before.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    if (handled) action.sa_mask = before.sa_mask;
    action.sa_sigaction = caught;
    installed = sigaction(number, &action, NULL) == 0;
    if (!installed)
        tfi_log(TFI_LOG_WARN,
                "TFI_TRIGGER: no handler can be installed for signal %d (%s), so the trigger has no effect; choose "
                "another signal",
                number, tfi_error_name(errno));
}

static struct tfi_wish ask_signal(void)
{
    uint32_t count = __atomic_load_n(&signals, __ATOMIC_RELAXED), fresh = count - signals_seen;
    if (installed && !told_taken && is_taken()) {
        tfi_log(TFI_LOG_WARN,
                "TFI_TRIGGER: the program now handles signal %u itself, so the signal no longer reaches the trigger; "
                "choose another signal",
                tfi_config.trigger.signal);
        told_taken = true;
    }
    signals_seen = count;
    if (!fresh || tfi_config.mode == TFI_MODE_FLIGHT) return (struct tfi_wish){0};
    if (fresh & 1) switched_on = !switched_on;
    return (struct tfi_wish){switched_on, tfi_config.activities, "signal"};
}

/* ---- the file ---- */

/* Applies one word; false if it is invalid. */
static bool apply_word(const char *word, struct tfi_wish *wish)
{
    uint32_t bits;
    if (strcmp(word, "on") == 0) *wish = (struct tfi_wish){true, tfi_config.activities, NULL};
    else if (strcmp(word, "off") == 0) wish->on = false;
    else if (strcmp(word, "keep") == 0 && tfi_config.mode == TFI_MODE_FLIGHT) keep_seconds();
    else if ((*word != '+' && *word != '-') || !tfi_config_activities(word + 1, &bits) || !bits) return false;
    else if (*word == '-') wish->activities &= ~bits;
    else if (bits & ~tfi_config.activities) return false;
    else wish->activities |= bits;
    return true;
}

static bool read_words(char *text, struct tfi_wish *wish)
{
    char *rest = text;
    const char *word;
    *wish = (struct tfi_wish){true, tfi_config.activities, "file"};
    bool any = false;
    while ((word = strtok_r(rest, " \t\r\n,", &rest)) != NULL) {
        any = true;
        if (apply_word(word, wish)) continue;
        if (!told_word)
            tfi_log(TFI_LOG_WARN,
                    "%s: `%s` is not valid and is ignored; valid are on, off, keep with TFI_MODE=flight, and + or - "
                    "before %s, if TFI_ACTIVITIES "
                    "contains the activity",
                    tfi_config.trigger.path, word, tfi_value_takes(TYPE_WORDS));
        told_word = true;
    }
    wish->cause = "file";
    if (!any) wish->on = false;
    return any;
}

static struct tfi_wish ask_file(void)
{
    static char text[FILE_BYTES]; /* one thread asks at a time, with little stack */
    struct tfi_wish wish;
    if (tfi_read_file(tfi_config.trigger.path, text, sizeof text) < 0) {
        if (errno == EINVAL && !told_kind)
            tfi_log(TFI_LOG_WARN, "TFI_TRIGGER: %s is not a regular file and is ignored until it is one",
                    tfi_config.trigger.path);
        if (errno == EINVAL) told_kind = true;
        text[0] = 0;
    }
    if (file_known && strcmp(text, seen) == 0) return (struct tfi_wish){0};
    strcpy(seen, text);
    file_known = true;
    read_words(text, &wish);
    return wish;
}

struct tfi_wish tfi_trigger_ask(void)
{
    if (tfi_config.trigger.signal) return ask_signal();
    if (tfi_config.trigger.path) return ask_file();
    return (struct tfi_wish){0};
}

void tfi_trigger_restart(void)
{
    signals_seen = __atomic_load_n(&signals, __ATOMIC_RELAXED);
    switched_on = file_known = false;
}
