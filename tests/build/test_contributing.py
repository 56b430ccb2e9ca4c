"""test_contributing - scripts/CONTRIBUTING.md's example of a question, word for word, in a copy of the built tree."""

import json
import re
import shutil
import subprocess
import textwrap

import pytest

from conftest import ROOT
from growth_shapes import event, kineto, launch
from test_mutations import Tree

pytestmark = pytest.mark.slow


def test_the_example_answers(tmp_path):
    """One row of commands.def, one file and one page make the command, and the filters hold for it."""
    text = (ROOT / 'scripts/CONTRIBUTING.md').read_text().split('## Add a question', 1)[1]
    row, source = (textwrap.dedent(block) for block in re.findall(r'\n\n((?: {7}.*\n|\n)+)', text)[:2])
    assert row.startswith('COMMAND("longest"') and source.startswith('/* longest.c')
    (tmp_path / 'tree').mkdir()
    tree = Tree(tmp_path / 'tree')
    table, pages = tree.root / 'analysis/commands.def', tree.root / 'analysis/help/commands/device'
    table.write_text(table.read_text() + row)
    (tree.root / 'analysis/commands/device/longest.c').write_text(source)
    page = re.sub('(?s)KEYS OF A ROW.*?OPTIONS', 'KEYS OF A ROW\n\nrank, pid, name\n    of the kernel\ntime_us\n    how long it ran\n\nOPTIONS',
                  (pages / 'overlap.txt').read_text())
    (pages / 'longest.txt').write_text(page)
    assert 'analysis/commands/device/longest.c' in tree.build()
    events = [event('user_annotation', name, at, 100) for name, at in (('a', 0), ('b', 200))]
    trace = kineto(tmp_path, [*events, *launch(1, 10, kernel='short', time=5), *launch(2, 210, kernel='long', time=9)])

    def longest(*words):
        done = subprocess.run([tree.root / 'build/tfanalyze', 'longest', trace, '--format', 'json', *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [(row['name'], row['time_us']) for row in json.loads(done.stdout)['rows']]

    assert (longest(), longest('--stage', 'a'), longest('--to', '0.0001')) == ([('long', 9)], [('short', 5)], [('short', 5)])
    shutil.rmtree(tree.root)
