"""help_pages.py - finds the pages of `tfanalyze help` in analysis/help, checks their form, and turns them into man pages.

A page is plain text, which a terminal shows unchanged:

    name - what it explains           the first line, then an empty one; gen-tables writes both for a command
    A HEADING                         one line without lower-case letters
    text                              a paragraph, from column 0, at most 79 columns
    - text                            an item of a list; its further lines have an indent of 2
    term                              a term; the lines directly below it
        its meaning                   have an indent of 4
        code                          a separate block with an indent of 4, shown unchanged
    `word`                            a word to type; bold in a man page
    [table NAME]                      a line in whose place the build puts a table (scripts/gen-tables)

An empty line ends each of these blocks. Pages are ASCII.
"""

import glob
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = 'analysis/help'
WIDTH = 79
SECTIONS = {'tfanalyze': '1', 'tfrun': '1', 'tfinject': '7'}  # man pages that have the name of their page


def topics():
    """Returns {name: path} of the topics, sorted by name."""
    paths = sorted(glob.glob(os.path.join(ROOT, FOLDER, '*.txt')))
    return {os.path.basename(p)[:-len('.txt')]: os.path.relpath(p, ROOT) for p in paths}


def command_path(name):
    """Returns the path of a command's page, in the folder where its source lies: `export chrome` is in export/chrome.txt,
    and `report` in report.txt although there is an ncu/report.txt."""
    path = f'{FOLDER}/commands/{name.replace(" ", "/")}.txt'
    found = glob.glob(os.path.join(ROOT, f'{FOLDER}/commands/**/{name.replace(" ", "/")}.txt'), recursive=True)
    return os.path.relpath(min(found, key=lambda found: (found.count('/'), found)), ROOT) if found else path


# ---- the form ----

def is_heading(block):
    return len(block) == 1 and not block[0].startswith(' ') and bool(re.search('[A-Z]{2}', block[0])) and block[0].upper() == block[0]


def blocks(text):
    """Yields (kind, lines) below the title: heading, paragraph, list, terms or code; ValueError for any other form."""
    for raw in re.split(r'\n{2,}', text.strip('\n'))[1:]:
        lines = raw.split('\n')
        if all(line.startswith('    ') for line in lines):
            yield 'code', [line[4:] for line in lines]
        elif is_heading(lines):
            yield 'heading', lines
        elif lines[0].startswith('- '):
            if not all(re.match(r'- \S|  \S', line) for line in lines):
                raise ValueError(f'"{lines[0]}" begins a list; each line of a list begins with "- " or two blanks')
            yield 'list', lines
        elif len(lines) > 1 and lines[1].startswith('    '):
            if not all(re.match(r'\S| {4}\S', line) for line in lines):
                raise ValueError(f'"{lines[0]}" begins terms; the lines of a meaning have an indent of 4')
            yield 'terms', lines
        elif all(re.match(r'\S', line) for line in lines):
            yield 'paragraph', lines
        else:
            raise ValueError(f'"{lines[0].strip()}" begins a block that is neither text, list, terms nor code')


def terms(text, heading):
    """Returns the terms below a heading. Terms that share a meaning are separate entries."""
    below, found = False, []
    for kind, lines in blocks(text):
        if kind == 'heading':
            below = lines[0] == heading
        elif below and kind == 'terms':
            found += [term for line in lines if not line.startswith(' ') for term in line.split(', ')]
    return found


def faults(path, text, name):
    """Returns a message for each fault in the form of a page."""
    lines = text.splitlines()
    bad = [f'{path}: {len(line)} columns, at most {WIDTH}: {line}' for line in lines if len(line) > WIDTH]
    bad += [f'{path}: {what}: {line}' for line in lines
            for what, found in (('a blank at the end', line != line.rstrip()), ('a tab', '\t' in line),
                                ('a character outside ASCII', not line.isascii()), ('no table of this form', line.startswith('[table'))) if found]
    if not re.match(rf'{re.escape(name)} - \S.*\n\n.', text):
        bad.append(f'{path}: the page does not begin with "{name} - what it explains" and an empty line')
    if not text.endswith('\n') or text.endswith('\n\n') or '\n\n\n' in text:
        bad.append(f'{path}: the page has two empty lines in a row, or ends without a line feed')
    try:
        list(blocks(text))
    except ValueError as e:
        bad.append(f'{path}: {e}')
    return bad


# ---- man pages ----

def roff(lines):
    """Escapes lines for groff, so that none is a request, and makes each `word` bold."""
    text = '\n'.join(lines).replace('\\', '\\e').replace('-', '\\-').replace('^', '\\(ha').replace('~', '\\(ti')
    text = re.sub(r'`([^`]*)`', r'\\fB\1\\fR', text).replace('`', '\\(ga')
    return re.sub(r"^(?=[.'])", r'\\&', text, flags=re.M).split('\n')


def verbatim(lines):
    return '\n'.join(roff(line.replace('`', '\0') for line in lines)).replace('\0', '\\(ga').split('\n')


def gathered(lines, begins):
    """Returns [(line, its further lines)] for each line for which `begins` is true."""
    out = []
    for line in lines:
        if begins(line):
            out.append((line, []))
        else:
            out[-1][1].append(line.strip())
    return out


def body(text, heading):
    """Returns the blocks of a page as groff source; `heading` turns a heading into lines."""
    out = []
    for kind, lines in blocks(text):
        if kind == 'heading':
            out += heading(lines[0])
        elif kind == 'paragraph':
            out += ['.PP', *roff(lines)]
        elif kind == 'code':
            out += ['.PP', '.RS 4', '.nf', *verbatim(lines), '.fi', '.RE']
        elif kind == 'list':
            for first, rest in gathered(lines, lambda line: line.startswith('- ')):
                out += ['.IP \\(bu 2', *roff([first[2:], *rest])]
        else:
            for first, rest in gathered(lines, lambda line: not line.startswith(' ')):
                out += ['.TP', *bold_line(first.replace('`', '')), *roff(rest)]
    return out


def section(title):
    return [f'.SH {roff([title])[0]}']


def bold_line(text):
    return [f'\\fB{roff([text])[0]}\\fR']


def bold(title):
    return ['.PP', *bold_line(title)]


def man_name(topic):
    return topic if topic in SECTIONS else f'tfinject-{topic}'


def man_page(topic, text, others, commands=()):
    """Returns a topic as a man page; `commands` are the pages of commands that the page of tfanalyze includes."""
    name, number = man_name(topic), SECTIONS.get(topic, '7')
    says = text.split('\n', 1)[0].partition(' - ')[2]
    out = ['.\\" Written by scripts/gen-tables from analysis/help.', f'.TH {name.upper()} {number} "" tfinject tfinject', '.ad l', '.nh',
           *section('NAME'), f'{roff([name])[0]} \\- {roff([says])[0]}', *([] if text_begins_with_heading(text) else section('DESCRIPTION')),
           *body(text, section)]
    if commands:
        out += section('COMMANDS')
    for page in commands:
        out += [f'.SS {roff([page.split(chr(10), 1)[0]])[0]}', *body(page, bold)]
    also = [f'.BR {roff([man_name(t)])[0]} ({SECTIONS.get(t, "7")})' for t in others if t != topic]
    return '\n'.join([*out, *section('SEE ALSO'), *(f'{line},' for line in also[:-1]), *also[-1:], ''])


def text_begins_with_heading(text):
    return next(blocks(text))[0] == 'heading'


def man_pages(all_topics, commands):
    """Returns {file name: text} of all man pages, from {topic: text} and the texts of the commands."""
    return {f'{man_name(t)}.{SECTIONS.get(t, "7")}': man_page(t, text, all_topics, commands if t == 'tfanalyze' else ())
            for t, text in all_topics.items()}
