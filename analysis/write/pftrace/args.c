/* args.c - encodes the arguments of events as debug annotations, and interns texts.
 *
 * Integers keep 64 bits. Lists and objects become nested annotations; below DEPTH_MOST they stay JSON text, so no file
 * can exhaust the stack. Texts that repeat are written once a sequence, up to INTERNED_MOST bytes of them, so that
 * texts which never repeat do not fill the memory.
 */
#include "write/pftrace/parts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/escape.h"
#include "base/hash.h"

enum { DEPTH_MOST = 6, INTERNED_MOST = 2 << 20, PACKET_BYTES = 1 << 16 };

/* ---- texts ---- */

/* Returns the text as valid UTF-8. */
static struct slice valid_text(struct pf *pf, const char *text, size_t length)
{
    pf->utf8.length = 0;
    text_utf8(&pf->utf8, text, length);
    return (struct slice){pf->utf8.length ? pf->utf8.data : "", pf->utf8.length};
}

/* Returns the number of a text. Most texts repeat soon, so the number that was last asked for at the same place is tried
 * first: that costs a tenth of a look-up. */
static uint32_t number_of(struct pf *pf, const char *text, size_t length)
{
    uint64_t first = 0, last = 0;
    if (length >= sizeof first) memcpy(&last, text + length - sizeof last, sizeof last);
    memcpy(&first, text, MIN(length, sizeof first));
    uint32_t *recent = &pf->recent[hash_numbers(first, last + length) % ARRAY_SIZE(pf->recent)];
    const struct name *name = names_get(&pf->texts, *recent);
    if (name->length == length && memcmp(name->text, text, length) == 0) return *recent;
    struct slice good = {text, length};
    if (!is_ascii(text, length)) good = valid_text(pf, text, length);
    return *recent = names_add(&pf->texts, good.at, good.length);
}

uint64_t pf_intern(struct pf *pf, enum pf_space space, const char *text, size_t length)
{
    uint32_t number = number_of(pf, text, length);
    if (number >= pf->spaces_capacity) {
        size_t before = pf->spaces_capacity;
        pf->spaces = mem_grow(pf->spaces, &pf->spaces_capacity, number + 1, 1);
        memset(pf->spaces + before, 0, pf->spaces_capacity - before);
    }
    if (space == SPACE_STRING && !(pf->spaces[number] & space))
        pf->interned += names_get(&pf->texts, number)->length + 1;
    pf->spaces[number] |= (uint8_t)space;
    return (uint64_t)number + 1;
}

/* Resolves the escapes of a JSON string; `text` is without its quotes. */
static struct slice unescaped(struct pf *pf, struct slice text)
{
    if (!text.length) return (struct slice){"", 0};
    if (!memchr(text.at, '\\', text.length)) return text;
    pf->plain.data = mem_grow(pf->plain.data, &pf->plain.capacity, text.length + 1, 1);
    return (struct slice){pf->plain.data, json_unescape(pf->plain.data, text.at, text.length)};
}

static void put_text(struct pf *pf, struct slice text)
{
    if (pf->interned < INTERNED_MOST) {
        proto_uint(&pf->event, ANNOTATION_STRING_IID, pf_intern(pf, SPACE_STRING, text.at, text.length));
    } else {
        struct slice good = valid_text(pf, text.at, text.length);
        proto_bytes(&pf->event, ANNOTATION_STRING, good.at, good.length);
    }
}

/* ---- values ---- */

static void put_double(struct pf *pf, struct slice value)
{
    char digits[400];
    size_t length = MIN(value.length, sizeof digits - 1);
    memcpy(digits, value.at, length);
    digits[length] = 0;
    proto_double(&pf->event, ANNOTATION_DOUBLE, strtod(digits, NULL));
}

/* Writes a number, or a word: true, false, NaN, Infinity. null has no value. */
static void put_number(struct pf *pf, struct slice value)
{
    struct number number;
    const char *end = json_number(value.at, 0, &number);
    if (slice_is(value, "true") || slice_is(value, "false")) {
        proto_uint(&pf->event, ANNOTATION_BOOL, *value.at == 't');
    } else if (number.state == NUMBER_GOOD && !number.is_float && end == value.at + value.length &&
               (!number.negative || number.magnitude <= (uint64_t)INT64_MAX + 1)) {
        uint64_t bits = number.negative ? 0 - number.magnitude : number.magnitude;
        bool is_signed = number.negative || bits <= INT64_MAX;
        proto_uint(&pf->event, is_signed ? ANNOTATION_INT : ANNOTATION_UINT, bits);
    } else if (!slice_is(value, "null")) {
        put_double(pf, value);
    }
}

static void put_value(struct pf *pf, struct slice value, unsigned depth);

static void put_members(struct pf *pf, struct slice value, unsigned depth)
{
    bool list = *value.at == '[';
    struct slice key, member;
    while (json_next(&value, &key, &member)) {
        size_t place = proto_open(&pf->event, list ? ANNOTATION_ARRAY_VALUES : ANNOTATION_DICT_ENTRIES);
        if (!list) {
            struct slice name = unescaped(pf, key);
            proto_uint(&pf->event, ANNOTATION_NAME_IID, pf_intern(pf, SPACE_KEY, name.at, name.length));
        }
        put_value(pf, member, depth + 1);
        proto_close(&pf->event, place);
    }
}

static void put_value(struct pf *pf, struct slice value, unsigned depth)
{
    if (!value.length) return;
    if (*value.at == '"') {
        struct slice inside = {value.at + 1, value.length > 1 ? value.length - 2 : 0};
        put_text(pf, unescaped(pf, inside));
    } else if ((*value.at == '[' || *value.at == '{') && depth < DEPTH_MOST) {
        put_members(pf, value, depth);
    } else if (*value.at == '[' || *value.at == '{') {
        put_text(pf, value);
    } else {
        put_number(pf, value);
    }
}

static void put_scalar(struct pf *pf, const struct value *value)
{
    char hex[24];
    int64_t whole;
    if (value->kind == VALUE_TEXT) {
        put_text(pf, value->text);
    } else if (value->kind == VALUE_HEX) {
        int length = snprintf(hex, sizeof hex, "0x%llx", (unsigned long long)value->count);
        put_text(pf, (struct slice){hex, (size_t)length});
    } else if (value->kind == VALUE_BOOL) {
        proto_uint(&pf->event, ANNOTATION_BOOL, value->count);
    } else if (value_int(value, &whole)) {
        proto_uint(&pf->event, ANNOTATION_INT, (uint64_t)whole);
    } else if (value->kind == VALUE_COUNT) {
        proto_uint(&pf->event, ANNOTATION_UINT, value->count);
    } else if (value->kind != VALUE_NULL) {
        proto_double(&pf->event, ANNOTATION_DOUBLE, value_real(value));
    }
}

/* Encodes an argument as an annotation. Returns the number of values of which it consists. */
static size_t put_argument(struct pf *pf, const struct value *value, unsigned field, unsigned depth)
{
    size_t count = 1, place = proto_open(&pf->event, field);
    if (field != ANNOTATION_ARRAY_VALUES) {
        struct slice key = value->is_written ? unescaped(pf, value->key) : value->key;
        proto_uint(&pf->event, ANNOTATION_NAME_IID, pf_intern(pf, SPACE_KEY, key.at, key.length));
    }
    if (value->kind == VALUE_JSON) {
        put_value(pf, value->text, depth);
    } else if (value->kind == VALUE_OBJECT || value->kind == VALUE_LIST) {
        unsigned within = value->kind == VALUE_LIST ? ANNOTATION_ARRAY_VALUES : ANNOTATION_DICT_ENTRIES;
        while (value[count].kind != VALUE_END) count += put_argument(pf, &value[count], within, depth + 1);
        count++;
    } else {
        put_scalar(pf, value);
    }
    proto_close(&pf->event, place);
    return count;
}

void pf_put_args(struct pf *pf, const struct event *event)
{
    for (size_t i = 0; i < event->arguments;) i += put_argument(pf, &event->argument[i], EVENT_ANNOTATIONS, 0);
}

/* ---- interned texts ---- */

static void write_some(struct pf *pf, struct proto *texts)
{
    struct proto packet = {0};
    proto_uint(&packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_NEEDS_STATE);
    proto_bytes(&packet, PACKET_INTERNED_DATA, texts->data, texts->length);
    pf_write_packet(pf, &packet);
    free(packet.data);
    texts->length = 0;
}

void pf_write_texts(struct pf *pf)
{
    static const struct {
        enum pf_space space;
        unsigned field;
    } tables[] = {{SPACE_CATEGORY, INTERNED_CATEGORIES},
                  {SPACE_NAME, INTERNED_NAMES},
                  {SPACE_KEY, INTERNED_ANNOTATION_NAMES},
                  {SPACE_STRING, INTERNED_STRINGS}};
    struct proto texts = {0};
    for (size_t i = 0; i < pf->texts.count && i < pf->spaces_capacity; i++) {
        for (size_t k = 0; k < ARRAY_SIZE(tables); k++) {
            if (!(pf->spaces[i] & tables[k].space)) continue;
            const struct name *text = names_get(&pf->texts, (uint32_t)i);
            size_t place = proto_open(&texts, tables[k].field);
            proto_uint(&texts, INTERNED_IID, i + 1);
            proto_bytes(&texts, INTERNED_TEXT, text->text, text->length);
            proto_close(&texts, place);
            if (texts.length > PACKET_BYTES) write_some(pf, &texts);
        }
    }
    if (texts.length) write_some(pf, &texts);
    free(texts.data);
}
