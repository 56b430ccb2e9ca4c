"""test_gpu_critical - the critical path of random programs is the chain of work that the simulated device really followed.

A piece of work on the device starts at the very nanosecond at which what it waits for ends, or a fixed time after its
launch. So the log tells the chain without any rule about streams, and the path has to follow it from its end to its
beginning: default streams, blocking and other ones, events, graphs, two devices.
"""

import pytest

import simlog
from conftest import BUILD, built

LATENCY = 5000  # ns from a submission to the earliest start
SCRIPT = 'latency 5us\nmemcpy_* 1ms + 50ns*bytes\nmemset 1ms + 1ns*bytes\n* 1ms + 10us*blocks\n'
KINDS = {'kernel': 'gpu_compute_bound', 'nccl': 'gpu_communication_bound', 'memcpy': 'gpu_copy_bound', 'memset': 'gpu_copy_bound'}


@pytest.fixture
def play(run, tmp_path):
    def play(program, *arguments):
        (tmp_path / 'script').write_text(SCRIPT)
        result = run([built(BUILD / 'victims_gpu' / program), *arguments], {
            'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_LOG': tmp_path / 'log', 'SIMGPU_SCRIPT': tmp_path / 'script', 'SIMGPU_REAL': '1'})
        assert result.rc == 0, (result.out, result.err)
        truth = simlog.read(tmp_path / 'log')
        truth.directory = result.dir
        for w in truth.works:
            begin = truth.devices[w.device]['monotonic']
            w.name = {'_Z11text_encodePfi': 'text_encode(float*, int)'}.get(w.name, w.name)
            w.begin, w.over, w.sent = begin + w.start, begin + w.end, begin + w.submitted
        return truth
    return play


def on_the_path(truth, analyze):
    """The works of the path in order, and the whole answer."""
    rows = analyze('critical-path', '--nodes', truth.directory)['rows']
    pairs = [(a, b) for a, b in zip(rows, rows[1:]) if a['stream'] is not None and a['node'] == 'start']
    fitting = [[w for w in truth.works if (w.device, w.stream, w.name, w.duration) ==
                (a['device'], a['stream'], a['name'], round(b['time_us'] * 1000) - round(a['time_us'] * 1000))] for a, b in pairs]
    shift = next(works[0].begin - a['time_us'] * 1000 for works, (a, _) in zip(fitting, pairs) if len(works) == 1)
    return [min(works, key=lambda w: abs(w.begin - shift - a['time_us'] * 1000)) for works, (a, _) in zip(fitting, pairs)]


def before_on_host(truth, until):
    """The works whose end the last call waited for that waited for any, before a moment."""
    waits = [c for c in truth.calls.values() if c.start < c.waited and c.start < until]
    last = max(waits, key=lambda c: c.start, default=None)
    return [w for w in truth.works if last and w.over == last.waited]


def chain(truth, path):
    """Returns the works of the chain by time. The host waits for the last one; each began when the one before it ended.

    Two works may have ended at once, or one while another was being launched; then this follows the answer's choice."""
    ended, answered, found = {}, list(path), []
    for w in truth.works:
        ended.setdefault(w.over, []).append(w)
    choice = before_on_host(truth, 1 << 62)
    while choice:
        own = answered.pop() if answered else None
        w = own if own in choice else choice[0]
        found.append(w)
        choice = ended.get(w.begin) or before_on_host(truth, w.call.start)
        if w.begin == w.sent + LATENCY and answered and w.call.start < answered[-1].over <= w.begin:
            choice = [answered[-1]]
    return found[::-1]


def names(works):
    return [(w.device, w.stream, w.name, w.begin) for w in works]


def check(truth, analyze):
    path = on_the_path(truth, analyze)
    assert names(path) == names(chain(truth, path)) and len(path) > 3
    answer = analyze('critical-path', truth.directory)
    sums = dict.fromkeys(KINDS.values(), 0)
    for w in path:
        sums[KINDS['nccl' if w.name.startswith('nccl') else w.t]] += w.duration
    kinds = {r['kind']: r['total_us'] for r in answer['rows']}
    assert {kind: round(kinds.get(kind, 0) * 1000) for kind in sums} == sums
    totals = answer['totals']
    assert .95 * totals['span_us'] < totals['path_us'] <= totals['span_us']
    return path


@pytest.mark.parametrize('seed', [1, 2, 3, 4, 5, 6])
def test_random_programs(play, analyze, seed):
    truth = play('mixture', seed, 25, 'alone')
    check(truth, analyze)
