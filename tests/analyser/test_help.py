"""test_help - tfanalyze help: every topic and command prints its facts and is a man page too; its checks find mistakes.

tests/data/help_facts.txt lists the facts of each topic: names of tables' rows, variables, files, limits.
"""

import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

TOPICS = sorted(p.stem for p in (ROOT / 'analysis/help').glob('*.txt'))
COMMANDS = re.findall(r'^COMMAND\("([^"]+)"', (ROOT / 'analysis/commands.def').read_text(), re.M)
PROMISED = ['variables', 'schedule', 'files', 'hooks', 'records', 'losses', 'rules', 'stages', 'recipes', 'limits', 'troubleshooting',
            'terms', 'coming-from', 'agents']


@pytest.fixture
def show(tfanalyze):
    def show(*words, rc=0):
        result = execute([tfanalyze, *words], clean_environment())
        assert result.rc == rc, (words, result.err)
        return result.err if rc else result.out
    return show


def words_of(text):
    return ' '.join(text.split())


def test_every_page_prints(show):
    for name in TOPICS + COMMANDS:
        text = show('help', *name.split())
        assert text.startswith(f'{name} - ') and text.endswith('\n'), name
        assert not [line for line in text.splitlines() if len(line) > 79 or line.startswith(('[table', '[end'))], name


def test_the_list_has_every_page(show):
    text = show('help')
    listed = re.findall(r'^  (\S+(?: \S+)*)  +\S', text, re.M)
    assert max(map(len, text.splitlines())) <= 79
    assert listed == TOPICS + COMMANDS
    assert set(PROMISED) <= set(TOPICS)


def test_a_name_of_both_prints_both(show):
    both, command = show('help', 'stages'), show('stages', '--help')
    assert both.endswith('\n\n' + command) and both.startswith('stages - what a stage is')
    assert show('help', 'export', 'chrome') == show('help', 'export chrome') == show('export', 'chrome', '--help')
    assert show('--help') == show('help', 'tfanalyze')


@pytest.mark.parametrize('words, meant', [(['varables'], 'variables'), (['brekdown'], 'breakdown'), (['export', 'chrom'], 'export chrome'),
                                          (['zebra'], None)])
def test_unknown_topics(show, words, meant):
    said = show('help', *words, rc=2)
    hint = f'; did you mean {meant}' if meant else ''
    assert said.startswith(f'tfanalyze: there is no topic {" ".join(words)}{hint}; `tfanalyze help` ') and said.count('\n') == 1


def test_nothing_is_forgotten(show):
    pages, missing = {}, []
    for line in (ROOT / 'tests/data/help_facts.txt').read_text().splitlines():
        topic, _, fact = line.partition(': ')
        if line.startswith('#'):
            continue
        if topic not in pages:
            pages[topic] = words_of(show('help', *topic.split()))
        if words_of(fact) not in pages[topic]:
            missing.append(line)
    assert len(pages) > 20 and not missing


def test_examples_are_commands(show):
    """Every command in a page's code exists and takes the options shown."""
    seen = 0
    for name in TOPICS + COMMANDS:
        text = show('help', *name.split()).replace('\\\n', '')
        for line in re.findall(r'^ {4,}tfanalyze (.*)', text, re.M):
            asked = line.split('|')[0].split()
            if asked[0] in ('COMMAND', 'COMMAND,COMMAND...', 'help', 'DIR', 'INPUT...'):  # the last two: the first screen
                continue
            command = next((c for c in COMMANDS if asked[:len(c.split())] == c.split()), asked[0].split(',')[0])
            assert command in COMMANDS, (name, line)
            known = show('help', *command.split())
            for option in re.findall(r'(--[a-z-]+)', line):
                assert re.search(rf'^(-\w, )?{option}\b', known, re.M), (name, line, option)
            seen += 1
    assert seen >= len(COMMANDS) - 1


@pytest.mark.parametrize('topic', TOPICS)
def test_man_pages(topic):
    """groff accepts every page without a warning, and man shows its name and a section."""
    page = built(BUILD / 'man' / {'tfanalyze': 'tfanalyze.1', 'tfrun': 'tfrun.1', 'tfinject': 'tfinject.7'}.get(topic, f'tfinject-{topic}.7'))
    environment = {**clean_environment(), 'LC_ALL': 'C.UTF-8', 'MANWIDTH': '80', 'MAN_KEEP_FORMATTING': '', 'MANROFFOPT': ''}
    result = execute(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', page], environment)
    assert (result.rc, result.err) == (0, '')
    shown = execute(['man', '-E', 'UTF-8', '-l', page], {**environment, 'MANPAGER': 'cat', 'PAGER': 'cat'})
    text = re.sub('.\b', '', shown.out)
    assert shown.rc == 0 and 'NAME' in text and page.stem in text and 'SEE ALSO' in text


# ---- the checks of gen-tables ----

@pytest.fixture
def tree(tmp_path):
    """A copy of the files that scripts/gen-tables reads."""
    for pattern in ('README.md', 'scripts/gen-tables', 'scripts/help_pages.py', 'scripts/tfrun', 'include/*.def',
                    'preload/*.def', 'preload/*/*.def', 'tests/dummy.def', 'tests/data/torch_versions.csv', 'analysis/*.def', 'analysis/advise/*.def', 'analysis/advise/*/*.def', 'analysis/help/*.txt',
                    'analysis/help/commands/**/*.txt'):
        for path in ROOT.glob(pattern):
            copy = tmp_path / path.relative_to(ROOT)
            os.makedirs(copy.parent, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path


def gen_tables(tree, *command):
    result = subprocess.run([tree / 'scripts/gen-tables', *command], capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


EDITS = [
    ('analysis/help/files.txt', 'The default run directory', 'x' * 60 + ' the default run directory', 'columns, at most 79'),
    ('analysis/help/rules.txt', 'KINDS OF WORK', 'KINDS \u2013 OF WORK', 'outside ASCII'),
    ('analysis/help/schedule.txt', 'schedule - how', 'plan - how', 'does not begin with "schedule - '),
    ('analysis/help/stages.txt', '\nA stage is', '\n  A stage is', 'neither text, list, terms nor code'),
    ('analysis/help/commands/device/overlap.txt', 'overlap_us\n', 'overlap_ms\n', 'KEYS OF A ROW must explain'),
    ('scripts/tfrun', 'TFI_LOG\n', 'TFI_LGO\n', '+    [--log]=TFI_LOG\n'),
    ('analysis/commands.def', 'GROUP("what changed?")', 'GROUP("what is new?")', '+| what is new? | `diff`'),
    ('README.md', ' `api` ', ' `ipa` ', '--- README.md'),
]


@pytest.mark.slow
def test_checks_fail(tree):
    """Each kind of mistake is named; malformed pages come first, because they stop the other checks."""
    for part in (EDITS[4:], EDITS[:4]):
        for path, old, new, _ in part:
            edit(tree / path, old, new)
        rc, out = gen_tables(tree, 'check')
        assert rc == 1 and not [said for *_, said in part if said not in out], out


@pytest.mark.slow
def test_checks_of_files(tree):
    """The copied tree passes; a command without a page and a page without a command do not. An old man page goes."""
    assert gen_tables(tree, 'check') == (0, '')
    (tree / 'man').mkdir()
    (tree / 'man/tfinject-old.7').write_text('x')
    assert gen_tables(tree, 'man', tree / 'man') == (0, '') and {p.stem for p in (tree / 'man').iterdir()} >= {'tfanalyze', 'tfinject-files'}
    assert not (tree / 'man/tfinject-old.7').exists()
    (tree / 'analysis/help/commands/old.txt').write_text('old - x\n\nx\n')
    rc, out = gen_tables(tree, 'check')
    assert rc == 1 and 'old.txt: analysis/commands.def has no such command' in out
    (tree / 'analysis/help/commands/old.txt').unlink()
    assert gen_tables(tree, 'write')[0] == 0 and gen_tables(tree, 'check') == (0, '')
    (tree / 'analysis/help/commands/device/overlap.txt').unlink()
    rc, out = gen_tables(tree, 'check')
    assert rc == 1 and 'overlap.txt is missing' in out
