"""test_gpu_check - scripts/gpu-check without a GPU: its plan, a run on the simulated GPU, SIGKILL, and its comparisons.

tests/gpu-results/ has its findings on a real GPU. These tests ask whether it would find errors: a .tfr and a Kineto
trace of the same work agree, and each single difference between them is named.
"""

import copy
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from conftest import BUILD, COMMAND_TIMEOUT, ROOT, built, clean_environment, execute
from tfr import DEVICE, MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

SCRIPT = ROOT / 'scripts' / 'gpu-check'
sys.path.insert(0, str(ROOT / 'scripts' / 'gpu'))

import common  # noqa: E402
import measure  # noqa: E402
import parts  # noqa: E402
import raw  # noqa: E402
import torchparts  # noqa: E402
import traces  # noqa: E402

BASE = 1_790_000_000_000_000_000  # nanoseconds since 1970
COUNTS = {'text_encode': (1, 0, 1), 'denoise': (1, 8, 8), 'vae_decode': (0, 1, 1)}  # fill, axpy, matmul


QUICK = 'facts,threads,killed,injection,api-noise,c-pipeline,soak'  # without torch and without pauses
NEEDED = ('demo/diffusion', 'gpu/libcupti_raw.so', 'simgpu/libcuda.so.1', 'simgpu/libcudart.so.13', 'simgpu/libcupti.so.13')


def command(directory, *options):
    for needed in NEEDED:
        built(BUILD / needed)
    return [sys.executable, SCRIPT, '--output', directory / 'out', '--state', directory / 'state', *options]


def report_of(directory):
    path = directory / 'out' / 'gpu-check.json'
    return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def check(tmp_path, lib, tfanalyze):
    """check(options…) -> the result, with the content of gpu-check.json as .report."""
    def check(*options, env=None, rc=0):
        result = execute(command(tmp_path, *options), {**clean_environment(), **(env or {})}, tmp_path)
        assert result.rc == rc, result.out + result.err
        result.report = report_of(tmp_path)
        return result
    return check


@pytest.fixture(scope='module')
def script():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader('gpu_check', str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('gpu_check', loader))
    loader.exec_module(module)
    return module


# ---- the script ----

def test_the_plan_is_in_order_and_adds_up(check):
    lines = check('--plan').out.splitlines()
    rows = [re.match(r'(\S+) +(\d+) s  \+ +(\d+) s, at most +(\d+) s, call (\d)  \S', line) for line in lines[:-1]]
    assert all(rows), lines
    assert [r[1] for r in rows] == list(parts.PARTS) and [r[1] for r in rows][:4] == ['facts', 'no-device', 'sessions', 'raw-cupti']
    for before, row in zip(rows, rows[1:]):
        assert int(row[2]) == int(before[2]) + int(before[3]) and int(row[3]) <= int(row[4])
    assert f' {int(rows[-1][2]) + int(rows[-1][3])} s;' in lines[-1]
    calls = [[int(r[3]) for r in rows if r[5] == call] for call in ('1', '2')]
    assert all(sum(seconds) <= 570 for seconds in calls) and sum(map(len, calls)) == len(rows) and len(calls[1]) <= 4


def test_parts_without_torch_on_the_simulated_gpu(check, tmp_path):
    report = check('--simulated', '--only', QUICK).report
    assert (report['device'], report['claims'], report['disagreements']) == ('simulated', 'none of a real device', 0)
    assert list(report['parts']) == QUICK.split(',') and not report['missing_figures']
    assert all(part['state'] == 'done' and part['device'] == 'simulated' for part in report['parts'].values())
    part = report['parts']['c-pipeline']
    assert 'kernels (the simulated' in part['not_run'][0]
    everything = part['figures']['everything']
    assert everything['kernels'] == everything['kernels_asked_for'] == 21
    for stage, counts in COUNTS.items():
        told = everything['answer']['counts'][stage]
        assert tuple(told[k] for k in ('fill', 'axpy', 'matmul')) == counts
    assert everything['trace']['events']['kernel'] == 21 and not everything['trace']['lost']
    assert 'kernel' not in part['figures']['stages-only']['trace']['events']
    assert report['parts']['facts']['figures']['cupti']['sizes']['driver'] > 700
    assert report['parts']['threads']['figures']['asked_for'] == sum(range(200, 216))
    injected = report['parts']['injection']['figures']
    assert (injected['kernels'], injected['stages']['step']) == (21, 8)
    assert sorted(os.listdir(tmp_path / 'out')) == ['gpu-check.json', 'state.tar.gz', 'traces.tar.gz']
    with tarfile.open(tmp_path / 'out' / 'traces.tar.gz') as archive:
        kinds = {f'c-{way}' for way in parts.C_WAYS if way != 'plain'} | {'injection'}
        assert {f'traces/{kind}.tfr' for kind in kinds} == set(archive.getnames())


def test_raw_buffers_are_brought_back_whole(check, tmp_path):
    """Each record has its bytes and the texts it points to: 33 kernels of three names, three copies, one set."""
    assert not check('--simulated', '--only', 'raw-cupti').report['missing_figures']
    with tarfile.open(tmp_path / 'out' / 'raw-cupti.tar.gz') as archive:
        archive.extraction_filter = getattr(tarfile, 'data_filter', None)  # Python before 3.11.4 has no data_filter
        archive.extractall(tmp_path)
    head, buffers = raw.read(tmp_path / 'raw-cupti' / 'nodes.cupti-raw')
    rows = [(kind, data, b.texts) for b in buffers for kind, data in b.records]
    assert head['format'] == 'cupti-raw 1' and head['version'] // 10000 == 13
    assert [sum(kind == k for kind, _, _ in rows) for k in (10, 1, 2)] == [33, 3, 1]
    for kind, data, texts in rows:
        assert int.from_bytes(data[:4], 'little') == kind
        assert kind != 10 or sum(p.to_bytes(8, 'little') in data for p in texts) == 1
    assert {text for b in buffers for text in b.texts.values()} == {'tiny', 'tiny_too', 'spin'}


def test_missing_records_are_disagreements(check):
    """If CUPTI refuses, the output stays the same and the missing records are named."""
    result = check('--simulated', '--only', 'c-pipeline', env={'SIMCUPTI_FAIL': 'cuptiActivityEnable=1'}, rc=1)
    found = [d for d in result.report['parts']['c-pipeline']['disagreements'] if d['what'] == 'c-pipeline']
    assert sum(d['asked_for'] - d['ours'] for d in found) == 21 + 2 + 1  # kernels, copies, sets
    assert result.report['goals_missed'] == []


def test_a_missed_goal_is_no_disagreement(check, tmp_path):
    """Invalid times of graph nodes make the library record whole launches, which misses a goal but is no disagreement."""
    options = ('--simulated', '--only', 'soak')
    report = check(*options, env={'SIMCUPTI_NASTY': 'pool=20000'}).report
    figures = report['parts']['soak']['figures']
    assert (figures['kernels'], report['disagreements']) == (20000, 0)
    assert figures['whole_launches'] > 0 and figures['lost']['device_timeless'] > 0
    missed = report['goals_missed']  # this trap also uses up the device's memory, as far as time allows
    assert missed[0]['what'] == 'soak: nodes without a record of their own'
    path = tmp_path / 'state' / 'soak.json'
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, 'disagreements': [{'what': 'soak: kernels'}]}))
    report = check(*options, rc=1).report
    assert (report['goals_missed'], report['disagreements']) == (missed, 1)


def test_finished_parts_are_not_repeated(check, tmp_path):
    """A finished part is not measured again, except with another build of the library."""
    first = check('--simulated', '--only', 'c-pipeline').report
    state = tmp_path / 'state' / 'c-pipeline.json'
    kept = json.loads(state.read_text())
    kept['figures']['mark'] = 'of the first run'
    state.write_text(json.dumps(kept))
    again = check('--simulated', '--only', 'c-pipeline').report['parts']['c-pipeline']['figures']
    assert again['mark'] == 'of the first run'
    kept['key']['library'] = 'another build'
    state.write_text(json.dumps(kept))
    again = check('--simulated', '--only', 'c-pipeline').report['parts']['c-pipeline']['figures']
    assert 'mark' not in again and again.keys() == first['parts']['c-pipeline']['figures'].keys()


def children_of(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file:
        return [int(child) for child in file.read().split()]


def alive(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] not in 'ZX'
    except OSError:
        return False


def wait_for(what, seconds=COMMAND_TIMEOUT):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_it_continues_after_a_kill_in_a_part(check, tmp_path):
    """After SIGKILL no measuring process is left; finished ways are kept, here and in the handed-over archive."""
    ways, options = tmp_path / 'state' / 'ends.ways.json', ('--simulated', '--only', 'ends')
    process = subprocess.Popen(command(tmp_path, *options), env=clean_environment(), stdout=subprocess.DEVNULL)
    wait_for(lambda: ways.exists() and len(json.loads(ways.read_text())['ways']) >= 2)
    orphans = wait_for(lambda: children_of(process.pid))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not any(map(alive, orphans)))
    running = report_of(tmp_path)['running']
    kept = json.loads(ways.read_text())
    assert running['part'] == 'ends' and 2 <= len(kept['ways']) < 12 and set(running['ways']) <= set(kept['ways'])
    kept['ways']['mid-kernel, plain']['result']['mark'] = 'of the first run'
    ways.write_text(json.dumps(kept))
    report = check(*options).report
    assert report['running'] is None and report['parts']['ends']['state'] == 'done' and not report['missing_figures']
    assert report['parts']['ends']['figures']['mid-kernel']['plain']['mark'] == 'of the first run'


def test_a_part_that_is_late_loses_only_its_rest(script, check, tmp_path, monkeypatch):
    """A late part loses only its rest: the next part runs, finished ways are kept, and another machine can continue. The time
    of the first part is up after three ways, however long they take."""
    ways, limit = tmp_path / 'state' / 'ends.ways.json', 100

    class Deadline(common.Deadline):
        def __init__(self, seconds):
            super().__init__(seconds)
            self.is_for_three = seconds <= limit and not ways.exists()

        def left(self):
            return 0 if self.is_for_three and ways.exists() and len(json.loads(ways.read_text())['ways']) == 3 else super().left()
    monkeypatch.setattr(common, 'Deadline', Deadline)
    monkeypatch.setattr(sys, 'argv', [*map(str, command(tmp_path, '--simulated', '--only', 'ends,injection', '--limit', limit))][1:])
    assert script.main() == 75
    report = report_of(tmp_path)
    cut = report['parts']['ends']
    assert (cut['state'], report['parts']['injection']['state']) == ('cut', 'done')
    assert len(cut['ways']) == 3 and 'mid-kernel' in cut['figures'] and 'ends: capture.plain.exit' in report['missing_figures']
    assert 'time was up' in cut['not_run'][-1]
    brought_back = (tmp_path / 'out' / 'state.tar.gz').read_bytes()
    shutil.rmtree(tmp_path / 'state')
    (tmp_path / 'state').mkdir()
    (tmp_path / 'state' / 'state.tar.gz').write_bytes(brought_back)
    result = check('--simulated', '--only', 'ends,injection')
    assert 'injection …' not in result.out and result.report['parts']['ends']['state'] == 'done'
    assert result.report['parts']['ends']['ways'].items() >= cut['ways'].items()


def test_handed_over_files_are_small_enough(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, 'FILE_LIMIT', 20000)
    members = {'a': os.urandom(9000), 'large': os.urandom(15000), 'b': b'0' * 60000}
    assert script.archive(str(tmp_path / 'x.tar.gz'), members) == ['b', 'large']
    with tarfile.open(tmp_path / 'x.tar.gz') as archive:
        assert archive.getnames() == ['a'] and archive.extractfile('a').read() == members['a']


def test_a_part_that_breaks_is_a_finding(script, check, tmp_path, monkeypatch):
    """An exception in a part and a missing figure are both findings."""
    def broken(part):
        part.figures['nodes'] = part.way('one', lambda: 7)
        raise KeyError('told')
    monkeypatch.setitem(parts.FUNCTIONS, 'soak', broken)
    monkeypatch.setattr(sys, 'argv', ['gpu-check', '--simulated', '--only', 'soak', '--output', str(tmp_path / 'out'),
                                      '--state', str(tmp_path / 'state')])
    assert script.main() == 1
    report = report_of(tmp_path)
    assert report['parts']['soak']['figures'] == {'nodes': 7} and 'soak: kernels' in report['missing_figures']
    assert report['parts']['soak']['disagreements'][0]['what'] == 'soak broke'


def test_without_a_gpu_it_checks_nothing(check):
    if subprocess.run([built(BUILD / 'demo' / 'diffusion'), '--probe'], capture_output=True).returncode == 0:
        assert check('--only', 'c-pipeline').report['device'] == 'real'
        return
    result = check('--python', '/bin/false', rc=77)
    assert 'nothing was checked' in result.out
    assert (result.report['device'], result.report['parts']) == ('none', {})


def test_usage(check):
    assert 'the parts are facts, no-device' in check('--only', 'everything', rc=2).err
    text = check('--help').out
    assert 'carry:' in text and 'build/libtfinject.so' in text


def killed_once_in_each_part(tmp_path):
    """Kills the check once in each part, at different places, and starts it again."""
    killed = set()
    for _ in range(len(parts.PARTS) + 1):
        process = subprocess.Popen(command(tmp_path, '--simulated', '--seconds', '3400'), env=clean_environment(),
                                   stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            part = re.match(r'gpu-check: (\S+) …', line)
            if part and part[1] not in killed:
                killed.add(part[1])
                time.sleep(len(killed) % 4)  # some parts die before their first way is finished, some after it
                process.kill()
        if process.wait() == 0:
            break
    assert killed >= {'facts', 'no-device', 'sessions', 'graph-replay', 'floor', 'torch-pipeline', 'train'}


def without_a_kill(tmp_path):
    """Takes under ten minutes of CPU; the limit holds on a single core, whatever else this machine does meanwhile."""
    before = os.times()
    result = execute(command(tmp_path, '--simulated', '--seconds', '3400'), clean_environment(), tmp_path, 3500)
    after = os.times()
    assert result.rc == 0, result.out + result.err
    assert sum(after[2:4]) - sum(before[2:4]) < 540  # CPU of its processes; pauses take half a minute more


@pytest.mark.soak
@pytest.mark.sampled(1)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize('runs', [killed_once_in_each_part, without_a_kill])
def test_all_of_it_on_the_simulated_gpu(tmp_path, lib, tfanalyze, runs):
    """Every part ends with every figure and no claim about a GPU, in eight files, killed on the way or not."""
    runs(tmp_path)
    report = report_of(tmp_path)
    assert not report['missing_parts'] and not report['missing_figures'] and not report['disagreements']
    assert (report['device'], report['claims']) == ('simulated', 'none of a real device')
    for name, part in report['parts'].items():
        assert (part['state'], part['device']) == ('done', 'simulated'), name
        if name in ('graph-replay', 'floor', 'torch-pipeline', 'train', 'diffuse'):
            assert any('simulated' in why for why in part['not_run']), name
    handed_over = list((tmp_path / 'out').iterdir())
    assert len(handed_over) <= 8 and all(f.stat().st_size < 16 << 20 for f in handed_over)
    with tarfile.open(tmp_path / 'out' / 'pairs.tar.gz') as archive:
        assert len([n for n in archive.getnames() if n.endswith('.table.txt')]) >= 5


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
    """compared(change) -> the disagreements between our trace and the changed Kineto trace."""
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


def test_a_duration_within_the_tolerance_is_no_disagreement(compared):
    assert compared(lambda events: of('kernel')(events).update(dur=0.45))[2] == []


def test_the_torch_pipeline_is_compared(tmp_path, tfanalyze):
    """The part's own comparison finds no disagreement for the same work in all four ways of running it."""
    directory, path = our_trace(tmp_path / 'run'), tmp_path / 'kineto.json'
    path.write_text(json.dumps(kineto_trace()))
    figures, disagreements = {'ways': {'both': {'outputs': {'matmul': {'sha256': '0'}, 'graph': {'not_run': 'no'}}}}}, []
    torchparts.compare_torch({'everything': directory, 'both': directory}, {'profiler': str(path), 'both': str(path)}, figures,
                        disagreements)
    assert disagreements == []
    assert figures['both']['stages']['stages'] == {'matmul': [3, 3]}
    assert figures['alone']['durations']['total_ns'] == [887, 887]


@pytest.mark.parametrize('ratio, sums, noise, verdict', [(1.03, 1.0, 0.0, 'met'), (1.08, 1.03, 0.01, 'not met'),
                                                         (1.08, 1.03, 0.05, 'within the noise')])
def test_a_goal_is_judged_with_the_noise_beside_it(ratio, sums, noise, verdict):
    ways = {name: {'times_plain': {'median': value}}
            for name, value in (('everything', ratio), ('stages-only', 1.0), ('plain-again', 1 - noise))}
    ways['stages-only']['times_stages_without_sums'] = {'median': sums}
    verdicts, missed = measure.judge('training', ways)
    assert [verdicts[goal]['verdict'] for goal in ('everything', 'stages-only', 'sums')] == [verdict, 'met', verdict]
    assert len(missed) == 2 * (verdict == 'not met')


def test_each_way_is_compared_within_its_round():
    """The sums are compared with the same stages without them, pair by pair, and not with the plain run."""
    found = {way: [{'seconds': 2.0 + n, 'thread_cpu_seconds': 1.0} for n in range(3)] for way in measure.WAYS}
    for n, result in enumerate(found['stages-only']):
        result['seconds'] = 1.5 * found['stages-without-sums'][n]['seconds']
    ways = measure.summary(found, 10)
    assert ways['stages-only']['times_stages_without_sums']['median'] == ways['stages-only']['times_plain']['median'] == 1.5
    found['plain'] = [{'seconds': 1.0, 'thread_cpu_seconds': 1.0}] * 3
    assert measure.summary(found, 10)['stages-only']['times_stages_without_sums']['median'] == 1.5
