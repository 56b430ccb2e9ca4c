/* frames.c - reads call stacks, splits frames, and puts them in display order.
 *
 * The library records native frames between Python frames, under their symbol names. A model has the Python frames
 * first, as torch's stacks do, and omits the frames that frame_folds.def names.
 *
 * A stack of a file is one flat list of frames and cannot contain another stack, so damage cannot make it longer than
 * TFI_STACK_FRAMES.
 */
#include "model/frames.h"

#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"
#include "pattern.h"
#include "read/json/json.h"

/* ---- in a model ---- */

uint32_t stack_add(struct names *names, const uint32_t *frame, size_t count)
{
    return count ? names_add(names, (const char *)frame, count * sizeof *frame) : NAME_NONE;
}

size_t stack_depth(const struct names *names, uint32_t stack)
{
    return names_get(names, stack)->length / sizeof(uint32_t);
}

uint32_t stack_frame(const struct names *names, uint32_t stack, size_t i)
{
    uint32_t frame;
    memcpy(&frame, names_get(names, stack)->text + i * sizeof frame, sizeof frame);
    return frame;
}

int stack_order(const struct names *names, uint32_t a, uint32_t b)
{
    size_t depth_a = stack_depth(names, a), depth_b = stack_depth(names, b);
    if (a == b) return 0;
    for (size_t i = 0; i < MIN(depth_a, depth_b); i++) {
        int order = names_order(names, stack_frame(names, a, i), stack_frame(names, b, i));
        if (order) return order;
    }
    return (depth_a > depth_b) - (depth_a < depth_b);
}

void stack_line(const struct names *names, uint32_t stack, struct text *line)
{
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        text_puts(line, i ? ";" : "");
        frame_text(names_get(names, stack_frame(names, stack, i)), line);
    }
}

/* ---- a frame ---- */

bool frame_parse(struct frame *frame, const char *text, size_t length)
{
    const char *end = text + length, *file = memchr(text, '\t', length);
    const char *line = file ? memchr(file + 1, '\t', (size_t)(end - file - 1)) : NULL;
    if (!line) return false;
    *frame = (struct frame){text, file + 1, line + 1, (size_t)(file - text), (size_t)(line - file - 1)};
    return true;
}

/* Tells native frames apart: line 0 and a path, or no path for code compiled at run time. A Python module may have
 * line 0 too. */
static bool is_native(const struct frame *frame)
{
    bool is_source = frame->file_length >= 3 && memcmp(frame->file + frame->file_length - 3, ".py", 3) == 0;
    return frame->line[0] == '0' && !frame->line[1] && !is_source && (!frame->file_length || frame->file[0] != '<');
}

/* Returns the file name without its directory. */
static struct slice object_of(const struct frame *frame)
{
    const char *slash = memrchr(frame->file, '/', frame->file_length);
    const char *base = slash ? slash + 1 : frame->file;
    return (struct slice){base, (size_t)(frame->file + frame->file_length - base)};
}

void frame_text(const struct name *name, struct text *text)
{
    struct frame frame;
    bool good = frame_parse(&frame, name->text, name->length);
    if (good && is_native(&frame)) {
        struct slice object = object_of(&frame);
        text_add(text, object.at, object.length);
        text_puts(text, object.length ? ": " : "");
        text_add(text, frame.function, frame.function_length);
    } else if (good) {
        text_add(text, frame.file, frame.file_length);
        text_format(text, "(%s): ", frame.line);
        text_add(text, frame.function, frame.function_length);
    } else {
        text_add(text, name->text, name->length);
    }
}

bool frame_take_apart(struct slice frame, struct slice *file, struct slice *line, struct slice *function)
{
    static const char mark[] = "): ";
    const char *close = memmem(frame.at, frame.length, mark, sizeof mark - 1), *open = close;
    if (!close) return false;
    while (open > frame.at && open[-1] >= '0' && open[-1] <= '9') open--;
    if (open == close || close - open > 9 || open == frame.at || open[-1] != '(') return false;
    *file = (struct slice){frame.at, (size_t)(open - 1 - frame.at)};
    *line = (struct slice){open, (size_t)(close - open)};
    *function = (struct slice){close + 3, frame.length - (size_t)(close + 3 - frame.at)};
    return function->length > 0;
}

/* ---- in a file ---- */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses a list such as "1f 2a 3"; returns false for anything else. */
static bool parse_list(const struct string *string, struct stack_list *list)
{
    const char *at = string->text, *end = at + string->length;
    while (at < end && list->count < TFI_STACK_FRAMES) {
        const char *start = at;
        uint32_t number = 0;
        for (; at < end && digit(*at) >= 0 && at - start < 8; at++) number = number << 4 | (uint32_t)digit(*at);
        if (at == start || (at < end && (*at != ' ' || at + 1 == end))) return false;
        list->frame[list->count++] = number;
        at += at < end;
    }
    return list->count && at == end;
}

bool stack_read(const struct strings *strings, uint64_t id, struct stack_list *list)
{
    const struct string *string = strings_get(strings, id);
    struct frame parts;
    bool good = true;
    list->count = 0;
    if (!string || !parse_list(string, list)) {
        list->frame[0] = TFI_STRING_LOST;
        list->count = 1;
        return id == TFI_STRING_LOST;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct string *frame = strings_get(strings, list->frame[i]);
        if (list->frame[i] != TFI_STRING_LOST && (!frame || !frame_parse(&parts, frame->text, frame->length))) {
            list->frame[i] = TFI_STRING_LOST;
            good = false;
        }
    }
    return good;
}

bool stack_lines(const struct strings *strings, uint64_t id, struct text *text)
{
    struct stack_list list;
    bool good = stack_read(strings, id, &list);
    for (size_t i = 0; i < list.count; i++) {
        const struct string *frame = strings_get(strings, list.frame[i]);
        text_puts(text, i ? "\n" : "");
        text_add(text, frame ? frame->text : "(lost)", frame ? frame->length : strlen("(lost)"));
    }
    return good;
}

/* ---- display form ---- */

enum shown { SHOWN_PYTHON, SHOWN_NATIVE, FOLDED_UNDER_PYTHON, FOLDED_ALWAYS };

struct shown_frame {
    uint32_t name;
    enum shown shown;
};

#define UNDER_PYTHON FOLDED_UNDER_PYTHON
#define ALWAYS FOLDED_ALWAYS
#define FOLD(object, function, when, why) {object, function, when},
static const struct {
    const char *object, *function;
    enum shown when;
} folds[] = {
#include "model/frame_folds.def"
};
#undef FOLD
#undef ALWAYS
#undef UNDER_PYTHON

static enum shown find_fold(struct slice object, const char *function, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(folds); i++)
        if (tfi_glob(folds[i].object, object.at, object.length, false) &&
            tfi_glob(folds[i].function, function, length, false))
            return folds[i].when;
    return SHOWN_NATIVE;
}

/* Without a symbol name the library records the address. */
static bool is_nameless(const struct frame *frame)
{
    return frame->function_length > 2 && memcmp(frame->function, "0x", 2) == 0;
}

/* Appends the demangled name of a function, without template arguments and parameters. */
static void native_function(const struct frame *frame, struct text *text)
{
    struct left_outs left = {0};
    char *name = mem_text(frame->function, frame->function_length), *whole = demangled_name(name);
    short_name(whole ? whole : name, text, &left);
    free(left.item);
    free(whole);
    free(name);
}

/* A nameless frame becomes `library+0x1f` with an empty file. */
static struct shown_frame show_native(const struct frame *frame, struct names *names)
{
    struct slice object = object_of(frame);
    struct shown_frame shown;
    struct text text = {0};
    if (is_nameless(frame)) {
        shown.shown = find_fold(object, "", 0);
        text_add(&text, object.at, object.length);
        text_puts(&text, object.length ? "+" : "");
        text_add(&text, frame->function, frame->function_length);
        text_puts(&text, "\t\t0");
    } else {
        native_function(frame, &text);
        shown.shown = find_fold(object, text.data, text.length);
        text_puts(&text, "\t");
        text_add(&text, frame->file, frame->file_length);
        text_puts(&text, "\t0");
    }
    shown.name = names_add(names, text.data, text.length);
    text_free(&text);
    return shown;
}

static const struct shown_frame *show(struct shown_frames *shown, struct strings *strings, struct names *names,
                                      uint32_t id)
{
    uint32_t place = map_number(&shown->place, id);
    if (place == shown->count) {
        const struct string *string = strings_get(strings, id);
        struct frame frame;
        shown->frame = mem_grow(shown->frame, &shown->capacity, shown->count + 1, sizeof *shown->frame);
        bool native = string && frame_parse(&frame, string->text, string->length) && is_native(&frame);
        shown->frame[shown->count++] =
            native ? show_native(&frame, names) : (struct shown_frame){strings_name(strings, names, id), SHOWN_PYTHON};
    }
    return &shown->frame[place];
}

uint32_t stack_shown(struct shown_frames *shown, struct strings *strings, struct names *names,
                     const struct stack_list *list)
{
    struct shown_frame all[TFI_STACK_FRAMES];
    uint32_t frame[TFI_STACK_FRAMES];
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        all[i] = *show(shown, strings, names, list->frame[i]);
        if (all[i].shown == SHOWN_PYTHON) frame[count++] = all[i].name;
    }
    enum shown folded = count ? FOLDED_UNDER_PYTHON : FOLDED_ALWAYS;
    for (size_t i = 0; i < list->count; i++)
        if (all[i].shown != SHOWN_PYTHON && all[i].shown < folded) frame[count++] = all[i].name;
    for (size_t i = 0; !count && i < list->count; i++) frame[i] = all[i].name;
    return stack_add(names, frame, count ? count : list->count);
}

void shown_frames_free(struct shown_frames *shown)
{
    map_free(&shown->place);
    free(shown->frame);
}
