/* export_ops.c - writes operators, memory, calls on files and metadata of .tfr traces into Chrome traces.
 *
 * The form is Kineto's. Operators are cpu_op events with Kineto's arguments, blocks are [memory] instants, and an arrow
 * (fwdbwd) leads from a forward operator to its backward operator. Texts that are JSON in the trace stay JSON; other
 * texts, such as truncated ones, become strings. A stage that left its thread is drawn where it ran, and also from
 * entry to exit as an asynchronous pair (coroutine).
 */
#include "write/export/export_write.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/frames.h"
#include "model/ranges/step_ranges.h"

/* ---- texts ---- */

/* A text with a zero byte is not JSON: the parser takes a zero after a value for the end, but readers of the file do
 * not. */
static bool is_json(const char *text, size_t length)
{
    bool whole = !memchr(text, 0, length);
    json_t *value = whole ? json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    json_decref(value);
    return value != NULL;
}

/* Writes a text that should be JSON. Each text is checked once. */
static void put_json(struct export *x, const char *key, uint32_t text)
{
    const struct name *name = names_get(&x->chosen->model->names, text);
    uint32_t good = map_get(&x->json, text);
    if (text == NAME_NONE) return;
    if (good == MAP_NONE) {
        good = is_json(name->text, name->length);
        map_put(&x->json, text, good);
    }
    if (good) emit_json(&x->e, key, name->text, name->length);
    else emit_bytes_text(&x->e, key, name->text, name->length);
}

void find_details(struct tfr_shared *shared)
{
    const struct process *p = shared->scope.process;
    for (size_t i = 0; i < p->signatures; i++)
        if (p->signature[i].direction == SIGNATURE_DETAILS)
            map_put(&shared->details, p->signature[i].range, p->signature[i].text);
}

void put_range_details(struct export *x, size_t range)
{
    uint32_t text = map_get(&x->shared->details, x->process->ranges.id[range]);
    if (text != MAP_NONE) put_json(x, "dftracer", text);
}

/* ---- operators ---- */

bool wants_operator(const struct export *x, size_t i)
{
    const struct spans *s = &x->process->spans;
    bool in_time = s->start[i] < x->to && s->end[i] >= x->from;
    return in_time && is_chosen(x, s->start[i]) &&
           (x->whole || is_inside(x, x->scope->attribution.span[i].stage, x->scope->attribution.span[i].time));
}

void put_inputs(struct export *x, const struct op_detail *inputs)
{
    if (inputs->modules != NAME_NONE) {
        const struct name *modules = names_get(&x->chosen->model->names, inputs->modules);
        emit_bytes_text(&x->e, "Module Hierarchy", modules->text, modules->length);
    }
    if (x->asked->without & WITHOUT_SHAPES) return;
    put_json(x, "Concrete Inputs", inputs->concrete);
    put_json(x, "Input type", inputs->types);
    put_json(x, "Input Strides", inputs->strides);
    put_json(x, "Input Dims", inputs->shapes);
}

static void put_operator_args(struct export *x, size_t i)
{
    const struct op_detail *d = op_details_of(&x->process->spans.details, i);
    struct emit *e = &x->e;
    emit_open(e, "args", false);
    emit_count(e, "External id", x->operators + x->process->spans.id[i]);
    if (d->sequence >= 0) {
        emit_int(e, "Sequence number", d->sequence);
        emit_count(e, "Fwd thread id", d->forward_thread);
    }
    emit_count(e, "Record function id", 0);
    put_inputs(x, d);
    if (d->stack != NAME_NONE && !(x->asked->without & WITHOUT_STACKS)) {
        struct text stack = {0};
        stack_line(&x->chosen->model->names, d->stack, &stack);
        emit_text(e, "Call stack", stack.data ? stack.data : "");
        text_free(&stack);
    }
    if (d->flops && !(x->asked->without & WITHOUT_SHAPES)) emit_count(e, "FLOPs", d->flops);
    if (d->scope == TFI_SCOPE_NATIVE) emit_bool(e, "native", true);
    emit_count(e, "Ev Idx", x->indexes++);
    emit_close(e);
}

void put_operators(struct export *x)
{
    const struct spans *s = &x->process->spans;
    for (size_t i = 0; i < s->table.count && !(x->asked->without & WITHOUT_CPU); i++) {
        if (s->event_class[i] == CLASS_OPERATOR && wants_operator(x, i)) {
            const struct name *name = names_get(&x->chosen->model->names, s->name[i]);
            begin_event(x, "X");
            emit_text(&x->e, "cat", "cpu_op");
            emit_bytes_text(&x->e, "name", name->text, name->length);
            put_place(x, x->pid, tid_of(x, s->thread[i]), s->start[i]);
            emit_us(&x->e, "dur", s->end[i] - s->start[i]);
            put_operator_args(x, i);
            end_event(x);
        }
    }
}

void find_launchers(struct tfr_shared *shared)
{
    const struct process *p = shared->scope.process;
    const struct attribution *a = &shared->scope.attribution;
    shared->launcher = no_places(p->spans.table.count);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (a->launch[i] != NO_PLACE) shared->launcher[a->launch[i]] = a->op[i];
}

void put_external_id(struct export *x, uint32_t op)
{
    if (op != NO_PLACE && !(x->asked->without & WITHOUT_CPU))
        emit_count(&x->e, "External id", x->operators + x->process->spans.id[op]);
}

/* Writes an arrow from each forward operator to its backward one. An arrow is written only if the forward operator is
 * wanted and the backward one starts before the end of the export. */
void put_forwards(struct export *x)
{
    const struct forwards *f = &x->process->forwards;
    for (size_t i = 0; i + 1 < f->table.count && !(x->asked->without & WITHOUT_CPU); i += 2) { /* in pairs */
        if (!is_wanted(x, f->thread[i], f->time[i], f->time[i]) || f->time[i + 1] >= x->to) continue;
        for (size_t end = i; end < i + 2; end++) {
            begin_event(x, f->is_forward[end] ? "s" : "f");
            emit_count(&x->e, "id", x->forwards + f->id[end]);
            put_place(x, x->pid, tid_of(x, f->thread[end]), f->time[end]);
            emit_text(&x->e, "cat", "fwdbwd");
            emit_text(&x->e, "name", "fwdbwd");
            if (!f->is_forward[end]) emit_text(&x->e, "bp", "e");
            end_event(x);
        }
    }
    x->forwards += f->table.count;
}

/* ---- memory ---- */

static void put_block_table(struct export *x, const struct blocks *b, const char *name, bool has_address)
{
    enum { DEVICE_CPU, DEVICE_CUDA }; /* c10::DeviceType */
    struct emit *e = &x->e;
    for (size_t i = 0; i < b->table.count && !(x->asked->without & WITHOUT_MEMORY); i++) {
        if (!is_wanted(x, b->thread[i], b->time[i], b->time[i])) continue;
        begin_event(x, "i");
        emit_text(e, "cat", "cpu_instant_event");
        emit_text(e, "s", "t");
        emit_text(e, "name", name);
        put_place(x, x->pid, tid_of(x, b->thread[i]), b->time[i]);
        emit_open(e, "args", false);
        emit_count(e, "Total Reserved", b->reserved[i]);
        emit_count(e, "Total Allocated", b->allocated[i]);
        emit_int(e, "Bytes", b->bytes[i]);
        emit_int(e, "Device Id", b->device[i]);
        emit_count(e, "Device Type", b->device[i] < 0 ? DEVICE_CPU : DEVICE_CUDA);
        if (has_address) emit_count(e, "Addr", b->address[i]);
        emit_count(e, "Ev Idx", x->indexes++);
        emit_close(e);
        end_event(x);
    }
}

void put_blocks(struct export *x)
{
    put_block_table(x, &x->process->blocks, "[memory]", true);
    put_block_table(x, &x->process->ooms, "[OutOfMemory]", false);
}

/* ---- stages in pieces ---- */

static void put_edge(struct export *x, const char *phase, size_t whole, int64_t time)
{
    const struct process *p = x->process;
    uint32_t range = p->wholes.range[whole];
    const struct name *name = names_get(&x->chosen->model->names, range_full_name(p, range));
    begin_event(x, phase);
    emit_text(&x->e, "cat", "coroutine");
    emit_bytes_text(&x->e, "name", name->text, name->length);
    put_place(x, x->pid, tid_of(x, p->ranges.thread[range]), time);
    emit_hex(&x->e, "id", x->pairs);
    if (*phase == 'b') {
        emit_open(&x->e, "args", false);
        emit_count(&x->e, "pieces", p->wholes.pieces[whole]);
        emit_close(&x->e);
    }
    end_event(x);
}

void put_wholes(struct export *x)
{
    const struct wholes *w = &x->process->wholes;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t range = w->range[i];
        bool in_time = w->start[i] < x->to && w->end[i] >= x->from;
        if (in_time && is_chosen(x, w->start[i]) &&
            (x->whole || is_inside(x, range, x->process->ranges.start[range]))) {
            x->pairs++;
            put_edge(x, "b", i, w->start[i]);
            put_edge(x, "e", i, w->end[i]);
        }
    }
}

/* ---- metadata ---- */

/* True for a member that the head already has. */
static bool is_taken(const char *key)
{
    static const char *const taken[] = {"tfinject",         "schemaVersion",   "distributedInfo",     "metadata",
                                        "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents",
                                        "traceName"};
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        if (strcmp(key, taken[i]) == 0) return true;
    return false;
}

void put_given(struct export *x, const struct pairs *metadata)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const char *value = metadata->pair[i].value;
        if (is_taken(metadata->pair[i].key)) continue;
        if ((*value == '{' || *value == '[') && is_json(value, strlen(value)))
            emit_json(&x->e, metadata->pair[i].key, value, strlen(value));
        else emit_text(&x->e, metadata->pair[i].key, value);
    }
}

/* Writes distributedInfo. Readers search for `"rank": N` with the space; jansson writes it that way. */
void put_distributed(struct export *x, const struct process *process, int64_t rank)
{
    const char *given = pairs_get(process->metadata, "distributedInfo");
    json_t *info = given ? json_loads(given, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!json_is_object(info)) {
        json_decref(info);
        info = json_object();
    }
    json_object_set_new(info, "rank", json_integer(rank));
    if (!json_object_get(info, "world_size"))
        json_object_set_new(info, "world_size", process->world < 0 ? json_null() : json_integer(process->world));
    char *text = json_dumps(info, 0);
    if (text) emit_json(&x->e, "distributedInfo", text, strlen(text));
    free(text);
    json_decref(info);
}

/* ---- calls on files ---- */

/* Writes the library in capitals, as dftracer does: POSIX, STDIO. */
static void put_io_head(struct export *x, size_t i)
{
    const struct ios *ios = &x->process->ios;
    const struct io_function *function = &ios->of_name[ios->function[i]];
    const char *library = model_name(x->chosen->model, function->library);
    char category[64];
    size_t length = 0;
    for (; library[length] && length + 1 < sizeof category; length++)
        category[length] = (char)toupper((unsigned char)library[length]);
    category[length] = 0;
    begin_event(x, "X");
    emit_text(&x->e, "cat", category);
    emit_text(&x->e, "name", model_name(x->chosen->model, function->name));
    put_place(x, x->pid, tid_of(x, ios->thread[i]), ios->start[i]);
    emit_us(&x->e, "dur", ios->end[i] - ios->start[i]);
}

static void put_sum(struct emit *e, const struct io_sum *sum)
{
    emit_count(e, "dft_cnt", sum->calls);
    if (sum->errors) emit_count(e, "errors", sum->errors);
    if (sum->total >= 0) emit_us(e, "dur_sum", sum->total);
    if (sum->longest >= 0) emit_us(e, "dur_max", sum->longest);
    if (sum->bytes < 0) return;
    emit_int(e, "ret_sum", sum->bytes);
    emit_int(e, "ret_min", sum->smallest);
    emit_int(e, "ret_max", sum->largest);
}

static void put_io(struct export *x, size_t i)
{
    const struct ios *ios = &x->process->ios;
    struct emit *e = &x->e;
    put_io_head(x, i);
    emit_open(e, "args", false);
    if (ios->path[i] != NAME_NONE) {
        const struct name *path = names_get(&x->chosen->model->names, ios->path[i]);
        emit_bytes_text(e, "fname", path->text, path->length);
    }
    if (ios->sum[i] != IO_ONE_CALL) put_sum(e, &ios->sums[ios->sum[i]]);
    if (ios->result[i] != IO_NO_RESULT) emit_int(e, "ret", ios->result[i]);
    if (ios->requested[i] >= 0) emit_int(e, ios->sum[i] == IO_ONE_CALL ? "count" : "count_sum", ios->requested[i]);
    if (ios->offset[i] >= 0) emit_int(e, "offset", ios->offset[i]);
    if (ios->fd[i] >= 0) emit_int(e, "fd", ios->fd[i]);
    if (ios->error[i] > 0 && ios->error[i] != IO_SOME_ERROR) emit_int(e, "errno", ios->error[i]);
    emit_close(e);
    end_event(x);
}

void put_ios(struct export *x)
{
    const struct ios *ios = &x->process->ios;
    for (size_t i = 0; i < ios->table.count; i++)
        if (is_wanted_call(x, ios->thread[i], ios->start[i], ios->end[i], NO_PLACE)) put_io(x, i);
}
