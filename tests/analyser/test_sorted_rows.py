"""test_sorted_rows - --sort-by and --top of every command that prints rows, against the rows as the command writes them."""

import csv
import io
import json
import re
import subprocess

import pytest

from conftest import ROOT

TABLE = (ROOT / 'analysis' / 'commands.def').read_text()
ROWS = {name: (keys.replace('"\n        "', ''), refuses) for name, keys, takes, refuses in re.findall(
    r'^COMMAND\("([^"]+)",[^"]*"[^"]*",\s*"((?:[^"]|"\s+")*)",\s*([^;]*?)"([^"]*)"\)$', TABLE, re.M)
    if re.search(r'\bROWS\b', takes)}
SORTED = [name for name, (_, refuses) in ROWS.items() if '--sort-by' not in refuses and name != 'ops']  # ops: test_ops.py
ARGUMENTS = {'patterns': ['--operator', 'a'], 'memory': ['--layout', 'process']}


def ask(tfanalyze, command, inputs, *options, rc=(0, 3)):
    inputs = inputs[:1] * 2 if command == 'diff' else inputs
    result = subprocess.run([tfanalyze, *command.split(), *ARGUMENTS.get(command, ()), *options, *inputs], capture_output=True, text=True)
    assert result.returncode in rc, result.stderr
    return result


def order(row, key):
    """Numbers from the largest, texts from A to Z by their bytes, then what is unknown."""
    value = row[key]
    if isinstance(value, str):
        return (0, value.encode())
    known = isinstance(value, (int, float))
    return (0 if known else 1, -value if known else 0)


def test_the_commands_are_found():
    assert len(SORTED) > 20 and len(ROWS) == len(re.findall(r'\bROWS \|', TABLE)), ROWS.keys()


@pytest.mark.parametrize('command', SORTED)
def test_rows_are_sorted_by_each_key(tfanalyze, shared_traces, command):
    """Of the rows that have a text or a number there; equal rows stay in the order of the command."""
    inputs = sorted((shared_traces / 'dlrm8').glob('worker[0-2]*.json.gz'))
    plain = ask(tfanalyze, command, inputs, '--format', 'json', rc=(0, 1, 3)).stdout
    if not plain:  # nothing of this kind is in these traces
        return
    rows = json.loads(plain)['rows']
    for key in rows[0] if rows else ():
        if any(isinstance(r[key], (list, dict)) for r in rows):
            continue
        found = json.loads(ask(tfanalyze, command, inputs, '--sort-by', key, '--format', 'json').stdout)['rows']
        assert found == sorted(rows, key=lambda r: order(r, key)), key


def test_formats_agree_and_top_counts_the_sorted_rows(tfanalyze, shared_traces):
    inputs = sorted((shared_traces / 'dlrm8').glob('worker[0-2]*.json.gz'))
    sort = ('--sort-by', 'max_us', '--top', '5')
    rows = json.loads(ask(tfanalyze, 'breakdown', inputs, *sort, '--format', 'json').stdout)['rows']
    every = json.loads(ask(tfanalyze, 'breakdown', inputs, '--format', 'json').stdout)['rows']
    assert [r['max_us'] for r in rows] == sorted((r['max_us'] for r in every), reverse=True)[:5]
    table = list(csv.DictReader(io.StringIO(ask(tfanalyze, 'breakdown', inputs, *sort, '--format', 'csv').stdout)))
    assert [float(r['max_us']) for r in table] == [r['max_us'] for r in rows]
    head, *lines = ask(tfanalyze, 'breakdown', inputs, *sort).stdout.splitlines()
    assert head.startswith('stage') and lines[5].startswith('total: ') and len(lines) == 6
    assert all(row['name'] in line for row, line in zip(rows, lines))
    times = [r['time_us'] for r in json.loads(ask(tfanalyze, 'dump', inputs, '--format', 'json').stdout)['rows']]
    found = json.loads(ask(tfanalyze, 'dump', inputs, '--sort-by', 'time_us', '--top', '4', '--format', 'json').stdout)['rows']
    assert [r['time_us'] for r in found] == sorted(times, reverse=True)[:4]


def test_a_key_that_the_rows_lack(tfanalyze, shared_traces):
    """Nothing is printed; the message names the nearest key, and each question that lacks it."""
    inputs = sorted((shared_traces / 'dlrm8').glob('worker0*.json.gz'))
    wrong = ask(tfanalyze, 'kinds', inputs, '--sort-by', 'totl_us', rc=(2,))
    assert not wrong.stdout and wrong.stderr == (
        'tfanalyze: --sort-by: rows of kinds have no key totl_us; did you mean total_us; they have kind,total_us,pct\n')
    wrong = ask(tfanalyze, 'timeline,kinds', inputs, '--sort-by', 'busy_us', '--format', 'json', rc=(2,))
    assert not wrong.stdout and 'rows of kinds have no key busy_us' in wrong.stderr and 'rows of timeline' not in wrong.stderr
    both = json.loads(ask(tfanalyze, 'budget,timeline', inputs, '--sort-by', 'busy_us', '--format', 'json').stdout)
    assert both[0]['rows'] and both[1]['rows']  # budget takes no order and keeps its own
