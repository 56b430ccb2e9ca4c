/* stage_script.c - writes profile_{stage}.py.
 *
 * The script's code is the stand-alone part of scripts/tfharness.py, whose text is linked in unchanged. So tfanalyze
 * and tfharness write the same script. This file adds the surrounding text and the stage's arguments.
 * A checksum in the head detects edits: an edited script is not overwritten.
 */
#include "commands/report/stage_script.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crc.h"
#include "write/stage_files.h"

/* The text of scripts/tfharness.py. The path is relative to the directory that make runs in. */
__asm__(".section .rodata\n"
        "harness_text:\n"
        ".incbin \"scripts/tfharness.py\"\n"
        "harness_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char harness_text[], harness_end[];

static const char mark[] = "# tfinject overwrites this file as long as it is not edited; checksum ";

/* Copies the harness's lines between a line that begins with `begin` and one that begins with `end`, both excluded. */
static void put_part(struct text *to, const char *begin, const char *end)
{
    const char *from = strstr(harness_text, begin), *line = from ? strchr(from, '\n') : NULL;
    const char *until = line ? strstr(line, end) : NULL;
    if (until) text_add(to, line + 1, (size_t)(until - line - 1));
}

/* Copies a template of the harness, with each placeholder in `from` replaced by its text in `with`. */
static void put_form(struct text *to, const char *begin, const char *const from[], const struct text with[],
                     size_t count)
{
    const char *p = strstr(harness_text, begin), *end = p ? strstr(p + strlen(begin), "'''\n") : NULL;
    for (p = p ? p + strlen(begin) : NULL; p && p < end;) {
        size_t i = 0;
        while (i < count && strncmp(p, from[i], strlen(from[i])) != 0) i++;
        if (i < count) {
            text_add(to, with[i].data ? with[i].data : "", with[i].length);
            p += strlen(from[i]);
        } else {
            p += *p == '\\' && p[1] == '\'';
            text_add(to, p++, 1);
        }
    }
}

/* Writes {"stage", "signature"} in a form that fits into a raw triple-quoted string. */
static void put_data(struct text *to, const struct report *report, const struct stage_signature *s)
{
    const struct name *stage = names_get(&report->session->model.names, s->stage);
    struct text data = {0};
    text_puts(&data, "{\n  \"stage\": ");
    put_json_string(&data, stage->text, stage->length);
    text_puts(&data, ",\n  \"signature\": {\n      ");
    signature_put(&data, report, s);
    text_puts(&data, "\n    }\n}");
    for (size_t i = 0; i < data.length; i++)
        if (data.data[i] == '\'') text_puts(to, "\\u0027");
        else text_add(to, data.data + i, 1);
    text_free(&data);
}

static uint32_t checksum(const char *text, size_t length)
{
    return tfi_crc(0, text, length);
}

void stage_script(struct text *to, const struct report *report, const struct stage_signature *s)
{
    static const char *const names[] = {"{name}"}, *const parts[] = {"{data}", "{code}"};
    const struct name *stage = names_get(&report->session->model.names, s->stage);
    struct text name = {0}, body = {0}, with[2] = {{0}};
    char *clean = stage_clean_name(stage->text, stage->length);
    text_puts(&name, clean);
    put_form(to, "FORM = '''", names, &name, 1);
    put_data(&with[0], report, s);
    put_part(&with[1], "# ---- stand-alone", "# ---- end of the stand-alone part");
    put_form(&body, "BODY = '''", parts, with, 2);
    text_format(to, "%s%08x\n", mark, checksum(body.data, body.length));
    text_add(to, body.data, body.length);
    text_free(&name);
    text_free(&body);
    text_free(&with[0]);
    text_free(&with[1]);
    free(clean);
}

bool stage_script_may_go(int fd)
{
    enum { MOST = 4 << 20 };
    char *text = mem_zero(MOST + 1, 1);
    size_t length = 0;
    ssize_t n;
    while (length < MOST && (n = read(fd, text + length, MOST - length)) > 0) length += (size_t)n;
    const char *line = strstr(text, mark), *body = line ? strchr(line, '\n') : NULL;
    bool whole = body && checksum(body + 1, length - (size_t)(body + 1 - text)) ==
                             (uint32_t)strtoul(line + sizeof mark - 1, NULL, 16);
    close(fd);
    free(text);
    return whole;
}
