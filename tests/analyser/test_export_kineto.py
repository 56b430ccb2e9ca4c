"""test_export_kineto - dump and export of PyTorch traces: events are kept whole, each stage gets its own events."""

import gzip
import json
import re
from decimal import Decimal

import pytest

import kineto
import kineto_parts
import tfr
from conftest import ROOT, execute
from small_traces import simple

NS_RESOLUTION = 'hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz'
NCCL = 'hta/nccl_parser_config/nccl_data.json.gz'
FILTER = 'hta/trace_filter/sampled_rank-{}.json.gz'
RESNET = 'kineto_tb/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz'
QWEN = 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
AMD = 'hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz'
STEPS = [NS_RESOLUTION, NCCL, FILTER.format(0), FILTER.format(1), RESNET, QWEN, AMD]
ALL = STEPS + ['hta/call_stack/backward_thread.json', 'hta/triton_example/triton_example.json.gz',
               'hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz',
               'hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz',
               'tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz']


def chrome(analyze, *arguments, rc=0):
    result = analyze('export', 'chrome', *arguments, rc=rc, format=None)
    return kineto.Document(json.loads(result.out, parse_float=Decimal)) if rc in (0, 3) else result


def ask_loaders(python, questions):
    """{tool: [number of events it finds, or why it fails]}, asked for {tool: [file]}."""
    asked = {tool: [str(f) for f in files] for tool, files in questions.items()}
    loaders = ROOT / 'tests' / 'trace_loaders.py'
    result = execute([python, loaders], stdin=json.dumps(asked))
    assert result.rc == 0, result.err[-2000:]
    return json.loads(result.out)


def in_hta(events):
    """The number of events HTA keeps: those with a duration and a category, without the profiler's own."""
    return sum(e.get('dur') is not None and e.get('cat') not in (None, 'Trace') for e in events)


def in_tensorboard(events):
    """The number of events the plugin keeps (torch_tb_profiler 0.4.3, profiler/trace.py)."""
    plain = {'trace', 'cpu_op', 'operator', 'runtime', 'kernel', 'memcpy', 'gpu_memcpy', 'memset', 'gpu_memset',
             'python', 'memory', 'python_function'}
    collective = re.compile(r'(nccl|gloo):(broadcast|reduce|all_reduce|all_gather|reduce_scatter)$')
    count = 0
    for e in events:
        if e.get('ph') == 'i':
            count += e['name'] == '[memory]'
        elif e.get('ph') == 'X' and 'user_annotation' in e['cat'].lower():
            count += bool(e['name'].startswith('ProfilerStep#') or collective.match(e['name']))
        elif e.get('ph') == 'X':
            count += e['cat'].lower() in plain
    return count


# ---- export chrome ----

@pytest.mark.parametrize('name', ALL)
def test_export_is_the_whole_file(analyze, shared_traces, name):
    there, exported = kineto.read(shared_traces / name), chrome(analyze, shared_traces / name)
    assert exported['traceEvents'] == there['traceEvents']
    assert exported.pop('tfinject')['artefact'] == 'chrome'
    assert head(exported) == head(there)


def head(document):
    return {k: v for k, v in document.items() if k != 'traceEvents'}


ODD = b'''{ "schemaVersion": 1, "deviceProperties": [ {"id": 0, "x": [[[[[[[1]]]]]]]} ],
  "tfinject": {"artefact": "old"},
  "distributedInfo": {"rank": 2, "world_size": 4},
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "a \\u00e9 \\"x\\"", "pid": 1, "tid": 1, "ts": 10.000, "dur": 50,
     "args": {"deep": [[[[[[[[[[{"k": -1.50e+3}]]]]]]]]]], "empty": {}}},
  {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": "1", "ts": "12.5", "dur": "3", "unknown": true,
     "args": {"n": NaN}},
  {"ph": "C", "name": "counter", "pid": 1, "ts": 20, "args": {"v": 18446744073709551615}},
  {"ph": "Q", "ts": 21, "name": "q"},
  {"ph": "X", "cat": "cpu_op", "name": "no time", "pid": 1, "tid": 1, "dur": 1},
  {"ph": "M", "name": "m", "pid": 1, "args": {}},
  {"ph": "i", "s": "t", "name": "later", "pid": 1, "tid": 1, "ts": 70}
  ], "displayTimeUnit": "ms", "traceName": "x" }'''


def without_nan(text):
    return json.loads(text, parse_constant=lambda word: None, parse_float=str)


def strict(text):
    """The document, if it is JSON as JavaScript reads it."""
    def refuse(word):
        raise ValueError(word)
    return json.loads(text.encode('utf-8') if isinstance(text, str) else text, parse_constant=refuse)


def test_odd_events_stay_as_they_are(tmp_path, analyze):
    """Spelling, order and unknown members are kept, NaN becomes null; the member that an earlier export added is dropped."""
    path = tmp_path / 'odd.json'
    path.write_bytes(ODD)
    result = analyze('export', 'chrome', path, rc=3, format=None)  # one event has no time
    exported, there = without_nan(result.out), without_nan(ODD)
    assert strict(result.out)
    assert exported['traceEvents'] == there['traceEvents']
    assert '"a \\u00e9 \\"x\\""' in result.out and '10.000' in result.out and '-1.50e+3' in result.out
    ours = ('tfinject', 'traceEvents')
    assert [k for k in exported if k not in ours] == [k for k in there if k not in ours]
    assert exported['tfinject']['artefact'] == 'chrome' and exported['tfinject']['rank'] == 2
    assert result.out.index('"rank": 2') < result.out.index('traceEvents')  # HTA looks for the rank there


NO_JSON = rb'''{"deviceProperties": [Infinity, "%s"], "extra": 01, "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "s", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
  {"ph": "X", "cat": "cpu_op", "name": "b\ud800 %s", "pid": 1, "tid": 1, "ts": 10, "dur": 50, "odd": .5,
     "args": {"x": NaN, "y": [-Infinity], "z": 0x10, "w": {"q": 1.2.3}, "v": "a\qb", "good": [1, "two"]}},
  {"ph": "X", "cat": "cpu_op", "name": "plain", "pid": 1, "tid": 1, "ts": 70, "dur": 5, "args": {"x": 1}}]}''' % (b'\xff', b'\xe2\x80')


@pytest.mark.parametrize('command', ['chrome', 'pfw', 'overlay', 'report', 'merge'])
def test_what_is_no_json_is_replaced(tmp_path, analyze, command):
    """Viewers refuse a whole file for one NaN: each file written is strict JSON, with null for what cannot be kept."""
    path, out = tmp_path / 'trace.json', tmp_path / 'out.json'
    path.write_bytes(NO_JSON)
    if command == 'overlay':
        analyze('critical-path', '--overlay', out, path, format=None)
    elif command == 'report':
        analyze('report', path, '--output', tmp_path / 'report', format=None)
        out, = (tmp_path / 'report').glob('s_rank0.trace.json.gz')
    elif command == 'merge':
        analyze('merge', '-o', out, path, rc=None, format=None)
    else:
        analyze('export', command, '--output', out, path, format=None)
    data = gzip.decompress(out.read_bytes()) if out.suffix == '.gz' else out.read_bytes()
    events = [strict(line) for line in data.splitlines()[1:-1]] if command == 'pfw' else strict(data)['traceEvents']
    plain, = (e for e in events if e['name'] == 'plain')
    assert plain['args']['x'] == 1
    if command != 'merge':  # which counts such an event instead
        event, = (e for e in events if e['name'].startswith('b'))
        args = event['args']
        assert (args['x'], args['y'], args['z'], args['good']) == (None, [None], None, [1, 'two'])


def test_export_of_no_events(tmp_path, analyze):
    path = tmp_path / 'none.json'
    path.write_text('{"schemaVersion": 1, "traceEvents": [], "traceName": "x"}')
    exported = chrome(analyze, path)
    assert exported['traceEvents'] == [] and exported['traceName'] == 'x'


@pytest.mark.parametrize('name, stage', [
    (NCCL, '## backward ##'), (FILTER.format(0), '## forward ##'), (QWEN, 'ProfilerStep*'),
    (AMD, 'Optimizer.step#SGD.step'), (FILTER.format(1), 'nccl:*')])
def test_export_of_a_stage(analyze, shared_traces, name, stage):
    there = kineto.read(shared_traces / name)
    place, parts = {id(e): i for i, e in enumerate(there['traceEvents'])}, kineto_parts.parts(there)
    names = [s for s in parts if s.startswith(stage[:-1])] if stage.startswith('nccl') else [stage]
    wanted = kineto_parts.in_order(place, [e for s in names for e in parts[s]])
    assert names and chrome(analyze, '--stage', stage, shared_traces / name)['traceEvents'] == wanted


def test_export_of_a_window(analyze, shared_traces):
    there = kineto.read(shared_traces / FILTER.format(0))
    start, _ = kineto.span(there)
    first, last = start + 300_000_000, start + 500_000_000

    def inside(e):
        begin = kineto.nanoseconds(e['ts'])
        return e['ph'] == 'M' or (begin < last and begin + kineto.nanoseconds(e.get('dur', 0)) >= first)
    kept = [e for e in there['traceEvents'] if inside(e)]
    exported = chrome(analyze, '--from', '0.3', '--to', '0.5', shared_traces / FILTER.format(0))
    assert 100 < len(kept) < 3000 and exported['traceEvents'] == kept


def test_export_of_a_missing_stage(analyze, shared_traces):
    assert 'nothing matches --stage nope' in chrome(analyze, '--stage', 'nope', shared_traces / AMD, rc=1).err


def test_export_without_annotations_is_one_stage(tmp_path, analyze):
    path = kineto.Trace().operator('op', 10, 5).launch('k', 12, 1).write(tmp_path / 'a.json')
    assert len(chrome(analyze, '--stage', '(run)', path)['traceEvents']) == 3
    assert 'nothing matches' in chrome(analyze, '--stage', 'op', path, rc=1).err


def test_export_of_one_of_several(analyze, shared_traces):
    """--rank leaves one trace, whose events stay as they are; test_merge has the export of several."""
    both = [shared_traces / FILTER.format(rank) for rank in range(2)]
    assert chrome(analyze, '--rank', '1', *both)['traceEvents'] == kineto.read(both[1])['traceEvents']


def test_export_of_a_cut_file(tmp_path, analyze, shared_traces):
    data = gzip.decompress((shared_traces / AMD).read_bytes())
    path = tmp_path / 'cut.json'
    path.write_bytes(data[:len(data) * 2 // 3])
    exported, there = chrome(analyze, path, rc=3), kineto.read(shared_traces / AMD)
    count = len(exported['traceEvents'])
    assert 20 < count < len(there['traceEvents'])
    assert exported['traceEvents'] == there['traceEvents'][:count]


# ---- dump ----

def as_event(row):
    """The event that a row of dump shows."""
    event = {k: v for k, v in row['values'].items() if k != 'dur_us'}
    event.update({k: row[k] for k in ('pid', 'tid') if row[k] is not None})
    if row['time_us'] is not None:
        event['ts'] = kineto.nanoseconds(row['time_us'])
    if 'dur_us' in row['values']:
        event['dur'] = kineto.nanoseconds(row['values']['dur_us'])
    return event


def as_dumped(event, start):
    """An event of the file in the same form."""
    out = {k: v for k, v in event.items() if k != 'cat' or not v}
    out.update({k: int(out[k]) for k in ('pid', 'tid') if kineto_parts.is_number(out.get(k))})
    if 'ts' in event:
        out['ts'] = kineto.nanoseconds(event['ts']) - start
    if 'dur' in event:
        out['dur'] = kineto.nanoseconds(event['dur'])
    return out


@pytest.mark.parametrize('name', [NCCL, FILTER.format(1), RESNET, AMD, 'hta/call_stack/backward_thread.json'])
def test_dump_has_every_event(analyze, shared_traces, name):
    there = kineto.read(shared_traces / name)
    result = analyze('dump', '--format', 'json', shared_traces / name, format=None)
    rows = json.loads(result.out, parse_float=Decimal)['rows']
    start, _ = kineto.span(there)
    assert [as_event(r) for r in rows] == [as_dumped(e, start) for e in there['traceEvents']]
    named = {'M': 'metadata', 'i': 'instant'}
    assert [r['kind'] for r in rows] == [e.get('cat') or named[e['ph']] for e in there['traceEvents']]
    assert {r['rank'] for r in rows} == {there.get('distributedInfo', {}).get('rank', rows[0]['rank'])}


def test_dump_of_odd_events(tmp_path, analyze):
    path = tmp_path / 'odd.json'
    path.write_bytes(ODD.replace(b'"later"', b'"\xff\xfe"'))
    rows = analyze('dump', path, rc=3)['rows']
    assert [r['kind'] for r in rows] == ['user_annotation', 'cpu_op', 'counter', 'event', 'cpu_op', 'metadata',
                                         'instant']
    assert rows[0]['values']['args'] == {'deep': [[[[[[[[[[{'k': -1500.0}]]]]]]]]]], 'empty': {}}
    assert rows[0]['values']['name'] == 'a \u00e9 "x"' and rows[0]['time_us'] == 0 and rows[0]['values']['dur_us'] == 50
    assert rows[1]['values']['args'] == {'n': None} and rows[1]['values']['unknown'] is True
    assert (rows[1]['pid'], rows[1]['tid'], rows[1]['time_us']) == (1, 1, 2.5)
    assert rows[2]['values']['args'] == {'v': 2 ** 64 - 1} and rows[2]['tid'] is None
    assert rows[4]['time_us'] is None and rows[6]['values']['name'] == '\ufffd\ufffd'


@pytest.mark.parametrize('text, value', [('[1, x [2]]', None), ('[1,,2]', None), ('[1,]', None), ('{,}', {}), ('01', None), ('-', None), ('1e', None),
                                         ('"\\x"', '\\x'), ('[1, \ufeff2]', None), ('NaN', None), ('[1,\n2,\t3]', [1, 2, 3]), ('"a\tb\nc"', 'a\tb\nc'),
                                         ('{"deep": "\\u00e9\x01"}', {'deep': '\u00e9\x01'})])
def test_dump_of_values_that_are_not_json(tmp_path, analyze, text, value):
    """A value that cannot be made valid is null; control characters in strings stay."""
    path = tmp_path / 'odd.json'
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"z": %s, "n": 1}}]}' % text)
    result = analyze('dump', path, '--format', 'json', format=None)
    assert json.loads(result.out)['rows'][0]['values']['args'] == {'z': value, 'n': 1}
    assert len(result.out.splitlines()) == len(analyze('dump', path, '--format', 'json', '--top', '1', format=None).out.splitlines())


def test_dump_of_a_time_at_the_end_of_all_times(tmp_path, analyze, tfanalyze_asan):
    path = tmp_path / 'late.json'
    path.write_text('{"baseTimeNanoseconds": 1711964646000000000, "traceEvents": [{"ph": "i", "name": "a", "pid": 1, "tid": 1, "ts": 1},'
                    '{"ph": "i", "name": "b", "pid": 1, "tid": 1, "ts": 9223372036854775.807}]}')
    result = analyze('dump', path, rc=None, format=None, program=tfanalyze_asan)
    assert 'runtime error' not in result.err


def test_dump_filters(analyze, shared_traces):
    trace = shared_traces / FILTER.format(0)
    everything = analyze('dump', trace)['rows']
    kept = analyze('dump', '--from', '0.3', '--to', '0.5', trace)['rows']
    assert kept == [r for r in everything if r['time_us'] is not None and 300_000 <= r['time_us'] < 500_000] and kept
    assert analyze('dump', '--top', '7', trace)['rows'] == everything[:7]
    both = [trace, shared_traces / FILTER.format(1)]
    assert analyze('dump', '--rank', '0', *both)['totals']['records'] == len(everything)
    assert 'nothing matches --from 1e+06' in analyze('dump', '--from', '1000000', trace, rc=1, format=None).err
    lines = analyze('dump', '--top', '3', trace, format=None).out.splitlines()
    assert len(lines) == 3 and lines[0].split()[0] == '0'


# ---- export tensorboard ----

def names_in(result):
    return result.out.splitlines()


@pytest.mark.soak
def test_tensorboard_reads_the_export(tmp_path, analyze, shared_traces, python):
    files = [NCCL, FILTER.format(1), RESNET, QWEN, AMD]
    paths, wanted = [], []
    for i, name in enumerate(files):
        result = analyze('export', 'tensorboard', shared_traces / name, '--output', tmp_path / str(i), format=None)
        paths += names_in(result)
        wanted.append(in_tensorboard(kineto.read(shared_traces / name)['traceEvents']))
    assert len(paths) == len(files) and min(wanted) > 50
    assert ask_loaders(python, {'tensorboard': paths}) == {'tensorboard': wanted}


def test_tensorboard_names_and_place(tmp_path, analyze):
    """Each process gets one file, beside the input by default; the plugin finds host, process and time in its name."""
    pattern = re.compile(r'(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$')  # torch_tb_profiler's WORKER_PATTERN
    for rank in range(2):
        t = kineto.Trace(pid=100 + rank, distributedInfo={'rank': rank, 'world_size': 2}, host_name='node-7',
                         baseTimeNanoseconds=1711964646000000000)
        t.stage('s', 1000, 50).operator('op', 1010, 5).write(tmp_path / f'{rank}.json.gz')
    result = analyze('export', 'tensorboard', tmp_path, format=None)
    paths = names_in(result)
    assert sorted(p.name for p in (tmp_path / 'tensorboard').iterdir()) == sorted(p.rsplit('/', 1)[1] for p in paths)
    assert f'tensorboard --logdir {tmp_path}/tensorboard' in result.err
    workers = [pattern.match(p.rsplit('/', 1)[1]).groups() for p in paths]
    assert workers == [(f'node-7_{100 + r}.rank{r}', '.1711964646001000000') for r in range(2)]
    assert re.match(r'^(.*)_(\d+)', workers[1][0]).groups() == ('node-7', '101')  # its NODE_PROCESS_PATTERN
    assert kineto.read(tmp_path / 'tensorboard' / paths[0].rsplit('/', 1)[1])['tfinject']['artefact'] == 'tensorboard'
    assert len(analyze('info', tmp_path)['rows']) == 2  # analyze does not read its own output as input


def test_tensorboard_filters(tmp_path, analyze):
    t = kineto.Trace().stage('s', 1000, 50).operator('op', 1010, 5).operator('other', 2000, 5)
    trace = t.write(tmp_path / 'a.json')
    path, = names_in(analyze('export', 'tensorboard', '--stage', 's', trace, format=None))
    assert [e['name'] for e in json.loads(gzip.open(path).read())['traceEvents']] == ['s', 'op']
    assert 'nothing matches' in analyze('export', 'tensorboard', '--stage', 'no', trace, '--output', tmp_path / 'x',
                                        rc=1, format=None).err
    assert not list((tmp_path / 'x').iterdir())
    (tmp_path / 'file').write_text('')
    result = analyze('export', 'tensorboard', trace, '--output', tmp_path / 'file', rc=1, format=None)
    assert 'cannot be created' in result.err


def test_tensorboard_of_our_own_traces(tmp_path, analyze):
    simple(tmp_path / 'rank0.h.1.tfr')
    simple(tmp_path / 'rank1.h.2.tfr', rank=1)
    paths = names_in(analyze('export', 'tensorboard', tmp_path, format=None))
    exported = [json.loads(gzip.open(p).read()) for p in paths]
    assert [e['distributedInfo']['rank'] for e in exported] == [0, 1]
    for x in exported:
        assert [e['cat'] for e in x['traceEvents'] if e['ph'] == 'X'] == ['user_annotation'] * 3


def test_export_of_tfr_traces_follows_threads(tmp_path, analyze):
    """A mark of a thread without stages belongs to the only open stage."""
    w = simple(tmp_path / 'a.tfr', stages=2, footer=False)
    times = (10_500_000, 11_500_000, 12_500_000)
    w.chunk([tfr.rec('mark', name=w.string(f'mark {t}'), time=t) for t in times], thread=2, tid=101)
    w.footer()
    w.save(tmp_path / 'a.tfr')
    kept = chrome(analyze, '--stage', 'stage 1', tmp_path / 'a.tfr')['traceEvents']
    assert sorted(e['name'] for e in kept if e['ph'] in 'Xi') == ['mark 12500000', 'stage 1']
