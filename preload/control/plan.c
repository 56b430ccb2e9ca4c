/* plan.c - parses TFI_SCHEDULE, TFI_CAPTURE and TFI_TRIGGER; schedule.c and trigger.c apply them. */
#include "control/plan.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/tfi.h"
#include "pattern.h"

#define MAX_SIGNAL 64

/* ---- schedule and capture ---- */

/* Parses seconds with up to nine decimals. */
static bool seconds(const char *text, uint64_t *ns)
{
    char whole[16];
    uint64_t number;
    uint32_t part = 0, unit = 1000000000;
    size_t digits = strcspn(text, ".");
    if (digits >= sizeof whole) return false;
    memcpy(whole, text, digits);
    whole[digits] = 0;
    if (!tfi_whole_number(whole, 0, 100000000, &number)) return false;
    for (text += digits + (text[digits] == '.'); *text; text++) {
        if (*text < '0' || *text > '9' || unit == 1) return false;
        unit /= 10;
        part += (uint32_t)(*text - '0') * unit;
    }
    *ns = number * 1000000000u + part;
    return true;
}

bool tfi_plan_parse(const char *text, struct tfi_plan *plan)
{
    static const struct {
        const char *name;
        size_t field;
    } keys[] = {
        {"skip_first", offsetof(struct tfi_plan, skip_first)},
        {"skip_first_wait", offsetof(struct tfi_plan, skip_first_wait)},
        {"wait", offsetof(struct tfi_plan, wait)},
        {"warmup", offsetof(struct tfi_plan, warmup)},
        {"active", offsetof(struct tfi_plan, active)},
        {"repeat", offsetof(struct tfi_plan, repeat)},
    };
    struct tfi_plan found = {.warmup = 1, .active = 3, .repeat = 1};
    char entry[64];
    uint64_t number;
    bool any = false;
    while (tfi_next_name(&text, entry, sizeof entry)) {
        size_t length = strcspn(entry, "="), i = 0;
        while (i < TFI_COUNT(keys) && (strncmp(keys[i].name, entry, length) != 0 || keys[i].name[length])) i++;
        if (i == TFI_COUNT(keys) || !entry[length]) return false;
        if (!tfi_whole_number(entry + length + 1, 0, 1000000000, &number)) return false;
        *(uint32_t *)((char *)&found + keys[i].field) = (uint32_t)number;
        any = true;
    }
    if (!any || !found.active) return false;
    *plan = found;
    return true;
}

bool tfi_capture_parse(const char *text, struct tfi_capture *capture)
{
    struct tfi_capture found = {0};
    char entry[64];
    while (tfi_next_name(&text, entry, sizeof entry)) {
        if (strcmp(entry, "cudaProfilerApi") == 0) found.api = 1;
        else if (strncmp(entry, "delay=", 6) == 0) {
            if (!seconds(entry + 6, &found.delay_ns)) return false;
        } else if (strncmp(entry, "duration=", 9) == 0) {
            if (!seconds(entry + 9, &found.length_ns) || !found.length_ns) return false;
        } else return false;
        found.set = 1;
    }
    if (found.set) *capture = found;
    return found.set;
}

/* ---- the trigger ---- */

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

/* ---- torch's table ---- */

enum tfi_recording_state tfi_plan_at(const struct tfi_plan *plan, uint64_t step, uint32_t *cycle)
{
    uint64_t length = (uint64_t)plan->wait + plan->warmup + plan->active;
    *cycle = 0;
    if (step < plan->skip_first) return TFI_RECORDING_OFF;
    step -= plan->skip_first;
    if (plan->skip_first_wait) step += plan->wait;
    *cycle = (uint32_t)(step / length);
    if (plan->repeat && step / length >= plan->repeat) return TFI_RECORDING_OFF;
    step %= length;
    if (step < plan->wait) return TFI_RECORDING_OFF;
    return step < (uint64_t)plan->wait + plan->warmup ? TFI_RECORDING_WARMUP : TFI_RECORDING_ON;
}
