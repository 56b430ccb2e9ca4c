"""test_merged_files - a file that holds several processes is several ranks: each has the answers of its own file.

Files are merged as our `merge`, SGLang's merge_profiles, TraceLens's TraceFuse and `jq` do it. Pids, correlation ids and
external ids of the ranks are the same, so that one rank's ids find another's events where they are looked up in the file.
"""

import json
import random

import pytest

from kineto import Trace

# Commands whose rows are of ranks, and those that compare ranks.
COMMANDS = ['stages', 'breakdown', 'api', 'launches', 'timeline', 'overlap', 'idle', 'queue', 'steps', 'bandwidth',
            'annotations', 'ops', 'kinds', 'comm', 'stragglers', 'info']


def random_rank(rng, rank, world, pid, later=0):
    """A trace of some steps: ids count from 1 in each rank, and so do devices if every rank sees one alone."""
    t = Trace(pid=pid, distributedInfo={'rank': rank, 'world_size': world}, baseTimeNanoseconds=1_688_296_932_000_000_000)
    time, number, device = 1000 + rng.randrange(300) + later, 0, rng.choice([0, rank])
    for step in range(rng.randrange(2, 5)):
        begin = time
        for _ in range(rng.randrange(1, 6)):
            number += 1
            name = rng.choice(['aten::mm', 'aten::add', 'aten::relu'])
            t.operator(name, time, 40, external=number).call(time + 5, number, dur=5)
            t.kernel(f'{name}_kernel', time + 20 + rng.randrange(30), 5 + rng.randrange(40), number, number, device=device)
            time += 60
        number += 1
        t.call(time, number).kernel('ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)', time + 10 + rng.randrange(20), 50, number,
                                    stream=20, device=device)
        t.call(time + 4, number + 1, name='cudaMemcpyAsync')
        t.kernel('Memcpy HtoD (Pinned -> Device)', time + 80, 6, number + 1, device=device, cat='gpu_memcpy')
        number += 1
        time += 100
        t.stage(f'ProfilerStep#{step}', begin, time - begin).stage(rng.choice(['forward', 'backward']), begin + 1, 30)
    t.add(None, 'process_name', 0, ph='M', args={'name': 'python'})
    t.add(None, 'Iteration Start: PyTorch Profiler', 1000, ph='i', pid='Traces', tid='Trace PyTorch Profiler')
    return t


def by_our_merge(analyze, tmp_path, files, traces):
    path = tmp_path / 'ours.json'
    analyze('merge', '-o', path, *files, format=None)
    return path


def by_sglang(analyze, tmp_path, files, traces):
    """A label before every pid, and the members of the first file."""
    events = [{**e, 'pid': f'[TP{rank:02d}-EP{rank % 2:02d}] {e["pid"]}'} for rank, t in enumerate(traces) for e in t.events]
    return written(tmp_path / 'sglang.json', {'traceEvents': events, **traces[0].top})


def by_tracelens(analyze, tmp_path, files, traces):
    """The rank in every event's arguments; pids and correlation ids are moved apart; no other members."""
    events = []
    for rank, trace in enumerate(traces):
        for e in trace.events:
            args = {**e.get('args', {}), 'rank': rank, 'pid_raw': e['pid']}
            if 'correlation' in args:
                args.update(correlation_raw=args['correlation'], correlation=args['correlation'] + 10000 * rank)
            events.append({**e, 'pid': e['pid'] + 100000 * rank if isinstance(e['pid'], int) else e['pid'], 'args': args})
    return written(tmp_path / 'fused.json', {'traceEvents': events, 'baseTimeNanoseconds': 1_688_296_932_000_000_000})


def by_hand(analyze, tmp_path, files, traces):
    """The events of all files in one list: only pids tell the processes apart, and rows of devices are shared. Ids alone do
    not tell what launched a work, so that the ranks run one after the other here."""
    return written(tmp_path / 'hand.json', {'traceEvents': [e for t in traces for e in t.events],
                                            'baseTimeNanoseconds': 1_688_296_932_000_000_000})


def written(path, document):
    path.write_text(json.dumps(document))
    return path


def rows(analyze, command, *inputs):
    found = analyze(command, *inputs, rc=None)['rows']
    own = {'path', 'metadata', 'world'} if command == 'info' else set()  # what a merge changes, or does not keep
    for row in found if own else []:
        row['events'].pop('metadata')
    return [{k: v for k, v in row.items() if k not in own} for row in found]


@pytest.mark.parametrize('merged_by', [by_our_merge, by_sglang, by_tracelens, by_hand])
@pytest.mark.parametrize('seed', range(3))
def test_each_rank_has_the_answers_of_its_own_file(analyze, tmp_path, merged_by, seed):
    rng = random.Random(seed)
    world = rng.randrange(2, 9)
    shared_pid = merged_by is not by_hand and rng.random() < 0.5
    traces = [random_rank(rng, rank, world, 100 if shared_pid else 100 + rank, rank * 5000 if merged_by is by_hand else 0)
              for rank in range(world)]
    files = [t.write(tmp_path / f'rank{rank}.json') for rank, t in enumerate(traces)]
    merged = merged_by(analyze, tmp_path, files, traces)
    for command in COMMANDS:
        if merged_by is by_hand and command == 'info':  # rows of the profiler's own are shared
            continue
        apart, together = rows(analyze, command, *files), rows(analyze, command, merged)
        assert together == apart, command
    one = rng.randrange(world)
    assert rows(analyze, 'breakdown', merged, '--rank', str(one)) == rows(analyze, 'breakdown', files[one])


def test_events_read_again_are_of_one_process(analyze, tmp_path):
    """Exports and dump read the file once more: they write the events of the process that is asked for."""
    traces = [random_rank(random.Random(rank), rank, 2, 100 + rank) for rank in range(2)]
    merged = by_sglang(analyze, tmp_path, [], traces)
    for rank, trace in enumerate(traces):
        out = json.loads(analyze('export', 'chrome', merged, '--rank', str(rank), format=None).out)
        assert {e['pid'].split()[0] for e in out['traceEvents'] if e['ph'] == 'X'} == {f'[TP0{rank}-EP0{rank}]'}
        dumped = analyze('dump', merged, '--rank', str(rank))['rows']
        assert len(dumped) == len(trace.events)
        alone = trace.write(tmp_path / 'alone.json')
        again = tmp_path / 'again.json'
        analyze('merge', '-o', again, merged, '--rank', str(rank), format=None)
        assert rows(analyze, 'stages', again) == rows(analyze, 'stages', alone)


@pytest.mark.parametrize('labels, ranks', [(['TP00-DP00', 'TP01-DP01'], [0, 1]), (['TP03', 'TP07'], [3, 7]),
                                           (['TP00-PP01', 'TP00-PP00', 'TP01-PP00', 'TP01-PP01'], [2, 0, 1, 3])])
def test_ranks_of_labels(analyze, tmp_path, labels, ranks):
    """The tensor rank is the rank if it is of one process alone; else pipelines come first."""
    events = [{'ph': 'X', 'cat': 'cpu_op', 'name': label, 'pid': f'[{label}] 7', 'tid': 1, 'ts': 10, 'dur': 5, 'args': {}}
              for label in labels]
    found = analyze('dump', written(tmp_path / 'trace.json', {'traceEvents': events}))['rows']
    assert {row['values']['name']: row['rank'] for row in found} == dict(zip(labels, ranks))


def test_a_file_of_too_many_processes_is_refused(analyze, tmp_path):
    """Each process takes 100 KB of memory, if the file has but one event of it."""
    for count, rc in ((300, 0), (16385, 1)):
        events = [{'ph': 'X', 'cat': 'cpu_op', 'name': 'op', 'pid': f'[TP{i}] 7', 'tid': 1, 'ts': 10, 'dur': 5, 'args': {}} for i in range(count)]
        result = analyze('info', written(tmp_path / 'trace.json', {'traceEvents': events}), rc=rc, format=None)
        assert ('holds 16385 processes, and a file of at most 16384 is read' in result.err) == (rc == 1), result.err
