/* not_judged.c - names what could not be judged, why, and what would make it possible. */
#include "advise/rules/not_judged.h"

#include "advise/rules/rule_facts.h"

static void add_unjudged(struct advice *a, const char *what, char *why, const char *how)
{
    a->not_judged = mem_grow(a->not_judged, &a->unjudged_capacity, a->unjudged + 1, sizeof *a->not_judged);
    a->not_judged[a->unjudged++] = (struct not_judged){what, how, why};
}

static void find_doubts_of_traces(struct rule_facts *j)
{
    size_t broken = 0, rings = 0, lossy = 0, without_files = 0, without_rank = 0, doubtful = 0;
    const struct selection *chosen = j->chosen;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        rings += p->ring.chunks > 0;
        broken += !p->complete && !p->ring.chunks;
        lossy += p->lost > 0;
        doubtful += doubts_matter(&p->health);
        without_files += !p->ios.table.count;
        without_rank += p->world > (int64_t)chosen->processes;
    }
    if (rings)
        add_unjudged(j->advice, "all before the last seconds",
                     string_format("%zu of %zu traces were recorded with TFI_MODE=flight", rings, chosen->processes),
                     "raise TFI_FLIGHT_S and TFI_FLIGHT_MB, or record without TFI_MODE=flight");
    if (broken || lossy)
        add_unjudged(
            j->advice, "the whole run",
            string_format("%zu of %zu traces are incomplete, %zu lost records", broken, chosen->processes, lossy),
            "`tfanalyze info` says what is missing; let the program end by itself, raise TFI_MAX_MB");
    if (doubtful)
        add_unjudged(
            j->advice, "doubtful records",
            string_format("in %zu of %zu traces times or launches are impossible", doubtful, chosen->processes),
            "`tfanalyze info` counts them under health; record again");
    if (without_rank)
        add_unjudged(j->advice, "other ranks",
                     string_format("the job has more ranks than the %zu inputs", chosen->processes),
                     "give the traces of all ranks");
    if (without_files == chosen->processes)
        add_unjudged(j->advice, "files", string_format("no calls on files are recorded"),
                     "tfrun --activities cpu,gpu,mem,nccl,ops,io");
}

/* Time that no leaf explains, and lines of the program, which only samples tell. */
static void find_unexplained(struct rule_facts *j)
{
    const struct rank_facts *worst = NULL;
    bool sampled = false;
    for (size_t i = 0; i < j->ranks; i++) {
        const struct rank_facts *rank = &j->rank[i];
        int64_t time = rank->part->time[LEAF_UNKNOWN];
        if (!worst || percent(time, rank->work) > percent(worst->part->time[LEAF_UNKNOWN], worst->work)) worst = rank;
    }
    for (size_t i = 0; i < j->chosen->processes; i++) sampled |= j->chosen->process[i]->looks.table.count != 0;
    if (!worst || percent(worst->part->time[LEAF_UNKNOWN], worst->work) < 5) return;
    add_unjudged(j->advice, "time that nothing explains",
                 string_format("%.1f %% of the work of rank %lld",
                               percent(worst->part->time[LEAF_UNKNOWN], worst->work), (long long)worst->wall->rank),
                 sampled ? "mark stages (tfrun --functions module:function)"
                         : "sample the Python stacks: tfrun, without --sample-hz 0");
}

void find_unjudged(struct rule_facts *j)
{
    bool device = false;
    size_t unknown = j->walls->count - j->ranks;
    for (size_t i = 0; i < j->walls->count; i++) device |= j->walls->wall[i].works > 0;
    find_doubts_of_traces(j);
    if (unknown)
        add_unjudged(j->advice, "ranks",
                     string_format("of %zu of %zu ranks some records are not in the traces", unknown, j->walls->count),
                     "record without ENABLE_PROFILER_NAMES, TFI_SCHEDULE and TFI_CAPTURE, or choose --step");
    if (!device)
        add_unjudged(j->advice, "devices", string_format("no device work is in the traces"),
                     "run where a device is; `tfanalyze info` says what was recorded");
    if (device && j->roofline->lacks_device)
        add_unjudged(j->advice, "what bounds operators", string_format("no trace names a device whose peaks are known"),
                     "--gpu NAME");
    if (device && j->roofline->lacks_shapes)
        add_unjudged(j->advice, "operators without shapes", string_format("their input shapes are not in the traces"),
                     "TFI_RECORD_SHAPES=1, or record_shapes=True of torch.profiler");
    find_unexplained(j);
}
