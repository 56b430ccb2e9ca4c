/* tensors.c - loads the storages of tensors, and the operators that used them. */
#include "model/memory/tensors.h"

#include <stdlib.h>

#include "model/load/load.h"

void load_tensors(struct load *load)
{
    struct tensors *t = &load->process->tensors;
    const uint32_t *first = NULL;
    const uint64_t *name = load_column(load, COL_tensors_name), *time = load_column(load, COL_tensors_time);
    const uint64_t *role = load_column(load, COL_tensors_role);
    int blocks = load->group->kind->own[COL_tensors_blocks];
    const uint64_t *values = group_list(&load->reader.decoder, load->group, blocks, &first);
    if (load->group->damaged || !values) return;
    for (uint32_t i = 0; i < load->group->count; i++) {
        uint32_t count = (first[i + 1] - first[i]) / 2; /* pairs of address and bytes */
        t->use = mem_grow(t->use, &t->use_capacity, t->uses + 1, sizeof *t->use);
        t->use[t->uses++] = (struct tensor_use){.time = (int64_t)time[i],
                                                .thread = load->piece->thread,
                                                .name = load_name(load, name[i]),
                                                .role = (uint32_t)role[i],
                                                .count = count,
                                                .first = t->addresses};
        t->address = mem_grow(t->address, &t->address_capacity, t->addresses + count, sizeof *t->address);
        for (uint32_t k = 0; k < count; k++) t->address[t->addresses++] = values[first[i] + 2 * k];
    }
}

void load_tensor_operators(struct load *load)
{
    struct tensors *t = &load->process->tensors;
    const uint64_t *name = load_column(load, COL_op_name), *time = load_column(load, COL_op_time);
    const uint64_t *duration = load_column(load, COL_op_duration), *scope = load_column(load, COL_op_scope);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (scope[i] == TFI_SCOPE_NATIVE) continue;
        t->op = mem_grow(t->op, &t->op_capacity, t->ops + 1, sizeof *t->op);
        t->op[t->ops++] = (struct tensor_op){.start = (int64_t)time[i],
                                             .end = load_end(time[i], duration[i]),
                                             .thread = load->piece->thread,
                                             .name = load_name(load, name[i]),
                                             .is_backward = scope[i] == TFI_SCOPE_BACKWARD};
    }
}

void tensors_free(struct tensors *tensors)
{
    free(tensors->use);
    free(tensors->op);
    free(tensors->address);
    *tensors = (struct tensors){0};
}
