"""test_nccl - NCCL on the simulated GPU: records of collectives, groups and communicators equal NCCL's own log.

tests/victims_gpu/nccl_ranks.c is one rank per process. tests/simgpu/libnccl.so.2 connects the ranks, moves their data
(the program checks it), and logs its calls and the times of its kernels.
"""

import json
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

import scripted
import tfr
from conftest import BUILD, COMMAND_TIMEOUT, built
from scripted import only, text
from simgpu import truth
from test_cuda_tables import exported, load_gen_tables

GPU = BUILD / 'simgpu'
GIVES_UP_MS = 2500  # time enough for ranks that a busy machine starts one after the other
GROUPED, CAPTURED = 1, 2
KERNELS = ['*nccl* 250us + 10us*blocks']
SLACK = 20000  # ns: the allowed difference between the clocks of a trace and of a log
FIELDS = ['sequence', 'bytes', 'count', 'type', 'reduction', 'peer', 'rank', 'ranks']


def start(directory, lib, ranks, *arguments, script=None, **more):
    """Starts the ranks and returns their processes. `script` says what goes wrong in NCCL."""
    built(GPU / 'libnccl.so.2')
    if script:
        (directory / 'nccl-script').write_text('\n'.join(script) + '\n')
        more['SIMNCCL_SCRIPT'] = directory / 'nccl-script'
    ours = {'LD_PRELOAD': lib, 'TFI_OUTPUT_DIR': directory / 'run'} if lib else {}
    env = truth.environment(directory, KERNELS, SIMNCCL_LOG=directory / 'nccl-%p.jsonl', **ours, **more)
    program = built(BUILD / 'victims_gpu' / 'nccl_ranks')
    return [subprocess.Popen([program, str(r), str(ranks), directory / 'id', *map(str, arguments)], env={**env, 'RANK': str(r)},
                             cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(ranks)]


def finish(processes):
    for p in processes:
        try:
            out, err = p.communicate(timeout=COMMAND_TIMEOUT)
        except subprocess.TimeoutExpired:
            for q in processes:
                q.kill()
            raise
        assert (p.returncode, out) == (0, 'ok\n'), (out, err)


def logs(directory):
    """{rank: its calls, communicators and kernels in order}, from NCCL's logs."""
    found = {}
    for path in directory.glob('nccl-*.jsonl'):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        rank = next(x['rank'] for x in lines if x['t'] == 'comm')
        found[rank] = SimpleNamespace(pid=lines[0]['pid'], lines=lines, **{f'{t}s': [x for x in lines if x['t'] == t] for t in (
            'call', 'comm', 'kernel', 'timeout')})
        found[rank].calls.sort(key=lambda c: c['start'])
        found[rank].kernels.sort(key=lambda k: k['start'])
    return found


def traces(directory):
    found = {}
    for t in scripted.traces(directory / 'run'):
        found[int(t.path.name.split('.')[0].removeprefix('rank'))] = t
    return found


def records(trace, kind):
    return sorted((r for r in trace.records if r.kind == kind), key=lambda r: r.values['time'])


def collectives(trace):
    return [SimpleNamespace(**r.values, name=text(trace, r.values['func']).split('\x1f')[2], thread=r.thread)
            for r in records(trace, 'collective')]


def nanoseconds(trace):
    """A function from a trace's ticks to nanoseconds of CLOCK_MONOTONIC."""
    clock = [r.values for r in trace.records if r.kind == 'clock' and r.values['clock'] == tfr.MONOTONIC]
    a, b = min(clock, key=lambda c: c['ticks']), max(clock, key=lambda c: c['ticks'])
    rate = (b['value'] - a['value']) / (b['ticks'] - a['ticks'])
    return lambda ticks: a['value'] + (ticks - a['ticks']) * rate


@pytest.fixture(scope='module', params=[8, 3])
def ran(request, tmp_path_factory, lib):
    directory = tmp_path_factory.mktemp('nccl')
    finish(start(directory, lib, request.param, 'all'))
    run = SimpleNamespace(directory=directory, ranks=request.param, logs=logs(directory), traces=traces(directory))
    assert set(run.logs) == set(run.traces) == set(range(request.param))
    return run


# ---- the records ----

def test_every_collective_equals_the_log(ran):
    """Each call is one record with its name, bytes, count, type, operation, root, peer, stream, number and flags."""
    for rank, log in ran.logs.items():
        made = [c for c in collectives(ran.traces[rank]) if c.error == 0]
        assert [c.name.replace('Bcast', 'Broadcast') for c in made] == [c['name'] for c in log.calls]
        assert Counter(c.name for c in made)['ncclBcast'] == 2
        assert len({c.name for c in made} - {'ncclSend', 'ncclRecv'}) == 9
        for ours, theirs in zip(made, log.calls):
            assert {f: getattr(ours, f) for f in FIELDS} == {f: theirs[f] for f in FIELDS}
            assert ours.stream == theirs['stream']
            assert ours.flags == GROUPED * theirs['grouped'] + CAPTURED * theirs['captured'], theirs
        flags = Counter(c.flags for c in made)
        assert (flags[CAPTURED], flags[CAPTURED | GROUPED]) == (3, 6) and flags[GROUPED] >= 4


def test_moments_equal_the_log(ran):
    """Each call in NCCL's log lies inside the time of its record."""
    for rank, log in ran.logs.items():
        at = nanoseconds(ran.traces[rank])
        made = [c for c in collectives(ran.traces[rank]) if c.error == 0]
        for ours, theirs in zip(made, log.calls):
            assert at(ours.time) - SLACK <= theirs['start'] <= theirs['end'] <= at(ours.time + ours.duration) + SLACK


def test_one_number_for_each_group_on_all_its_ranks(ran):
    """The communicators of NCCL's log and the numbers of ours correspond one to one."""
    pairs = set()
    for rank, log in ran.logs.items():
        made = [c for c in collectives(ran.traces[rank]) if c.error == 0]
        pairs |= {(theirs['comm'], ours.communicator) for ours, theirs in zip(made, log.calls)}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs) >= 6
    assert all(b for _, b in pairs)


def test_a_refused_call_is_recorded_and_takes_no_number(ran):
    for trace in ran.traces.values():
        refused = only([c for c in collectives(trace) if c.error])
        following = [c for c in collectives(trace) if c.communicator == refused.communicator and c.time > refused.time]
        assert (refused.name, refused.error, refused.peer) == ('ncclBroadcast', 4, ran.ranks)
        assert following[0].sequence == refused.sequence


def test_communicators_equal_the_log(ran):
    """Each communicator's record has its call, its group, its parent, and its rank and size if these are known."""
    for rank, log in ran.logs.items():
        trace = ran.traces[rank]
        numbers = {c['comm']: ours.communicator for ours, c in zip([c for c in collectives(trace) if not c.error], log.calls)}
        made = [c for c in scripted.calls(trace) if c.kind == 'COMMUNICATOR' and 'communicator' in c.arguments]
        made = [(c, dict(zip([a.split(':')[0] for a in c.arguments.split(',')], c.args))) for c in sorted(made, key=lambda c: c.time)]
        for function in ('ncclCommInitRank', 'ncclCommInitRankConfig', 'ncclCommSplit', 'ncclCommShrink'):
            theirs = [c for c in log.comms if c['func'] == function]
            ours = [a for c, a in made if c.name == function and a['communicator']]
            assert len(ours) == len(theirs)
            for a, c in zip(ours, theirs):
                assert a['communicator'] == numbers.get(c['comm'], a['communicator'])
                assert 'parent' not in a or a['parent'] == numbers.get(c['parent'], a['parent'])
                if a['ranks']:  # unknown while a group or the background makes the communicator
                    assert (a['comm'], a['rank'], a['ranks']) == (c['handle'], c['rank'], c['ranks'])
        assert Counter(c.name for c, _ in made)['ncclCommDestroy'] == sum(c['func'] == 'ncclCommDestroy' for c in log.comms)


def test_other_calls(ran):
    for trace in ran.traces.values():
        made = Counter(c.name for c in scripted.calls(trace))
        assert made['ncclGroupStart'] == made['ncclGroupEnd'] == 7
        for name in ('MemAlloc', 'MemFree', 'CommRegister', 'CommDeregister', 'CommWindowRegister', 'CommWindowDeregister',
                     'RedOpCreatePreMulSum', 'RedOpDestroy', 'CommFinalize'):
            assert made['nccl' + name] == 1, name
        assert made['ncclCommGetAsyncError'] >= 2 and not [n for n in made if n in ('ncclGetUniqueId', 'ncclCommCount')]


def call_key(task):
    return task['comm'], task['func'], task['peer'], task['sequence']


def replays(log):
    """{kernel's start: number of its replay} of the kernels whose calls were captured."""
    captured, seen, found = {call_key(c) for c in log.calls if c['captured']}, Counter(), {}
    for kernel in log.kernels:
        first = call_key(kernel['tasks'][0])
        if first in captured:
            seen[first] += 1
            found[kernel['start']] = seen[first]
    return found


def launches(trace):
    """{correlation id: (thread, time)} of the calls that CUPTI reported."""
    threads = {r.values['pthread'] & 0xffffffff: r.values['serial'] for r in trace.records if r.kind == 'thread'}
    return {r.values['correlation']: (threads.get(r.values['thread']), r.values['time'])
            for r in trace.records if r.kind == 'correlation'}


def tasks_around(trace, thread, moment):
    """The collectives of a launch at that moment: the one around it, or those of the group that ends then."""
    inside = [c for c in collectives(trace) if c.thread == thread and c.time <= moment <= c.time + c.duration]
    if inside:
        return inside
    edges = sorted((c for c in scripted.calls(trace) if c.name in ('ncclGroupStart', 'ncclGroupEnd')), key=lambda c: c.time)
    depth, opened = 0, None
    for edge in edges:
        if edge.name == 'ncclGroupStart':
            opened, depth = edge.time if depth == 0 else opened, depth + 1
            continue
        depth -= 1
        if edge.time <= moment <= edge.time + edge.duration:
            assert depth == 0
            return [c for c in collectives(trace) if c.flags & GROUPED and opened < c.time < edge.time]
    raise AssertionError('no collective launched this kernel')


def test_kernels_belong_to_their_collectives(ran):
    """Each kernel was launched inside its collective or at the end of its group; durations are the log's."""
    for rank, log in ran.logs.items():
        trace = ran.traces[rank]
        kernels = sorted((r.values for r in trace.records if r.kind == 'kernel'), key=lambda k: k['start'])
        assert all('ncclDevKernel' in text(trace, k['name']) for k in kernels)
        assert [k['duration'] for k in kernels] == [k['end'] - k['start'] for k in log.kernels]
        replayed, known = replays(log), launches(trace)
        assert len(replayed) == 4 * 5 + 2
        for ours, theirs in zip(kernels, log.kernels):
            assert bool(ours['graph']) == (theirs['start'] in replayed)
            if ours['graph']:
                continue
            around = tasks_around(trace, *known[ours['correlation']])
            assert [(c.sequence, c.count, c.peer) for c in around] == [(t['sequence'], t['count'], t['peer']) for t in theirs['tasks']]


def test_the_analyser_counts_them(ran, analyze):
    rows = {r['name']: r for r in analyze('api', ran.directory / 'run', '--rank', '0')['rows']}
    made = Counter(c.name for c in collectives(ran.traces[0]))
    assert {name: rows[name]['calls'] for name in made} == dict(made)
    assert rows['ncclBroadcast']['errors'] == 1
    dumped = [r for r in analyze('dump', ran.directory / 'run', '--rank', '0')['rows'] if r['kind'] == 'collective']
    assert [r['values']['bytes'] for r in dumped] == [c.bytes for c in collectives(ran.traces[0])]


# ---- collectives over ranks ----

FACTORS = {'all_reduce': lambda n: 2 * (n - 1) / n, 'all_gather': lambda n: (n - 1) / n, 'reduce_scatter': lambda n: (n - 1) / n,
           'all_to_all': lambda n: (n - 1) / n, 'gather': lambda n: (n - 1) / n, 'scatter': lambda n: (n - 1) / n}


def met(ran):
    """{(group, sequence, replay): a call of it, and the spans of its kernel by rank}; replay None: it ran when it was called."""
    calls, spans = {}, defaultdict(dict)
    for rank, log in ran.logs.items():
        calls.update({(c['comm'], c['sequence']): c for c in log.calls if c['name'] not in ('ncclSend', 'ncclRecv')})
        replayed = replays(log)
        for k in log.kernels:
            for t in k['tasks']:
                if t['func'] not in ('ncclSend', 'ncclRecv'):
                    spans[t['comm'], t['sequence'], replayed.get(k['start'])][rank] = k['start'], k['end']
    return {key: (calls[key[:2]], span) for key, span in spans.items()}


def test_comm_equals_the_log(ran, analyze):
    """Every collective and replay on all its ranks: bytes, skew, waiting, transfer and bandwidth are those of NCCL's own log."""
    answer = analyze('comm', ran.directory / 'run')
    groups = {}
    for rank, log in ran.logs.items():
        made = [c for c in collectives(ran.traces[rank]) if c.error == 0]
        groups.update({f'0x{c.communicator:016x}': call['comm'] for c, call in zip(made, log.calls)})
    rows = {(groups[r['group']], r['seq'], r['replay']): r for r in answer['rows'] if r['name'] not in ('send', 'recv')}
    want = met(ran)
    assert set(rows) == set(want) and len(rows) > 60
    for key, (call, spans) in want.items():
        row, starts = rows[key], {rank: span[0] for rank, span in spans.items()}
        last, end = max(starts.values()), max(span[1] for span in spans.values())
        assert (row['bytes'], row['ranks'], row['size']) == (call['bytes'], call['ranks'], call['ranks'])
        if call['ranks'] == 1:
            assert row['clock_residual_us'] is None
            continue
        near = {'abs': 5 + row['clock_residual_us']}
        assert row['start_skew_us'] == pytest.approx((last - min(starts.values())) / 1000, **near)
        assert row['wait_us'] == {str(r): pytest.approx((last - s) / 1000, **near) for r, s in starts.items()}
        assert row['transfer_us'] == pytest.approx((end - last) / 1000, **near)
        factor = FACTORS.get(row['name'], lambda n: 1)(call['ranks'])
        assert row['busbw_gbs'] == pytest.approx(call['bytes'] * factor / (end - last), rel=0.05)


def test_messages_equal_the_log(ran, analyze):
    """Each send and its receive are one row: the ring of all ranks, its four replays, and one from the first rank to the last."""
    rows = [r for r in analyze('comm', ran.directory / 'run')['rows'] if r['name'] in ('send', 'recv')]
    sends = [c for log in ran.logs.values() for c in log.calls if c['name'] == 'ncclSend']
    assert sorted(r['bytes'] for r in rows) == sorted(c['bytes'] for c in sends for _ in range(4 if c['captured'] else 1))
    assert all(r['ranks'] == 2 for r in rows)


def test_captured_calls_are_counted(ran, analyze):
    """The totals have the captured calls, and those that never ran: one all_gather on each rank."""
    totals = analyze('comm', ran.directory / 'run')['totals']
    captured = sum(c['captured'] for log in ran.logs.values() for c in log.calls)
    assert (totals['captured'], totals['never_replayed'], totals['untimed_replays']) == (captured, ran.ranks, 0)


def test_replays_of_calls_outside_the_stage(tmp_path, lib, analyze):
    """A call captured in another stage is recorded, because its replays are in the selected one. The last rank is late to them, and
    on a busy machine another one even later."""
    finish(start(tmp_path, lib, 3, 'graphs', ENABLE_PROFILER_NAMES='replay'))
    answer = analyze('comm', tmp_path / 'run')
    rows = [r for r in answer['rows'] if r['name'] not in ('send', 'recv')]
    assert Counter(r['replay'] for r in rows) == {1: 7, 2: 7, 3: 6, 4: 6}
    first = [r for r in rows if r['name'] == 'all_reduce' and r['bytes'] == 32]
    every = met(SimpleNamespace(logs=logs(tmp_path)))
    spans = {replay: {rank: start for rank, (start, _) in span.items()} for (_, _, replay), (call, span) in
             every.items() if (call['name'], call['bytes']) == ('ncclAllReduce', 32)}
    assert [r['last_rank'] for r in first[1:]] == [max(spans[r['replay']], key=spans[r['replay']].get) for r in first[1:]]
    skews = [(max(spans[row['replay']].values()) - min(spans[row['replay']].values())) / 1000 for row in first]
    for row, skew in zip(first, skews):
        assert row['start_skew_us'] == pytest.approx(skew, abs=5 + row['clock_residual_us'])
    assert (answer['totals']['captured'], answer['totals']['never_replayed']) == (27, 3)
    late = analyze('stragglers', tmp_path / 'run')
    behind = Counter()
    for (_, _, replay), (_, span) in every.items():
        *_, second, last = [(0, None), *sorted((start, rank) for rank, (start, _) in span.items())]
        behind[last[1]] += last[0] - second[0] if replay and second[0] else 0
    (rank, most), = behind.most_common(1)
    assert (late['rows'][0]['rank'], late['rows'][0]['stage']) == (rank, 'replay') and late['totals']['rank'] == rank
    assert late['totals']['late_us'] > 0.9 * most / 1000


def test_graphs_that_were_recorded_as_a_whole(tmp_path, lib, analyze):
    """Without kernels the runs are counted: seven calls four times and one twice on each rank, and one that never ran."""
    finish(start(tmp_path, lib, 3, 'graphs', TFI_GRAPHS='graph'))
    answer = analyze('comm', tmp_path / 'run')
    assert [r['bytes'] for r in answer['rows']] == [36]
    totals = answer['totals']
    assert (totals['captured'], totals['never_replayed'], totals['untimed_replays']) == (27, 3, 3 * (7 * 4 + 2))
    said = analyze('comm', tmp_path / 'run', format=None).err
    assert '90 runs of captured collectives have no times' in said


# ---- the simulated NCCL itself ----

def test_ranks_end_together(ran):
    """A kernel ends on all ranks at once, after the last rank has come and the script's time has passed."""
    ends = defaultdict(set)
    for log in ran.logs.values():
        replayed = replays(log)
        for k in log.kernels:
            assert k['complete']
            if len(k['tasks']) == 1 and k['tasks'][0]['func'] not in ('ncclSend', 'ncclRecv'):
                ends[k['comm'], k['tasks'][0]['sequence'], replayed.get(k['start'])].add(k['end'])
                assert k['end'] > max(k['starts']) and len(k['starts']) == k['tasks'][0]['ranks']
    assert len(ends) > 25 and all(len(e) == 1 for e in ends.values())


def test_without_the_library(tmp_path):
    finish(start(tmp_path, None, 3, 'all'))
    assert len(logs(tmp_path)) == 3


def test_a_late_rank_is_waited_for(tmp_path, lib):
    """A kernel lasts from its start to the last rank's arrival, plus the time of the last rank's own kernel.

    Only collectives inside the selected stage are recorded, with their numbers."""
    finish(start(tmp_path, lib, 4, 'late', 2, 20, 3, ENABLE_PROFILER_NAMES='step'))
    log = logs(tmp_path)
    for rank, trace in traces(tmp_path).items():
        assert [c.sequence for c in collectives(trace)] == [2, 3, 4]
        kernels = sorted((r.values for r in trace.records if r.kind == 'kernel'), key=lambda k: k['start'])
        waits = [max(k['starts']) - k['starts'][rank] for k in log[rank].kernels[2:]]
        shortest = [min(k['end'] - max(k['starts']) for k in kernels) for kernels in zip(*(log[r].kernels[2:] for r in range(4)))]
        assert [k['duration'] for k in kernels] == [wait + cost for wait, cost in zip(waits, shortest)]
        at = nanoseconds(trace)
        late = [at(r.values['duration']) - at(0) for r in records(trace, 'range_end') if text(trace, r.values['name']) == 'compute']
        assert len(late) == 3 and (rank != 2 or min(late) >= 20e6)


def test_a_lost_rank_is_given_up(tmp_path, lib):
    """The other ranks give up, abort and shrink; the child's group has one number on all of them."""
    finish(start(tmp_path, lib, 4, 'abort', script=['3 AllReduce 0 lose'], SIMNCCL_TIMEOUT_MS=GIVES_UP_MS))
    log, children = logs(tmp_path), set()
    assert [bool(log[r].timeouts) for r in range(4)] == [True, True, True, False]
    for rank, trace in traces(tmp_path).items():
        made = collectives(trace)
        children |= {c.communicator for c in made[1:]}
        assert len(made) == (1 if rank == 3 else 3)
    assert len(children) == 1


def test_a_mismatch_is_written_down(tmp_path):
    finish(start(tmp_path, None, 3, 'once', script=['1 AllReduce 0 mismatch'], SIMNCCL_TIMEOUT_MS=GIVES_UP_MS))
    said = {r: only([x['signature'] for x in log.lines if x['t'] == 'mismatch']) for r, log in logs(tmp_path).items()}
    assert said[0] == said[2] != said[1]


# ---- the collective a thread is in ----

COLLECTIVE_AT = 4 * 6 + 8 * 2 + 16 + 4 * 16 + 36 * 16  # offset in struct tfi_slot


def slot_of(path):
    """{tid: (communicator, sequence, bytes, peer, place, count, type, reduction)} of the threads inside a collective.

    See struct tfi_slot. A file whose head is not written yet has none."""
    data = path.read_bytes()
    if data[:7] != b'TFILIVE':
        return {}
    offset, size = struct.unpack_from('<QQ', data, 24 + 2 * 16)
    found = {}
    for at in range(offset, offset + size, 1024):
        state, _, tid, nr_calls = struct.unpack_from('<IIII', data, at)
        values = struct.unpack_from('<QQQiIQIi', data, at + COLLECTIVE_AT)
        if state == 1 and values[4]:
            assert values[4] <= nr_calls
            found[tid] = values
    return found


def test_the_slot_holds_the_collective(tmp_path, lib):
    """The slot has all of a collective during a call that does not return, and after SIGKILL: what its record would have."""
    processes = start(tmp_path, lib, 2, 'once', script=['0 AllReduce 0 delay 100000'])
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        live = None
        while time.monotonic() < deadline and not (live and slot_of(live)):
            live = next(iter((tmp_path / 'run').glob('rank0.*.live')), None)
            time.sleep(0.05)
    finally:
        for p in processes:
            p.kill()
            p.communicate()
    group, sequence, bytes_, peer, place, *rest = only(list(slot_of(live).values()))
    slot = only([s for s in scripted.slots(live).values() if s.nr_calls])
    assert slot.calls[place - 1] == 'ncclAllReduce' and (sequence, bytes_, peer) == (0, 4000, -1)
    assert rest == [1000, 7, 0]  # ncclFloat32, ncclSum
    assert group == collectives(traces(tmp_path)[1])[0].communicator


# ---- ways to NCCL ----

def opened(tmp_path, lib, *arguments, **more):
    env = {'SIMNCCL_LOG': tmp_path / 'nccl-%p.jsonl', 'TFI_OUTPUT_DIR': tmp_path / 'run', **more}
    result = truth.run(tmp_path, [built(BUILD / 'victims_gpu' / 'nccl_open'), *arguments], LD_PRELOAD=lib, **env)
    assert (result.rc, result.out) == (0, 'none\nok\n'), result.err
    return result


def test_an_opened_nccl(tmp_path, lib):
    """NCCL opened by dlopen, with both ranks in one process, is recorded; before that a look-up finds no NCCL."""
    opened(tmp_path, lib)
    trace = only(scripted.traces(tmp_path / 'run'))
    made = collectives(trace)
    assert [(c.name, c.rank, c.ranks, c.sequence, c.flags) for c in made] == [('ncclAllReduce', r, 2, 0, GROUPED) for r in (0, 1)]
    init = only([c for c in scripted.calls(trace) if c.name == 'ncclCommInitAll'])
    assert {c.communicator for c in made} == {init.args[1]} and init.args[3] == 2
    assert Counter(c.name for c in scripted.calls(trace))['ncclCommDestroy'] == 2


def test_eight_devices_of_rccl(tmp_path, lib):
    """RCCL by its own soname, with eight ranks in one process: its own functions are recorded under their names.

    Rank i sends i + 1 floats to each rank and receives 36: the larger sum counts."""
    opened(tmp_path, lib, built(GPU / 'librccl.so.1').name, '8', SIMGPU_DEVICES=8)
    trace = only(scripted.traces(tmp_path / 'run'))
    made = collectives(trace)
    names = ['ncclAllReduce', 'ncclAllReduceWithBias', 'ncclAllToAll', 'ncclAllToAllv']
    assert [(c.name, c.rank, c.ranks, c.sequence, c.flags) for c in made] == [
        (name, r, 8, n, GROUPED) for n, name in enumerate(names) for r in range(8)]
    assert [c.bytes for c in made] == [4] * 8 + [12] * 8 + [5 * 4 * 8] * 8 + [4 * max(36, 8 * (r + 1)) for r in range(8)]
    loaded, unloaded = (only([c for c in scripted.calls(trace) if c.name == n]) for n in ('mscclLoadAlgo', 'mscclUnloadAlgo'))
    assert loaded.args == unloaded.args == [8]


@pytest.mark.parametrize('activities', ['cpu,gpu', 'nccl'])
def test_activities(tmp_path, lib, activities):
    opened(tmp_path, lib, TFI_ACTIVITIES=activities)
    trace = only(scripted.traces(tmp_path / 'run'))
    assert len(collectives(trace)) == (2 if 'nccl' in activities else 0)
    libraries = {c.library for c in scripted.calls(trace)}
    assert libraries == ({'nccl'} if 'nccl' in activities else {'cuda'})


def test_stage_timing_only(tmp_path, lib):
    opened(tmp_path, lib, ENABLE_PROFILER_NAMES='')
    assert not (tmp_path / 'run').exists()


def vendors():
    """The path of the NCCL that torch brings."""
    library = next((BUILD / 'venv').glob('lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2'), None)
    assert library, "torch's own NCCL is missing"
    return library


VENDORS = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_char * 128)]
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] + [ctypes.c_int] * 2 + [ctypes.c_void_p] * 2
nccl.ncclBcast.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 2 + [ctypes.c_void_p] * 2
comm, id, version = ctypes.c_void_p(), Id(), ctypes.c_int()
print(nccl.ncclGetVersion(ctypes.byref(version)), version.value > 20000, nccl.ncclGetUniqueId(ctypes.byref(id)))
print(nccl.ncclCommInitRank(ctypes.byref(comm), 1, id, 0) == 0, comm.value)
print(nccl.ncclGroupStart(), nccl.ncclGroupEnd())
print(nccl.ncclAllReduce(None, None, 1, 7, 0, None, None), nccl.ncclBcast(None, 1, 7, 0, None, None))
"""


def test_the_vendors_nccl_answers_as_without_us(tmp_path, lib, run):
    """Without a GPU it refuses communicators. Its own call from ncclBcast to ncclBroadcast is no second collective."""
    library = vendors()
    (tmp_path / 'calls.py').write_text(VENDORS)
    bare = run([sys.executable, 'calls.py', library], {'CUDA_VISIBLE_DEVICES': ''}, preload=False)
    ours = run([sys.executable, 'calls.py', library], {'CUDA_VISIBLE_DEVICES': ''}, preload=lib)
    assert bare.rc == ours.rc == 0 and ours.out == bare.out == '0 True 0\nFalse None\n0 0\n4 4\n'
    trace = only(scripted.traces(ours.dir))
    assert [(c.name, c.error, c.communicator) for c in collectives(trace)] == [('ncclAllReduce', 4, 0), ('ncclBcast', 4, 0)]
    names = [c.name for c in sorted(scripted.calls(trace), key=lambda c: c.time) if c.library == 'nccl']
    assert names == ['ncclCommInitRank', 'ncclGroupStart', 'ncclGroupEnd']


# ---- the table ----

# Unrecorded functions: queries, texts, parameters, and support for the program's own kernels.
LEFT_OUT = {'ncclGetVersion', 'ncclGetErrorString', 'ncclGetLastError', 'ncclGetUniqueId', 'ncclCommGetUniqueId', 'ncclCommCount',
            'ncclCommCuDevice', 'ncclCommUserRank', 'ncclCommMemStats', 'ncclCommQueryProperties', 'ncclWinGetUserPtr',
            'ncclResetDebugInit', 'ncclResetDebugInitInternal', 'ncclDevCommCreate', 'ncclDevCommDestroy'}
LEFT_OUT_PREFIXES = ('ncclParam', 'ncclTeam', 'ncclGin', 'ncclLLA2A', 'ncclLsa', 'ncclGetLsa', 'ncclGetMultimem', 'ncclGetPeer')


ONLY_IN_RCCL = {'ncclAllReduceWithBias', 'ncclAllToAll', 'ncclAllToAllv', 'mscclLoadAlgo', 'mscclUnloadAlgo'}


def rows():
    return {a[2] for kind, a in load_gen_tables().rows('preload/nccl/nccl.def') if kind.startswith('HOOK')}


def test_the_table_is_what_nccl_exports():
    """Every function that torch's NCCL exports has a row or is left out on purpose; every row exists there or only in RCCL."""
    there = {n for n in exported(vendors()) if n.startswith('nccl')}
    assert rows() - there == ONLY_IN_RCCL
    assert {n for n in there - rows() if not n.startswith(LEFT_OUT_PREFIXES)} == LEFT_OUT


def test_the_library_exports_each_row(lib):
    assert rows() <= exported(lib)


def test_the_simulated_nccl_has_every_row():
    """The simulated NCCL has every row; those newer than 2.28 are in nccl_link.c and refuse."""
    assert rows() - exported(built(GPU / 'libnccl.so.2')) == set()
