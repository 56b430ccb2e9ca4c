/* hta_calls.c - collects the host rows with a correlation id in a frame of HTA 0.5.0. */
#include "compat/hta_calls.h"

#include <stdlib.h>
#include <string.h>

static const char *const launch_names[] = {
    "cudaLaunchKernel", "cudaLaunchKernelExC",      "cuLaunchKernel",
    "cudaMemcpyAsync",  "cudaMemsetAsync",          "runFunction - job_prep_and_submit_for_execution",
    "hipLaunchKernel",  "hipExtModuleLaunchKernel", "hipMemsetAsync",
    "hipMemcpyAsync",   "hipMemcpyWithStream"};

bool hta_is_launch(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(launch_names); i++)
        if (strcmp(name, launch_names[i]) == 0) return true;
    return false;
}

static void add_hta_call(struct hta_calls *calls, const struct hta_frame *frame, struct interval when,
                         struct hta_call call)
{
    call.start = when.start;
    call.end = when.end;
    call.kept = hta_keeps(frame, when.start);
    calls->call = mem_grow(calls->call, &calls->capacity, calls->count + 1, sizeof *calls->call);
    calls->call[calls->count++] = call;
}

static int by_event(const void *a, const void *b)
{
    const struct hta_call *x = a, *y = b;
    return by_number(x->number, y->number);
}

void hta_calls(struct hta_calls *calls, const struct hta_frame *frame, const struct names *names)
{
    const struct process *p = frame->process;
    const struct event_numbers *numbers = &p->numbers;
    *calls = (struct hta_calls){0};
    for (size_t i = 0; i < p->spans.table.count; i++) {
        if (p->spans.event_class[i] != CLASS_API || p->spans.id[i] == NO_ID) continue;
        add_hta_call(calls, frame, hta_times(p, p->spans.start[i], p->spans.end[i]),
                     (struct hta_call){.correlation = p->spans.id[i],
                                       .name = p->spans.name[i],
                                       .number = numbers->span ? numbers->span[i] : (uint32_t)i,
                                       .span = (uint32_t)i});
    }
    size_t spans = calls->count;
    for (size_t i = 0; i < p->works.table.count; i++) {
        if (p->works.correlation[i] == NO_ID || hta_is_device(p, i, names)) continue;
        add_hta_call(calls, frame, hta_times(p, p->works.start[i], p->works.end[i]),
                     (struct hta_call){.correlation = p->works.correlation[i],
                                       .name = p->works.name[i],
                                       .number = numbers->work ? numbers->work[i] : NO_PLACE,
                                       .span = NO_PLACE});
    }
    if (calls->count > spans && numbers->work) qsort(calls->call, calls->count, sizeof *calls->call, by_event);
    for (size_t i = 0; i < calls->count; i++) map_put(&calls->last, calls->call[i].correlation, (uint32_t)i);
}

void hta_calls_free(struct hta_calls *calls)
{
    free(calls->call);
    map_free(&calls->last);
    *calls = (struct hta_calls){0};
}
