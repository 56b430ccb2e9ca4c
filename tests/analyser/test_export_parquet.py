"""test_export_parquet - `tfanalyze export parquet`, read by three packages of PyPI, equals the answers of the commands."""

import re
import statistics
from collections import Counter, defaultdict

import duckdb
import fastparquet
import pandas
import pyarrow.parquet
import pytest

import comm_traces
import kineto
from optrace import Long, Mixed, OpTrace
from test_device_records import US, ticks
from tfr import rec


TABLES = ['kernels', 'operators', 'stages', 'collectives', 'samples']
GROUP = 122880


@pytest.fixture
def export(analyze, tmp_path):
    """export(*arguments) -> the directory of the tables."""
    def export(*arguments, rc=0):
        directory = tmp_path / 'tables'
        said = analyze('export', 'parquet', *arguments, '--output', directory, rc=rc, format=None)
        assert said.out.split() == [str(directory / f'{name}.parquet') for name in TABLES]
        return directory
    return export


def plain(values):
    return [None if pandas.isna(v) else v for v in values]


def rows(directory, name):
    """The rows of a table as dicts; three readers agree on each value."""
    path = directory / f'{name}.parquet'
    table = pyarrow.parquet.read_table(path)
    columns = {c: table[c].to_pylist() for c in table.schema.names}
    with duckdb.connect() as connection:
        result = connection.execute('SELECT * FROM read_parquet(?)', [str(path)])
        assert [d[0] for d in result.description] == list(columns)
        assert result.fetchall() == list(zip(*columns.values()))
    other = fastparquet.ParquetFile(str(path)).to_pandas()
    for c, values in columns.items():
        assert plain(other[c]) == values, c
    return table.to_pylist()


def summed(found, *keys, value='duration_ns', where=lambda row: True):
    """Count and sum in whole nanoseconds, by the keys."""
    sums = defaultdict(lambda: [0, 0])
    for row in found:
        if where(row):
            of = sums[tuple(row[k] for k in keys)]
            of[0] += 1
            of[1] += row[value] or 0
    return {key: tuple(v) for key, v in sums.items()}


def ns(us):
    return round(us * 1000)


def agree(analyze, directory, *arguments):
    """The sums of the tables are those of the commands."""
    kernels = rows(directory, 'kernels')
    expected = {(r['rank'], r['stage'], r['name']): (r['calls'], ns(r['total_us'])) for r in analyze('breakdown', *arguments, rc=None)['rows']}
    assert summed(kernels, 'rank', 'stage', 'name', where=lambda r: r['category'] == 'kernel') == expected
    expected = {(r['rank'], r['kind']): (r['count'], ns(r['total_us']), r['bytes'] or 0) for r in analyze('bandwidth', *arguments, rc=None)['rows']}
    copies = [r | {'name': r['name'].split(' (')[0]} for r in kernels if r['category'] != 'kernel']
    times, sizes = summed(copies, 'rank', 'name'), summed(copies, 'rank', 'name', value='bytes')
    assert {key: (*times[key], sizes[key][1]) for key in times} == expected
    stages = summed(rows(directory, 'stages'), 'rank', 'stage')
    expected = {(r['rank'], r['stage']): r for r in analyze('stages', *arguments, rc=None)['rows'] if r['calls']}
    expected = {k: r for k, r in expected.items() if k[1] not in ('(run)', '(start-up)')}  # these are no events
    assert {k: v[0] for k, v in stages.items()} == {k: r['calls'] for k, r in expected.items()}
    assert all(v[1] >= ns(expected[k]['wall_us']) for k, v in stages.items())  # `wall_us` counts a call in one of its name once
    collectives = summed(rows(directory, 'collectives'), 'name', value='bytes_in')
    expected = Counter()
    for r in analyze('comm', *arguments, rc=None)['rows']:
        expected[r['name']] += r['ranks']
    assert {k[0]: v[0] for k, v in collectives.items()} == expected
    samples, totals = rows(directory, 'samples'), analyze('hotspots', *arguments, rc=None)['totals']
    assert sum(r['samples'] for r in samples) == totals['samples']
    assert sum(r['wall_ns'] for r in samples) == ns(totals['wall_us'])
    return kernels, stages, collectives, samples


def operators_agree(analyze, directory, *arguments):
    """Calls and times of operators are those of `ops`, which joins an operator with an only one of its name inside it, as torch."""
    expected = {r['name']: (r['calls'], ns(r['cpu_total_us'])) for r in analyze('ops', *arguments)['rows']}
    found = {k[0]: v for k, v in summed(rows(directory, 'operators'), 'name').items()}
    different = {name for name in found if expected[name] != found[name]}
    assert found and all(found[name][0] > expected[name][0] for name in different) and len(different) < len(found) / 4
    return found


@pytest.mark.parametrize('name', ['hta/trace_filter', 'dlrm8'])
def test_real_traces(analyze, export, shared_traces, name):
    directory = export(shared_traces / name)
    kernels, stages, collectives, _ = agree(analyze, directory, shared_traces / name)
    assert kernels and stages and collectives
    found, events = operators_agree(analyze, directory, shared_traces / name), defaultdict(lambda: (0, 0))
    for path in (shared_traces / name).glob('*.json*'):
        for e in kineto.read(path)['traceEvents']:
            if e['ph'] == 'X' and e.get('cat', '') in ('cpu_op', 'Operator'):
                events[e['name']] = events[e['name']][0] + 1, events[e['name']][1] + ns(e['dur'])
    assert found == events


@pytest.mark.parametrize('kind', [Mixed, Long])
def test_a_trace_of_ours(analyze, export, tmp_path, kind):
    """Operators in memory and in the file; samples with and without a stack; stages in pieces; replays of no graph."""
    trace = kind()
    for i in range(40):
        stack = trace.w.stack(('leaf', 'a.py', i % 3), ('main', 'a.py', 9)) if i % 5 else 0
        trace.later_on(3, rec('sample', tid=101 + i % 2, time=ticks(70 * i * US), duration=ticks(60 * US), cpu=i * US, stack=stack,
                              call=i % 4, looks=1 + i % 3))
    path = trace.devices().write(tmp_path / 'run')
    directory = export(path)
    assert all(agree(analyze, directory, path))
    operators_agree(analyze, directory, path)


def test_filters(analyze, export, shared_traces):
    for options in (['--rank', '3'], ['--stage', '*forward*'], ['--stream', '7']):
        arguments = [*options, shared_traces / 'dlrm8']
        directory = export(*arguments)
        found = summed(rows(directory, 'kernels'), 'rank', 'name', where=lambda r: r['category'] == 'kernel')
        expected = Counter()
        for r in analyze('breakdown', *arguments)['rows']:
            expected[r['rank'], r['name']] += r['calls']
        assert {k: v[0] for k, v in found.items()} == expected and expected


def test_a_job(analyze, export, tmp_path):
    paths, _ = comm_traces.job(tmp_path, sequences=True)
    assert agree(analyze, export(*paths), *paths)[2]


@pytest.mark.slow
def test_groups_of_rows(analyze, export, tmp_path):
    """More rows than a group, nulls between values, names that are no UTF-8: equal inputs give equal bytes."""
    t = OpTrace()
    for i in range(GROUP + 9):
        t.op(f'op{i % 300}' if i % 7 else b'op\xff\0', 10 * i, 10 * i + i % 5)
    t.w.chunk(t.records, thread=1, tid=101)
    records = t.later[1]
    for at in range(0, len(records), 4096):
        t.w.chunk(records[at:at + 4096], thread=1, tid=101)
    t.w.footer()
    path = t.w.save(tmp_path / 'rank0.h.1.tfr')
    directory = export(path)
    found = rows(directory, 'operators')
    assert len(found) == GROUP + 9 and 'op\ufffd\0' in {r['name'] for r in found}
    assert pyarrow.parquet.ParquetFile(directory / 'operators.parquet').num_row_groups == 2
    before = {p.name: p.read_bytes() for p in directory.iterdir()}
    export('-j', '1', path)
    assert {p.name: p.read_bytes() for p in directory.iterdir()} == before


def test_nothing_matches(analyze, shared_traces, tmp_path):
    said = analyze('export', 'parquet', '--stage', 'never', shared_traces / 'hta/trace_filter', '--output', tmp_path / 'x', rc=1, format=None)
    assert 'nothing matches --stage never' in said.err and not list((tmp_path / 'x').iterdir())


# ---- the queries of `help recipes` ----

@pytest.fixture
def queries(analyze):
    text = analyze('help', 'recipes', format=None).out
    return re.findall(r'^    SELECT .*?;$', text, re.MULTILINE | re.DOTALL)


def test_recipes(queries, export, shared_traces):
    """Each query gives what plain Python computes from the rows."""
    directory = export(shared_traces / 'dlrm8')
    slower, slowest, waits = (duckdb.sql(q.replace('run/tables', str(directory))).fetchall() for q in queries)
    kernels, stages = rows(directory, 'kernels'), rows(directory, 'stages')
    assert slower and slowest and waits

    groups = defaultdict(lambda: ([], [], [], []))
    for rank in {r['rank'] for r in kernels}:
        of = sorted((r for r in kernels if r['rank'] == rank), key=lambda r: r['start_ns'])
        size, more = divmod(len(of), 4)
        ends = [size * (i + 1) + min(i + 1, more) for i in range(4)]
        for i, r in enumerate(of):
            if r['category'] == 'kernel':
                groups[rank, r['name']][next(q for q, end in enumerate(ends) if i < end)].append(r['duration_ns'])
    expected = {key: (sum(map(len, g)), statistics.mean(g[3]) / statistics.mean(g[0])) for key, g in groups.items() if min(len(g[0]), len(g[3])) >= 10}
    assert {(r, n): (calls, pytest.approx(by)) for r, n, calls, by in slower} == expected

    by_stage = defaultdict(list)
    for r in stages:
        by_stage[r['stage']].append((r['duration_ns'], -r['start_ns']))
    for stage, calls, median, p999, start in slowest:
        values = sorted(by_stage.pop(stage))
        assert (calls, -values[-1][1]) == (len(values), start)
        assert p999 * 1e6 == pytest.approx(values[-1][0]) and values[0][0] <= round(median * 1e6) <= values[-1][0]
    assert not by_stage

    by_operator = defaultdict(list)
    for r in kernels:
        if r['launch_ns'] is not None and r['operator'] is not None:
            by_operator[r['operator']].append(r['start_ns'] - r['launch_ns'])
    assert {op: (count, pytest.approx(wait)) for op, count, wait, _ in waits} == {op: (len(v), statistics.median(v) / 1000) for op, v in by_operator.items()}
