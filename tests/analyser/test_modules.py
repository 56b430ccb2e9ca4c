"""test_modules - `ops --group-by modules` of PyTorch traces and of ours, against sums over the events as they were written."""

import json
import random
from collections import defaultdict

import pytest

from optrace import OpTrace

MODULES = ['TOP(A)::forward.', 'TOP(A)::forward.b(B)::forward.', 'TOP()::<forward op>.SELF(A)::helper.', 'é "quoted" \\ \n.', None]
NAMES = ['aten::add', 'aten::mul', 'aten::copy_', 'forward']


def events(seed, threads=2, count=60):
    """(thread, start, end, name, modules): operators with operators inside them, none with an only child of its name."""
    rng, found = random.Random(seed), []
    for thread in range(1, threads + 1):
        time = 1000
        for i in range(count):
            inside = rng.randrange(0, 4)
            outer = NAMES[i % len(NAMES)]
            found.append((thread, time, time + 100 + 100 * inside, outer, rng.choice(MODULES)))
            for k in range(inside):
                name = next(n for n in NAMES[k:] + NAMES[:k] if n != outer)
                found.append((thread, time + 50 + 100 * k, time + 90 + 100 * k + rng.randrange(50), name, rng.choice(MODULES)))
            time += 700
    return found


def sums(found):
    """{(name, modules): [calls, own time, time]} in nanoseconds."""
    rows = defaultdict(lambda: [0, 0, 0])
    for thread, start, end, name, modules in found:
        children = sum(e - s for t, s, e, *_ in found if t == thread and start <= s and e <= end and (s, e) != (start, end))
        row = rows[name, modules]
        row[0] += 1
        row[1] += end - start - children
        row[2] += end - start
    return dict(rows)


def answered(answer):
    rows = {(r['name'], r['modules']): [r['calls'], round(r['self_cpu_us'] * 1000), round(r['cpu_total_us'] * 1000)]
            for r in answer['rows'] if r['name'] != '[memory]'}
    assert len(rows) == len([r for r in answer['rows'] if r['name'] != '[memory]'])
    return rows


def without_modules(rows):
    found = defaultdict(lambda: [0, 0, 0])
    for (name, _), row in rows.items():
        found[name, None] = [a + b for a, b in zip(found[name, None], row)]
    return dict(found)


def kineto(path, found):
    """Writes the trace as torch does: no argument outside TorchScript, where an older release wrote an empty one."""
    def args(i, modules):
        return {'External id': i, **({'Module Hierarchy': modules} if modules else {} if i % 2 else {'Module Hierarchy': ''})}
    rows = [{'ph': 'X', 'cat': 'cpu_op', 'name': name, 'pid': 1, 'tid': thread, 'ts': start / 1000, 'dur': (end - start) / 1000,
             'args': args(i, modules)} for i, (thread, start, end, name, modules) in enumerate(found)]
    path.write_text(json.dumps({'schemaVersion': 1, 'traceEvents': rows}))
    return path


def tfr(path, found):
    trace = OpTrace()
    for thread, start, end, name, modules in found:
        trace.op(name, start, end, thread, modules=modules)
    trace.save(path)
    return path


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('write', [kineto, tfr])
def test_rows_by_modules(analyze, tmp_path, write, seed):
    found = events(seed)
    path = write(tmp_path / ('a.json' if write is kineto else 'a.tfr'), found)
    expected = sums(found)
    assert len(expected) > 15
    assert answered(analyze('ops', '--group-by', 'name,modules', path)) == expected
    assert answered(analyze('ops', path)) == without_modules(expected)
    both = analyze('ops', '--group-by', 'modules,shapes', path)['rows']
    assert {(r['name'], r['modules']) for r in both} == expected.keys() and all(r['shapes'] == '[]' for r in both)


@pytest.mark.parametrize('write', [kineto, tfr])
def test_a_stage_filter_keeps_the_modules(analyze, tmp_path, write):
    """With a filter the operators are held in memory instead of read in passing; the rows stay the same."""
    found = events(7)
    path = write(tmp_path / ('a.json' if write is kineto else 'a.tfr'), found)
    expected = sums(found)
    assert answered(analyze('ops', '--group-by', 'name,modules', '--from', '0', path)) == expected


def test_the_table_has_a_column(analyze, tmp_path):
    path = kineto(tmp_path / 'a.json', [(1, 0, 1000, 'aten::add', 'TOP(A)::forward.'), (1, 2000, 4000, 'aten::mul', 'TOP(A)::' + 'x' * 90 + 'end.'),
                                        (1, 5000, 9000, 'aten::mul', None)])
    lines = analyze('ops', '--group-by', 'name,modules', path, format=None).out.splitlines()
    assert lines[1].rstrip().endswith('Module Hierarchy')
    assert [line.split()[-1] for line in lines[3:6]] == ['TOP(A)::forward.', '...' + ('x' * 90 + 'end.')[-77:], '1']
    assert 'Module Hierarchy' not in analyze('ops', path, format=None).out


def test_csv(analyze, tmp_path):
    path = kineto(tmp_path / 'a.json', [(1, 0, 1000, 'aten::add', 'TOP(A)::forward.')])
    head, row = analyze('ops', '--group-by', 'name,modules', '--format', 'csv', path, format=None).out.splitlines()[:2]
    assert dict(zip(head.split(','), row.split(',')))['modules'] == 'TOP(A)::forward.'
