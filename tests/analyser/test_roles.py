"""test_roles - the rank of a trace: what the user says, what the trace states, its file's name, and last a guess."""

import json

import pytest

from kineto import Trace


def trace(pid, rank=None, world=None, kernels=1, at=1000):
    top = {} if rank is None else {'distributedInfo': {'rank': rank, 'world_size': world or 8}}
    t = Trace(pid=pid, baseTimeNanoseconds=1_688_296_932_000_000_000, **top)
    t.operator('aten::mm', at, 40, external=1)
    for i in range(kernels):
        t.call(at + 5, 10 + i).kernel('gemm', at + 20, 10, 10 + i)
    return t


def ranks(analyze, *inputs):
    return {row['path'].rsplit('/')[-1]: row['rank'] for row in analyze('info', *inputs)['rows']}


def said(analyze, command, *inputs, rc=0):
    return analyze(command, *inputs, rc=rc, format=None).err


def written(tmp_path, traces):
    return [t.write(tmp_path / name) for name, t in traces.items()]


@pytest.mark.parametrize('command', ['info', 'timeline', 'breakdown', 'stages', 'report'])
def test_a_coordinator_takes_no_rank(analyze, tmp_path, command):
    """vLLM's coordinator states no rank: no guess displaces the rank that another trace states, in each kind of reading."""
    written(tmp_path, {'b200-7_600.async_llm.1770.pt.trace.json': trace(600, kernels=0),
                       'dp0_pp0_tp0_dcp0_ep0_rank0.1774.pt.trace.json': trace(851, 0, 2),
                       'dp0_pp0_tp1_dcp0_ep1_rank1.1775.pt.trace.json': trace(851, 1, 2)})
    if command == 'report':
        out = analyze(command, tmp_path, '--output', tmp_path / 'out', format=None)
        assert '3 processes' in out.out and 'left out' not in out.err
        return
    answer = analyze(command, tmp_path, rc=0)
    assert [i['rank'] for i in answer['inputs']] == [None, 0, 1]
    assert all(i['complete'] for i in answer['inputs'])
    if command == 'breakdown':
        assert [(row['rank'], row['calls']) for row in answer['rows']] == [(0, 1), (1, 1)]


def test_the_line_says_what_it_is(analyze, tmp_path):
    files = written(tmp_path, {'a.json': trace(1, kernels=0), 'b.json': trace(2, 3)})
    assert ranks(analyze, *files) == {'a.json': None, 'b.json': 3}
    line = 'a.json: states no rank beside others that have one, and has no device work: it is a process of the host'
    assert line in said(analyze, 'breakdown', *files)
    given = f'rank=1:{files[0]}', files[1]
    assert ranks(analyze, *given) == {'a.json': 1, 'b.json': 3} and 'states no rank' not in said(analyze, 'breakdown', *given)
    assert ranks(analyze, files[0]) == {'a.json': 0}  # alone it is rank 0, as a trace of one process is


@pytest.mark.parametrize('names, expected', [
    (['1710-TP-0.trace.json', '1710-TP-3.trace.json'], [0, 3]),                                     # SGLang
    (['p-TP-0-DP-0.trace.json', 'p-TP-0-DP-1.trace.json', 'p-TP-1-DP-0.trace.json'], [0, 2, 1]),    # replicas: DP, then TP
    (['p-TP-1-PP-0.trace.json', 'p-TP-0-PP-1.trace.json', 'p-TP-0-PP-0.trace.json'], [1, 2, 0]),
    (['rank-0.json', 'rank-12.json'], [0, 12]),                                                     # Megatron
    (['iteration_10_rank3_trace.json', 'x_rank_5.json'], [3, 5]),                                   # torchtitan, verl
    (['tpx0.json', 'http1.json'], [0, 1]),                                                          # words of other meaning
])
def test_names_of_files(analyze, tmp_path, names, expected):
    files = written(tmp_path, {name: trace(100 + i) for i, name in enumerate(names)})
    found = ranks(analyze, *files)
    assert [found[name] for name in names] == expected


def test_what_a_trace_states_wins_over_its_name(analyze, tmp_path):
    files = written(tmp_path, {'rank0.json': trace(1, 5), 'rank1.json': trace(2, 6), 'TP-0.json': trace(3, 7)})
    assert ranks(analyze, *files) == {'rank0.json': 5, 'rank1.json': 6, 'TP-0.json': 7}


@pytest.mark.parametrize('command', ['info', 'timeline'])
def test_replicas_that_count_from_0(analyze, tmp_path, command):
    """vLLM's replicas of a dense model are worlds of their own: DP of the name times the world is added."""
    names = [f'dp{dp}_pp0_tp{tp}_dcp0_ep0_rank{tp}.{dp}{tp}.pt.trace.json' for dp in range(2) for tp in range(2)]
    files = written(tmp_path, {name: trace(10 + i, i % 2, 2) for i, name in enumerate(names)})
    answer = analyze(command, *files)
    assert [i['rank'] for i in answer['inputs']] == [0, 1, 2, 3]
    assert 'states rank 1, as another replica does; it is rank 3 here' in said(analyze, command, *files)
    one_world = written(tmp_path, {name: trace(10 + i, i, 4) for i, name in enumerate(names)})
    answer = analyze(command, *one_world)
    assert [i['rank'] for i in answer['inputs']] == [0, 1, 2, 3] and 'replica' not in said(analyze, command, *one_world)


def test_no_rank_anywhere(analyze, tmp_path):
    """Processes that state none are numbered by their place, and a second trace of one process is the same rank."""
    files = written(tmp_path, {'a.json': trace(1), 'b.json': trace(2), 'c.json': trace(3, kernels=0),
                               'd.json': trace(2, at=900_000)})
    assert ranks(analyze, *files) == {'a.json': 0, 'b.json': 1, 'c.json': None, 'd.json': 1}
    lines = said(analyze, 'breakdown', *files)
    assert 'b.json: states no rank: its place gives it one' in lines
    assert 'd.json: is a second trace of rank 1, from another time' in lines
    rows = analyze('breakdown', *files)['rows']
    assert {row['rank']: row['calls'] for row in rows} == {0: 1, 1: 2}
    overlapping = trace(2, at=1010).write(tmp_path / 'e.json')
    assert 'e.json: is left out: ' in said(analyze, 'breakdown', files[1], overlapping, rc=3)


def test_the_rank_that_an_unmarked_merge_states(analyze, tmp_path):
    """Tools that join files keep the members of the first: its process has their rank, and the other a place, with doubt."""
    first, second = trace(11, 4), trace(22, 5)
    path = tmp_path / 'joined.json'
    path.write_text(json.dumps({'traceEvents': first.events + second.events, **first.top}))
    answer = analyze('info', path)
    assert {row['pid']: row['rank'] for row in answer['rows']} == {11: 4, 22: 0}
    assert answer['rows'][0]['health'][-1] == {'doubt': 'processes_without_rank', 'count': 1, 'of': 2, 'worst_us': None}
    assert '1 of 2 processes of this file state no rank: their pids tell them apart' in said(analyze, 'breakdown', path)
