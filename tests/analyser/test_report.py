"""test_report - the files of a report against independent answers and in the tools that read them; its summary."""

import gzip
import json
import os
import re
import stat

import pytest

import kineto
import kineto_parts
import tfr
from conftest import execute
from test_export_kineto import AMD, FILTER, NCCL, NS_RESOLUTION, QWEN, RESNET, STEPS
from test_export_kineto import ask_loaders, head, in_hta, in_tensorboard
from small_traces import clock_chunk, simple
from tfr import NESTED, STAGE, Writer, rec


def report(analyze, *arguments, rc=0):
    """The answer, and {path: parsed JSON} of the files that the report wrote, without its page."""
    answer = analyze('report', *arguments, rc=rc)
    files = {}
    for path in (path for path in map(str, answer['totals']['files']) if not path.endswith('.html')):
        data = open(path, 'rb').read()
        text = gzip.decompress(data) if path.endswith('.gz') else data
        files[path] = kineto.Document(json.loads(text, parse_float=kineto.Decimal))
    return answer, files


def by_stage(files, suffix):
    """{(stage, rank): content}"""
    out = {}
    for path, content in files.items():
        if path.endswith(suffix):
            of = content.get('tfinject') or {'stage': content['name'], 'rank': content['rank']}
            out[of['stage'], of['rank']] = content
    return out


def names(directory):
    return sorted(os.listdir(directory))


def ns(ms):
    value = kineto.Decimal(ms) * 10 ** 6
    assert value == int(value)
    return int(value)


# ---- stages of real traces ----

@pytest.mark.parametrize('name', STEPS)
def test_files_of_a_real_trace(tmp_path, analyze, shared_traces, name):
    """Each stage's trace has the stage's events, and the kernels of the breakdowns add up."""
    there = kineto.read(shared_traces / name)
    answer, files = report(analyze, shared_traces / name, '--output', tmp_path / 'out')
    rank = there.get('distributedInfo', {}).get('rank', answer['rows'][0]['rank'])
    parts = kineto_parts.parts(there)
    traces, breakdowns = by_stage(files, '.trace.json.gz'), by_stage(files, '.breakdown.json')
    truth = kineto_parts.kernels(there)
    assert set(traces) == {(stage, rank) for stage in parts} and set(breakdowns) == {(stage, rank) for stage in truth if truth[stage]}
    for (stage, _), trace in traces.items():
        assert trace['traceEvents'] == parts[stage], stage
        assert {k: v for k, v in head(trace).items() if k != 'tfinject'} == head(there)
    check_breakdowns({stage: b for (stage, _), b in breakdowns.items()}, truth)


def check_breakdowns(breakdowns, truth):
    for stage, b in breakdowns.items():
        kernels = truth[stage]
        assert ns(b['total_kernel_time_ms']) == sum(k.device for k in kernels.values())
        assert (b['num_kernels'], b['launches']) == (len(kernels), sum(k.calls for k in kernels.values()))
        assert len(b['top_kernels']) == min(50, len(kernels))
        assert [k['ms'] for k in b['top_kernels']] == sorted((k['ms'] for k in b['top_kernels']), reverse=True)
        for k in b['top_kernels']:
            known = kernels[k['name']]
            assert (k['calls'], ns(k['ms']), ns(k['cuda_ms'])) == (known.calls, known.device, known.device)
            assert (k['cpu_ms'] is None) == (known.host is None)
            assert known.host is None or abs(float(k['cpu_ms']) * 1e6 - known.host) < 1


@pytest.mark.soak
@pytest.mark.parametrize('name', STEPS)
def test_stages_load_in_both_tools(tmp_path, analyze, shared_traces, python, name):
    _, files = report(analyze, shared_traces / name, '--output', tmp_path / 'out')
    traces = {p: t['traceEvents'] for p, t in files.items() if p.endswith('.gz')}
    few = sorted(traces, key=lambda p: len(traces[p]))[-3:]  # the largest
    found = ask_loaders(python, {'hta': few, 'tensorboard': few})
    assert found == {'hta': [in_hta(traces[p]) for p in few], 'tensorboard': [in_tensorboard(traces[p]) for p in few]}


@pytest.mark.soak
def test_stages_load_as_a_job_of_hta(tmp_path, analyze, shared_traces, python):
    _, files = report(analyze, shared_traces / FILTER.format(1), '--output', tmp_path)
    some = [p for p in files if re.search(r'/(## (forward|backward) ##|DistributedData.*)_rank1.trace', p)]
    assert len(some) == 3
    assert ask_loaders(python, {'hta_job': some}) == {'hta_job': [in_hta(files[p]['traceEvents']) for p in some]}


@pytest.mark.parametrize('name', [NS_RESOLUTION, FILTER.format(0), RESNET, AMD, QWEN, NCCL])
def test_timing_of_a_real_trace(tmp_path, analyze, shared_traces, name):
    there = kineto.read(shared_traces / name)
    answer, files = report(analyze, shared_traces / name, '--output', tmp_path)
    timing, stages = files[f'{tmp_path}/timing.json'], kineto.stages(there)
    first, last = kineto.span(there)
    total, calls = sum(s.all for s in stages.values()), sum(s.calls for s in stages.values())
    assert (ns(timing['wall_clock_ms']), ns(timing['total_stages_ms'])) == (last - first, total)
    assert set(timing['stages']) == set(stages) and timing['num_stages'] == calls
    for stage, t in timing['stages'].items():
        assert ns(t['duration_ms']) in stages[stage].last and t['calls'] == stages[stage].calls
        assert abs(float(t['percentage']) - 100 * ns(t['duration_ms']) / total) <= 0.0501
        assert set(t) == {'duration_ms', 'percentage', 'calls'}  # one rank, whose memory is unknown
    row, = answer['rows']
    assert (row['span_us'] * 1000, row['stages']) == (pytest.approx(last - first, abs=1), len(stages))


def test_two_ranks(tmp_path, analyze, shared_traces):
    both = [shared_traces / FILTER.format(rank) for rank in range(2)]
    answer, files = report(analyze, *both, '--output', tmp_path)
    stages = [kineto.stages(kineto.read(p)) for p in both]
    timing = files[f'{tmp_path}/timing.json']['stages']
    assert set(timing) == set(stages[0]) | set(stages[1])
    for stage, t in timing.items():
        known = {rank: s[stage] for rank, s in enumerate(stages) if stage in s}
        assert ns(t['duration_ms']) == max(max(s.last) for s in known.values())
        assert t['calls'] == sum(s.calls for s in known.values())
        if len(known) == 2:
            ranks = {r['rank']: (ns(r['duration_ms']), r['calls'], r['peak_memory_gb'])
                     for r in t['parallel_info']['ranks']}
            assert ranks == {rank: (max(s.last), s.calls, None) for rank, s in known.items()}
            assert t['parallel_info']['num_ranks'] == 2
        else:
            assert 'parallel_info' not in t
    assert [r['rank'] for r in answer['rows']] == [0, 1]
    for rank, row in enumerate(answer['rows']):
        timeline = analyze('timeline', both[rank])['rows'][0]
        for key in ('busy_us', 'busy_pct', 'idle_us'):
            assert row[key] == timeline[key]
    only, files = report(analyze, *both, '--rank', '1', '--stage', '## forward ##', '--output', tmp_path / 'one')
    assert sorted(map(os.path.basename, files)) == [
        '## forward ##_rank1.breakdown.json', '## forward ##_rank1.trace.json.gz', 'timing.json']


# ---- names of files ----

def test_names_of_files(tmp_path, analyze):
    """Characters unfit for a file name become `_`; stages whose names then collide get numbers."""
    stages = ['a/b', 'a_b', 'a\\b', '.hidden', '..', 'x' * 200, 'x' * 199, 'vae decode video', 'nccl:all_reduce',
              'f(x) #*-._', 'ü', 'step#1', 'step#2', 'Optimizer.step#SGD.step', 'a\nb', '#7']
    t = kineto.Trace()
    for i, name in enumerate(stages):
        t.stage(name, 100 * i, 50).launch('k', 100 * i, i + 1)
    answer, files = report(analyze, t.write(tmp_path / 'in.json'), '--output', tmp_path / 'out')
    found = {content['name']: os.path.basename(p)[:-len('_rank0.breakdown.json')] for p, content in files.items()
             if p.endswith('.breakdown.json')}
    assert found == {'a/b': 'a_b', 'a_b': 'a_b~2', 'a\\b': 'a_b~3', 'a\nb': 'a_b~4', '.hidden': '_hidden', '..': '_.',
                     'x' * 200: 'x' * 120, 'x' * 199: 'x' * 118 + '~2', 'vae decode video': 'vae decode video',
                     'nccl:all_reduce': 'nccl_all_reduce', 'f(x) #*-._': 'f(x) #*-._', 'ü': '__', 'step*': 'step*',
                     'Optimizer.step#SGD.step': 'Optimizer.step#SGD.step', '#7': '#7'}
    assert all(f.startswith(str(tmp_path / 'out')) for f in files) and len(files) == 2 * len(found) + 1
    timing = files[f'{tmp_path}/out/timing.json']
    assert list(timing['stages'])[:2] == ['a/b', 'a_b'] and timing['stages']['step*']['calls'] == 2
    assert names(tmp_path) == ['in.json', 'out']


def test_files_of_others_stay(tmp_path, analyze):
    """Files of other tools with an artefact's name stay: a TeleFuser trace, a breakdown, a timing.json."""
    trace = kineto.Trace(distributedInfo={'rank': 0}).stage('denoise', 0, 50).launch('k', 10, 1)
    path = trace.write(tmp_path / 'denoise_rank0.trace.json.gz')
    before = path.read_bytes()
    (tmp_path / 'timing.json').write_text('{"request_id": "theirs"}')
    for _ in range(2):  # the second report replaces the first one's files and reads the same inputs
        answer, files = report(analyze, tmp_path)
        assert sorted(map(os.path.basename, files)) == [
            'denoise~2_rank0.breakdown.json', 'denoise~2_rank0.trace.json.gz', 'timing~2.json']
        assert [i['path'] for i in answer['inputs']] == [str(path)] and path.read_bytes() == before
        said = analyze('report', tmp_path, format='text').out
        assert re.findall(r'^  (\S+) is new: (\S+) is not of a report, or was edited, and stays$', said, re.M) == [
            ('denoise~2_rank0.trace.json.gz', 'denoise_rank0.trace.json.gz'), ('timing~2.json', 'timing.json')]
    assert json.loads((tmp_path / 'timing.json').read_text()) == {'request_id': 'theirs'}
    assert names(tmp_path) == sorted(['denoise_rank0.trace.json.gz', 'report.html', 'timing.json', *map(os.path.basename, files)])


def test_two_files_of_one_rank(tmp_path, analyze):
    for i in range(2):
        kineto.Trace().stage('s', 1000 * i, 50 + i).launch('k', 1000 * i, 1).write(tmp_path / f'{i}.json')
    answer, files = report(analyze, tmp_path, '--output', tmp_path / 'out')
    assert names(tmp_path / 'out') == ['report.html', 's_rank0.breakdown.json', 's_rank0.trace.json.gz', 's~2_rank0.breakdown.json',
                                       's~2_rank0.trace.json.gz', 'timing.json']
    traces = [files[f'{tmp_path}/out/{t}_rank0.trace.json.gz'] for t in ('s', 's~2')]
    durations = [e['dur'] for t in traces for e in t['traceEvents'] if e['name'] == 's']
    assert durations == [50, 51]


# ---- odd runs ----

def test_a_trace_without_stages(tmp_path, analyze):
    path = kineto.Trace().operator('op', 0, 20).launch('k', 5, 1, dur=3).write(tmp_path / 'in.json')
    answer, files = report(analyze, path)
    assert names(tmp_path) == ['(run)_rank0.breakdown.json', '(run)_rank0.trace.json.gz', 'in.json', 'report.html', 'timing.json']
    b = files[f'{tmp_path}/(run)_rank0.breakdown.json']
    assert ns(b['total_kernel_time_ms']) == 3000 and b['top_kernels'][0]['name'] == 'k'
    assert len(files[f'{tmp_path}/(run)_rank0.trace.json.gz']['traceEvents']) == 3
    assert set(files[f'{tmp_path}/timing.json']['stages']) == {'(run)'}


def test_a_trace_without_a_device(tmp_path, analyze):
    """A breakdown then has operators by their own time, in a stage and in those around it; a stage without any has no file."""
    t = kineto.Trace().stage('out', 0, 90).stage('in', 10, 40).stage('in', 12, 30).stage('none', 60, 9)
    t.operator('mm', 2, 5).operator('softmax', 14, 20).operator('max', 15, 4).operator('mm', 20, 3).operator('mm', 95, 1)
    answer, files = report(analyze, t.write(tmp_path / 'in.json'))
    found = {b['name']: b for p, b in files.items() if p.endswith('.breakdown.json')}
    assert {name: (b['of'], ns(b['total_kernel_time_ms']), b['num_kernels'], b['launches']) for name, b in found.items()} == {
        'out': ('operators', 25000, 3, 4), 'in': ('operators', 20000, 3, 3)}
    assert found['in']['top_kernels'] == [{'name': name, 'ms': ms, 'cuda_ms': 0, 'cpu_ms': ms, 'calls': 1}
                                          for name, ms in zip(('softmax', 'max', 'mm'), map(kineto.Decimal, ('0.013', '0.004', '0.003')))]
    assert [(k['name'], ns(k['ms']), k['calls']) for k in found['out']['top_kernels']] == [('softmax', 13000, 1), ('mm', 8000, 2), ('max', 4000, 1)]
    assert [answer['rows'][0][k] for k in ('busy_us', 'idle_us', 'kernels', 'launches')] == [None] * 4
    assert 'no device work was recorded' in analyze('report', tmp_path / 'in.json', format=None).out


def test_work_in_no_stage(tmp_path, analyze):
    """The stages' device times and that of work in no stage add up to all; without such work there is no line."""
    trace = kineto.Trace().stage('forward', 100, 50).launch('gemm', 110, 1, dur=30).launch('stray', 200, 2, dur=12)
    trace.call(230, 3, name='cudaMemsetAsync').kernel('Memset (Device)', 235, 5, 3, cat='gpu_memset')
    out = analyze('report', trace.write(tmp_path / 'a.json'), '--output', tmp_path / 'out', format=None).out
    assert re.search(r'17\.000 us  \(none\)', out) and re.search(r'30\.000 us  forward', out), out
    assert not any('none' in name for name in names(tmp_path / 'out'))
    whole = kineto.Trace().stage('forward', 100, 50).launch('gemm', 110, 1, dur=30)
    assert '(none)' not in analyze('report', whole.write(tmp_path / 'b.json'), '--output', tmp_path / 'out2', format=None).out


def test_a_stage_without_device_work(tmp_path, analyze):
    """A stage that launched nothing has no breakdown, and no operators take the place of kernels."""
    t = kineto.Trace().stage('idle', 0, 9).operator('op', 1, 2).stage('busy', 20, 30).launch('k', 25, 1)
    report(analyze, t.write(tmp_path / 'in.json'))
    assert [n for n in names(tmp_path) if 'breakdown' in n] == ['busy_rank0.breakdown.json']


def test_copies_are_no_kernels_and_shared_launches_are_divided(tmp_path, analyze):
    t = kineto.Trace().stage('s', 0, 90).call(10, 1, dur=6, name='cudaGraphLaunch')
    t.kernel('a', 20, 4, 1).kernel('a', 30, 2, 1).kernel('b', 40, 9, 1).call(50, 2, name='cudaMemcpyAsync')
    t.kernel('Memcpy DtoH', 60, 7, 2, cat='gpu_memcpy').kernel('orphan', 70, 1, 9, external=5)
    t.operator('op', 12, 3, external=5)
    _, files = report(analyze, t.write(tmp_path / 'in.json'))
    b = files[f'{tmp_path}/s_rank0.breakdown.json']
    assert (ns(b['total_kernel_time_ms']), b['num_kernels'], b['launches']) == (16000, 3, 4)
    rows = [(k['name'], ns(k['ms']), k['calls'], None if k['cpu_ms'] is None else ns(k['cpu_ms']))
            for k in b['top_kernels']]
    assert rows == [('b', 9000, 1, 2000), ('a', 6000, 2, 4000), ('orphan', 1000, 1, None)]


def test_at_most_fifty_traces(tmp_path, analyze):
    t = kineto.Trace()
    for i in range(60):
        t.stage(f's{i:02}x', 1000 * i, 100 + i).launch('k', 1000 * i, i + 1)
    answer, files = report(analyze, t.write(tmp_path / 'in.json'))
    assert answer['totals']['traces_left_out'] == 10
    assert {s for s, _ in by_stage(files, '.trace.json.gz')} == {f's{i:02}x' for i in range(10, 60)}
    assert len(by_stage(files, '.breakdown.json')) == 60
    assert '10 shorter stages have no trace file' in analyze('report', tmp_path / 'in.json', format=None).out
    _, files = report(analyze, tmp_path / 'in.json', '--stage', 's00x')
    assert [s for s, _ in by_stage(files, '.trace.json.gz')] == ['s00x']


def test_a_directory_that_cannot_be_written(tmp_path, analyze):
    trace = kineto.Trace().stage('s', 0, 9).write(tmp_path / 'in.json')
    (tmp_path / 'file').write_text('')
    for where in (tmp_path / 'file', tmp_path / 'file' / 'below'):
        result = analyze('report', trace, '--output', where, rc=1, format=None)
        assert result.out == '' and len(result.err.splitlines()) == 1 and 'cannot be created' in result.err


def test_a_disk_that_is_full(tmp_path, tfanalyze):
    """A full disk leaves neither a partial nor a temporary file."""
    trace = kineto.Trace().stage('s', 0, 9).write(tmp_path / 'in.json')
    command = f'ulimit -f 0; trap "" XFSZ; exec {tfanalyze} report {trace} --output {tmp_path}/out'
    result = execute(['sh', '-c', command])
    assert result.rc == 1 and 'cannot be written' in result.err
    assert names(tmp_path / 'out') == []


def test_a_cut_trace_gives_its_whole_events(tmp_path, analyze, shared_traces):
    data = gzip.decompress((shared_traces / AMD).read_bytes())
    (tmp_path / 'cut.json').write_bytes(data[:len(data) * 3 // 4])
    answer, files = report(analyze, tmp_path / 'cut.json', rc=3)
    assert answer['inputs'][0]['complete'] is False
    assert len(by_stage(files, '.trace.json.gz')) >= 1 and f'{tmp_path}/timing.json' in files


def test_nothing_that_matches(tmp_path, analyze):
    trace = kineto.Trace().stage('s', 0, 9).write(tmp_path / 'in.json')
    assert 'nothing matches --stage no' in analyze('report', '--stage', 'no', trace, rc=1, format=None).err
    assert names(tmp_path) == ['in.json']


def test_modes_of_the_files(tmp_path, analyze):
    """Only the user can read traces and timing files, as with perf; everybody can read breakdowns."""
    old = os.umask(0o022)
    try:
        _, files = report(analyze, kineto.Trace().stage('s', 0, 9).launch('k', 5, 1).write(tmp_path / 'in.json'))
    finally:
        os.umask(old)
    modes = {os.path.basename(p): stat.S_IMODE(os.stat(p).st_mode) for p in files}
    assert modes == {'s_rank0.breakdown.json': 0o644, 's_rank0.trace.json.gz': 0o600, 'timing.json': 0o600}


# ---- our own traces ----

def test_report_of_our_own_traces(tmp_path, analyze):
    for rank in range(2):
        simple(tmp_path / f'rank{rank}.h.{rank + 1}.tfr', stages=3, rank=rank)
    answer, files = report(analyze, tmp_path)
    traces, breakdowns = by_stage(files, '.trace.json.gz'), by_stage(files, '.breakdown.json')
    assert set(traces) == {(f'stage {i}', rank) for i in range(3) for rank in range(2)} and not breakdowns
    for (stage, rank), trace in traces.items():
        assert [e['name'] for e in trace['traceEvents'] if e['ph'] != 'M'] == [stage]
        assert {e['cat'] for e in trace['traceEvents'] if e['ph'] != 'M'} == {'user_annotation'}
        assert trace['distributedInfo']['rank'] == rank and trace['tfinject']['artefact'] == 'stage'
    timing = files[f'{tmp_path}/timing.json']
    assert {n: ns(t['duration_ms']) for n, t in timing['stages'].items()} == {f'stage {i}': 1_000_000 for i in range(3)}
    assert ns(timing['total_stages_ms']) == 3_000_000 and timing['timestamp'].startswith('2023-11-14T22:13:2')
    again, _ = report(analyze, tmp_path)
    assert again == answer


def test_nested_and_repeated_stages(tmp_path, analyze):
    """Nested and recursive stages: durations are those of the last call, as with TeleFuser, and totals count all calls."""
    w = Writer()
    clock_chunk(w, [(0, 1_000_000_000, 1_700_000_000_000_000_000)])
    records, id = [rec('thread', serial=1, tid=100, name=w.string('main'), time=5_000_000)], 0
    stages = [('outer', 10, 10, 0), ('outer', 11, 4, 1), ('inner', 12, 2, 2), ('inner', 16, 3, 1),
              ('step#1', 30, 5, 0), ('step#2', 40, 5, 0)]
    for name, start, duration, depth in stages:
        id += 1
        begin = rec('range_begin', name=w.string(name), time=start * 1_000_000, id=id, flags=NESTED | STAGE,
                    depth=depth)
        records += [begin, tfr.end_of(begin, (start + duration) * 1_000_000, 1)]
    w.chunk(records, thread=1, tid=100)
    w.footer()
    w.save(tmp_path / 'rank0.h.1.tfr')
    _, files = report(analyze, tmp_path)
    timing = files[f'{tmp_path}/timing.json']
    assert ns(timing['total_stages_ms']) == 29_000_000 and timing['num_stages'] == 6
    assert {n: (ns(t['duration_ms']), t['calls'], float(t['percentage'])) for n, t in timing['stages'].items()} == {
        'outer': (10_000_000, 2, 34.5), 'inner': (3_000_000, 2, 10.3), 'step*': (5_000_000, 2, 17.2)}
    lines = [line.split() for line in analyze('report', tmp_path, format='text').out.splitlines()]
    assert [line[:3] for line in lines if line[-1:] == ['outer']] == [['2', '10.000', 'ms']]
    steps = files[f'{tmp_path}/step*_rank0.trace.json.gz']['traceEvents']
    assert [e['name'] for e in steps if e['ph'] == 'X'] == ['step#1', 'step#2']


def test_timing_of_two_ranks(tmp_path, analyze):
    """A stage has the duration of the rank that was slower, whichever comes first."""
    for rank, (a, b) in enumerate([(40, 7), (30, 8)]):
        kineto.Trace(distributedInfo={'rank': rank}).stage('a', 0, 1000 * a).stage('b', 50000, 1000 * b).write(tmp_path / f'rank{rank}.json')
    _, files = report(analyze, tmp_path, '--output', tmp_path / 'out')
    timing = files[f'{tmp_path}/out/timing.json']
    assert {n: ns(t['duration_ms']) for n, t in timing['stages'].items()} == {'a': 40_000_000, 'b': 8_000_000}


# ---- the screen ----

@pytest.mark.parametrize('inputs', [[NS_RESOLUTION], [FILTER.format(0), FILTER.format(1)], [AMD], [RESNET],
                                    ['hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz']])
def test_the_summary_fits_a_screen(tmp_path, analyze, shared_traces, inputs):
    result = analyze('report', *(shared_traces / i for i in inputs), '--output', tmp_path, format=None)
    lines = [re.sub(r'/\S+', '/', line) for line in result.out.splitlines()]  # paths have no fixed length
    assert len(lines) <= 40 and max(map(len, lines)) <= 100 and result.err == ''
    assert lines[0].startswith(f'{len(inputs)} rank') and 'complete' in lines[0] and 'nothing was lost' in lines[1]
    assert lines[-1].startswith('next: tfanalyze ') and any('timing.json' in line for line in lines)


def test_the_summary_reports_losses(tmp_path, analyze):
    t = kineto.Trace().stage('s', 0, 9).launch('k', 2, 1)
    t.events.append({'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': 0, 'tid': 7, 'ts': 5})
    out = analyze('report', t.write(tmp_path / 'in.json'), rc=3, format=None).out
    assert 'lost: 1 no_duration' in out and 'nothing was lost' not in out


SHORT = {
    'void at::native::vectorized_elementwise_kernel<4, at::native::Fill<float>, std::array<char*, 1ul> >(int, F, A)':
        'at::native::vectorized_elementwise_kernel',
    'void at::native::(anonymous namespace)::CatArrayBatchedCopy<Opaque<4u>, 1>(Opaque<4u>*)':
        'at::native::(anonymous namespace)::CatArrayBatchedCopy',
    'void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>(cutlass_80_wmma::Params)':
        'cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>',
    'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)':
        'ncclDevKernel_AllReduce_Sum_f32_RING_LL',
    'ampere_sgemm_128x64_tn': 'ampere_sgemm_128x64_tn',
    'Memcpy HtoD (Pageable -> Device)': 'Memcpy HtoD (Pageable -> Device)',
    'std::enable_if<true, void>::type internal::gemvNSP_kernel<float, 1, 32>(cublasGemvParams<float>) [clone .kd]':
        'internal::gemvNSP_kernel',
    'Foo<int>::operator()(int) const': 'Foo::operator()',
    'bool a::operator< <int>(int)': 'a::operator<',
    'unbalanced<int(': 'unbalanced<int(',
    'run(int)::{lambda(float)#1}': 'run::{lambda#1}',
    '(': '(', '<>': '<>', 'f<': 'f<', 'void ': 'void ',
}


def test_short_names(tmp_path, analyze):
    t = kineto.Trace().stage('s', 0, 10 ** 6)
    for i, name in enumerate(SHORT):
        t.launch(name, 10 + 100 * i, i, dur=len(SHORT) - i)
    path = t.write(tmp_path / 'in.json')
    for style, wanted in (('full', list(SHORT)), ('short', list(SHORT.values()))):
        _, files = report(analyze, path, '--names', style)
        assert [k['name'] for k in files[f'{tmp_path}/s_rank0.breakdown.json']['top_kernels']] == wanted


@pytest.mark.slow
def test_more_stages_than_a_file_holds(tmp_path, analyze):
    """Names with the id of each call: timing.json keeps the longest 65,536 stages, and says how many calls it leaves out."""
    w = simple(tmp_path / 't.tfr', footer=False)
    count, begin = 65536 + 300, 10 ** 8
    for first in range(0, count, 8192):
        records = []
        for i in range(first, min(first + 8192, count)):
            time = begin + 1000 * i
            stage = rec('range_begin', name=w.string(f'request {i}a'), time=time, id=i + 10, flags=NESTED | STAGE)
            records += [stage, tfr.end_of(stage, time + (10 if i % 100 == 7 and i < 30000 else 500), 1)]
        w.chunk(records, thread=1, tid=100)
    w.footer()
    w.save(tmp_path / 't.tfr')
    text = analyze('report', tmp_path, format='text').out
    timing = json.loads((tmp_path / 'timing.json').read_text())
    short = [f'request {i}a' for i in range(7, 30000, 100)]
    assert len(short) == 300 and not set(short) & set(timing['stages'])
    assert len(timing['stages']) == 65536 and timing['calls_left_out'] == timing['num_stages'] - 65536
    assert 'not in timing.json' in text
