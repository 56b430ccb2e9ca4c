"""test_dftracer_export - dftracer's traces in dump, merge and the exports: every event, its file, bytes, host and rank."""

import gzip
import json
import shutil
from collections import Counter, defaultdict

import pytest

import kineto
import pftrace
from small_traces import clock_chunk
from test_dftracer import T0, TRACES, event, newest, one_of_each, read_pfw, write
from test_merge import check, merge, split
from tfr import NESTED, STAGE, Writer, end_of, rec

# dftracer_utils 0.0.14 finds this in the traces of cm1: dftracer_event_count counts 6,574 to 8,791 events a file, 54,822 in
# all, with metadata; `dftracer_info --query` knows the calls.
CM1_EVENTS = 54822


def files_and_bytes(events):
    """{(function, file): [calls, bytes]} of POSIX and STDIO calls in the terms of dftracer: bytes are args.ret, in fread and
    fwrite times args.size. Old hashes have 16 bits, and the files of one trace clash: the latest one counts."""
    of_hash, found = {}, defaultdict(lambda: [0, 0])
    for e in events:
        if e['name'] == 'FH':
            of_hash[str(e['args']['value'])] = e['args']['name']
        if e.get('cat') in ('POSIX', 'STDIO') and e['ph'] == 'X':
            args = e['args']
            row = found[e['name'], args.get('fname', of_hash.get(str(args.get('fhash'))))]
            row[0] += 1
            if e['name'].strip('_').removesuffix('64') in ('read', 'write', 'pread', 'pwrite', 'fread', 'fwrite'):
                row[1] += max(int(args.get('ret', 0)), 0) * int(args.get('size', 1) if e['cat'] == 'STDIO' else 1)
    return found


@pytest.mark.parametrize('name', TRACES)
def test_a_dump_has_every_event_with_its_file(analyze, shared_traces, name):
    """The rows of a dump have the values of the file, the names of its hashes, and the calls, files and bytes of an
    independent reader."""
    events = read_pfw(shared_traces / 'dftracer' / name)
    rows = analyze('dump', shared_traces / 'dftracer' / name)['rows']
    assert len(rows) == len(events)
    again = [{'name': r['values']['name'], 'cat': r['kind'], 'ph': r['values']['ph'], 'args': r['values']['args']} for r in rows]
    assert files_and_bytes(again) == files_and_bytes(events)
    assert all(e['args'].get('fname') for e in again if e['cat'] in ('POSIX', 'STDIO'))
    first = min(int(e['ts']) for e in events if 'ts' in e)
    for r, e in zip(rows, events):
        assert (r['kind'], str(r['pid']), str(r['tid'])) == (e['cat'], str(e['pid']), str(e['tid']))
        assert r['time_us'] == (int(e['ts']) - first if 'ts' in e else None)
        assert r['values'].get('dur_us') == (int(e['dur']) if 'dur' in e else None)
        assert {k: v for k, v in r['values']['args'].items() if k in e['args']} == e['args']


def test_filters_choose_events_of_a_stage_and_of_a_time(analyze, tmp_path):
    path = write(tmp_path / 'a.pfw', event('outer', 'app', T0, 100), event('read', ts=T0 + 10, args={'fname': '/in'}),
                 event('write', ts=T0 + 150, args={'fname': '/out'}), event('read', ts=T0 + 20, tid=99, args={'fname': '/in 2'}))

    def files(*options):
        return {r['values']['args']['fname'] for r in analyze('dump', path, *options)['rows'] if r['kind'] == 'POSIX'}
    assert files() == {'/in', '/out', '/in 2'}
    assert files('--stage', 'outer') == {'/in', '/in 2'}  # the only thread with a stage
    assert files('--from', '0.000100') == {'/out'}
    assert files('--pid', '10') == {'/in', '/out', '/in 2'}


def plain(events):
    """A multiset of events without what a merge changes: pids, the form of numbers, and the names that it adds."""
    return Counter((e['name'], e['cat'], int(e['ts']), int(e['dur']), str(e['tid']),
                    json.dumps({k: v for k, v in e['args'].items() if k not in ('fname', 'hostname')}, sort_keys=True))
                   for e in events if e['ph'] == 'X')


@pytest.mark.slow
@pytest.mark.parametrize('option', ['--inputs', '--file-list', None])
def test_ranks_of_torch_and_of_dftracer_are_merged(analyze, shared_traces, tmp_path, option):
    """Two ranks, each recorded by torch.profiler and by dftracer, with merge_trace's own command lines: every event is there
    once, at its time of day, below its rank and host, with ids and pids of its own."""
    files = []
    for rank in range(2):
        torch = tmp_path / f'torch-trace-{rank}-of-2.json'
        torch.write_bytes(gzip.decompress((shared_traces / f'hta/trace_filter/sampled_rank-{rank}.json.gz').read_bytes()))
        io = tmp_path / f'trace-{rank}-of-2.pfw'
        shutil.copy(shared_traces / 'dftracer' / f'cm1/cm1-DEFAULT-353778{rank}-preload.pfw.gz', f'{io}.gz')
        io.write_bytes(gzip.decompress(io.with_name(io.name + '.gz').read_bytes()))
        files += [torch, io]
    arguments = [option, *files] if option else files
    output = tmp_path / 'combine.json'
    analyze('merge', *arguments, '--output', output, format=None)
    merged = check(json.loads(output.read_text()), whole=False)
    parts = split(merged)
    assert [(one['rank'], one['kind']) for one, _ in parts] == [(0, 'kineto'), (0, 'dftracer'), (1, 'kineto'), (1, 'dftracer')]
    base = merged['baseTimeNanoseconds'] // 1000
    for (one, events), path in zip(parts, files):
        if one['kind'] == 'kineto':
            assert one['events'] == sum(e['ph'] == 'X' for e in json.loads(path.read_text())['traceEvents'])
            continue
        wanted = read_pfw(path)
        for e in events:
            e['ts'] = e.get('ts', 0) + base
        assert plain(events) == plain(wanted)
        assert files_and_bytes(events) == files_and_bytes(wanted)
        assert one['host'] == 'corona173' and {e['args'].get('hostname') for e in events if e['ph'] == 'X'} == {'corona173'}
        label, = {e['args']['name'] for e in events if e['name'] == 'process_name'}
        assert label == f'rank {one["rank"]} on corona173: Rank {one["rank"]}'
    ids = Counter(e['id'] for _, events in parts for e in events if 'id' in e and e['ph'] == 'X' and e['cat'] in ('POSIX', 'STDIO'))
    assert max(ids.values()) == 1


@pytest.mark.slow
def test_the_eight_ranks_of_a_run_are_merged(analyze, shared_traces):
    merged, err = merge(analyze, shared_traces / 'dftracer' / 'cm1')
    assert [one['rank'] for one in merged['inputs']] == list(range(8)) and not err
    assert len(check(merged)['traceEvents']) == CM1_EVENTS + 8  # each process has one more description of its row


def test_strings_numbers_units_and_sums_become_chrome_events(analyze, tmp_path):
    """A merged event has letters for phases and numbers in microseconds, whatever the input has."""
    old = write(tmp_path / 'rank0.pfw', *[{k: str(v) if isinstance(v, int) else v for k, v in e.items()} for e in one_of_each()])
    new = write(tmp_path / 'b.pfw.gz', *newest())
    merged = check(merge(analyze, old, new)[0])
    (first, a), (second, b) = split(merged)
    assert (first['rank'], second['rank'], second['host']) == (0, 3, 'node7')
    assert {e['ph'] for e in a + b} == {'X', 'M', 'C'}
    of = {e['name']: e for e in a + b if e['ph'] == 'X'}
    assert (of['step']['dur'], of['fwrite']['args']['fname']) == (20, '/b')
    assert float(of['train']['dur']) == 0.1 and of['train']['args']['hostname'] == 'node7'
    assert float(of['write']['dur']) == 0.009 and of['write']['args']['dft_cnt'] == 3
    base = merged['baseTimeNanoseconds']
    assert round(float(of['train']['ts']) * 1000) + base == T0 * 1000 + 5
    assert all(type(e['pid']) is int and type(e['tid']) is int for e in a + b)


@pytest.mark.parametrize('command', ['export chrome', 'export pftrace'])
def test_exports_take_traces_of_dftracer(analyze, shared_traces, tmp_path, command):
    path = shared_traces / 'dftracer' / 'test.pfw'
    output = tmp_path / 'out'
    analyze(*command.split(), path, '--output', output, format=None)
    wanted = Counter(e['name'] for e in read_pfw(path))
    if command == 'export chrome':
        events = [e for e in check(json.loads(output.read_text()))['traceEvents'] if e['ph'] == 'X']
        assert Counter(e['name'] for e in events) == wanted and events[0]['args']['fname'].startswith('/p/lustre1/')
    else:
        assert output.read_bytes().count(b'dftracer_data') and pftrace.read(output)


# ---- export pfw ----

def exported(analyze, tmp_path, *inputs, name='out.pfw.gz', rc=0):
    """The events of an exported trace, checked against the rules of the format."""
    analyze('export', 'pfw', *inputs, '--output', tmp_path / name, format=None, rc=rc)
    data = (tmp_path / name).read_bytes()
    lines = (gzip.decompress(data) if name.endswith('.gz') else data).decode().split('\n')
    assert (lines[0], lines[-2:]) == ('[', [']', ''])
    events = [json.loads(line) for line in lines[1:-2]]
    assert [e['id'] for e in events] == list(range(1, len(events) + 1))
    known = {}
    for e in events:
        assert {'name', 'cat', 'pid', 'tid', 'ph', 'args'} <= e.keys() and e['ph'] in 'XM'
        assert all(type(e[key]) is int for key in ('pid', 'tid'))
        if e['ph'] == 'M':
            assert e['cat'] == 'dftracer' and e.keys().isdisjoint(('ts', 'dur'))
            if e['name'] in ('FH', 'HH', 'SH'):
                assert known.setdefault(e['args']['value'], e['args']['name']) == e['args']['name']
        else:
            assert type(e['ts']) is int and type(e['dur']) is int and e['dur'] >= 0
            assert e['args']['hhash'] in known and e['args'].get('fhash', e['args']['hhash']) in known
    assert len(set(known.values())) == len(known)
    for key in ('start', 'end'):
        assert {e['pid'] for e in events if e['name'] == key and e['cat'] == 'dftracer'} == {e['pid'] for e in events}
    return events


def of_application(events):
    return [e for e in events if e['ph'] == 'X' and e['cat'] != 'dftracer']


@pytest.mark.parametrize('name', ['out.pfw', 'out.pfw.gz'])
def test_a_trace_of_ours_becomes_one_of_dftracer(analyze, tmp_path, name):
    """Stages, marks and calls on files of a .tfr, with files as hashes; times are whole microseconds, rounded down."""
    w = Writer(rank=2, pid=41, host='node5')
    clock_chunk(w, [(0, 10 ** 9, T0 * 1000)])
    read, write_ = (w.string(f'posix\x1f{kind}\x1f{name}\x1f') for kind, name in (('READ', 'pread64'), ('WRITE', 'write')))
    stage = rec('range_begin', name=w.string('load "x"'), time=1000, id=1, flags=NESTED | STAGE)
    w.chunk([rec('thread', serial=1, tid=77, name=w.string('main'), time=1), stage,
             rec('io', func=read, time=2999, duration=1002, result=3, bytes=8, offset=16, path=w.string('/data/ä b'), error=0, fd=5, other_fd=-1),
             rec('io', func=write_, time=5000, duration=10, result=-1, bytes=9, offset=-1, path=w.string('/full'), error=28, fd=6, other_fd=-1),
             end_of(stage, 9000, 1), rec('mark', name=w.string('here'), time=9500)], thread=1, tid=77)
    w.footer()
    w.save(tmp_path / 'rank2.node5.41.tfr')
    events = exported(analyze, tmp_path, tmp_path / 'rank2.node5.41.tfr', name=name)
    text = {e['args']['value']: e['args']['name'] for e in events if e['name'] in ('FH', 'HH')}
    rows = {e['name']: e for e in of_application(events)}
    assert rows.keys() == {'load "x"', 'pread64', 'write', 'here'}
    assert {(e['pid'], e['tid'], text[e['args']['hhash']]) for e in rows.values()} == {(41, 77, 'node5')}
    assert [(rows[n]['cat'], rows[n]['ts'] - T0, rows[n]['dur']) for n in ('load "x"', 'pread64', 'write', 'here')] == \
        [('user_annotation', 1, 8), ('POSIX', 2, 2), ('POSIX', 5, 0), ('mark', 9, 0)]
    args = rows['pread64']['args']
    assert (text[args['fhash']], args['ret'], args['count'], args['offset'], args['fd']) == ('/data/ä b', 3, 8, 16, 5)
    args = rows['write']['args']
    assert (text[args['fhash']], args['ret'], args['count'], args['errno']) == ('/full', -1, 9, 28) and 'offset' not in args
    again, = analyze('info', tmp_path / name)['rows']
    assert (again['rank'], again['pid'], again['host'], again['complete']) == (2, 41, 'node5', True)
    assert {r['stage'] for r in analyze('stages', tmp_path / name)['rows'] if r['calls']} == {'load "x"', 'here'}
    merged = json.loads(analyze('export', 'chrome', tmp_path / 'rank2.node5.41.tfr', format=None).out)
    of_chrome, = (e for e in merged['traceEvents'] if e['name'] == 'pread64')
    assert of_chrome['cat'] == 'POSIX' and of_chrome['args']['fname'] == '/data/ä b' and of_chrome['args']['ret'] == 3


def test_events_of_dftracers_interface_keep_their_category_and_arguments(analyze, tmp_path):
    """What the program told dftracer of an event stands where dftracer writes it, also if the ranges overlap."""
    w = Writer(rank=0, pid=41, host='node5')
    clock_chunk(w, [(0, 10 ** 9, T0 * 1000)])
    said = {1: {'cat': 'app', 'args': {'epoch': 9, 'fname': '/in'}}, 2: {'cat': 'H', 'args': {'k': 'v "x"'}, 'relations': {'1': [4]}},
            3: {'cat': 'inside', 'args': {}}}
    begins = {id: rec('range_begin', name=w.string(f'e{id}'), time=1000 * id, id=id, flags=STAGE | 0x40000) for id in said}
    w.chunk([rec('thread', serial=1, tid=77, name=w.string('main'), time=1), *begins.values(),
             *(rec('signature', id=id, name=w.string(f'e{id}'), text=w.string(json.dumps(s)), direction=3, time=5000)
               for id, s in said.items()),
             end_of(begins[1], 6000, 1), end_of(begins[3], 7000, 1), end_of(begins[2], 8000, 1)], thread=1, tid=77)
    w.footer()
    w.save(tmp_path / 'rank0.node5.41.tfr')
    chrome = json.loads(analyze('export', 'chrome', tmp_path / 'rank0.node5.41.tfr', format=None).out)['traceEvents']
    assert {e['ph'] for e in chrome if e['name'] == 'e2'} == {'b', 'e'}  # of two that overlap one is a pair in the Chrome form
    events = exported(analyze, tmp_path, tmp_path / 'rank0.node5.41.tfr', name='out.pfw')
    files = {e['args']['value']: e['args']['name'] for e in events if e['name'] == 'FH'}
    rows = {e['name']: (e['cat'], e['ts'] - T0, e['dur'], {k: v for k, v in e['args'].items() if k != 'hhash'}) for e in of_application(events)}
    assert files[rows['e1'][3].pop('fhash')] == '/in'
    assert rows == {'e1': ('app', 1, 5, {'epoch': 9}), 'e2': ('H', 2, 6, {'k': 'v "x"', 'relations': {'1': [4]}}),
                    'e3': ('inside', 3, 4, {})}


def test_a_trace_of_torch_becomes_one_of_dftracer(analyze, shared_traces, tmp_path):
    """Every event with a duration, at its time; work of devices in the categories of dftracer."""
    path = shared_traces / 'hta/trace_filter/sampled_rank-0.json.gz'
    events = of_application(exported(analyze, tmp_path, path))
    wanted = [e for e in json.loads(gzip.decompress(path.read_bytes()))['traceEvents'] if e['ph'] == 'X']
    category = {'kernel': 'CUDA_KERNEL', 'gpu_memcpy': 'CUDA_MEMCPY', 'gpu_memset': 'CUDA_MEMSET', 'cuda_runtime': 'CUDA_RUNTIME_API'}
    assert Counter((e['name'], e['cat'], e['ts'], e['dur']) for e in events) == \
        Counter((e['name'], category.get(e['cat'], e['cat']), int(e['ts']), int(e['ts'] + e['dur']) - int(e['ts'])) for e in wanted)
    assert {e['pid'] for e in events} == {4037}


def test_a_trace_of_dftracer_keeps_its_calls_and_files(analyze, shared_traces, tmp_path):
    """An exported trace of the oldest and of later forms has the calls, files and bytes of the original, and so has its
    export."""
    for name in ('test.pfw', 'cm1/cm1-DEFAULT-3537781-preload.pfw.gz'):
        old = read_pfw(shared_traces / 'dftracer' / name)
        new = exported(analyze, tmp_path, shared_traces / 'dftracer' / name, name='a.pfw')
        assert files_and_bytes(new) == files_and_bytes(old)
        assert len(of_application(new)) == len(of_application(old))
        again = exported(analyze, tmp_path, tmp_path / 'a.pfw', name='b.pfw.gz')
        assert files_and_bytes(again) == files_and_bytes(old)


@pytest.mark.slow
def test_several_processes_share_a_file(analyze, shared_traces, tmp_path):
    events = exported(analyze, tmp_path, shared_traces / 'dftracer' / 'cm1')
    assert len({e['pid'] for e in events}) == 8
    assert Counter(e['args']['value'] for e in events if e['name'] == 'PR' and e['args']['name'] == 'rank').total() == 8


def test_arrows_are_counted_and_left_out(analyze, tmp_path):
    trace = kineto.Trace().stage('s', 0, 10)
    trace.write(tmp_path / 'a.json')
    document = json.loads((tmp_path / 'a.json').read_text())
    document['traceEvents'] += [{'ph': 's', 'id': 1, 'name': 'x', 'cat': 'ac2g', 'pid': 1, 'tid': 1, 'ts': 1},
                                {'ph': 'C', 'name': 'c', 'pid': 1, 'tid': 1, 'ts': 2, 'args': {'v': 1}}]
    (tmp_path / 'a.json').write_text(json.dumps(document, indent=1))
    result = analyze('export', 'pfw', tmp_path / 'a.json', format=None)
    assert '2 arrows, counters and other events are left out' in result.err and '"s"' in result.out
