/* signatures.c - writes a report's files about stages that are functions: timing_io_signature.json in TeleFuser's
 * format, and for each stage a script that runs it alone.
 */
#include <stdlib.h>

#include "commands/report/signature.h"
#include "commands/report/stage_script.h"
#include "write/stage_files.h"

static bool write_text(struct report *report, const char *path, const struct text *text)
{
    struct out out;
    bool good = report_open(report, &out, path, FILE_PRIVATE);
    out_write(&out, text->data, text->length);
    return report_finish(report, &out, path) && good;
}

static bool write_file(struct report *report, const char *directory, const struct stage_signature *found, size_t count)
{
    struct out out;
    char *path = report_path(report, directory, "timing", "_io_signature.json");
    bool good = report_open(report, &out, path, FILE_PRIVATE);
    out_puts(&out, "{\n  " REPORT_WRITER ",\n");
    report_put_moment(&out, report);
    out_puts(&out, "  \"stages\": {");
    for (size_t i = 0; i < count; i++) {
        const struct name *stage = names_get(&report->session->model.names, found[i].stage);
        struct text text = {0};
        text_puts(&text, i ? ",\n    " : "\n    ");
        put_json_string(&text, stage->text, stage->length);
        text_puts(&text, ": {\n      ");
        signature_put(&text, report, &found[i]);
        text_puts(&text, "\n    }");
        out_write(&out, text.data, text.length);
        text_free(&text);
    }
    out_puts(&out, "\n  }\n}\n");
    good = report_finish(report, &out, path) && good;
    free(path);
    return good;
}

static bool write_script(struct report *report, struct stage_files *files, const char *directory,
                         const struct stage_signature *signature)
{
    const struct name *stage = names_get(&report->session->model.names, signature->stage);
    struct text text = {0};
    char *path = NULL;
    do {
        free(path);
        path = stage_file_named(files, directory, "profile_", stage->text, stage->length, ".py");
    } while (!report_may_take_script(report, path));
    stage_script(&text, report, signature);
    bool good = write_text(report, path, &text);
    text_free(&text);
    free(path);
    return good;
}

bool report_write_signatures(struct report *report, const char *directory)
{
    size_t count;
    struct stage_signature *found = signatures_find(report, &count);
    struct stage_files files = {0};
    bool good = !count || write_file(report, directory, found, count);
    for (size_t i = 0; i < count && good; i++) good = write_script(report, &files, directory, &found[i]);
    stage_files_free(&files);
    free(found);
    return good;
}
