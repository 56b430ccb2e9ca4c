"""test_hang_nccl - hang on the simulated NCCL: random kills never make it name a wrong rank, and torch's faults are named.

In the jobs of random kills, tests/victims_gpu/nccl_ranks.c counts its calls in a file that outlives it, so that the tests
know which rank has called what.
"""

import random
import struct
import time

import pytest

import test_nccl
from conftest import BUILD, COMMAND_TIMEOUT, built, short_form
from simgpu import truth
from test_hang_gloo import BOUND, FAULTS, PLACES, PROGRAM, fastest, line_of, run_fault

GPU = BUILD / 'simgpu'
pytestmark = pytest.mark.slow
RANKS = 8


def calls_of(directory, rank):
    """The calls that a rank began: in the world, in its half."""
    path = directory / f'id.{rank}'
    return struct.unpack_from('<II', path.read_bytes()) if path.exists() and path.stat().st_size else (0, 0)


def members(answer, fault):
    """The ranks of an unmatched collective's group, and the place of its counter in the journal."""
    return (range(RANKS), 0) if fault['size'] == RANKS else (range(fault['waiting_ranks'][0] % 2, RANKS, 2), 1)


def check(answer, directory, killed):
    """Each rank that is named as missing has not begun that call, each that waits has; only the killed one is blamed.

    Returns True if the killed rank was named."""
    named = set()
    for fault in answer['totals']['unmatched']:
        assert fault['fault'] in ('missing', 'held_up', 'never_ends'), fault
        ranks, counter = members(answer, fault)
        begun = {r: calls_of(directory, r)[counter] for r in ranks}
        for rank in fault['missing_ranks'] or []:
            assert begun[rank] <= fault['seq'] + 1, (rank, begun, fault)  # counted just before the call
            assert begun[rank] <= fault['seq'] or rank in killed, (rank, begun, fault)
        for rank in fault['waiting_ranks'] or []:
            assert begun[rank] > fault['seq'], (rank, begun, fault)
        named |= set(fault['blamed_ranks'] or [])
    assert named <= killed, (named, killed, answer['totals'])
    return named == killed


def kill_one(directory, lib, analyze, rng):
    """Kills one rank of a running job at a random moment; returns how often it was named: live, after SIGKILL of all."""
    directory.mkdir()
    processes = test_nccl.start(directory, lib, RANKS, 'endless', SIMNCCL_TIMEOUT_MS=600000)
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while time.monotonic() < deadline and not all(calls_of(directory, r)[0] > 3 for r in range(RANKS)):
            time.sleep(0.02)
        time.sleep(rng.random() * 0.5)
        victim = rng.randrange(RANKS)
        processes[victim].kill()
        processes[victim].wait()
        quiet, now = 0, [calls_of(directory, r) for r in range(RANKS)]
        while quiet < 3 and time.monotonic() < deadline:  # until the others wait: a busy machine may hold them up for a while
            time.sleep(0.4)
            before, now = now, [calls_of(directory, r) for r in range(RANKS)]
            quiet = quiet + 1 if before == now else 0
        live = check(analyze('hang', directory / 'run', rc=None), directory, {victim})
    finally:
        for p in processes:
            p.kill()
        for p in processes:
            p.communicate()
    return live, check(analyze('hang', directory / 'run', rc=None), directory, {victim})


def kill_many(tmp_path, lib, analyze, times, seed):
    found = [kill_one(tmp_path / str(i), lib, analyze, random.Random(f'{seed}.{i}')) for i in range(times)]
    live, dead = (sum(f[i] for f in found) for i in (0, 1))
    print(f'{times} kills: the killed rank was named {live} times live and {dead} times after SIGKILL of all; never another one')
    return live, dead


def test_random_kills(analyze, tmp_path, lib):
    """Ten of the kills of the soak test. While the others wait, the killed rank is nearly always named. Once all are
    killed, it is only known if it was not in a call."""
    live, _ = kill_many(tmp_path, lib, analyze, 10, 'short')
    assert live >= 5


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_200_random_kills(analyze, tmp_path, lib):
    live, _ = kill_many(tmp_path, lib, analyze, 200, 'soak')
    assert live >= 150


# ---- a rank without a collective ----

def named_as_absent(answer, who):
    return [f for f in answer['totals']['unmatched'] if f['missing_ranks'] == [who] and f['blamed_ranks'] == [who] and f['seq'] == 0]


def test_a_rank_that_never_called_a_collective(analyze, tmp_path, lib):
    """It made the communicator, so it is missing in the first collective: live, and after SIGKILL of all."""
    processes = test_nccl.start(tmp_path, lib, 4, 'absent', 2)
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while len(list((tmp_path / 'run').glob('*.live'))) < 4 or not named_as_absent(analyze('hang', tmp_path / 'run', rc=None), 2):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        for p in processes:
            p.kill()
        for p in processes:
            p.communicate()
    assert named_as_absent(analyze('hang', tmp_path / 'run', rc=None), 2)


# ---- torch over NCCL ----

WAIT = f'train {PROGRAM}:{line_of("# the wait for the device")}'
NCCL_PLACES = {**PLACES, 'operation': WAIT, 'count': WAIT}


def run_nccl(analyze, python, lib, directory, fault, **variables):
    libraries = [lib, *(built(GPU / name) for name in ('libcudart.so.13', 'libcupti.so.13', 'libnccl.so.2'))]
    env = truth.environment(directory.parent, SIMGPU_DEVICES=3, SIMNCCL_TIMEOUT_MS=600000, LD_PRELOAD=':'.join(map(str, libraries)), **variables)
    return run_fault(analyze, python, directory, env, fault, 'nccl', NCCL_PLACES)


@short_form(1, 'fault', FAULTS)
def test_a_fault_over_nccl(analyze, tmp_path, lib, python, fault):
    """The answers are those over gloo, while the host waits for its device and after SIGKILL. `broadcast` and an all_reduce of
    fewer elements are enqueued without an error."""
    run_nccl(analyze, python, lib, tmp_path / 'job', fault)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('fault', FAULTS)
def test_a_fault_over_nccl_is_named_soon(analyze, tmp_path, lib, python, fault):
    """Within 15 seconds, as over gloo."""
    assert fastest(lambda i: run_nccl(analyze, python, lib, tmp_path / str(i), fault, TFI_HANG_S=5)) < BOUND
