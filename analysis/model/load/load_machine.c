/* load_machine.c - loads the facts of the machine from a header, and the samples of the process. */
#include <string.h>

#include "model/load/load.h"
#include "read/trace.h"

static bool is_setting(const char *key)
{
    return strncmp(key, "env.", 4) == 0 && strncmp(key, "env.TFI_", 8) != 0 &&
           (strstr(key, "THREADS") || strstr(key, "VISIBLE_DEVICES") || strstr(key, "OMP_") || strstr(key, "KMP_") ||
            strstr(key, "PARALLELISM"));
}

void load_machine_facts(struct process *p, const struct pairs *info)
{
    struct machine *m = &p->machine;
    m->facts = mem_zero(1, sizeof *m->facts);
    m->settings = mem_zero(1, sizeof *m->settings);
    for (size_t i = 0; i < info->count; i++) {
        const char *key = info->pair[i].key;
        if (strncmp(key, "machine.", 8) == 0) pairs_add(m->facts, key + 8, info->pair[i].value);
        if (is_setting(key)) pairs_add(m->settings, key + 4, info->pair[i].value);
    }
}

void load_process_samples(struct load *load)
{
    struct machine *m = &load->process->machine;
    const uint64_t *time = load_column(load, COL_process_sample_time);
    const uint64_t *threads = load_column(load, COL_process_sample_threads);
    const uint64_t *resident = load_column(load, COL_process_sample_resident);
    const uint64_t *cgroup = load_column(load, COL_process_sample_cgroup);
    m->sample = mem_grow(m->sample, &m->sample_capacity, m->samples + load_rows(load), sizeof *m->sample);
    for (uint32_t i = 0; i < load_rows(load); i++)
        m->sample[m->samples++] =
            (struct process_sample){(int64_t)time[i], resident[i], cgroup[i], (uint32_t)threads[i]};
}

void load_thread_pools(struct load *load)
{
    struct machine *m = &load->process->machine;
    const uint64_t *time = load_column(load, COL_thread_pool_time);
    const uint64_t *threads = load_column(load, COL_thread_pool_threads);
    const uint64_t *thread = load_column(load, COL_thread_pool_thread);
    m->pool = mem_grow(m->pool, &m->pool_capacity, m->pools + load_rows(load), sizeof *m->pool);
    for (uint32_t i = 0; i < load_rows(load); i++)
        m->pool[m->pools++] = (struct thread_pool){(int64_t)time[i], (uint32_t)thread[i], (uint32_t)threads[i]};
}
