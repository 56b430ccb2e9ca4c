/* trigger.c - recording switched from outside while the program runs: by a signal, or by what a file holds.
 *
 * TFI_TRIGGER=signal:N: off at first, each signal switches. The handler counts and nothing else; then it calls the one
 * the program had. It is installed at wake, and where the program installs another one later, that one stays and the
 * trigger is dead: said once.
 *
 * TFI_TRIGGER=file:PATH: recording is as the words of the file say, read at most every 100 ms. Without a file, and with
 * an empty one, it is off. `on`: with all of TFI_ACTIVITIES; `off`; `-ops`: on, without these; `+ops`: with them again,
 * which counts where the same file holds `-ops` before it. What is not in TFI_ACTIVITIES can't be added: its hooks are
 * not in place.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "files.h"
#include "fmt.h"
#include "log.h"
#include "schedule.h"
#include "tfi.h"

#define MAX_SIGNAL 64
#define FILE_BYTES 1024

static uint32_t signals; /* that came */
static uint32_t signals_seen;
static bool installed, told_taken, told_word, told_kind;
static struct sigaction before;
static bool switched_on;
static char seen[FILE_BYTES]; /* what the file held last */
static bool file_known;

/* ---- the text ---- */

static bool usable_signal(uint32_t number)
{
    static const uint8_t reserved[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL, SIGFPE,
                                       SIGABRT, SIGTRAP, SIGSYS,  32,     33};
    if (!number || number > MAX_SIGNAL) return false;
    return !memchr(reserved, (int)number, sizeof reserved);
}

static const char *absolute(const char *path)
{
    static char room[4096];
    if (*path == '/') return path;
    if (!getcwd(room, sizeof room) || strlen(room) + strlen(path) + 2 > sizeof room) return NULL;
    size_t used = strlen(room);
    tfi_fmt(room + used, sizeof room - used, "/%s", path);
    return room;
}

bool tfi_trigger_parse(const char *text, struct tfi_trigger *trigger)
{
    if (strncmp(text, "file:", 5) == 0 && text[5]) {
        trigger->path = absolute(text + 5);
        return trigger->path != NULL;
    }
    if (strncmp(text, "signal:", 7) != 0) return false;
    uint32_t number = 0;
    for (text += 7; *text >= '0' && *text <= '9' && number < 1000; text++)
        number = number * 10 + (uint32_t)(*text - '0');
    if (*text || !usable_signal(number)) return false;
    trigger->signal = number;
    return true;
}

/* ---- the signal ---- */

static void caught(int number, siginfo_t *info, void *context)
{
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
    if (before.sa_flags & SA_SIGINFO) {
        if (before.sa_sigaction) before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

/* Whether there is another handler now. None at all is not worth a word: Python takes its own away at the exit. */
static bool is_taken(void)
{
    struct sigaction is;
    if (sigaction((int)tfi_config.trigger.signal, NULL, &is) != 0) return false;
    return is.sa_flags & SA_SIGINFO ? is.sa_sigaction != caught : is.sa_handler != SIG_DFL;
}

void tfi_trigger_start(void)
{
    int number = (int)tfi_config.trigger.signal;
    if (!number || installed) return; /* once: a handler that came later may call ours, and would be called by it */
    if (sigaction(number, NULL, &before) != 0) return;
    bool handled = before.sa_flags & SA_SIGINFO || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
    /* A handler of the program keeps its flags: with another one its system calls would return otherwise. */
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    if (handled) action.sa_flags = (before.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    if (handled) action.sa_mask = before.sa_mask;
    action.sa_sigaction = caught;
    installed = sigaction(number, &action, NULL) == 0;
    if (!installed) tfi_log(TFI_LOG_WARN, "TFI_TRIGGER: signal %d can't be caught (%s)", number, tfi_error_name(errno));
}

static struct tfi_wish ask_signal(void)
{
    uint32_t count = __atomic_load_n(&signals, __ATOMIC_RELAXED), fresh = count - signals_seen;
    if (installed && !told_taken && is_taken()) {
        tfi_log(TFI_LOG_WARN, "TFI_TRIGGER: the program handles signal %u itself now; choose another one",
                tfi_config.trigger.signal);
        told_taken = true;
    }
    signals_seen = count;
    if (!fresh) return (struct tfi_wish){0};
    if (fresh & 1) switched_on = !switched_on;
    return (struct tfi_wish){switched_on, tfi_config.activities, "signal"};
}

/* ---- the file ---- */

/* Applies one word; false if it is none. */
static bool apply_word(const char *word, struct tfi_wish *wish)
{
    uint32_t bits;
    if (strcmp(word, "on") == 0) *wish = (struct tfi_wish){true, tfi_config.activities, NULL};
    else if (strcmp(word, "off") == 0) wish->on = false;
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
                    "%s: `%s` is ignored; it takes on, off, and + or - before cpu, gpu, mem, nccl, ops, io or stack if "
                    "TFI_ACTIVITIES has it",
                    tfi_config.trigger.path, word);
        told_word = true;
    }
    wish->cause = "file";
    if (!any) wish->on = false;
    return any;
}

static struct tfi_wish ask_file(void)
{
    char text[FILE_BYTES];
    struct tfi_wish wish;
    if (tfi_read_file(tfi_config.trigger.path, text, sizeof text) < 0) {
        if (errno == EINVAL && !told_kind)
            tfi_log(TFI_LOG_WARN, "TFI_TRIGGER: %s is ignored while it is not a regular file", tfi_config.trigger.path);
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
