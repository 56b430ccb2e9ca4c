"""test_first_screen - `tfanalyze INPUT`: the numbers are those of budget, advise and stages, in 40 lines of 100 columns.

Also what is said of mistakes: commands and options of other tools, and stages that match nothing.
"""

import json
import re

import pytest

import kineto
import optrace
from conftest import ROOT, clean_environment, execute

RANKS = 'hta/trace_filter'
LOADER = 'kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz'
QWEN = 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
CPU = 'hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz'


def ask(tfanalyze, *words, rc=0):
    result = execute([tfanalyze, *words], clean_environment(), ROOT)
    assert result.rc in (rc if isinstance(rc, tuple) else (rc,)), result.err
    return result


def screen(tfanalyze, path):
    lines = ask(tfanalyze, path, rc=(0, 3)).out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    parts, part = {'run': []}, 'run'
    for line in filter(None, lines):
        head = re.match(r'(where the time went|what to change|stages|not judged)', line)
        part = head[1] if head else part
        parts.setdefault(part, []).append(line)
    return parts


@pytest.mark.parametrize('name', [RANKS, LOADER, QWEN, CPU])
def test_numbers_are_those_of_the_questions(tfanalyze, shared_traces, name):
    path = shared_traces / name
    budget, advice, stages = json.loads(ask(tfanalyze, 'budget,advise,stages', path, '--format', 'json', rc=(0, 3)).out)
    parts = screen(tfanalyze, path)
    ranks = len({row['rank'] for row in budget['rows']})
    leaves = {}
    for row in budget['rows']:
        leaves.setdefault(row['leaf'], []).append(row['us'] / 1000)
    shown = {leaf: line for line in parts['where the time went'][2:] for leaf in leaves if f' {leaf} ' in line}
    assert len(shown) >= min(2, len(leaves))
    for leaf, line in shown.items():
        numbers = [float(n) for n in re.findall(r'\d+\.\d{3}', line)]
        assert numbers[0] == pytest.approx(sum(leaves[leaf]) / ranks, abs=0.001)
        assert ranks == 1 or numbers[1:] == pytest.approx([min(leaves[leaf] + [0] * (ranks - len(leaves[leaf]))), max(leaves[leaf])], abs=0.001)
    serious = [row['id'] for row in advice['rows'] if row['severity'] != 'note']
    said = re.findall(r'^  \d  ([\w-]+)(?:, rank \d+)?(?:, up to ([\d.]+) ms)?: ', '\n'.join(parts['what to change']), re.M)
    assert [one for one, _ in said][:len(serious)] == serious
    gains = [row['headroom_us'] / 1000 for row in advice['rows'] if row['severity'] != 'note']
    assert [float(gain or 0) for _, gain in said][:len(serious)] == pytest.approx(gains, abs=0.001)
    done = {}
    for row in stages['rows']:
        done[row['stage']] = done.get(row['stage'], 0) + (row['done_us'] or 0) / 1000
    for line in parts.get('stages', [])[2:]:
        numbers, stage = re.findall(r'\d+\.\d{3}', line), line.rstrip().rsplit('  ', 1)[1].strip()
        if stage in done:
            assert float(numbers[0]) == pytest.approx(done[stage], abs=0.001)
    assert len(parts['not judged']) >= 2


@pytest.mark.parametrize('device', [False, True], ids=['host', 'device'])
def test_our_own_traces(tfanalyze, tmp_path, device):
    parts = screen(tfanalyze, optrace.job(tmp_path / 'job', device))
    assert parts['where the time went'] and parts['what to change'] and parts['stages']


def test_the_tree(tfanalyze, tmp_path):
    """A stage stands below the one around it."""
    t = kineto.Trace()
    t.stage('outer', 0, 900).stage('middle', 100, 500).stage('inner', 200, 100).stage('inner', 400, 100).stage('beside', 700, 100)
    path = t.launch('gemm', 210, 10).write(tmp_path / 'in.json')
    tree = [line[35:] for line in screen(tfanalyze, path)['stages'][2:]]
    assert [(len(line) - len(line.lstrip()), line.strip()) for line in tree] == [(2, 'outer'), (4, 'middle'), (6, 'inner'), (4, 'beside')]


def test_a_stage_without_a_name(tfanalyze, tmp_path):
    """It has its row, below others too, and the others stay where they are."""
    t = kineto.Trace()
    t.stage('', 0, 900).stage('inner', 100, 500).stage('beside', 2000, 300).stage('', 2100, 100)
    path = t.launch('gemm', 210, 10).write(tmp_path / 'in.json')
    rows = [line[35:].strip() for line in screen(tfanalyze, path)['stages'][2:]]
    assert sorted(rows) == ['(no name)', 'beside', 'inner']


def test_three_lines(tfanalyze, tmp_path):
    """--brief has at most three lines, and no advice where a run was shorter than ten milliseconds."""
    brief = []
    for name, us in (('short', 9900), ('long', 10100)):
        path = kineto.Trace().stage('all', 0, us).launch('gemm', 210, 10).write(tmp_path / f'{name}.json')
        brief.append(ask(tfanalyze, 'screen', '--brief', path).out.splitlines())
    assert brief[0] == ['9.900 ms: too short to say what to change']
    assert 2 <= len(brief[1]) <= 3 and 'not judged: ' in brief[1][-1]


@pytest.mark.parametrize('words, meant', [
    (['sumary', 'x.json'], 'screen'), (['summary', 'x.json'], 'screen'), (['advice', 'x'], 'advise'), (['export', 'perfetto', 'x.json'], 'export pftrace'),
    (['stages', '--json', 'x.json'], '--format json'), (['stages', '-n', '3', 'x.json'], '--top N'), (['stages', '--from', '5s', 'x.json'], 'without a unit'),
    (['kernels', 'x'], 'breakdown'), (['stags', 'x'], 'stages'), (['breakdown', '--stag', 'y', 'x.json'], '--stage'),
])
def test_mistakes_have_an_answer(tfanalyze, words, meant):
    said = ask(tfanalyze, *words, rc=2)
    assert meant in said.err and said.err.count('\n') == 1


def test_an_unknown_stage_has_a_near_one(tfanalyze, tmp_path):
    path = kineto.Trace().stage('forward', 0, 100).launch('gemm', 10, 1).write(tmp_path / 'in.json')
    said = ask(tfanalyze, 'stages', '--stage', 'forwrd', path, rc=1)
    assert 'did you mean --stage forward?' in said.err
    assert 'did you mean' not in ask(tfanalyze, 'stages', '--stage', 'zebra*', path, rc=1).err


def test_what_is_no_command_and_no_input(tfanalyze, tmp_path):
    assert 'there is no command nothing' in ask(tfanalyze, 'nothing', rc=2).err
    assert 'cannot be read' in ask(tfanalyze, tmp_path / 'nothing', rc=1).err
