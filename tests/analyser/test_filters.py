"""test_filters - every filter of every command: the answer equals an independent filter's, or a refusal says why.

The tests filter the JSON of real traces themselves (tests/kineto.py). tests/analyser/test_device_export.py asks the
same of a .tfr trace and of its export.
"""

import json
import re
import subprocess
from collections import Counter
from functools import lru_cache

import pytest

import kineto
import kineto_parts
from conftest import ROOT
from test_device_export import pipeline
from test_device_records import AHEAD, START, US
from optrace import OpTrace
from test_kineto import exact, ns

TABLE = (ROOT / 'analysis' / 'commands.def').read_text()
REFUSES = dict(re.findall(r'^COMMAND\("([^"]+)".*?"([^"]*)"\)$', TABLE, re.M | re.S))  # the last column, by command
COMMANDS = [command for command in REFUSES if command not in ('help', 'mcp')]  # these take no filters
NEEDS = {'patterns': ['--operator', 'x']}  # options without which a command has no question
FILTERS = {'--rank': '0', '--pid': '1', '--stage': 'x', '--step': '1', '--cycle': '0', '--device': '0', '--stream': '7',
           '--from': '0', '--to': '1', '--top': '1', '--names': 'short'}


def refusals():
    """{(command, filter): reason of the refusal}, from the last column of commands.def."""
    found = {}
    assert len(REFUSES) == len(re.findall(r'^COMMAND\(', TABLE, re.M))
    for command, refuses in REFUSES.items():
        for clause in filter(None, refuses.split('; ')):
            options, why = clause.split(': ')
            found.update({(command, option): why for option in options.split()})
    return found


@pytest.mark.parametrize('command', COMMANDS)
def test_a_filter_works_or_says_why_it_has_no_meaning(tfanalyze, tmp_path, command):
    """Help lists a filter exactly if the command takes it; a refusal is a usage error with the table's reason."""
    listed = subprocess.run([tfanalyze, *command.split(), '--help'], capture_output=True, text=True).stdout
    for option, value in FILTERS.items():
        result = subprocess.run([tfanalyze, *command.split(), *NEEDS.get(command, ()), option, value, *[tmp_path / 'nothing'] * (1 + (command == 'diff'))], capture_output=True, text=True)
        why = refusals().get((command, option))
        assert bool(re.search(f'^{option} ', listed, re.M)) == (why is None), option
        if why:
            assert result.returncode == 2 and result.stderr == f'tfanalyze: {command} {why}: {option} has no meaning\n'
        else:
            assert result.returncode == 1 and 'nothing: can' in result.stderr, result.stderr
    assert not {(c, o) for c, o in refusals() if o in ('--rank', '--pid')}


# ---- real traces ----

TRACES = ['hta/trace_filter/sampled_rank-0.json.gz', 'hta/nccl_parser_config/nccl_data.json.gz',
          'kineto_tb/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz']


@lru_cache(maxsize=1)
def document_of(path):
    return kineto.read(path)


class Trace:
    def __init__(self, path):
        self.path, self.document = path, document_of(path)
        self.found = kineto.tables(self.document)
        self.works = kineto.belongings(self.document)
        self.launched = {id(work): call for work, call in kineto.launches(self.found)}
        self.calls = self.found['api']
        self.launches = {}
        for work, call in kineto.launches(self.found):
            self.launches.setdefault(id(call), []).append(work)
        self.steps = {s.name.split('#')[1]: s for s in self.found['annotation'] if s.name.startswith('ProfilerStep#')}
        self.stages = sorted({kineto.collapsed(s.name) for s in self.found['annotation']})

    @property
    @lru_cache(maxsize=1)
    def stages_of_calls(self):
        """{id of a call: names of its thread's open stages, or those of the only thread with open stages}."""
        points = {(c.thread, c.start) for c in self.calls}
        own = kineto.opened(self.found['annotation'], points)
        threads = {s.thread for s in self.found['annotation']}
        answer = {}
        for c in self.calls:
            chain = own[c.thread, c.start]
            if not chain:
                busy = [kineto.opened([s for s in self.found['annotation'] if s.thread == t], {(t, c.start)})[t, c.start]
                        for t in threads]
                busy = [b for b in busy if b]
                chain = busy[0] if len(busy) == 1 else []
            answer[id(c)] = {kineto.collapsed(s.name) for s in chain} or {kineto.NONE}
        return answer

    def choices(self):
        """[(options, predicate for work, predicate for calls)]"""
        some = self.stages[:2] + self.stages[-1:] + [kineto.NONE]
        for name in some:
            yield (['--stage', name.replace('[', '[[]')],
                   lambda w, chain, n=name: n in ({kineto.collapsed(s.name) for s in chain} or {kineto.NONE}),
                   lambda c, n=name: n in self.stages_of_calls[id(c)])
        for number, step in list(self.steps.items())[:2]:
            def inside(time, step=step):
                return step.start <= time < step.end
            yield (['--step', number], lambda w, chain, f=inside: self.launched[id(w)] is not None and f(self.launched[id(w)].start),
                   lambda c, f=inside: f(c.start))
        for key in ('device', 'stream'):
            for value in sorted({getattr(w, key) for w, _, _ in self.works if getattr(w, key) is not None})[:3]:
                yield ([f'--{key}', value], lambda w, chain, k=key, v=value: getattr(w, k) == v,
                       lambda c, k=key, v=value: any(getattr(w, k) == v for w in self.launches.get(id(c), ())))
        first, last = kineto.span(self.document)
        low, high = (last - first) // 3, 2 * (last - first) // 3
        yield (['--from', low / 1e9, '--to', high / 1e9], None, lambda c: first + low <= c.start < first + high)


@pytest.fixture(params=TRACES, ids=['sampled', 'nccl', 'resnet'])
def trace(request, shared_traces):
    return Trace(shared_traces / request.param)


def works_of(trace, wanted):
    return [w for w, chain, _ in trace.works if wanted(w, chain)]


def is_communication(work):
    return re.search('nccl', work.name, re.I) is not None


def pairs(works):
    return [(w.start, w.end) for w in works]


def test_device_work_by_stage_step_device_and_stream(analyze, trace):
    """timeline, kinds and overlap answer for the work that a filter leaves."""
    for options, wanted, _ in trace.choices():
        works = works_of(trace, wanted) if wanted else None
        if works is None:
            continue
        if not works:
            assert 'nothing matches' in analyze('timeline', *options, trace.path, format='text', rc=1).err
            continue
        row, = exact(analyze, 'timeline', *options, trace.path)['rows']
        copies = [w for w in works if kineto.CLASS_OF[w.kind] != 'kernel']
        communication = [w for w in works if kineto.CLASS_OF[w.kind] == 'kernel' and is_communication(w)]
        assert ns(row['busy_us']) == kineto.union(pairs(works)), options
        assert ns(row['total_us']) == max(w.end for w in works) - min(w.start for w in works)
        assert ns(row['memcpy_us']) == kineto.union(pairs(copies))
        assert ns(row['communication_us']) == kineto.union(pairs(communication))
        kinds = exact(analyze, 'kinds', *options, trace.path)
        assert sum(ns(r['total_us']) for r in kinds['rows']) == kineto.union(pairs(works)) == ns(kinds['totals']['total_us'])
        overlap, = exact(analyze, 'overlap', *options, trace.path)['rows']
        assert ns(overlap['communication_us']) == kineto.union(pairs(communication))


def test_calls_by_stage_step_device_stream_and_time(analyze, trace):
    """api and launches select a call by the place it was made, or by the place its work ran."""
    for options, _, wanted in trace.choices():
        calls = {}
        for c in trace.calls:
            if wanted(c):
                calls.setdefault(c.name, []).append(c.end - c.start)
        if not calls:
            analyze('api', *options, trace.path, format='text', rc=1)
            continue
        answer = exact(analyze, 'api', *options, trace.path)
        assert {r['name']: (r['calls'], ns(r['total_us'])) for r in answer['rows']} == {
            name: (len(times), sum(times)) for name, times in calls.items()}, options
        if '--stage' in options:
            continue  # launches attributes backward operators, api does not
        launches = exact(analyze, 'launches', *options, trace.path)['rows']
        counted = {}
        for r in launches:
            count = sum(r[k] for k in ('launches', 'graph_launches', 'copies', 'memsets', 'syncs'))
            counted[r['name']] = counted.get(r['name'], 0) + count
        assert {n: c for n, c in counted.items() if c} == {n: len(calls[n]) for n in calls if n in counted}
        assert any('Launch' in n for n in counted) == any('Launch' in n for n in calls)


def test_top_of_kinds(analyze, trace):
    whole = analyze('kinds', trace.path)
    for top in (1, 2, 100):
        cut = analyze('kinds', '--top', top, trace.path)
        assert cut['rows'] == whole['rows'][:top] and cut['totals'] == whole['totals']


def test_names_of_kernels_in_ops(analyze, trace):
    """Short kernel names are as distinct as full ones; operators keep their names."""
    full, short = (analyze('ops', '--names', style, trace.path)['rows'] for style in ('full', 'short'))
    kernels = {w.name for w, _, _ in trace.works}
    assert len(full) == len(short)
    names = {f['name']: s['name'] for f, s in zip(full, short)}
    assert len(set(names.values())) == len(names)
    assert {n for n in names if n != names[n]} <= kernels and any(n != names[n] for n in names)


# ---- dump ----

WORK = ('kernel', 'memcpy', 'memset')


def chosen_rows(document, unfiltered, chosen):
    """The rows of these events; dump prints every event in the order of the file."""
    assert len(unfiltered) == len(document['traceEvents'])
    return [row for row, e in zip(unfiltered, document['traceEvents']) if id(e) in chosen]


def test_dump_of_a_pytorch_trace(analyze, shared_traces):
    """--stage keeps all of a stage's events (tests/kineto_parts.py), other filters device work and its calls."""
    trace = Trace(shared_traces / TRACES[0])
    document = trace.document
    whole = analyze('dump', trace.path)['rows']
    for name, events in list(kineto_parts.of_stages(document).items())[:4]:
        rows = analyze('dump', '--stage', name.replace('[', '[[]'), trace.path)['rows']
        assert rows == chosen_rows(document, whole, {id(e) for e in events}), name
    table = {id(s): e for e, kind, s in kineto_parts.pairs(document, trace.found) if kind}
    for options, wanted, calls in trace.choices():
        if '--stage' in options or wanted is None:
            continue
        chosen = {id(table[id(w)]) for w in works_of(trace, wanted)}
        kinds = {c for c, kind in kineto.CLASS_OF.items() if kind in WORK}
        if '--step' not in options:
            chosen |= {id(table[id(c)]) for c in trace.calls if calls(c)}
            kinds |= {c for c, kind in kineto.CLASS_OF.items() if kind == 'api'}
        rows = [r for r in analyze('dump', *options, trace.path)['rows'] if r['kind'] in kinds]
        assert rows == chosen_rows(document, whole, chosen), options


def when(row):
    """Microseconds since the run's first record; device work has its time on the device library's clock."""
    start = row['values'].get('start_ns')
    return row['time_us'] if start is None else (start - START - AHEAD) / 1000


@pytest.mark.parametrize('options, ranges, ids, calls', [
    (['--stage', 'step'], ['step'], [41, 42], ['cudaLaunchKernel', 'cuGraphLaunch']),
    (['--stage', 'denoise'], ['denoise', 'step'], [41, 42, 43, 44, 45],
     ['cudaMalloc', 'cudaLaunchKernel', 'cuGraphLaunch', 'cudaStreamSynchronize']),
    (['--stage', '(none)'], [], [46], []),
    (['--stream', '9'], [], [43], []),
    (['--device', '1'], [], [44, 45], []),
    (['--stage', 'denoise', '--stream', '7', '--device', '0'], [], [41, 42], ['cudaLaunchKernel', 'cuGraphLaunch']),
])
def test_dump_of_a_tfr_trace(tmp_path, analyze, options, ranges, ids, calls):
    """Each filter keeps exactly the ids, functions and names expected of all records of the run."""
    path = pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')
    whole = analyze('dump', path)['rows']
    rows = analyze('dump', *options, path)['rows']
    assert [r for r in whole if r in rows] == rows  # unchanged and in the same order
    assert {r['values']['name'] for r in rows if r['kind'].startswith('range_')} == set(ranges)
    assert {r['values']['correlation'] for r in rows if 'correlation' in r['values']} == set(ids)
    assert {r['values']['func'] for r in rows if r['kind'] == 'call'} == set(calls)
    kinds = ('kernel', 'copy', 'set', 'sync')
    assert [r for r in rows if r['kind'] in kinds] == [r for r in whole if r['kind'] in kinds and r['values']['correlation'] in ids]
    for low, high in ((150, 350), (350, 650), (850, 950)):
        wanted = [r for r in rows if low <= when(r) < high]
        cut = analyze('dump', *options, '--from', low / 1e6, '--to', high / 1e6, path, format=None, rc=0 if wanted else 1)
        assert bool(cut.out) == bool(wanted)
        assert not wanted or analyze('dump', *options, '--from', low / 1e6, '--to', high / 1e6, path)['rows'] == wanted
    assert all(r['kind'] not in ('thread', 'clock', 'device', 'drop') for r in rows)


def test_dump_of_nothing(tmp_path, analyze):
    path = pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')
    assert 'nothing matches --stage nosuch' in analyze('dump', '--stage', 'nosuch', path, format='text', rc=1).err


def test_operators_have_the_work_of_the_chosen_stream(analyze, shared_traces):
    """With --stream an operator's device time is that of its works there, and of the calls only their launches have rows."""
    trace = Trace(shared_traces / TRACES[1])
    operators = {e['args']['External id']: e['name'] for e in trace.document['traceEvents'] if e.get('cat') == 'cpu_op'}
    for stream in (7, 40):
        times, calls = Counter(), Counter()
        for event in trace.document['traceEvents']:
            if event.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset') and event['args']['stream'] == stream:
                times[operators.get(event['args']['External id'])] += ns(event['dur'])
        for call in trace.calls:
            calls[call.name] += any(w.stream == stream for w in trace.launches.get(id(call), ()))
        rows = exact(analyze, 'ops', '--stream', stream, trace.path)['rows']
        found = Counter()
        for row in rows:
            found[row['name']] += ns(row['self_device_us'])
        assert {name: found[name] for name in set(operators.values()) if found[name]} == {n: t for n, t in times.items() if t and n}
        assert {r['name']: r['calls'] for r in rows if r['name'].startswith('cuda')} == {n: c for n, c in calls.items() if c}


@pytest.mark.parametrize('inside', [True, False])
def test_operators_outside_of_stages(tmp_path, analyze, inside):
    """Events outside of all stages are in `(none)`; in a trace without stages, all are in `(run)`. `*` chooses them too."""
    t = kineto.Trace()
    t.operator('aten::mm', 1000, 50, external=1).launch('gemm', 1010, 11)
    t.operator('aten::add', 1100, 50, external=2).launch('add', 1110, 12)
    names = {'aten::mm', 'aten::add', 'cudaLaunchKernel', 'gemm', 'add'}
    if inside:
        t.stage('s', 900, 160)
    t.write(tmp_path / 'a.json')

    def calls(stage):
        return {r['name']: r['calls'] for r in analyze('ops', '--stage', stage, tmp_path / 'a.json')['rows']}
    assert calls('*') == {r['name']: r['calls'] for r in analyze('ops', tmp_path / 'a.json')['rows']}
    assert set(calls('*')) == names | ({'s'} if inside else set())
    assert calls('(none)' if inside else '(run)') == \
        ({'aten::add': 1, 'cudaLaunchKernel': 1, 'add': 1} if inside else dict.fromkeys(names, 1) | {'cudaLaunchKernel': 2})


@pytest.mark.parametrize('command', ['stages', 'report'])
@pytest.mark.parametrize('options', [['--step', '7'], ['--cycle', '7']])
def test_a_trace_without_stages_has_no_steps(tmp_path, analyze, command, options):
    """Its only stage is `(run)`, which is in no step and in no cycle."""
    kineto.Trace().operator('aten::mm', 1000, 50, external=1).launch('gemm', 1010, 11).write(tmp_path / 'a.json')
    files = ['--output', tmp_path / 'out'] if command == 'report' else []
    assert analyze(command, tmp_path / 'a.json', *files, format=None).out
    result = analyze(command, tmp_path / 'a.json', *options, *files, rc=1, format=None)
    assert f'nothing matches {" ".join(options)}' in result.err


@pytest.mark.parametrize('work', [True, False])  # without work the analysis reads the operators from the file once more
def test_operators_and_calls_without_device_records(tmp_path, analyze, work):
    """`ops --stage` has the calls that only their wrappers recorded, and the blocks and calls of `(none)`."""
    t = OpTrace()
    t.stage('s', 1000 * US, 2000 * US)
    t.op('aten::mm', 1100 * US, 1200 * US)
    t.call('cudaMalloc', 1110 * US, 5 * US, kind='ALLOC')
    t.call('cudaFree', 2110 * US, 5 * US, kind='FREE')
    t.block(1500 * US, 4096, 100, 100)
    t.block(2500 * US, 8192, 50, 150)
    if work:
        t.work('kernel', 1300 * US, 1400 * US, 10 * US, name='k')
    t.save(tmp_path / 'rank2.h.1.tfr')

    def rows(*options):
        return {r['name']: (r['calls'], r['cpu_mem_bytes']) for r in analyze('ops', *options, tmp_path)['rows']}
    more = {'cudaLaunchKernel': (1, 0), 'k': (1, 0)} if work else {}
    assert rows('--stage', 's') == {'s': (1, 100), 'aten::mm': (1, 0), 'cudaMalloc': (1, 0)} | more
    assert rows('--stage', '(none)') == {'cudaFree': (1, 0), '[memory]': (1, 50)}
    assert rows('--stage', '*') == rows() == rows('--stage', 's') | rows('--stage', '(none)')


@pytest.mark.parametrize('command', ['ops', 'steps'])
def test_a_device_without_work_matches_nothing(analyze, shared_traces, command):
    result = analyze(command, '--device', '7', shared_traces / TRACES[0], format='text', rc=1)
    assert result.out == '' and f'nothing matches --device 7; `tfanalyze {command}`' in result.err


# ---- exports ----

def exported(analyze, *arguments):
    return json.loads(analyze('export', 'chrome', *arguments, format=None).out)['traceEvents']


def as_text(event):
    return json.dumps(event, sort_keys=True)


def test_export_of_a_pytorch_trace(analyze, shared_traces):
    """Export keeps the same device work and calls as dump does, and all row descriptions."""
    trace = Trace(shared_traces / TRACES[0])
    whole = exported(analyze, trace.path)
    classes = {c for c, kind in kineto.CLASS_OF.items() if kind in (*WORK, 'api')}
    order = {id(e): i for i, e in enumerate(trace.document['traceEvents'])}
    table = {id(s): e for e, kind, s in kineto_parts.pairs(trace.document, trace.found) if kind}
    for options, wanted, calls in trace.choices():
        if wanted is None or '--stage' in options:
            continue
        chosen = [table[id(w)] for w in works_of(trace, wanted)] + [table[id(c)] for c in trace.calls if calls(c)]
        got = exported(analyze, *options, trace.path)
        expected = [whole[i] for i in sorted(order[id(e)] for e in chosen)]
        assert [e for e in got if e.get('cat') in classes] == expected, options
        assert [e for e in got if e['ph'] == 'M'] == [e for e in whole if e['ph'] == 'M']


@pytest.mark.parametrize('options, wanted', [
    (['--stream', '9'], lambda e, a: e.get('cat') == 'gpu_memcpy' or a.get('correlation') == 43),
    (['--device', '1'], lambda e, a: a.get('device') == 1 or a.get('correlation') == 44),
    (['--device', '0', '--stage', 'step'], lambda e, a: a.get('correlation') in (41, 42)),
], ids=['stream', 'device', 'both'])
def test_export_of_a_tfr_trace(tmp_path, analyze, options, wanted):
    """Export keeps the selected work, the calls that launched it and their arrows, unchanged from the whole export."""
    path = pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')
    whole = [e for e in exported(analyze, path) if e['ph'] == 'X']
    got = [e for e in exported(analyze, *options, path) if e['ph'] == 'X']
    spans = [e for e in got if e['cat'] == 'gpu_user_annotation']  # of stages, over the selected work alone
    got = [e for e in got if e not in spans]
    assert got == [e for e in whole if e['cat'] != 'gpu_user_annotation' and wanted(e, e.get('args', {}))] and got
    work = {(e['ts'], e['ts'] + e['dur']) for e in got if e['cat'] in ('kernel', 'gpu_memcpy', 'gpu_memset')}
    assert all(e['ts'] in {begin for begin, _ in work} and e['ts'] + e['dur'] in {end for _, end in work} for e in spans)


def test_export_of_steps_of_a_tfr_trace(tmp_path, analyze):
    t = OpTrace()
    for step in range(3):
        t.stage(f'ProfilerStep#{step}', 1000000 * step + 1000, 1000000 * step + 900000)
        t.op(f'aten::op{step}', 1000000 * step + 2000, 1000000 * step + 3000)
        t.work('kernel', 1000000 * step + 2500, 1000000 * step + 950000, 90000, name=f'k{step}')
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    names = {e['name'] for e in exported(analyze, '--step', '1', path) if e['ph'] == 'X'}
    assert names == {'ProfilerStep#1', 'aten::op1', 'k1', 'cudaLaunchKernel'}
    kinds = [(r['kind'], r['values'].get('name')) for r in analyze('dump', '--step', '1', path)['rows']]
    assert {n for k, n in kinds if n} == {'ProfilerStep#1', 'aten::op1', 'k1'} and ('kernel', 'k1') in kinds
    assert [r['calls'] for r in analyze('api', '--step', '0-1', path)['rows']] == [2]
