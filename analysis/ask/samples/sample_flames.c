/* sample_flames.c - adds up sampled times by stack: the input of a flame graph. */
#include "ask/samples/sample_flames.h"

#include "ask/samples/periods.h"
#include "model/frames.h"

struct adding {
    struct flames *flames;
    struct names *names;
    const struct process *process;
    size_t number; /* of the process */
    enum stack_metric metric;
    struct map flame_of; /* index, by stack */
};

static int64_t time_of(const struct sampled *s, enum stack_metric metric)
{
    switch (metric) {
    case METRIC_CPU: return s->cpu;
    case METRIC_WAITING: return s->waiting;
    case METRIC_DEVICE_IDLE: return MAX(s->device_idle, 0);
    default: return s->wall;
    }
}

/* The stack's frames as torch writes them, one per line. */
static uint32_t text_of(struct names *names, uint32_t stack)
{
    struct text text = {0};
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        text_puts(&text, i ? "\n" : "");
        frame_text(names_get(names, stack_frame(names, stack, i)), &text);
    }
    uint32_t number = names_add(names, text.data, text.length);
    text_free(&text);
    return number;
}

static void add_flame(void *context, const struct sampled *s)
{
    struct adding *a = context;
    struct flames *f = a->flames;
    uint32_t stack = a->process->looks.stack[s->look];
    int64_t time = time_of(s, a->metric);
    if (stack == NAME_NONE) return;
    f->with_stack++;
    if (time <= 0) return;
    uint32_t known = map_get(&a->flame_of, stack);
    if (known == MAP_NONE) {
        map_put(&a->flame_of, stack, known = (uint32_t)f->count);
        f->flame = mem_grow(f->flame, &f->capacity, f->count + 1, sizeof *f->flame);
        f->flame[f->count++] = (struct flame){.process = a->number, .stack = text_of(a->names, stack)};
    }
    f->flame[known].time = add_ns(f->flame[known].time, time);
}

void sample_flames(struct flames *flames, const struct selection *chosen)
{
    *flames = (struct flames){0};
    for (size_t i = 0; i < chosen->processes; i++) {
        struct scope *scope = scope_begin(chosen, i);
        struct adding adding = {flames, &chosen->model->names, scope->process, i, chosen->options->metric, {0}};
        sampled_each(scope, add_flame, &adding);
        map_free(&adding.flame_of);
        scope_end(scope);
    }
}
