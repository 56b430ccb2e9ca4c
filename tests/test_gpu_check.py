"""test_gpu_check - scripts/gpu-check without a GPU: what it says, its C pipeline on the simulated one, its comparisons.

What it finds on a real GPU is in tests/gpu-results/. Here is tested that it would find it: a trace of ours and a Kineto
trace of the same work agree, and each single difference between them is named.
"""

import copy
import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute
from tfr import DEVICE, MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

SCRIPT = ROOT / 'scripts' / 'gpu-check'
sys.path.insert(0, str(ROOT / 'scripts' / 'gpu'))

import parts  # noqa: E402
import traces  # noqa: E402

BASE = 1_790_000_000_000_000_000  # nanoseconds since 1970
COUNTS = {'text_encode': (1, 0, 1), 'denoise': (1, 8, 8), 'vae_decode': (0, 1, 1)}  # fill, axpy, matmul


@pytest.fixture
def check(tmp_path, lib, tfanalyze):
    """check(options…) -> the result, with .report, what gpu-check.json says."""
    def check(*options, env=None, rc=0):
        for needed in ('demo/diffusion', 'simgpu/libcuda.so.1', 'simgpu/libcupti.so.13'):
            built(BUILD / needed)
        command = [sys.executable, SCRIPT, '--output', tmp_path / 'out', '--state', tmp_path / 'state', *options]
        result = execute(command, {**clean_environment(), **(env or {})}, tmp_path, 120)
        assert result.rc == rc, result.out + result.err
        report = tmp_path / 'out' / 'gpu-check.json'
        result.report = json.loads(report.read_text()) if report.exists() else None
        return result
    return check


# ---- the script ----

def test_the_c_pipeline_on_the_simulated_gpu(check, tmp_path):
    report = check('--simulated').report
    assert (report['device'], report['claims'], report['disagreements']) == ('simulated', 'none of a real device', 0)
    part = report['parts']['c-pipeline']
    assert part['device'] == 'simulated' and 'kernels (the simulated' in part['not_run'][0]
    assert set(report['missing_parts']) == {'torch-pipeline', 'launch-bound', 'transformer', 'training', 'train', 'diffuse'}
    everything = part['figures']['everything']
    assert everything['kernels'] == everything['kernels_asked_for'] == 21
    for stage, counts in COUNTS.items():
        told = everything['answer']['counts'][stage]
        assert tuple(told[k] for k in ('fill', 'axpy', 'matmul')) == counts
    assert everything['trace']['events']['kernel'] == 21 and not everything['trace']['lost']
    assert 'kernel' not in part['figures']['stages-only']['trace']['events']
    assert sorted(os.listdir(tmp_path / 'out')) == ['c-pipeline.tfr', 'gpu-check.json']


def test_what_is_done_is_not_done_again(check, tmp_path):
    first = check('--simulated').report
    state = tmp_path / 'state' / 'c-pipeline.json'
    kept = json.loads(state.read_text())
    kept['figures']['mark'] = 'of the first run'
    state.write_text(json.dumps(kept))
    assert check('--simulated').report['parts']['c-pipeline']['figures']['mark'] == 'of the first run'
    kept['key']['library'] = 'another build'
    state.write_text(json.dumps(kept))
    again = check('--simulated').report['parts']['c-pipeline']['figures']
    assert 'mark' not in again and again.keys() == first['parts']['c-pipeline']['figures'].keys()


def test_missing_records_are_disagreements(check):
    """CUPTI refuses: the library goes on without device records, the output is the same, what is missing is named."""
    result = check('--simulated', env={'SIMCUPTI_FAIL': 'cuptiActivityEnable=1'}, rc=1)
    found = result.report['parts']['c-pipeline']['disagreements']
    assert {d['what'] for d in found} == {'c-pipeline'}
    assert sum(d['asked_for'] - d['ours'] for d in found) == 21 + 2 + 1  # kernels, copies, sets


def test_without_a_gpu_it_checks_nothing(check):
    if subprocess.run([built(BUILD / 'demo' / 'diffusion'), '--probe'], capture_output=True).returncode == 0:
        assert check('--only', 'c-pipeline').report['device'] == 'real'
        return
    result = check('--python', '/bin/false', rc=77)
    assert 'nothing was checked' in result.out
    assert (result.report['device'], result.report['parts']) == ('none', {})


def test_usage(check):
    assert 'there are c-pipeline, torch-pipeline' in check('--only', 'everything', rc=2).err
    assert 'only c-pipeline' in check('--simulated', '--only', 'training', rc=2).err


# ---- the comparisons ----

KERNELS = [('_Z4gemmIfEvPT_i', 'void gemm<float>(float*, int)', 7, 1000, 400),
           ('_Z4gemmIfEvPT_i', 'void gemm<float>(float*, int)', 7, 2000, 410), ('softmax', 'softmax', 9, 2600, 77)]


def our_trace(directory):
    """A run directory with three kernels and a copy in the stages measured > matmul."""
    w = Writer(rank=0, world=1, clock='tsc')
    launch = w.string('libcudart.so\x1fLAUNCH\x1fcudaLaunchKernel\x1f')
    records = [rec('clock', clock=clock, ticks=2 * ns, value=BASE + ns if clock != MONOTONIC else ns, error=10)
               for ns in (0, 10 ** 9) for clock in (MONOTONIC, REALTIME, DEVICE)]
    records.append(rec('thread', serial=1, tid=101, time=2, name=w.string('main'), pthread=0x7f0000010000))
    for number, (name, start, end) in enumerate((('matmul', 200, 90000), ('measured', 100, 100000)), 1):
        records.append(rec('range_end', name=w.string(name), time=2 * end, duration=2 * (end - start), id=number,
                           flags=NESTED | STAGE, thread=1))
    for number, (mangled, _, stream, start, duration) in enumerate(KERNELS, 1):
        records.append(rec('correlation', correlation=number, func=launch, thread=0x10000, time=2 * (start - 500),
                           duration=20))
        records.append(rec('kernel', name=w.string(mangled), correlation=number, start=BASE + start, duration=duration,
                           stream=stream, device=0))
    records.append(rec('copy', direction=1, correlation=9, start=BASE + 5000, duration=50, bytes=4096, stream=7))
    w.chunk(records, thread=1, tid=101)
    w.footer()
    directory.mkdir()
    w.save(directory / 'rank0.here.101.tfr')
    return str(directory)


def kineto_trace():
    def event(category, name, start, duration, tid=101, **args):
        return {'ph': 'X', 'cat': category, 'name': name, 'pid': 101, 'tid': tid, 'ts': start / 1000,
                'dur': duration / 1000, 'args': args}
    events = [event('user_annotation', 'measured', 100, 99900), event('user_annotation', 'matmul', 200, 89800)]
    for number, (_, name, stream, start, duration) in enumerate(KERNELS, 1):
        events.append(event('cuda_runtime', 'cudaLaunchKernel', start - 500, 10, correlation=number))
        events.append(event('kernel', name, start, duration, tid=stream, correlation=number, stream=stream, device=0))
    events.append(event('gpu_memcpy', 'Memcpy HtoD', 5000, 50, tid=7, correlation=9, stream=7, device=0, bytes=4096))
    return {'schemaVersion': 1, 'baseTimeNanoseconds': BASE, 'traceEvents': events}


@pytest.fixture
def compared(tmp_path, tfanalyze):
    """compared(change) -> the disagreements between our trace and the Kineto trace after the change."""
    directory = our_trace(tmp_path / 'run')

    def compared(change=lambda events: None):
        trace = copy.deepcopy(kineto_trace())
        change(trace['traceEvents'])
        path = tmp_path / 'kineto.json'
        path.write_text(json.dumps(trace))
        theirs = traces.kineto(str(path))
        ours, ranges, error = traces.our_work(directory, 'measured')
        assert not error and set(ranges) == {'measured', 'matmul'}
        counts, found = traces.compare_counts('counts', ours, theirs.work)
        records, more = traces.compare_records('records', ours, theirs.work)
        _, other = traces.compare_stages('stages', directory, theirs, ['matmul'])
        return counts, records, found + more + other
    return compared


def test_the_same_work_agrees(compared):
    counts, records, disagreements = compared()
    assert disagreements == []
    assert (counts['ours'], counts['theirs'], counts['names_ours']) == (4, 4, 3)
    assert (records['joined'], records['equal_durations'], records['start_difference_ns']) == (4, 4, [0, 0])


def of(category, n=0):
    return lambda events: [e for e in events if e['cat'] == category][n]


@pytest.mark.parametrize('what, change', [
    ({'counts', 'records', 'stages'}, lambda events: events.remove(of('kernel')(events))),
    ({'counts', 'records', 'stages'}, lambda events: of('kernel')(events).update(name='void gemm<int>(int*, int)')),
    ({'records'}, lambda events: of('kernel', 1)(events).update(dur=0.6)),
    ({'records'}, lambda events: of('kernel')(events)['args'].update(stream=8)),
    ({'records'}, lambda events: of('gpu_memcpy')(events)['args'].update(bytes=4095)),
    ({'stages'}, lambda events: of('user_annotation', 1)(events).update(dur=1.3)),
    ({'stages'}, lambda events: of('cuda_runtime')(events)['args'].update(correlation=77)),
], ids=['missing', 'name', 'duration', 'stream', 'bytes', 'stage', 'launch'])
def test_each_difference_is_named(compared, what, change):
    assert {d['what'] for d in compared(change)[2]} == what


def test_a_duration_within_the_tolerance_is_none(compared):
    assert compared(lambda events: of('kernel')(events).update(dur=0.45))[2] == []


def test_the_torch_pipeline_is_compared(tmp_path, tfanalyze):
    """The part's own comparison, with the same work in all four ways of running it."""
    directory, path = our_trace(tmp_path / 'run'), tmp_path / 'kineto.json'
    path.write_text(json.dumps(kineto_trace()))
    figures, disagreements = {'ways': {'both': {'outputs': {'matmul': {'sha256': '0'}, 'graph': {'not_run': 'no'}}}}}, []
    parts.compare_torch({'everything': directory, 'both': directory}, {'profiler': str(path), 'both': str(path)}, figures,
                        disagreements)
    assert disagreements == []
    assert figures['both']['stages']['stages'] == {'matmul': [3, 3]}
    assert figures['alone']['durations']['total_ns'] == [887, 887]


@pytest.mark.parametrize('ratio, noise, verdict', [(1.03, 0.0, 'met'), (1.08, 0.01, 'not met'),
                                                   (1.08, 0.05, 'within the noise')])
def test_a_goal_is_judged_with_the_noise_beside_it(ratio, noise, verdict):
    ways = {name: {'times_plain': {'median': value}}
            for name, value in (('everything', ratio), ('stages-only', 1.0), ('plain-again', 1 - noise))}
    verdicts, missed = parts.judge('training', ways)
    assert (verdicts['everything']['verdict'], verdicts['stages-only']['verdict']) == (verdict, 'met')
    assert len(missed) == (verdict == 'not met')
