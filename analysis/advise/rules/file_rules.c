/* file_rules.c - rules about files: small calls, what is read again, and the batch that one file makes late. */
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "ask/io/files.h"
#include "ask/stages/slowest.h"

/* The calls of a process on a file. */
struct file_use {
    uint32_t path, process; /* the key */
    uint64_t reads, writes, read_bytes, write_bytes;
    int64_t read_time, write_time;
    struct io_file file;
};

struct file_uses {
    KEYED_ROWS(struct file_use);
};

/* Time in which calls on files are waited for. */
#define FILE_LEAVES (LEAF_BIT(LEAF_FILE_IO) | LEAF_BIT(LEAF_LOADER) | HOST_ALONE_LEAVES)

/* All processes of a rank count: workers read for the one that waits for them. */
static void collect_files(struct file_uses *uses, const struct rule_facts *j, const struct rank_facts *rank)
{
    for (size_t i = 0; i < j->chosen->processes; i++) {
        const struct process *p = j->chosen->process[i];
        const struct ios *ios = &p->ios;
        if (p->rank != rank->wall->rank) continue;
        for (size_t k = 0; k < ios->table.count; k++) {
            enum io_kind kind = ios->of_name[ios->function[k]].kind;
            if (ios->path[k] == NAME_NONE || !intervals_hold(&rank->part->window, ios->start[k], ios->start[k]))
                continue;
            const struct {
                uint32_t path, process;
            } key = {ios->path[k], (uint32_t)i};
            struct file_use *use = keyed_row(&uses->keyed, &key, sizeof key, sizeof *use);
            io_file_call(&use->file, ios, k);
            if (kind == IO_READ) {
                use->reads += ios_calls(ios, k);
                use->read_bytes += ios_bytes(ios, k);
                use->read_time = add_ns(use->read_time, ios_time(ios, k));
            } else if (kind == IO_WRITE || kind == IO_SYNC) {
                use->writes += ios_calls(ios, k);
                use->write_bytes += ios_bytes(ios, k);
                use->write_time = add_ns(use->write_time, ios_time(ios, k));
            }
        }
    }
    for (size_t i = 0; i < uses->count; i++) io_file_settle(&uses->row[i].file);
}

static void free_files(struct file_uses *uses)
{
    for (size_t i = 0; i < uses->count; i++) intervals_free(&uses->row[i].file.positions);
    keyed_free(&uses->keyed);
}

static void name_file(const struct rule_facts *j, struct finding *f, uint32_t path)
{
    if (f && !f->file) f->file = string_format("%s", named(j, path));
}

/* Judges the files whose calls move few bytes each. */
static void judge_small(struct rule_facts *j, const struct rule *rule, bool writes)
{
    enum { LEAST_CALLS = 1000, SMALL = 4096 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct file_uses uses = {0};
        const struct file_use *most = NULL;
        uint64_t calls = 0, bytes = 0;
        int64_t time = 0;
        collect_files(&uses, j, rank);
        for (size_t i = 0; i < uses.count; i++) {
            const struct file_use *use = &uses.row[i];
            uint64_t n = writes ? use->writes : use->reads, b = writes ? use->write_bytes : use->read_bytes;
            if (n < LEAST_CALLS || b / n >= SMALL) continue;
            calls += n;
            bytes += b;
            time = add_ns(time, writes ? use->write_time : use->read_time);
            if (!most || n > (writes ? most->writes : most->reads)) most = use;
        }
        struct finding *f =
            most ? claim(j, rule, rank, FILE_LEAVES, time,
                         string_format("%llu %s of %llu bytes each on average", (unsigned long long)calls,
                                       writes ? "writes" : "reads", (unsigned long long)(bytes / calls)))
                 : NULL;
        if (f) {
            name_file(j, f, most->path);
            add_evidence(f,
                         string_format("%s: %llu calls, %llu bytes", named(j, most->path),
                                       (unsigned long long)(writes ? most->writes : most->reads),
                                       (unsigned long long)(writes ? most->write_bytes : most->read_bytes)),
                         "io --layout files");
        }
        free_files(&uses);
    }
}

void judge_small_reads(struct rule_facts *j, const struct rule *rule)
{
    judge_small(j, rule, false);
}

void judge_small_writes(struct rule_facts *j, const struct rule *rule)
{
    judge_small(j, rule, true);
}

static int starts_in_order(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

struct starts {
    int64_t *start;
    size_t count, capacity;
};

static void add_start(struct starts *starts, int64_t start)
{
    starts->start = mem_grow(starts->start, &starts->capacity, starts->count + 1, sizeof *starts->start);
    starts->start[starts->count++] = start;
}

/* Returns the time from each opening of a file, but the first, to the next operator or the next call on another file. A program
 * as a rule parses again what it reads again. */
static int64_t time_of_openings(const struct process *p, uint32_t path, const struct intervals *window)
{
    struct starts opens = {0}, next = {0};
    int64_t time = 0;
    for (size_t i = 0; i < p->ios.table.count; i++) {
        bool opens_it = p->ios.of_name[p->ios.function[i]].kind == IO_OPEN;
        if (p->ios.path[i] == path && opens_it) add_start(&opens, p->ios.start[i]);
        if (p->ios.path[i] == path ? opens_it : p->ios.path[i] != NAME_NONE) add_start(&next, p->ios.start[i]);
    }
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_OPERATOR) add_start(&next, p->spans.start[i]);
    if (opens.count) qsort(opens.start, opens.count, sizeof *opens.start, starts_in_order);
    if (next.count) qsort(next.start, next.count, sizeof *next.start, starts_in_order);
    for (size_t i = 1, n = 0; i < opens.count; i++) {
        while (n < next.count && next.start[n] <= opens.start[i]) n++;
        if (n < next.count && intervals_hold(window, opens.start[i], next.start[n]))
            time = add_ns(time, next.start[n] - opens.start[i]);
    }
    free(opens.start);
    free(next.start);
    return time;
}

void judge_repeated_reads(struct rule_facts *j, const struct rule *rule)
{
    enum { LEAST_BYTES = 1 << 20 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct file_uses uses = {0};
        const struct file_use *most = NULL;
        int64_t again = 0, most_again = 0, most_read = 0, reading = 0;
        collect_files(&uses, j, rank);
        for (size_t i = 0; i < uses.count; i++) {
            const struct file_use *use = &uses.row[i];
            int64_t bytes = io_file_repeated(&use->file);
            if (bytes < LEAST_BYTES || 2 * (uint64_t)bytes < use->read_bytes) continue;
            int64_t read = (int64_t)((double)use->read_time * (double)bytes / (double)use->read_bytes);
            again = add_ns(again, bytes);
            reading = add_ns(reading, read);
            if (bytes > most_again) most_again = bytes, most_read = read, most = use;
        }
        if (most) {
            const struct process *p = j->chosen->process[most->process];
            int64_t opened = time_of_openings(p, most->path, &rank->part->window);
            int64_t time = add_ns(reading, MAX(opened - most_read, 0));
            char *words = string_format(
                "%.1f MiB are read again, of %s %.1f times its size", (double)again / 1048576, named(j, most->path),
                (double)most->read_bytes / (double)MAX(most->read_bytes - (uint64_t)most_again, 1));
            bool costs = percent(time, rank->work) >= 1;
            struct finding *f =
                costs ? claim(j, rule, rank, FILE_LEAVES, time, words)
                      : remark(j, rule, rank, most->file.opens >= 4 ? SEVERITY_FINDING : SEVERITY_NOTE, words);
            name_file(j, f, most->path);
            if (f && costs)
                add_evidence(f,
                             string_format("%.3f ms of reading, the others from there to the next operator or file",
                                           ms(reading)),
                             "io --layout files");
            if (f)
                add_evidence(f,
                             string_format("%s: %llu opens, %.1f MiB again", named(j, most->path),
                                           (unsigned long long)most->file.opens, (double)most_again / 1048576),
                             "io --layout files");
        }
        free_files(&uses);
    }
}

/* ---- one late batch ---- */

static bool is_wait_for_batch(const struct rule_facts *j, uint32_t name)
{
    return strstr(named(j, name), "DataLoader") != NULL && !strstr(named(j, name), "worker ");
}

/* True for the first call of its stage in a process, for which workers start. */
static bool is_first_wait(const struct slow_calls *calls, const struct slow_call *call)
{
    for (size_t i = 0; i < calls->count; i++) {
        const struct slow_call *other = &calls->call[i];
        if (other->process == call->process && other->name == call->name && other->start < call->start) return false;
    }
    return true;
}

void judge_slow_batch(struct rule_facts *j, const struct rule *rule)
{
    enum { MOST_SLOW = 256 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        struct slow_calls calls = {0};
        const struct slow_call *wait = NULL, *made = NULL;
        if (!rank->wall->waits) continue;
        for (size_t i = 0; i < j->chosen->processes; i++) {
            if (j->chosen->process[i]->rank != rank->wall->rank) continue;
            struct scope *scope = scope_begin(j->chosen, i);
            slow_calls_add(&calls, scope);
            scope_end(scope);
        }
        slow_calls_sort(&calls);
        for (size_t i = 0; i < MIN(calls.count, (size_t)MOST_SLOW); i++) {
            const struct slow_call *call = &calls.call[i];
            if (!wait && is_wait_for_batch(j, call->name) && !is_first_wait(&calls, call)) wait = call;
            if (!made && call->worker >= 0) made = call;
        }
        int64_t excess = wait ? wait->end - wait->start - wait->median : 0, on_file = 0;
        if (wait && excess > 4 * wait->median && 2 * excess > rank->part->time[LEAF_LOADER]) {
            bool fits = made && made->end > wait->start && made->start < wait->end;
            uint32_t file = fits ? slow_call_file(made, &on_file) : NAME_NONE;
            struct finding *f = claim(j, rule, rank, LEAF_BIT(LEAF_LOADER), excess,
                                      string_format("one batch is waited for %.3f ms, the median is %.3f ms",
                                                    ms(wait->end - wait->start), ms(wait->median)));
            if (f && file != NAME_NONE) name_file(j, f, file);
            if (f) f->stage = wait->name;
            if (f)
                add_evidence(f, string_format("%s: %.3f ms", named(j, wait->name), ms(wait->end - wait->start)),
                             "stages --slowest 5");
            if (f && fits)
                add_evidence(f,
                             string_format("worker %lld made a batch in %.3f ms%s%s", (long long)made->worker,
                                           ms(made->end - made->start), file == NAME_NONE ? "" : ", longest in ",
                                           file == NAME_NONE ? "" : named(j, file)),
                             "io --layout batches");
        }
        free(calls.call);
    }
}
