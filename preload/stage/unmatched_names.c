/* unmatched_names.c - reports at the end which requested names matched nothing, with the nearest existing name.
 *
 * A misspelt name records nothing, and the run still looks complete. A schedule whose step never comes looks the same.
 * Each run reports once: the first process to end claims the message for the run directory. A process that opened no
 * stage reports only if it does the job's work itself: workers of a DataLoader and other children of a Python of the
 * job open no stage by nature. Of processes that never woke, those of rank 0 may report. `info` lists the same names of
 * all processes together.
 *
 * A program may have 65,536 stages and as many requested names, and the report must not delay its end. So the number of
 * comparisons is limited. If they do not suffice, the message says that not all names were compared; `info` compares
 * them.
 *
 * The table of notes is written with the interpreter's lock held and read by the thread that ends the process.
 */
#include "stage/unmatched_names.h"

#include <string.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "control/helper.h"
#include "control/once.h"
#include "control/rank.h"
#include "control/schedule.h"
#include "record/log.h"
#include "stage/timing.h"

#define NAME_BYTES 256
#define MOST_NOTES 1024u
#define MOST_LINES 16u

enum found { UNKNOWN, FOUND, MISSING };

static struct note {
    char entry[NAME_BYTES];
    char nearest[NAME_BYTES];
    enum found found;
} * notes; /* mapped when the first is written: a program may have little room for variables */
static unsigned nr_notes;
static bool overflowed; /* some entries have no note */
static bool looked;     /* the shim has begun to look for the functions; before that nothing is known about them */

void tfi_unmatched_note(const char *entry, const char *nearest)
{
    unsigned i = 0;
    looked = true;
    if (!*entry) return;
    while (i < nr_notes && strcmp(notes[i].entry, entry) != 0) i++;
    if (i == MOST_NOTES || strlen(entry) >= NAME_BYTES || !tfi_map_once(&notes, MOST_NOTES * sizeof *notes)) {
        overflowed = true;
        return;
    }
    if (i < nr_notes && notes[i].found == FOUND) return;
    tfi_fmt(notes[i].entry, NAME_BYTES, "%s", entry);
    tfi_fmt(notes[i].nearest, NAME_BYTES, "%s", nearest ? nearest : "");
    notes[i].found = nearest ? MISSING : FOUND;
    if (i == nr_notes) nr_notes++;
}

/* Limit of all comparisons, in steps of CHARACTERS characters; they take less than a tenth of a second. */
#define MOST_STEPS (1u << 20)
#define MOST_STEPS_OF_NEAREST (1u << 14)
#define CHARACTERS 64u

static size_t steps;
static bool gave_up;

/* A search for one name among the stages of this process, then for the nearest name. */
struct search {
    const char *name;
    const char *also; /* another name that the stage may have */
    size_t length;
    bool wild; /* `name` has a wildcard */
    bool seen;
    unsigned distance;
    size_t steps; /* steps left for finding the nearest name */
    char nearest[TFI_DISTANCE_LONGEST + 1];
};

static bool is_same(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

static bool take_steps(size_t *left, size_t characters)
{
    size_t wanted = 1 + characters / CHARACTERS;
    if (*left < wanted) return false;
    *left -= wanted;
    return true;
}

static bool compare(void *context, const char *text, size_t length)
{
    struct search *search = context;
    gave_up |= !take_steps(&steps, search->wild ? search->length * length : 0);
    if (gave_up) return false;
    search->seen = (search->wild ? tfi_glob(search->name, text, length, false) : is_same(search->name, text, length)) ||
                   (search->also && is_same(search->also, text, length));
    return !search->seen;
}

static bool measure(void *context, const char *text, size_t length)
{
    struct search *search = context;
    if (!take_steps(&search->steps, search->length * length)) return false;
    unsigned distance = tfi_distance(search->name, search->length, text, length);
    if (distance >= search->distance) return true;
    search->distance = distance;
    memcpy(search->nearest, text, length); /* no distance is known of longer texts; they have no 0 at their end */
    search->nearest[length] = 0;
    return true;
}

/* True if no stage has the name, and all were compared. */
static bool is_unmatched(struct search *search, const char *name, const char *also)
{
    *search = (struct search){.name = name, .also = also, .length = strlen(name), .distance = TFI_FAR};
    search->wild = strpbrk(name, "*?[") != NULL;
    search->steps = MOST_STEPS_OF_NEAREST;
    if (!gave_up) tfi_timing_each(compare, search);
    return !gave_up && !search->seen;
}

/* say_name() and say_function() return true if they wrote a message. */
static bool say_name(const char *name)
{
    static struct search search;
    if (!is_unmatched(&search, name, NULL)) return false;
    tfi_timing_each(measure, &search);
    if (search.nearest[0])
        tfi_log(TFI_LOG_WARN, "ENABLE_PROFILER_NAMES: %s matched no stage in process %d; the nearest name seen is %s",
                name, (int)tfi_getpid(), search.nearest);
    else
        tfi_log(TFI_LOG_WARN, "ENABLE_PROFILER_NAMES: %s matched no stage in process %d; the process opened no stage",
                name, (int)tfi_getpid());
    return true;
}

static bool say_function(const char *entry)
{
    static struct search search;
    const char *name = strchr(entry, ':'), *nearest = "";
    enum found found = UNKNOWN;
    if (!name || name == entry || !name[1]) return false; /* `auto`, or refused already */
    if (!is_unmatched(&search, name + 1, entry)) return false;
    for (unsigned i = 0; i < nr_notes; i++) {
        if (strcmp(notes[i].entry, entry) != 0) continue;
        found = notes[i].found;
        nearest = notes[i].nearest;
    }
    if (found == FOUND) return false; /* it is there, and this run did not call it */
    if (found == MISSING && *nearest)
        tfi_log(TFI_LOG_WARN, "TFI_STAGES: %s does not exist in process %d; the nearest name is %s", entry,
                (int)tfi_getpid(), nearest);
    else if (found == MISSING)
        tfi_log(TFI_LOG_WARN, "TFI_STAGES: %s does not exist in process %d", entry, (int)tfi_getpid());
    else if (!overflowed)
        tfi_log(TFI_LOG_WARN, "TFI_STAGES: process %d did not import the module of %s", (int)tfi_getpid(), entry);
    return true;
}

/* The schedule has waited for a stage that never came. */
static void say_schedule(void)
{
    tfi_log(TFI_LOG_WARN,
            "TFI_SCHEDULE: no stage of process %d matched TFI_STEP (%s), so no step began and nothing but stages was "
            "recorded",
            (int)tfi_getpid(), tfi_config.step ? tfi_config.step : "ProfilerStep#*");
}

static void say_each(const char *list, bool (*say)(const char *name))
{
    static char entry[NAME_BYTES];
    for (unsigned lines = 0; lines < MOST_LINES && tfi_next_name(&list, entry, sizeof entry);) lines += say(entry);
}

/* True if this process may report: it opened stages, or it does the job's work itself. */
static bool may_speak(struct tfi_dir *directory, bool python)
{
    if (tfi_timing_any()) return true;
    if (!directory && (tfi_rank() != 0 || (!tfi_process->worked && !python))) return false;
    return !tfi_is_helper(false) && tfi_is_first();
}

static bool names_wanted(void)
{
    return tfi_config.select == TFI_SELECT_NAMES;
}

static bool functions_wanted(void)
{
    return tfi_config.stages && looked;
}

bool tfi_unmatched_wanted(void)
{
    return names_wanted() || functions_wanted();
}

void tfi_unmatched_report(struct tfi_dir *directory, bool python)
{
    bool names = names_wanted(), functions = functions_wanted();
    bool schedule = directory && tfi_schedule_never_began() && tfi_is_first();
    if ((!names && !functions && !schedule) || !may_speak(directory, python)) return;
    if (!tfi_once("unmatched names")) return;
    steps = MOST_STEPS;
    gave_up = false;
    if (names) say_each(tfi_config.names, say_name);
    if (functions) say_each(tfi_config.stages, say_function);
    if (schedule) say_schedule();
    if (gave_up)
        tfi_log(TFI_LOG_WARN,
                "process %d has too many stages to compare every name with them; `tfanalyze info` compares them all",
                (int)tfi_getpid());
}
