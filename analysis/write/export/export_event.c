/* export_event.c - writes what all events of an export have in common: their frame, their place, their ids. */
#include "write/export/export_write.h"

#include <stdlib.h>
#include <string.h>

#include "model/ranges/step_ranges.h"

enum { FREE_PID = 1 << 22 /* above every kernel's pids */ };

bool is_alone(const struct export *x)
{
    return x->asked->processes == 1 && !x->taken;
}

uint32_t tid_of(const struct export *x, uint32_t serial)
{
    const struct thread *thread = find_thread(x->process, serial);
    return thread && thread->tid ? thread->tid : serial;
}

int64_t pid_in_file(struct map *pids, int64_t pid)
{
    if (pid < 0 || map_get(pids, (uint64_t)pid) != MAP_NONE) pid = FREE_PID + (int64_t)pids->count;
    map_put(pids, (uint64_t)pid, 1);
    return pid;
}

int64_t free_pid(struct export *x, int64_t pid)
{
    pid = pid_in_file(&x->pids, pid);
    if (x->taken) text_format(x->taken, "%s%lld", x->taken->length ? ", " : "", (long long)pid);
    return pid;
}

void begin_event(struct export *x, const char *phase)
{
    if (!x->asked->taker) out_puts(x->out, x->events ? ",\n{" : "\n{");
    x->events++;
    x->values.count = x->values.texts.length = 0;
    x->e.filled[0] = false;
    emit_text(&x->e, "ph", phase);
}

void end_event(struct export *x)
{
    const struct event_taker *taker = x->asked->taker;
    if (taker) {
        struct event event = event_of_values(&x->values, x->base);
        taker->event(taker->context, &event);
    } else {
        out_puts(x->out, "}");
    }
}

void put_place(struct export *x, int64_t pid, uint64_t tid, int64_t time)
{
    emit_int(&x->e, "pid", pid);
    emit_count(&x->e, "tid", tid);
    emit_us(&x->e, "ts", time - x->base);
}

void put_correlation(struct export *x, uint64_t id)
{
    if (id == NO_ID) return;
    emit_count(&x->e, "correlation", x->calls + id);
    x->most = MAX(x->most, x->calls + id);
}

void put_metadata(struct export *x, const char *name, int64_t pid, uint64_t tid, const char *key, const char *text,
                  int64_t number)
{
    begin_event(x, "M");
    emit_text(&x->e, "name", name);
    put_place(x, pid, tid, x->base);
    emit_open(&x->e, "args", false);
    if (text) emit_text(&x->e, key, text);
    else emit_int(&x->e, key, number);
    emit_close(&x->e);
    end_event(x);
}

const struct name *range_name(const struct export *x, size_t i, struct name *step)
{
    const struct ranges *r = &x->process->ranges;
    if (r->step[i] == NO_PLACE) return names_get(&x->chosen->model->names, range_full_name(x->process, i));
    *step = (struct name){.text = string_format("ProfilerStep#%u", r->step[i])};
    step->length = (uint32_t)strlen(step->text);
    return step;
}
