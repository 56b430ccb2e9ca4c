/* session_notes.c - says what is known of the inputs of a session; a note that many inputs have is one line. */
#include "commands/session_notes.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Counts how many inputs have the same note. */
struct counted_notes {
    struct counted_note {
        const struct input *first;
        const char *text;
        size_t count;
    } * note;
    size_t count, capacity;
    struct map place; /* of a text, by its hash */
};

static struct counted_note *find_note(const struct counted_notes *counted, const char *text)
{
    uint32_t place = map_get(&counted->place, hash_text(text, strlen(text)));
    return place != MAP_NONE && strcmp(counted->note[place].text, text) == 0 ? &counted->note[place] : NULL;
}

static void count_notes(struct counted_notes *counted, const struct input *input)
{
    for (size_t i = 0; i < input->notes.count; i++) {
        const char *text = input->notes.note[i].text;
        struct counted_note *known = find_note(counted, text);
        if (known) known->count++;
        if (known) continue;
        map_put(&counted->place, hash_text(text, strlen(text)), (uint32_t)counted->count);
        counted->note = mem_grow(counted->note, &counted->capacity, counted->count + 1, sizeof *counted->note);
        counted->note[counted->count++] = (struct counted_note){input, text, 1};
    }
}

/* Says what is known of an input. A note that many inputs have is one line, with the first of them. */
static void say_notes(const struct input *input, const struct counted_notes *counted)
{
    enum { MOST_LINES = 4 };
    for (size_t i = 0; i < input->notes.count; i++) {
        const char *text = input->notes.note[i].text;
        const struct counted_note *note = find_note(counted, text);
        if (!note || note->count <= MOST_LINES) complain(input->path, "%s", text);
        else if (note->first == input)
            complain(input->path, "%s; the same holds for %zu other inputs", text, note->count - 1);
    }
}

static void forget_counts(struct counted_notes *counted)
{
    free(counted->note);
    map_free(&counted->place);
}

void session_say_notes(struct session *session)
{
    struct counted_notes counted = {0};
    for (size_t i = 0; i < session->chosen.processes; i++)
        count_notes(&counted, &session->inputs.input[session->chosen.process[i]->input]);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct input *input = &session->inputs.input[session->chosen.process[i]->input];
        session->status = notes_have(&input->notes, LOSS) ? STATUS_PARTIAL : session->status;
        say_notes(input, &counted);
    }
    forget_counts(&counted);
}

static bool is_unread(const struct input *input)
{
    return !input->usable && !input->left_out && notes_have(&input->notes, UNUSABLE);
}

size_t session_unread(const struct session *session)
{
    size_t count = 0;
    for (size_t i = 0; i < session->inputs.count; i++) count += is_unread(&session->inputs.input[i]);
    return count;
}

void session_say_unusable(struct session *session)
{
    struct counted_notes counted = {0};
    for (size_t i = 0; i < session->inputs.count; i++)
        if (!session->inputs.input[i].usable) count_notes(&counted, &session->inputs.input[i]);
    for (size_t i = 0; i < session->inputs.count; i++) {
        const struct input *input = &session->inputs.input[i];
        if (input->usable) continue;
        say_notes(input, &counted);
        if (is_unread(input)) session->status = STATUS_PARTIAL;
    }
    forget_counts(&counted);
}
