/* load_summary.c - packs and unpacks the description of a process. */
#include "model/load/load_summary.h"

#include <stdlib.h>
#include <string.h>

#include "read/trace.h"

/* Kinds of traces that are summarised; a process keeps a pointer to one of these. */
static const char *const kinds[] = {"tfr", "live", "kineto"};

static bool is_simulated(const struct process *process)
{
    for (size_t i = 0; i < process->devices; i++)
        if (process->device[i].simulated) return true;
    return false;
}

void pack_process(struct text *to, const struct process *process, const struct notes *notes)
{
    size_t kept = 0;
    pack_text(to, process->path);
    pack_text(to, process->kind);
    pack_text(to, process->host);
    pack_signed(to, process->rank);
    pack_signed(to, process->world);
    pack_signed(to, process->pid);
    pack_number(to,
                process->complete | process->has_time << 1 | process->clock.has_axis << 2 | is_simulated(process) << 3);
    pack_signed(to, process->first);
    pack_signed(to, process->last);
    pack_number(to, process->events);
    pack_number(to, process->lost);
    for (size_t i = 0; i < notes->count; i++) kept += notes->note[i].level != UNUSABLE;
    pack_number(to, kept);
    for (size_t i = 0; i < notes->count; i++) {
        if (notes->note[i].level == UNUSABLE) continue;
        pack_number(to, notes->note[i].level);
        pack_text(to, notes->note[i].text);
    }
}

static void set_flags(struct process *process, uint64_t flags)
{
    process->complete = flags & 1;
    process->has_time = flags >> 1 & 1;
    process->clock.has_axis = flags >> 2 & 1;
    if (!(flags >> 3 & 1)) return;
    process->device = mem_zero(1, sizeof *process->device);
    process->devices = 1;
    process->device->simulated = true;
}

static void unpack_notes(struct unpacking *from, struct notes *notes)
{
    size_t count = unpack_count(from, 2);
    for (size_t i = 0; i < count && !from->bad; i++) {
        uint64_t level = unpack_number(from);
        char *text = unpack_text(from);
        from->bad |= level > LOSS || !text;
        if (!from->bad) notes_add(notes, (enum note_level)level, "%s", text);
        free(text);
    }
}

bool load_summary(uint8_t *block, size_t length, struct process *process, struct notes *notes)
{
    struct unpacking from = {block, block + length, false};
    const char *kind = NULL;
    char *path = unpack_text(&from), *word = unpack_text(&from);
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && word; i++)
        if (strcmp(kinds[i], word) == 0) kind = kinds[i];
    bool good = path && kind;
    if (good) {
        process_init(process, path, kind);
        process->host = unpack_text(&from);
        process->rank = unpack_signed(&from);
        process->world = unpack_signed(&from);
        process->pid = unpack_signed(&from);
        set_flags(process, unpack_number(&from));
        process->first = unpack_signed(&from);
        process->last = unpack_signed(&from);
        process->events = unpack_number(&from);
        process->lost = unpack_number(&from);
        unpack_notes(&from, notes);
        good = !from.bad && process->rank >= -1 && process->rank <= INT32_MAX;
        if (!good) process_free(process);
    }
    free(path);
    free(word);
    if (!good) return false;
    process->block = (struct packed_block){block, {from.at, from.end, false}};
    return true;
}
