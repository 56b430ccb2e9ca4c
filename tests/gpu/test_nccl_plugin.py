"""test_nccl_plugin - NCCL's profiler plugin: algorithm, protocol and channels equal what the simulated NCCL logs.

The simulated NCCL loads a plugin by NCCL's variable and rules. Its script says what it chooses, and which version of the
plugin is the newest it knows.
"""

from itertools import cycle, product

import pytest

import scripted
from conftest import BUILD, CLOSING, COMMAND_TIMEOUT, built, clean_environment, execute
from scripted import only
from test_nccl import collectives, finish, logs, records, start, traces

CHOICES = ['* Send * plan - - 6 0', '* Recv * plan - - 6 0', *(f'* * {k} plan {a} {p} {k + 1} {40 - k}' for k, (a, p) in zip(range(40), cycle(product(
    ['RING', 'TREE', 'COLLNET_DIRECT', 'NVLS', 'PAT'], ['LL', 'LL128', 'SIMPLE']))))]


def plans(log):
    return [x for x in log.lines if x['t'] == 'plan']


def plugins(log):
    return [(x['name'], x['version']) for x in log.lines if x['t'] == 'plugin']


def planned(trace):
    """The nccl_plan records, with the names of function, algorithm and protocol as texts."""
    names = {0: None, **{n: name.decode(errors='replace') for n, name in trace.strings.items()}}
    return [{**r.values, **{k: names[r.values[k]] for k in ('function', 'algorithm', 'protocol')}}
            for r in records(trace, 'nccl_plan')]


@pytest.fixture(scope='module', params=[3, 4, 5, 6])
def ran(request, tmp_path_factory, lib):
    directory = tmp_path_factory.mktemp('plugin')
    finish(start(directory, lib, 8, 'all', script=[*CHOICES, f'newest {request.param}'], TFI_NCCL_PLUGIN=1))
    return directory, request.param, logs(directory), traces(directory)


def test_records_equal_the_log(ran):
    """Each record has what NCCL was about to do, in the order in which NCCL said it; its version is the newest known."""
    _, version, log, trace = ran
    for rank in range(8):
        assert set(plugins(log[rank])) == {('tfinject', version)}
        ours = [p for p in planned(trace[rank]) if p['function'] not in ('Send', 'Recv')]
        theirs = [p for p in plans(log[rank]) if 'algorithm' in p]
        assert len(ours) == len(theirs) > 20
        for o, t in zip(ours, theirs):
            assert 'nccl' + o['function'] == t['func']
            assert [o[k] for k in ('algorithm', 'protocol', 'channels', 'warps', 'rank')] == [
                t[k] for k in ('algorithm', 'protocol', 'channels', 'warps', 'rank')]
            assert o['communicator'] != 0 and o['ranks'] == (0 if version == 3 else t['ranks'])
        messages = [p for p in planned(trace[rank]) if p['function'] in ('Send', 'Recv')]
        assert all(p['algorithm'] is p['protocol'] is None for p in messages)
        assert {p['channels'] for p in messages} >= ({0} if version == 3 else {6})


def check_comm(answer, version, log, trace):
    """Compares the rows of `comm` with the logs, and returns the values of the logs by communicator and number."""
    groups, want = {}, {}
    for rank in log:
        made = [c for c in collectives(trace[rank]) if c.error == 0]
        groups.update({f'0x{c.communicator:016x}': call['comm'] for c, call in zip(made, log[rank].calls)})
        for p in plans(log[rank]):
            if 'algorithm' in p:
                want[p['comm'], p['sequence']] = p['algorithm'], p['protocol'], p['channels']
    rows = {(groups[r['group']], r['seq']): r for r in answer['rows'] if r['name'] not in ('send', 'recv')}
    for key, row in rows.items():
        assert (row['algorithm'], row['protocol'], row['channels']) == want.get(key, (None, None, None)), (key, row)
    assert not set(want) - set(rows)
    for row in answer['rows']:
        if row['name'] in ('send', 'recv'):
            told = version > 3 and row['seq'] == 0  # the later ones are captured, and NCCL tells nothing of them
            assert (row['algorithm'], row['protocol'], row['channels']) == (None, None, 6 if told else None)
    return want


def test_comm_equals_the_log(ran, analyze):
    """Every collective of every communicator, in calls and groups, has the algorithm, protocol and channels of the log."""
    directory, version, log, trace = ran
    want = check_comm(analyze('comm', directory / 'run'), version, log, trace)
    assert len(want) > 30 and len({c for c, _ in want}) > 4 and len(set(want.values())) > 20


@pytest.mark.parametrize('version', [3, 6])
def test_groups(tmp_path, lib, analyze, version):
    """The collectives of a group with two communicators get their own values, though NCCL enqueues the large ones first.

    The plugin is unloaded with the last communicator and serves those made afterwards."""
    finish(start(tmp_path, lib, 4, 'mixed', script=[*CHOICES, f'newest {version}'], TFI_NCCL_PLUGIN=1))
    log, trace = logs(tmp_path), traces(tmp_path)
    for rank in range(4):
        assert plugins(log[rank]) == [('tfinject', version)] * 2
        order = [p['bytes'] for p in plans(log[rank]) if p['func'] == 'ncclAllReduce']
        assert order != sorted(order) and any(x['t'] == 'unplugged' for x in log[rank].lines)
    assert len(check_comm(analyze('comm', tmp_path / 'run'), version, log, trace)) >= 20


def test_off(tmp_path, lib, analyze):
    """Without the variable NCCL's own is not set, NCCL finds no plugin, and no record is written."""
    finish(start(tmp_path, lib, 2, 'once'))
    log, trace = logs(tmp_path), traces(tmp_path)
    for rank in range(2):
        assert not plugins(log[rank]) and not plans(log[rank]) and not planned(trace[rank])
    rows = analyze('comm', tmp_path / 'run')['rows']
    assert rows and all(r['algorithm'] is r['protocol'] is r['channels'] is None for r in rows)


# ---- whose plugin ----

MINE = """
#include <stddef.h>
static int init() { return 0; }
const struct { const char *name; void *init, *start, *stop, *state, *finalize; } ncclProfiler_v4 = {
    "mine", (void *)init, NULL, NULL, NULL, NULL};
"""


@pytest.fixture(scope='module')
def mine(tmp_path_factory):
    """A user's own plugin, of version 4. It asks for no events."""
    directory = tmp_path_factory.mktemp('mine')
    (directory / 'mine.c').write_text(MINE)
    compiled = execute(['gcc', '-w', '-shared', '-fPIC', '-o', 'libnccl-profiler-mine.so', 'mine.c'], clean_environment(), directory)
    assert compiled.rc == 0, compiled.err
    return directory / 'libnccl-profiler-mine.so'


def run_two(directory, lib, **more):
    """Runs two ranks with one collective; returns the logs, the traces, and what the library said on stderr."""
    processes = start(directory, lib, 2, 'once', **more)
    said = [p.communicate(timeout=COMMAND_TIMEOUT)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], said
    return logs(directory), traces(directory), [line for line in CLOSING.sub('', ''.join(said)).splitlines() if line.startswith('tfinject:')]


@pytest.mark.parametrize('how', ['path', 'name', 'preloaded'])
@pytest.mark.parametrize('asked', [0, 1])
def test_a_users_plugin_stays_in_charge(tmp_path, lib, mine, how, asked):
    """It gets the events alone, named in NCCL_PROFILER_PLUGIN or part of the program; one line says so if ours was asked for."""
    variables = {'path': {'NCCL_PROFILER_PLUGIN': mine},
                 'name': {'NCCL_PROFILER_PLUGIN': 'mine', 'LD_LIBRARY_PATH': f'{BUILD}/simgpu:{mine.parent}'},
                 'preloaded': {'NCCL_PROFILER_PLUGIN': 'STATIC_PLUGIN', 'LD_PRELOAD': f'{lib} {mine}',
                               'TFI_OUTPUT_DIR': tmp_path / 'run'}}[how]
    more = {**variables, **({'TFI_NCCL_PLUGIN': 1} if asked else {})}
    log, trace, said = run_two(tmp_path, None if how == 'preloaded' else lib, **more)
    for rank in range(2):
        assert plugins(log[rank]) == [('mine', 4)] and not planned(trace[rank])
    assert len(said) == asked
    assert not said or 'TFI_NCCL_PLUGIN=1 has no effect: NCCL_PROFILER_PLUGIN names another plugin' in said[0]


def test_none_stays_none(tmp_path, lib):
    log, trace, said = run_two(tmp_path, lib, NCCL_PROFILER_PLUGIN='none', TFI_NCCL_PLUGIN=1)
    assert not any(plugins(log[r]) or planned(trace[r]) for r in range(2)) and len(said) == 1


def test_an_inherited_value_is_ours(tmp_path, lib):
    """STATIC_PLUGIN, as a parent process with this library passes it on, means this library; the message is at info."""
    log, trace, said = run_two(tmp_path, lib, NCCL_PROFILER_PLUGIN='STATIC_PLUGIN', TFI_NCCL_PLUGIN=1, TFI_LOG='info')
    for rank in range(2):
        assert plugins(log[rank]) == [('tfinject', 6)] and len(planned(trace[rank])) == 1
    assert sum('profiler plugin, version 6' in line for line in said) == 2


def test_a_child_without_the_library_goes_on(tmp_path, lib):
    """NCCL_PROFILER_PLUGIN reaches children, also those without the library: their NCCL finds no plugin and works."""
    log, _, _ = run_two(tmp_path, None, NCCL_PROFILER_PLUGIN='STATIC_PLUGIN', TFI_NCCL_PLUGIN=1)
    assert not any(plugins(log[r]) for r in range(2))


def test_outside_the_stages(tmp_path, lib):
    """Plans are recorded with their collectives only: inside the selected stages."""
    finish(start(tmp_path, lib, 2, 'late', 1, 1, 3, TFI_NCCL_PLUGIN=1, ENABLE_PROFILER_NAMES='step'))
    for rank, trace in traces(tmp_path).items():
        assert len(plans(logs(tmp_path)[rank])) == 5 and len(planned(trace)) == len(collectives(trace)) == 3


@pytest.mark.parametrize('variables', [{'TFI_ACTIVITIES': 'cpu,gpu'}, {'TFI_NCCL_PLUGIN': 0}])
def test_not_asked_for(tmp_path, lib, variables):
    log, trace, _ = run_two(tmp_path, lib, **{'TFI_NCCL_PLUGIN': 1, **variables})
    assert not any(plugins(log[r]) or planned(trace[r]) for r in range(2))


# ---- bad input ----

def test_wild_values(tmp_path, lib, analyze):
    """Missing names are unknown, endless ones are cut, terminal codes reach no terminal, and -1 channels are 255."""
    script = ['* AllReduce 0 plan (wild) (long) -1 -1', '* AllReduce 1 plan (null) (null) 0 0']
    finish(start(tmp_path, lib, 2, 'late', 1, 1, 1, script=script, TFI_NCCL_PLUGIN=1))
    rows = {r['seq']: r for r in analyze('comm', tmp_path / 'run')['rows']}
    assert [rows[0][k] for k in ('protocol', 'channels')] == ['A' * 64, 255] and 'RED' in rows[0]['algorithm']
    assert [rows[1][k] for k in ('algorithm', 'protocol', 'channels')] == [None] * 3
    assert [rows[2][k] for k in ('algorithm', 'protocol', 'channels')] == ['RING', 'LL', 1]
    shown = execute([built(BUILD / 'tfanalyze'), 'comm', tmp_path / 'run'], clean_environment(), tmp_path)
    assert shown.rc == 0 and 'RED' in shown.out and '\x1b' not in shown.out


@pytest.mark.parametrize('version', [3, 4, 5, 6])
def test_an_nccl_without_manners(run, victim, lib, version):
    """Unknown kinds, null pointers, late states, threads, forks, and more communicators than there is room for."""
    result = run([victim('nccl_plugin'), str(version)], {'TFI_NCCL_PLUGIN': '1'}, preload=lib)
    assert (result.rc, result.out, result.err) == (0, 'ok\n', '')
    parent = only([t for t in scripted.traces(result.dir) if records(t, 'range_end')])
    made = planned(parent)
    assert made[0]['function'] == 'AllGather' and made[0]['bytes'] == 200 and made[0]['channels'] == made[0]['warps'] == 7
    assert (made[0]['algorithm'], made[0]['rank'], made[0]['ranks']) == ('RING', 3, 0 if version == 3 else 8)
    assert sum(p['function'] == 'AllReduce' and p['bytes'] == 40 for p in made) == 800
    assert [p['bytes'] for p in made if p['function'] == 'Reduce'] == [5, 6]
    wild = [p for p in made if p['function'] not in ('AllReduce', 'AllGather', 'Reduce')]
    assert [p['bytes'] for p in wild] == [0, 0, 0, 0, 1]
    assert [p['channels'] for p in wild] == [0, 255, 1, *([0, 0] if version == 3 else [255, 9])]
    assert len(wild[1]['function']) == 64


def test_the_plugin_is_hidden_while_it_is_off(run, victim, lib):
    result = run([victim('nccl_plugin'), '6'], preload=lib)
    assert (result.rc, result.out, result.err) == (0, 'none\n', '')
