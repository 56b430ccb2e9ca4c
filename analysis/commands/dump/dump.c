/* dump.c - prints every record as stored in the file, one per line: rank pid tid kind time_us live column=value...
 *
 * Records come in file order: chunk after chunk, each of one thread, then the live chunks. No record is kept in memory:
 * the first pass over a trace finds its clock and its functions, the second pass prints. Times count from the run's
 * first record. dump_kineto.c prints PyTorch traces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/dump_choice.h"
#include "commands/dump/dump_kineto.h"
#include "commands/session.h"
#include "model/frames.h"
#include "write/values.h"

struct dump {
    struct session *session;
    const struct process *process;
    struct clock clock; /* a copy, because look-ups change its hint */
    struct reader reader;
    const struct piece *piece;
    int64_t from, to;
    uint64_t rows;
    struct dump_choice chosen;
    uint64_t bad_records, bad_stacks; /* of the current process, among the records read so far */
};

/* The decoded columns of a group. */
struct columns {
    const uint64_t **values;
    const uint32_t **first;                                                    /* by field: offsets of list values */
    const uint64_t *payload_type, *id, *correlation, *device, *stream, *start; /* NULL: no such column */
    uint32_t next; /* index of the group's next record in chunk order */
};

static void name_column(struct columns *columns, const char *name, const uint64_t *values)
{
    const struct {
        const char *name;
        const uint64_t **column;
    } named[] = {{"payload_type", &columns->payload_type},
                 {"id", &columns->id},
                 {"correlation", &columns->correlation},
                 {"device", &columns->device},
                 {"stream", &columns->stream},
                 {"start", &columns->start}};
    for (size_t i = 0; i < ARRAY_SIZE(named); i++)
        if (strcmp(name, named[i].name) == 0) *named[i].column = values;
}

static void decode_group(struct dump *dump, struct group *group, struct columns *columns)
{
    unsigned fields = group->kind ? group->kind->fields : 0;
    *columns = (struct columns){0};
    columns->values = mem_zero(fields, sizeof *columns->values);
    columns->first = mem_zero(fields, sizeof *columns->first);
    for (unsigned f = 0; f < fields; f++) {
        const struct field *field = &group->kind->field[f];
        columns->values[f] = field->is_list ? group_list(&dump->reader.decoder, group, (int)f, &columns->first[f])
                                            : group_values(&dump->reader.decoder, group, (int)f);
        name_column(columns, field->name, columns->values[f]);
    }
}

/* ---- one record ---- */

/* Prints the arguments of a call with the names from its function's description. */
static void emit_args(struct emit *e, const struct meaning *meaning, const struct func *func, const uint64_t *values,
                      uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        bool named = func && k < func->args;
        char *key = named ? string_format("%s", func->arg[k]) : string_format("arg%u", k);
        emit_typed(e, meaning, key, named ? func->type[k] : TFI_TYPE_HEX, false, values[k]);
        free(key);
    }
}

static const struct func *func_of(const struct dump *dump, const struct kind *kind, const struct columns *columns,
                                  uint32_t i)
{
    for (unsigned f = 0; f < kind->fields; f++) {
        if (kind->field[f].type == TFI_TYPE_FUNC && columns->values[f]) {
            uint32_t place = map_get(&dump->process->func_of, columns->values[f][i]);
            return place == MAP_NONE ? NULL : &dump->process->func[place];
        }
    }
    return NULL;
}

static bool has_func(const struct kind *kind)
{
    for (unsigned f = 0; f < kind->fields; f++)
        if (kind->field[f].type == TFI_TYPE_FUNC) return true;
    return false;
}

/* Prints a list. Its values have names only if the record has a function. */
static void emit_list(struct dump *dump, const struct meaning *meaning, const struct kind *kind,
                      const struct columns *columns, unsigned f, uint32_t i)
{
    struct emit *e = &dump->session->emit;
    const uint64_t *values = columns->values[f] + columns->first[f][i];
    uint32_t count = columns->first[f][i + 1] - columns->first[f][i];
    bool named = has_func(kind);
    emit_open(e, kind->field[f].name, !named);
    if (named) emit_args(e, meaning, func_of(dump, kind, columns, i), values, count);
    for (uint32_t k = 0; k < count && !named; k++) emit_hex(e, NULL, values[k]);
    emit_close(e);
}

static void emit_values(struct dump *dump, const struct kind *kind, const struct columns *columns, uint32_t i)
{
    struct emit *e = &dump->session->emit;
    struct meaning meaning = {.process = dump->process, .bad_stacks = &dump->bad_stacks};
    bool has_time = kind->time >= 0 && columns->values[kind->time];
    meaning.time = has_time ? columns->values[kind->time][i] : dump->process->clock.line.point[0].ticks;
    meaning.is_end = kind->time_is_end;
    meaning.payload_type = columns->payload_type ? columns->payload_type[i] : 0;
    for (unsigned f = 0; f < kind->fields; f++) {
        const struct field *field = &kind->field[f];
        bool filler = field->type == TFI_TYPE_UINT && strcmp(field->name, "reserved") == 0;
        if (!columns->values[f] || filler || ((int)f == kind->time && strcmp(field->name, "time") == 0)) continue;
        if (field->is_list) emit_list(dump, &meaning, kind, columns, f, i);
        else emit_typed(e, &meaning, field->name, field->type, field->is_signed, columns->values[f][i]);
    }
}

static bool in_window(const struct dump *dump, bool has_time, int64_t time)
{
    if (dump->from == INT64_MIN && dump->to == INT64_MAX) return true;
    return has_time && time >= dump->from && time < dump->to;
}

static const uint64_t *row_of(const uint64_t *column, uint32_t i)
{
    return column ? column + i : NULL;
}

static bool is_chosen(const struct dump *dump, const struct group *group, const struct columns *columns, bool has_time,
                      int64_t time, uint32_t i)
{
    struct dumped record = {.kind = group->number,
                            .thread = dump->piece->thread,
                            .has_time = has_time,
                            .time = time,
                            .id = row_of(columns->id, i),
                            .correlation = row_of(columns->correlation, i),
                            .device = row_of(columns->device, i),
                            .stream = row_of(columns->stream, i)};
    if (!has_time && columns->start) { /* time of a device's own clock */
        return in_window(dump, true, clock_device_ns(&dump->clock, columns->start[i])) &&
               dump_choice_has(&dump->chosen, &record);
    }
    return in_window(dump, has_time, time) && dump_choice_has(&dump->chosen, &record);
}

static void emit_record(struct dump *dump, const struct group *group, const struct columns *columns, uint32_t i)
{
    struct emit *e = &dump->session->emit;
    const struct kind *kind = group->kind;
    char number[32];
    bool has_time = kind && kind->time >= 0 && columns->values[kind->time];
    int64_t time = has_time ? clock_ns(&dump->clock, columns->values[kind->time][i]) : 0;
    if (!is_chosen(dump, group, columns, has_time, time, i)) return;
    emit_row(e);
    emit_known(e, "rank", dump->process->rank);
    emit_known(e, "pid", dump->process->pid);
    emit_count(e, "tid", dump->piece->tid);
    snprintf(number, sizeof number, "kind%u", group->number);
    emit_text(e, "kind", kind ? kind->name : number);
    if (has_time) emit_us(e, "time_us", time - dump->session->model.start);
    else emit_null(e, "time_us");
    emit_bool(e, "live", dump->piece->is_live);
    emit_open(e, "values", false);
    if (kind) emit_values(dump, kind, columns, i);
    emit_close(e);
    emit_row_end(e);
    dump->rows++;
}

/* ---- chunks and processes ---- */

static bool enough(const struct dump *dump)
{
    uint64_t top = dump->session->options.top;
    return (top && dump->rows >= top) || dump->session->out.failed;
}

static void dump_chunk(struct dump *dump, struct chunk *chunk)
{
    struct columns *columns = mem_zero(chunk->groups, sizeof *columns);
    for (unsigned g = 0; g < chunk->groups; g++) decode_group(dump, &chunk->group[g], &columns[g]);
    for (size_t r = 0; r < chunk->runs; r++) {
        struct run run = chunk->run[r];
        const struct group *group = &chunk->group[run.group];
        for (; run.count && !enough(dump); run.count--) {
            uint32_t i = columns[run.group].next++;
            if (!group->damaged) emit_record(dump, group, &columns[run.group], i);
        }
    }
    for (unsigned g = 0; g < chunk->groups; g++) {
        dump->bad_records += chunk->group[g].damaged ? chunk->group[g].count : 0;
        free(columns[g].values);
        free(columns[g].first);
    }
    free(columns);
}

/* Reports damage that the first pass did not find because it reads fewer columns. */
static void say_bad(struct dump *dump, uint64_t known)
{
    if (dump->bad_records > known) {
        session_spoil(dump->session);
        complain(dump->process->path, "%llu more records are complete but not valid; they were left out",
                 (unsigned long long)(dump->bad_records - known));
    }
    if (dump->reader.unread) {
        session_spoil(dump->session);
        complain(dump->process->path, UNREAD, (unsigned long long)dump->reader.unread);
    }
    if (dump->bad_stacks) {
        session_spoil(dump->session);
        complain(dump->process->path, BAD_STACKS, (unsigned long long)dump->bad_stacks);
    }
}

static void dump_process(struct dump *dump, const struct process *process)
{
    struct chunk chunk;
    uint64_t known, before;
    dump->process = process;
    dump->clock = process->clock;
    dump->bad_records = dump->bad_stacks = 0;
    before = process->trace->bad_records;
    dump->reader = (struct reader){.trace = process->trace};
    dump_choice_init(&dump->chosen, &dump->session->chosen, process);
    while (!enough(dump) && (dump->piece = reader_next(&dump->reader, &chunk)) != NULL) dump_chunk(dump, &chunk);
    known = before - (process->trace->bad_records - before); /* the reader counts its bad records in both passes */
    say_bad(dump, known);
    reader_free(&dump->reader);
    dump_choice_free(&dump->chosen);
}

struct needs dump_needs(const struct options *options)
{
    struct needs needs = {.traces = true, .funcs = true};
    return dump_is_filtered(options) ? needs_union(needs, dump_choice_needs()) : needs;
}

void cmd_dump(struct session *session)
{
    struct dump dump = {.session = session};
    if (!session_ask(session, STYLE_LINES)) return;
    out_hide(&session->out); /* it has the values of traces that only their owner can read */
    selection_window(&session->chosen, &dump.from, &dump.to);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        if (is_of_kineto(p)) dump_kineto(session, p, dump.from, dump.to, session->options.top, &dump.rows);
        else if (is_of_dftracer(p)) dump_dftracer(session, p, session->options.top, &dump.rows);
        else dump_process(&dump, p);
    }
    emit_totals(&session->emit);
    emit_count(&session->emit, "records", dump.rows);
    emit_end(&session->emit);
    session_end(session, dump.rows || !is_filtered(&session->options));
}
