/* watch.c - draws the first screen of a running job again and again, until its processes have ended.
 *
 * Each drawing reads the whole run anew, as the files of a process that runs are readable at any time. What a reading
 * costs therefore decides when the next one comes: not before the processor time that was taken is a small share of the
 * time that has passed. On a terminal a drawing overwrites the one before. No state of the terminal is changed, so that
 * a signal may end the program at any moment.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/progress.h"
#include "commands/screen/first_screen.h"
#include "commands/screen/seen.h"
#include "write/table.h"

enum {
    PACE_S = 2,       /* between two drawings at least */
    ONE_IN = 50,      /* the processor time that is taken at most: one second in so many */
    LINES_BESIDE = 2, /* of a terminal: the one about the next drawing, and the one of the cursor */
};

/* A process that ran at the last drawing. */
struct runner {
    char *live; /* its live file, which it removes at its end; NULL: not beside its trace */
    pid_t pid;  /* 0: it can't be looked up */
};

struct watch {
    const struct options *options;
    bool on_terminal;
    size_t drawings;
    size_t running, ended, killed,
        silent; /* processes; silent: it is unknown whether they run, and nothing is written */
    struct runner *runner;
    size_t runner_capacity;
    struct seen seen;    /* by the last drawing */
    struct text told;    /* the messages of the last drawing */
    struct text said;    /* what of them stderr has */
    struct text drawing; /* the lines to be drawn */
    double begun;        /* s of CLOCK_MONOTONIC: this program */
    double read_at;      /* the same: the last reading; 0: there is none */
    double cost;         /* s of processor time: of the last reading */
    enum { JOB_AWAITED, JOB_RUNS, JOB_OVER } state;
    int status;
};

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- reading ---- */

static void forget_runners(struct watch *watch)
{
    for (size_t i = 0; i < watch->running; i++) free(watch->runner[i].live);
    watch->running = watch->ended = watch->killed = watch->silent = 0;
}

static void count_processes(struct watch *watch, const struct session *session)
{
    const struct model *model = &session->model;
    forget_runners(watch);
    for (size_t i = 0; i < model->processes; i++) {
        const struct process *p = &model->process[i];
        const char *live = session->inputs.input[p->input].live;
        watch->ended += p->life == LIFE_ENDED;
        watch->killed += p->life == LIFE_DEAD && p->is_life_known;
        watch->silent += p->life == LIFE_DEAD && !p->is_life_known;
        if (p->life != LIFE_RUNNING) continue;
        watch->runner = mem_grow(watch->runner, &watch->runner_capacity, watch->running + 1, sizeof *watch->runner);
        watch->runner[watch->running++] = (struct runner){.live = live ? string_format("%s", live) : NULL,
                                                          .pid = p->is_life_known ? (pid_t)p->pid : 0};
    }
}

/* True if a trace may still appear: some input is a directory. */
static bool may_begin(const struct options *options)
{
    struct stat status;
    for (size_t i = 0; i < options->inputs.count; i++)
        if (tfi_stat(options->inputs.text[i], &status) == 0 && S_ISDIR(status.st_mode)) return true;
    return false;
}

/* Appends what is new since the last drawing. */
static void tell_news(struct watch *watch, struct session *session, double since)
{
    struct seen now = {0};
    struct text line = {0};
    seen_take(&now, session);
    if (watch->seen.events) {
        text_format(&line, "new since the drawing %.1f s before: ", since);
        seen_tell(&line, &watch->seen, &now);
        text_visible(&watch->drawing, line.data, line.length);
        text_puts(&watch->drawing, "\n");
    }
    text_free(&line);
    seen_free(&watch->seen);
    watch->seen = now;
}

static void tell_head(struct watch *watch)
{
    struct text *to = &watch->drawing;
    time_t now = time(NULL);
    struct tm local = {0};
    char clock[32] = "";
    localtime_r(&now, &local);
    strftime(clock, sizeof clock, "%H:%M:%S", &local);
    text_format(to, "drawing %zu at %s: ", ++watch->drawings, clock);
    if (watch->state == JOB_AWAITED) {
        text_puts(to, "no trace yet\n");
        return;
    }
    text_format(to, "%zu process%s run%s, %zu ended", watch->running, watch->running == 1 ? "" : "es",
                watch->running == 1 ? "s" : "", watch->ended);
    if (watch->killed) text_format(to, ", %zu %s killed", watch->killed, watch->killed == 1 ? "was" : "were");
    if (watch->silent) text_format(to, ", %zu may run elsewhere, but wrote nothing for a minute", watch->silent);
    text_puts(to, "\n");
}

/* Reads the run and makes the lines of its drawing. */
static void read_run(struct watch *watch)
{
    struct session own = {.options = *watch->options, .borrows_options = true, .collects = true};
    double cost = seconds_of(CLOCK_PROCESS_CPUTIME_ID), before = watch->read_at;
    if (!own.options.jobs) own.options.jobs = 1; /* the job needs the other processors */
    watch->read_at = seconds_of(CLOCK_MONOTONIC);
    watch->drawing.length = watch->told.length = 0;
    out_memory(&own.out);
    complain_into(&watch->told);
    cmd_screen(&own);
    complain_into(NULL);
    count_processes(watch, &own);
    if (own.model.processes) watch->state = watch->running ? JOB_RUNS : JOB_OVER;
    else watch->state = may_begin(watch->options) ? JOB_AWAITED : JOB_OVER;
    watch->status = own.found ? own.status : STATUS_NOTHING;
    tell_head(watch);
    if (own.loaded == LOADED) tell_news(watch, &own, watch->read_at - before);
    text_add(&watch->drawing, own.out.buffer, own.out.used);
    out_discard(&own.out);
    session_free(&own);
    watch->cost = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cost;
}

/* ---- drawing ---- */

static double next_reading(const struct watch *watch)
{
    double paid = watch->begun + ONE_IN * seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    return MAX(watch->read_at + PACE_S, paid);
}

/* Appends the line about the next drawing, without an end. */
static void tell_next(const struct watch *watch, struct text *line)
{
    double now = seconds_of(CLOCK_MONOTONIC), left = next_reading(watch) - now;
    if (watch->state == JOB_OVER) {
        text_puts(line, "no process of it runs: this was the last drawing");
        return;
    }
    text_format(line, "figures are %.0f s old", now - watch->read_at);
    if (left > PACE_S)
        text_format(line,
                    "; next in %.0f s: a reading takes %.2f s of processor time, and the watch at most %d %% of a core",
                    left, watch->cost, 100 / ONE_IN);
}

/* Writes a line. On a terminal the line is cut to the width, and clears the rest of the row. */
static void put_line(const struct watch *watch, struct out *out, const char *line, size_t length)
{
    size_t width = watch->on_terminal ? terminal_width(out) : 0;
    out_write(out, line, width ? characters_bytes(line, length, MIN(width, characters(line, length))) : length);
    out_puts(out, watch->on_terminal ? "\033[K\n" : "\n");
}

static void put_lines(const struct watch *watch, struct out *out, const struct text *text, size_t *room)
{
    const char *at = text->length ? text->data : "", *end;
    for (; (end = strchr(at, '\n')) != NULL && *room; at = end + 1, --*room)
        put_line(watch, out, at, (size_t)(end - at));
}

static void put_next(const struct watch *watch, struct out *out)
{
    struct text line = {0};
    tell_next(watch, &line);
    put_line(watch, out, line.data, line.length);
    text_free(&line);
}

/* Returns the lines of the terminal that a drawing may fill. The last drawing is whole. */
static size_t lines_of_terminal(const struct watch *watch)
{
    struct winsize size = {0};
    bool known = watch->on_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return watch->state != JOB_OVER && known && size.ws_row > LINES_BESIDE ? (size_t)size.ws_row - LINES_BESIDE
                                                                           : SIZE_MAX;
}

/* Returns false, after a message, if nothing can be written. */
static bool draw(const struct watch *watch)
{
    struct out out;
    size_t room = lines_of_terminal(watch);
    if (!out_open(&out, NULL)) return false;
    bool stands_alone = watch->drawings == 1 && room == SIZE_MAX;
    if (watch->on_terminal && watch->drawings == 1 && !stands_alone) /* what stood there moves up, and stays */
        for (size_t i = 0; i < room + LINES_BESIDE; i++) out_puts(&out, "\n");
    out_puts(&out, watch->on_terminal && !stands_alone ? "\033[H" : "");
    put_lines(watch, &out, &watch->drawing, &room);
    if (watch->on_terminal) put_lines(watch, &out, &watch->told, &room);
    put_next(watch, &out);
    out_puts(&out, watch->on_terminal ? "\033[J" : "\n");
    return out_close(&out);
}

/* Writes the messages to stderr, unless the last drawing had the same. */
static void say_messages(struct watch *watch)
{
    const struct text *told = &watch->told;
    struct text *said = &watch->said;
    if (told->length == said->length && (!told->length || memcmp(told->data, said->data, told->length) == 0)) return;
    said->length = 0;
    text_add(said, told->data, told->length);
    const char *at = said->data, *end;
    for (; (end = strchr(at, '\n')) != NULL; at = end + 1) complain(NULL, "%.*s", (int)(end - at), at);
}

/* Writes the line about the next drawing over the old one, which stands above the cursor. */
static bool draw_age(const struct watch *watch)
{
    struct out out;
    if (!out_open(&out, NULL)) return false;
    out_puts(&out, "\033[A\r");
    put_next(watch, &out);
    return out_close(&out);
}

/* ---- waiting ---- */

/* True if all that ran at the last drawing seem to have ended; a reading then shows whether it is so. */
static bool may_be_over(const struct watch *watch)
{
    struct stat status;
    for (size_t i = 0; i < watch->running; i++) {
        const struct runner *r = &watch->runner[i];
        bool removed = r->live && tfi_stat(r->live, &status) != 0 && errno == ENOENT;
        bool gone = r->pid && kill(r->pid, 0) != 0 && errno == ESRCH;
        if (!removed && !gone) return false;
    }
    return watch->running > 0;
}

static void sleep_for(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* Waits for the next reading. Returns false if the terminal is gone. */
static bool wait_for_reading(const struct watch *watch)
{
    double left;
    while ((left = next_reading(watch) - seconds_of(CLOCK_MONOTONIC)) > 0) {
        sleep_for(MIN(left, PACE_S));
        if (may_be_over(watch)) return true;
        if (watch->on_terminal && left > PACE_S && !draw_age(watch)) return false;
    }
    return true;
}

static bool can_draw_over(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

void cmd_watch(struct session *session)
{
    struct watch watch = {.options = &session->options, .on_terminal = can_draw_over()};
    bool good = true;
    progress_end(); /* the drawings have a line of their own */
    watch.begun = seconds_of(CLOCK_MONOTONIC);
    while (good && watch.state != JOB_OVER) {
        good = !watch.drawings || wait_for_reading(&watch);
        if (!good) break;
        bool said = watch.drawings && watch.state == JOB_AWAITED && !watch.on_terminal;
        read_run(&watch);
        if (!watch.on_terminal) say_messages(&watch);
        if (!said || watch.state != JOB_AWAITED) good = draw(&watch); /* a pipe is told once that there is no trace */
    }
    session->status = good ? watch.status : STATUS_NOTHING;
    forget_runners(&watch);
    seen_free(&watch.seen);
    free(watch.runner);
    text_free(&watch.drawing);
    text_free(&watch.told);
    text_free(&watch.said);
}
