/* load_io.c - loads calls on files from our traces. */
#include "model/load/load.h"

#include <string.h>

static uint32_t function_of(struct load *load, uint64_t string)
{
    uint32_t place = load_func(load, string); /* this call may move process->func */
    const struct func *func = &load->process->func[place];
    uint32_t library = names_add(load->names, func->library, strlen(func->library));
    uint32_t name = names_add(load->names, func->name, strlen(func->name));
    return ios_function(&load->process->ios, load->names, library, name);
}

static bool moves_bytes(const struct io_function *function)
{
    return function->kind == IO_READ || function->kind == IO_WRITE || function->kind == IO_COPY;
}

void load_ios(struct load *load)
{
    struct ios *ios = &load->process->ios;
    const uint64_t *func = load_column(load, COL_io_func), *time = load_column(load, COL_io_time);
    const uint64_t *duration = load_column(load, COL_io_duration), *result = load_column(load, COL_io_result);
    const uint64_t *bytes = load_column(load, COL_io_bytes), *offset = load_column(load, COL_io_offset);
    const uint64_t *path = load_column(load, COL_io_path), *error = load_column(load, COL_io_error);
    const uint64_t *fd = load_column(load, COL_io_fd);
    uint64_t last = 0;
    uint32_t function = UINT32_MAX;
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (function == UINT32_MAX || func[i] != last) function = function_of(load, last = func[i]);
        size_t at = ios_add(ios);
        ios->start[at] = (int64_t)time[i];
        ios->end[at] = load_end(time[i], duration[i]);
        ios->function[at] = function;
        ios->thread[at] = load->piece->thread;
        ios->path[at] = load_name(load, path[i]);
        ios->result[at] = (int64_t)result[i];
        ios->error[at] = (int32_t)error[i];
        ios->fd[at] = (int32_t)fd[i];
        ios->offset[at] = (int64_t)offset[i];
        if (moves_bytes(&ios->of_name[function])) {
            ios->requested[at] = (int64_t)MIN(bytes[i], (uint64_t)INT64_MAX);
            if (ios->result[at] != IO_NO_RESULT) ios->bytes[at] = MAX(ios->result[at], 0);
        }
    }
}

void load_io_sums(struct load *load)
{
    struct ios *ios = &load->process->ios;
    const uint64_t *func = load_column(load, COL_io_sum_func), *time = load_column(load, COL_io_sum_time);
    const uint64_t *duration = load_column(load, COL_io_sum_duration), *busy = load_column(load, COL_io_sum_busy);
    const uint64_t *longest = load_column(load, COL_io_sum_longest), *calls = load_column(load, COL_io_sum_calls);
    const uint64_t *requested = load_column(load, COL_io_sum_requested), *bytes = load_column(load, COL_io_sum_bytes);
    const uint64_t *least = load_column(load, COL_io_sum_least), *most = load_column(load, COL_io_sum_most);
    const uint64_t *path = load_column(load, COL_io_sum_path), *thread = load_column(load, COL_io_sum_thread);
    const uint64_t *errors = load_column(load, COL_io_sum_errors);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = ios_add(ios);
        struct io_sum *sum = ios_sum(ios, at);
        ios->start[at] = (int64_t)time[i];
        ios->end[at] = load_end(time[i], duration[i]);
        ios->function[at] = function_of(load, func[i]);
        ios->thread[at] = (uint32_t)thread[i];
        ios->path[at] = load_name(load, path[i]);
        sum->calls = calls[i];
        sum->errors = errors[i];
        sum->total = (int64_t)MIN(busy[i], (uint64_t)INT64_MAX);
        sum->longest = (int64_t)MIN(longest[i], (uint64_t)INT64_MAX);
        if (moves_bytes(&ios->of_name[ios->function[at]])) {
            ios->requested[at] = (int64_t)MIN(requested[i], (uint64_t)INT64_MAX);
            ios->bytes[at] = sum->bytes = (int64_t)MIN(bytes[i], (uint64_t)INT64_MAX);
            sum->smallest = (int64_t)MIN(least[i], (uint64_t)INT64_MAX);
            sum->largest = (int64_t)MIN(most[i], (uint64_t)INT64_MAX);
        }
    }
}
