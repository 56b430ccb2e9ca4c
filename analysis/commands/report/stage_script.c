/* stage_script.c - writes profile_{stage}.py.
 *
 * The script holds what a person edits: the description of the inputs, and two functions that may change them and the
 * object that runs. All else is in scripts/tfharness.py, which the script imports. A checksum in the head detects
 * edits: an edited script is not overwritten.
 */
#include "commands/report/stage_script.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/report/python_value.h"
#include "crc.h"
#include "write/stage_files.h"

enum { MOST_LINES = 90 }; /* of the description; a script has at most 150 */

static const char head[] =
    "#!/usr/bin/env python3\n"
    "\"\"\"profile_%1$s.py - runs the stage %1$s alone, with inputs like the recorded ones, and profiles it.\n"
    "\n"
    "    python profile_%1$s.py --help\n"
    "\n"
    "The inputs have random values. Edit SIGNATURE for other shapes and settings, values() if the values matter, and\n"
    "build() if the object of the stage must be made first. The script needs torch, the modules of the stage, and\n"
    "tfharness.py of tfinject, which it finds by PYTHONPATH or PATH: in scripts/ of the checkout, or bin/ of an\n"
    "installation.\n"
    "\"\"\"\n";

static const char mark[] = "# tfinject overwrites this file as long as it is not edited; checksum ";

static const char begin[] =
    "import os\n"
    "import sys\n"
    "\n"
    "if __name__ == '__main__' and sys.path[:1] == [os.path.dirname(os.path.abspath(__file__))]:\n"
    "    del sys.path[0]  # no file beside the script is imported\n"
    "import shutil\n"
    "\n"
    "try:\n"
    "    import tfharness\n"
    "except ImportError:\n"
    "    found = shutil.which('tfharness.py')\n"
    "    if not found:\n"
    "        sys.exit(f'{os.path.basename(__file__)}: tfharness.py is not found: add scripts/ of the checkout of "
    "tfinject, '\n"
    "                 'or bin/ of its installation, to PYTHONPATH or PATH')\n"
    "    sys.path.append(os.path.dirname(found))\n"
    "    import tfharness\n"
    "from tfharness import tensor\n"
    "\n"
    "SIGNATURE = ";

static const char end[] =
    "\n"
    "\n"
    "\n"
    "def build(device=None, trust=False):\n"
    "    \"\"\"Returns the function or object to run. Edit this if its object must be made first.\"\"\"\n"
    "    return tfharness.target_of(SIGNATURE, device, trust)\n"
    "\n"
    "\n"
    "def values(inputs):\n"
    "    \"\"\"Returns the inputs by name. Edit this if their values matter, such as image tokens and sizes.\"\"\"\n"
    "    return inputs\n"
    "\n"
    "\n"
    "script = tfharness.Script(SIGNATURE, build, values)\n"
    "create_inputs, run_single_step, profile_stage = script.create_inputs, script.run_single_step, "
    "script.profile_stage\n"
    "\n"
    "if __name__ == '__main__':\n"
    "    script.main()\n";

/* Writes the members of the signature that tell how to make the inputs and the object again. */
static void put_signature(struct text *to, const struct report *report, const struct stage_signature *s)
{
    struct text whole = {0}, part = {0};
    text_puts(&whole, "{");
    signature_put(&whole, report, s);
    text_puts(&whole, "}");
    struct slice rest = json_padded(&whole), key, value;
    while (json_next(&rest, &key, &value)) {
        bool is_of_use = slice_is(key, "stage_name") || slice_is(key, "target") || slice_is(key, "object") ||
                         slice_is(key, "input_signatures") || slice_is(key, "recorded");
        if (!is_of_use) continue;
        text_format(&part, "%c\"%.*s\": ", part.length ? ',' : '{', (int)key.length, key.at);
        text_add(&part, value.at, value.length);
    }
    text_puts(&part, "}");
    python_value(to, json_padded(&part), MOST_LINES);
    text_free(&whole);
    text_free(&part);
}

void stage_script(struct text *to, const struct report *report, const struct stage_signature *s)
{
    const struct name *stage = names_get(&report->session->model.names, s->stage);
    struct text body = {0};
    char *clean = stage_clean_name(stage->text, stage->length);
    text_puts(&body, begin);
    put_signature(&body, report, s);
    text_puts(&body, end);
    text_format(to, head, clean);
    text_format(to, "%s%08x\n", mark, tfi_crc(0, body.data, body.length));
    text_add(to, body.data, body.length);
    text_free(&body);
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
    bool whole = body && tfi_crc(0, body + 1, length - (size_t)(body + 1 - text)) ==
                             (uint32_t)strtoul(line + sizeof mark - 1, NULL, 16);
    close(fd);
    free(text);
    return whole;
}
