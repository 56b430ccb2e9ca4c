"""test_merge - `tfanalyze merge`: ranks of all kinds in one timeline, with one clock, ids of their own, bounded memory."""

import copy
import gzip
import json
import re
from collections import Counter, defaultdict

import pytest

import comm_traces
import kineto
from conftest import clean_environment, execute
from kineto import nanoseconds
from test_export_kineto import AMD, FILTER, NCCL, QWEN, ask_loaders, in_hta
from test_hostile_memory import ask
from tfr import DEVICE, MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

LARGEST = 1 << 53  # doubles hold every smaller whole number
IDS = ('correlation', 'External id', 'external id', 'Python id', 'Python parent id')


def merge(analyze, *arguments, rc=0, command='merge'):
    """The merged trace, with Decimals for floats, and the lines on stderr."""
    result = analyze(*command.split(), *arguments, rc=rc, format=None)
    return json.loads(result.out, parse_float=kineto.Decimal), result.err


def split(merged):
    """[(input, its events)] by the pids that each input lists."""
    owner = {str(pid): i for i, one in enumerate(merged['inputs']) for pid in one['pids']}
    assert len(owner) == sum(len(one['pids']) for one in merged['inputs'])
    events = defaultdict(list)
    for event in merged['traceEvents']:
        events[owner[str(event['pid'])]].append(event)
    return [(one, events[i]) for i, one in enumerate(merged['inputs'])]


def check(merged, whole=True):
    """Checks every merged trace: no negative times, whole arrows and pairs, ids that doubles hold. Some real
    traces have arrows without a beginning."""
    ends = defaultdict(Counter)
    for event in merged['traceEvents']:
        assert event.get('ts', 0) >= 0 and event.get('dur', 0) >= 0, event
        if event['ph'] in 'sfbe':
            ends[event['cat'], event['name'], str(event['id'])][event['ph']] += 1
        for number in [event.get('id')] + [event.get('args', {}).get(key) for key in IDS]:
            assert not isinstance(number, int) or number < LARGEST, event
    for key, phases in ends.items() if whole else ():
        assert phases['f'] == 0 or phases['s'] == 1, key
        assert phases['b'] == phases['e'], key
    return merged


def shifted_by(new, old):
    """Returns the number that was added to the ids of a rank: the same number for every id."""
    found = set()
    for a, b in zip(new, old):
        pairs = [(a.get('args', {}).get(key), b.get('args', {}).get(key)) for key in IDS] + [(a.get('id'), b.get('id'))]
        found |= {x - y for x, y in pairs if isinstance(y, int) and (y > 0 or (y == 0 and x))}
    assert len(found) <= 1, found
    return found.pop() if found else 0


def undone(event, moved, pids, base, label):
    """The event as it was before the merge."""
    event = copy.deepcopy(event)
    event['pid'] = pids[str(event['pid'])]
    event['ts'] = nanoseconds(event['ts']) + base
    arguments = event.get('args', {})
    for key in IDS:
        if isinstance(arguments.get(key), int) and arguments[key] > 0:
            arguments[key] -= moved
    if 'id' in event:
        event['id'] -= moved
    if event['name'] == 'process_name':
        assert arguments['name'].startswith(f'{label}: ')
        arguments['name'] = arguments['name'].removeprefix(f'{label}: ')
    if event['name'] == 'process_sort_index':
        del arguments['sort_index']
    return event


def same_events(merged, one, events, original, label):
    """The events of a rank are those of its trace, in order, but for pids, ids and the base of their times."""
    theirs = copy.deepcopy(original['traceEvents'])
    added = [e for e in events[len(theirs):]]
    assert all(e['ph'] == 'M' for e in added)
    moved = shifted_by(events, theirs)
    pids = {}
    for new, old in zip(events, theirs):
        assert pids.setdefault(str(new['pid']), old['pid']) == old['pid']
    assert len(set(map(str, pids.values()))) == len(pids)
    for new, old in zip(events, theirs):
        old['ts'] = nanoseconds(old['ts']) + original.get('baseTimeNanoseconds', 0)
        if old['name'] == 'process_sort_index':
            del old['args']['sort_index']
        assert undone(new, moved, pids, merged['baseTimeNanoseconds'], label) == old


@pytest.mark.parametrize('names', [
    pytest.param([FILTER.format(0), FILTER.format(1)], id='two ranks'),
    pytest.param([QWEN, NCCL, AMD], id='three jobs', marks=pytest.mark.slow)])
def test_every_event_is_there(analyze, shared_traces, names):
    """Real traces: each event, each member of the files, and rows that begin with the rank."""
    paths = [shared_traces / name for name in names]
    merged, err = merge(analyze, *(f'rank={i}:{path}' for i, path in enumerate(paths)))
    check(merged, QWEN not in names)
    for i, ((one, events), path) in enumerate(zip(split(merged), paths)):
        original = kineto.read(path)
        same_events(merged, one, events, original, f'rank {i}')
        members = {k: v for k, v in original.items() if k != 'traceEvents'}
        assert one['metadata'] == members and one['rank'] == i and one['path'].endswith(str(path))
    sorts = [e['args']['sort_index'] // 8192 for e in merged['traceEvents'] if e['name'] == 'process_sort_index']
    assert sorts == sorted(sorts) and set(sorts) == set(range(len(paths)))


def test_devices_are_below_their_rank(analyze, shared_traces):
    merged, _ = merge(analyze, shared_traces / FILTER.format(0), shared_traces / FILTER.format(1))
    for rank, (_, events) in enumerate(split(merged)):
        label = {e['pid']: e['args']['labels'] for e in events if e['name'] == 'process_labels'}
        place = {e['pid']: e['args']['sort_index'] for e in events if e['name'] == 'process_sort_index'}
        order = [label[pid] for pid in sorted(label, key=place.get)]
        assert order == ['CPU'] + [f'GPU {n}' for n in range(8)] and min(place.values()) == 8192 * rank


def write_parts(merged, directory):
    """Each rank of a merged trace as a file of its own."""
    paths = []
    for i, (one, events) in enumerate(split(merged)):
        paths.append(directory / f'part{i}.json')
        paths[-1].write_text(json.dumps({'distributedInfo': {'rank': one['rank']}, 'traceEvents': events}, default=float))
    return paths


@pytest.mark.soak
def test_each_rank_loads_in_hta(analyze, shared_traces, tmp_path, python):
    """The parts of a merged trace have as many events in HTA as the traces before, and the whole loads too."""
    paths = [shared_traces / FILTER.format(rank) for rank in range(2)]
    analyze('merge', '-o', tmp_path / 'both.json.gz', *paths, format=None)
    merged = json.loads(gzip.decompress((tmp_path / 'both.json.gz').read_bytes()))
    parts = write_parts(merged, tmp_path)
    counts = ask_loaders(python, {'hta': [*paths, *parts, tmp_path / 'both.json.gz']})['hta']
    expected = [in_hta(kineto.read(path)['traceEvents']) for path in paths]
    assert counts == expected * 2 + [sum(expected)] and min(expected) > 4000


# ---- traces of ours, on hosts with clocks of their own ----

REAL, TURN, COUNT = 1_700_000_000_000_000_000, 2_000_000, 40


def ours(path, rank, ahead, drift, world=8, count=COUNT):
    """A rank on a host whose clock is `ahead` nanoseconds ahead and gains `drift`: a stage with all_reduces that end on
    all ranks at the same moments."""
    w = Writer(rank=rank, world=world, pid=4000, host=f'node{rank}', clock='tsc')
    reduce = w.string('nccl\x1fCOLLECTIVE\x1fncclAllReduce\x1f')
    launch = w.string('cudart\x1fLAUNCH\x1fcudaLaunchKernel\x1f')
    last = (count + 2) * TURN
    records = [rec('thread', serial=1, tid=101, time=1, name=w.string('main'), pthread=0x10000)]
    for at in (0, last):
        gained = round(at * drift)
        records += [rec('clock', clock=MONOTONIC, ticks=at, value=5 + at + gained, error=10),
                    rec('clock', clock=REALTIME, ticks=at, value=REAL + ahead + at + gained, error=10),
                    rec('clock', clock=DEVICE, ticks=at, value=7_000_000_000 + at, error=10)]
    records.append(rec('device', device=0, name=w.string('GPU'), units=100, uuid_high=rank + 1, uuid_low=1))
    records.append(rec('range_end', name=w.string('train'), time=last - 10, duration=last - 20, id=1, flags=NESTED | STAGE, thread=1))
    for i in range(count):
        call, end = (i + 1) * TURN + 1000 * rank, (i + 1) * TURN + 500_000
        records += [rec('collective', func=reduce, time=call, duration=20_000, communicator=99, sequence=i, bytes=4096,
                        count=1024, type=7, reduction=0, peer=-1, rank=rank, ranks=world, stream=7),
                    rec('correlation', correlation=i + 1, func=launch, thread=0x10000, time=call + 5000, duration=2000),
                    rec('kernel', correlation=i + 1, start=7_000_000_000 + call + 30_000, duration=end - call - 30_000,
                        stream=7, device=0, name=w.string('ncclDevKernel_AllReduce_Sum_f32_RING_LL'))]
    w.chunk(records, thread=1, tid=101)
    w.footer()
    return w.save(path)


@pytest.fixture(scope='module')
def eight(tmp_path_factory):
    directory = tmp_path_factory.mktemp('eight')
    return [ours(directory / f'rank{r}.node{r}.4000.tfr', r, 3_000_000 * r * (-1) ** r, 2e-6 * r) for r in range(8)]


def kernel_ends(merged):
    """{rank: ends of its kernels, in nanoseconds}"""
    return {one['rank']: [nanoseconds(e['ts'] + e['dur']) for e in events if e.get('cat') == 'kernel']
            for one, events in split(merged)}


@pytest.mark.parametrize('command', ['merge', 'export chrome'])
def test_skewed_clocks(analyze, eight, command):
    """Clocks up to 21 ms apart are aligned to less than 2 us, and the file says by how much."""
    merged, err = merge(analyze, eight[0].parent, command=command)
    check(merged)
    assert '7 clocks are aligned' in err and merged['clock_residual_us'] < 2
    ends = kernel_ends(merged)
    assert len(ends) == 8 and {len(e) for e in ends.values()} == {COUNT}
    assert max(max(at) - min(at) for at in zip(*ends.values())) < 2000
    for rank, one in enumerate(merged['inputs']):
        assert one['clock'] == ('collectives' if rank else 'time of day')
        assert abs(float(one['clock_offset_us']) + 3000 * rank * (-1) ** rank) < 10
    heads = Counter(e['id'] for e in merged['traceEvents'] if e['ph'] == 's')
    assert len(heads) == 8 * COUNT and set(heads.values()) == {1}


@pytest.mark.soak
def test_ours_in_hta(analyze, eight, tmp_path, python):
    """Each rank of a merged trace has as many events in HTA as the rank exported alone."""
    merged, _ = merge(analyze, *eight)
    parts = write_parts(merged, tmp_path)
    for rank, path in enumerate(eight):
        analyze('export', 'chrome', path, '--output', tmp_path / f'one{rank}.json', format=None)
    counts = ask_loaders(python, {'hta': [*parts, *(tmp_path / f'one{r}.json' for r in range(8))]})['hta']
    assert counts[:8] == counts[8:] and min(counts) > COUNT


def test_kineto_clocks_are_aligned_too(analyze, tmp_path):
    """A clock that drifts: durations follow it, so that boxes keep nesting."""
    paths, _ = comm_traces.job(tmp_path, count=60, sequences=True)
    truth = [kineto.read(path)['traceEvents'] for path in paths]
    for rank, path in enumerate(paths):
        comm_traces.skewed(path, rank * 3_000_000, rank * 1e-4, f'node{rank}')
    merged, err = merge(analyze, *paths)
    assert '3 clocks are aligned' in err
    for rank, (_, events) in enumerate(split(check(merged))):
        for new, old in zip(events, truth[rank]):
            if new['ph'] != 'M':
                assert abs(nanoseconds(new['ts']) - nanoseconds(old['ts'])) < 3000
                assert abs(nanoseconds(new['dur']) - nanoseconds(old['dur'])) < 300
    names = [e['args']['name'] for e in merged['traceEvents'] if e['name'] == 'process_name']
    assert {n.partition(' on ')[2] for n in names} == {f'node{r}' for r in range(4)}


@pytest.mark.slow
def test_ours_and_kineto_mixed(analyze, eight, shared_traces):
    merged, _ = merge(analyze, eight[0], f'rank=5:{shared_traces / QWEN}')
    (_, own), (one, theirs) = split(check(merged, False))
    same_events(merged, one, theirs, kineto.read(shared_traces / QWEN), 'rank 5')
    assert sum(e.get('cat') == 'kernel' for e in own) == COUNT
    assert merged['inputs'][0]['metadata']['distributedInfo'] == {'rank': 0, 'world_size': 8}
    assert merged['inputs'][0]['metadata']['deviceProperties'][0]['name'] == 'GPU'


# ---- the command line ----

@pytest.mark.parametrize('form', ['-o {out} {a} {b}', '--inputs {a} {b} --output {out}', '--file-list {a} {b} --output {out}',
                                  '{a} {b}', '--inputs={a} --inputs={b} -o{out}'])
def test_command_lines(analyze, tmp_path, form):
    paths = [kineto.Trace(pid=7, distributedInfo={'rank': rank}).stage('s', 10, 5).write(tmp_path / f'{rank}.json') for rank in range(2)]
    out = tmp_path / 'out.json'
    result = analyze('merge', *form.format(a=paths[0], b=paths[1], out=out).split(), format=None)
    merged = json.loads(out.read_text() if '{out}' in form else result.out)
    assert sorted(e['pid'] for e in merged['traceEvents'] if e['ph'] == 'X') == [7, 4194305]
    assert [one['rank'] for one in merged['inputs']] == [0, 1]


def test_filters_of_a_merged_export(analyze, eight, shared_traces):
    both = [shared_traces / FILTER.format(rank) for rank in range(2)]
    whole, _ = merge(analyze, *both, command='export chrome')
    part, _ = merge(analyze, '--stage', '## forward ##', *both, command='export chrome')
    for (_, all_), (_, some), path in zip(split(whole), split(check(part)), both):
        alone = json.loads(analyze('export', 'chrome', '--stage', '## forward ##', path, format=None).out)['traceEvents']
        kept = [e['name'] for e in alone if e['ph'] == 'X']
        assert [e['name'] for e in some if e['ph'] == 'X'] == kept and 0 < len(kept) < len(all_)
    one, _ = merge(analyze, '--from', '0.02', '--to', '0.03', *eight[:2])
    assert 5 < sum(e.get('cat') == 'kernel' for e in check(one)['traceEvents']) < 14
    assert 'nothing matches --stage nope' in analyze('merge', '--stage', 'nope', *both, rc=1, format=None).err


def test_a_merged_file_is_not_counted_with_its_inputs(analyze, tmp_path):
    """A merged trace in the directory of its inputs is left out when the directory is read."""
    for rank in range(2):
        kineto.Trace(distributedInfo={'rank': rank}).stage('s', 10, 5).write(tmp_path / f'rank{rank}.json')
    analyze('merge', '-o', tmp_path / 'all.json', tmp_path, format=None)
    assert [row['calls'] for row in analyze('stages', tmp_path)['rows']] == [1, 1]


# ---- ids ----

def test_ids_do_not_collide(analyze, tmp_path):
    """Ids that no double holds stay apart, in one rank and between two; 0 stays "none"; texts keep their form."""
    large = [2 ** 53, 2 ** 53 + 1, 2 ** 64 - 1, 2 ** 40, 2 ** 40 - 1]
    for rank in range(2):
        trace = kineto.Trace(distributedInfo={'rank': rank})
        for i, number in enumerate([1, 0, *large]):
            trace.call(10 * i, number)
            trace.arrow(number, (1, 10 * i), (2, 10 * i + 5))
        trace.add('x', 'async', 1, ph='b', id='0x10').add('x', 'async', 2, ph='e', id='0x10')
        trace.add('x', 'text', 1, ph='b', id='some"id').add('x', 'text', 2, ph='e', id='some"id')
        trace.write(tmp_path / f'rank{rank}.json')
    merged, _ = merge(analyze, tmp_path)
    check(merged)
    arrows, calls, pairs = ([defaultdict(set) for _ in range(2)] for _ in range(3))
    for rank, (_, events) in enumerate(split(merged)):
        for event in events:
            if event['ph'] in 'sf':
                arrows[rank][event['id']].add(event['ph'])
            elif event['ph'] in 'be':
                pairs[rank][event['id']].add(event['ph'])
            elif event['ph'] == 'X':
                calls[rank][event['args']['correlation']].add(1)
    for kind in (arrows, pairs):
        assert not set(kind[0]) & set(kind[1]) and all(len(v) == 2 for ids in kind for v in ids.values())
    assert set(calls[0]) & set(calls[1]) == {0} and [len(c) for c in calls] == [7, 7]
    assert [len(a) for a in arrows] == [7, 7]
    assert json.dumps(merged['traceEvents'], default=str) == json.dumps(merge(analyze, tmp_path)[0]['traceEvents'], default=str)


# ---- bad input ----

def test_a_cut_trace(analyze, shared_traces, tmp_path):
    """The events before the cut are merged; a line says so, and the status is 3."""
    data = gzip.decompress((shared_traces / AMD).read_bytes())
    cut = tmp_path / 'cut.json'
    cut.write_bytes(data[:len(data) * 2 // 3])
    merged, err = merge(analyze, f'rank=0:{cut}', f'rank=1:{shared_traces / AMD}', rc=3)
    (first, part), (_, whole) = split(check(merged, False))
    assert 20 < len(part) < len(whole) and not first['complete'] and 'ends early' in err


def test_a_cut_trace_of_ours(analyze, eight, tmp_path):
    cut = tmp_path / 'rank0.node0.4000.tfr'
    data = eight[0].read_bytes()
    cut.write_bytes(data[:len(data) - 200])
    merged, err = merge(analyze, cut, eight[1], rc=3)
    assert str(cut) in err and [one['complete'] for one in check(merged)['inputs']] == [False, True]


@pytest.mark.parametrize('event, what', [
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"x": [1 2]}}', 'not valid JSON'),
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"x": 01}}', 'not valid JSON'),
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"x": nul}}', 'not valid JSON'),
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1e30, "dur": 1}', '1 of'),
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": -1}', 'negative duration'),
    ('{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1}', 'have no time')])
def test_a_bad_event_is_left_out(analyze, tmp_path, event, what):
    (tmp_path / 'a.json').write_text('{"traceEvents": [%s, {"ph": "i", "name": "good", "pid": 1, "tid": 1, "ts": 1}]}' % event)
    kineto.Trace(distributedInfo={'rank': 1}).stage('s', 10, 5).write(tmp_path / 'b.json')
    merged, err = merge(analyze, tmp_path, rc=3)
    assert what in err
    assert [e['name'] for e in check(merged)['traceEvents'] if e['ph'] != 'M'] == ['good', 's']


@pytest.mark.parametrize('word, value', [('"a\xff\x1b"', 'a\ufffd\x1b'), ('NaN', None), ('-Infinity', None), ('"\\ud800"', '\ufffd'), ('"\\u202e"', '\u202e')])
def test_odd_values_become_valid_json(analyze, tmp_path, word, value):
    event = '{"ph": "X", "cat": "x", "name": "n", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {"x": %s}}' % word
    (tmp_path / 'a.json').write_bytes(b'{"traceEvents": [%s]}' % event.encode('latin-1'))
    kineto.Trace(distributedInfo={'rank': 1}).stage('s', 10, 5).write(tmp_path / 'b.json')
    result = analyze('merge', tmp_path, format=None)
    merged = json.loads(result.out, parse_constant=lambda name: pytest.fail(name))
    assert next(e for e in merged['traceEvents'] if e['ph'] == 'X')['args'] == {'x': value}
    assert not re.search('[\x00-\x09\x0b-\x1f\u202e]', result.out)


def test_a_trace_without_a_time_of_day(analyze, tmp_path):
    """It begins where the others begin; a line and the file say that its place is not known."""
    base = 1_711_964_646_000_000_000
    kineto.Trace(distributedInfo={'rank': 0}, baseTimeNanoseconds=base).stage('a', 1000, 50).write(tmp_path / 'rank0.json')
    kineto.Trace(distributedInfo={'rank': 1}).stage('b', 77, 5).arrow(1, (1, 70), (1, 78)).write(tmp_path / 'rank1.json')
    merged, err = merge(analyze, tmp_path)
    assert 'rank1.json: has no time of day' in err and 'begins where the others begin' in err
    assert [one['clock'] for one in check(merged)['inputs']] == ['time of day', 'unknown']
    at = {e['name']: e['ts'] for e in merged['traceEvents'] if e['ph'] == 'X'}
    assert at == {'a': 1000, 'b': 1007} and min(e['ts'] for e in merged['traceEvents'] if e['ph'] == 's') == 1000


def test_traces_that_all_count_from_boot(analyze, tmp_path):
    for rank in range(2):
        kineto.Trace(distributedInfo={'rank': rank}).stage('a', 5000 + rank, 50).write(tmp_path / f'rank{rank}.json')
    merged, err = merge(analyze, tmp_path)
    assert 'its times are taken as they are' in err
    assert [e['ts'] for e in check(merged)['traceEvents'] if e['ph'] == 'X'] == [5000, 5001]


def test_hosts_without_collectives(analyze, tmp_path):
    for rank in range(2):
        kineto.Trace(distributedInfo={'rank': rank}, host_name=f'h{rank}', baseTimeNanoseconds=10 ** 18).stage('a', 5, 9) \
            .write(tmp_path / f'rank{rank}.json')
    merged, err = merge(analyze, tmp_path)
    assert '2 hosts share too few collectives' in err and check(merged)['clock_residual_us'] is None


def test_ranks_of_another_job(analyze, tmp_path):
    info = [{'rank': 0, 'world_size': 2}, {'rank': 1, 'world_size': 4}]
    for rank in range(2):
        kineto.Trace(distributedInfo=info[rank], baseTimeNanoseconds=10 ** 18).stage('a', 5 + rank * 10 ** 9, 9) \
            .write(tmp_path / f'rank{rank}.json')
    merged, err = merge(analyze, tmp_path)
    assert 'is of a world of 4 ranks' in err and 'may be of another run' in err and len(merged['inputs']) == 2
    _, err = merge(analyze, tmp_path, f'rank=0:{tmp_path / "rank0.json"}', tmp_path / 'missing.json', rc=3)
    assert 'missing.json: cannot be read' in err


@pytest.mark.slow
def test_a_thousand_inputs(tfanalyze, tmp_path):
    """1000 traces with 40 descriptors: at most a few files are open at a time."""
    for rank in range(1000):
        (tmp_path / f'rank{rank}.json').write_text(
            '{"distributedInfo": {"rank": %d}, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 9, '
            '"tid": 9, "ts": 1682725898236567, "dur": 3, "args": {"External id": 1}}]}' % rank)
    out = tmp_path / 'out'
    result = execute(['sh', '-c', f'ulimit -n 40; exec {tfanalyze} merge -o {out} {tmp_path}'], clean_environment())
    assert (result.rc, result.err) == (0, '')
    merged = check(json.loads(out.read_text()))
    events = [e for e in merged['traceEvents'] if e['ph'] == 'X']
    assert len(events) == len({e['pid'] for e in events}) == len({e['args']['External id'] for e in events}) == 1000


def test_a_disk_that_fills(tfanalyze, shared_traces, tmp_path):
    """The name keeps what it had, and nothing else is left."""
    out = tmp_path / 'out.json'
    out.write_text('before')
    command = f'ulimit -f 512; exec {tfanalyze} merge -o {out} {shared_traces / FILTER.format(0)} {shared_traces / FILTER.format(1)}'
    result = execute(['bash', '-c', command], clean_environment())
    assert result.rc == 1 and 'cannot be written' in result.err
    assert out.read_text() == 'before' and list(tmp_path.iterdir()) == [out]


# ---- memory ----

MOST = 64  # MiB


def grown(path, rank, copies):
    """A trace with an operator, a launch, a kernel and an all_reduce many times over, as one part repeated in gzip."""
    said = comm_traces.description('allreduce', (1024, 1024), 'Float', 2, '0', [0, 1])
    events = []
    for i in range(2000):
        events.append(comm_traces.event('cpu_op', 'aten::add', 1000 * i, 1000 * i + 900, 1, 500 + rank, **{'External id': i}))
        events.append(comm_traces.event('kernel', 'add', 1000 * i + 300, 1000 * i + 500, 7, 0, correlation=i + 1, stream=7, device=0))
        if i % 50 == 0:
            events += comm_traces.collective(said, i, 1000 * i, 1000 * i + 800, rank, sequence=i)
    part = ',\n'.join(map(json.dumps, events)).encode()
    head = json.dumps({'distributedInfo': {'rank': rank, 'world_size': 2}, 'host_name': f'h{rank}',
                       'baseTimeNanoseconds': comm_traces.BASE})[:-1].encode() + b', "traceEvents": [\n'
    path.write_bytes(gzip.compress(head, 1) + gzip.compress(part + b',\n', 1) * (copies - 1) + gzip.compress(part + b']}', 1))
    return copies * len(part)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_inputs(python, tfanalyze, tmp_path):
    """Two ranks of two hosts, with collectives: under 64 MiB at 20 MB and at 120 MB of events."""
    peaks = []
    for copies in (10, 60):
        size = sum(grown(tmp_path / f'rank{rank}.json.gz', rank, copies) for rank in range(2))
        out, err, status, peak = ask(python, tfanalyze, 'merge', '-o', tmp_path / 'out.json.gz',
                                     *(tmp_path / f'rank{rank}.json.gz' for rank in range(2)))
        assert status == 0 and peak < MOST, (size, peak, err)
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 16
