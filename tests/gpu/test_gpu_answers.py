"""test_gpu_answers - every command on a random program of two devices equals what the device model's log says, to the nanosecond.

tests/victims_gpu/mixture.c makes the calls; tests/gpu/simanswers.py computes each answer from the log.
"""

import pytest

import simanswers
from conftest import BUILD, built

SCRIPT = ('latency 2us\n*encode* 30us + 100ns*blocks\n*gemm* 20us + 50ns*blocks\nnccl* 45us\nplain 1us + 1ns*blocks\n'
          'memcpy_* 5us + 0.1ns*bytes\n')
NAMES = {'_Z11text_encodePfi': 'text_encode(float*, int)'}
SEEDS = (1, 2, 3)


@pytest.fixture
def play(run, tmp_path, analyze):
    def play(seed, calls=60, name='run', **env):
        (tmp_path / 'script').write_text(SCRIPT)
        result = run([built(BUILD / 'victims_gpu/mixture'), seed, calls], {
            'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_LOG': tmp_path / f'{name}.log', 'SIMGPU_SCRIPT': tmp_path / 'script',
            'TFI_OUTPUT_DIR': tmp_path / name, **env})
        assert result.rc == 0 and '"ok"' in result.out, (result.out, result.err)
        truth = simanswers.read(result.dir, tmp_path / f'{name}.log', result.out, analyze, NAMES)
        assert {w.device for w in truth.works} == {0, 1} and len({(w.device, w.stream) for w in truth.works}) > 12
        assert {w.t for w in truth.works} == {'kernel', 'memcpy', 'memset'} and any(w.graph for w in truth.works)
        return truth
    return play


@pytest.fixture(params=SEEDS)
def truth(request, play):
    return play(request.param)


def middle(truth):
    """A window that cuts works at both ends."""
    first, last = min(w.at for w in truth.works), max(w.until for w in truth.works)

    def cut(moment):
        w = min((w for w in truth.works if w.duration > 10_000), key=lambda w: abs(w.at - moment))
        return w.at + w.duration // 3
    return cut(first + (last - first) // 4), cut(first + (last - first) * 3 // 4)


def filters(truth):
    """Each filter alone, and some together."""
    streams = sorted({w.stream for w in truth.works if w.device == 0})
    return [{}, {'stage': 'denoise'}, {'stage': 'ProfilerStep*'}, {'stage': 'up*'}, {'device': 0}, {'device': 1}, {'stream': streams[0]},
            {'device': 0, 'stream': streams[1]}, {'window': middle(truth)}, {'step': 1}, {'stage': 'encode', 'device': 1},
            {'window': middle(truth), 'stage': 'ProfilerStep*', 'device': 0}]


ROUNDED = {'pct': 6e-5, 'mean_us': 6e-4, 'median_us': 6e-4, 'p95_us': 6e-4, 'std_us': 6e-4}  # to what the answers are rounded


def close(name, value):
    """Equal, for what is no whole number of nanoseconds up to the rounding of the answer."""
    if not isinstance(value, float):
        return value
    return pytest.approx(value, abs=ROUNDED.get(name if name in ROUNDED else name.rpartition('_')[2], 1e-7))


def ask(analyze, truth, command, chosen, *arguments, empty):
    """The rows of an answer; none, and status 1, if nothing is chosen."""
    line = [command, truth.directory, *simanswers.options(**chosen), *arguments]
    return analyze(*line, rc=1, format='csv') and [] if empty else analyze(*line)['rows']


def check(analyze, truth, command, expected, key, chosen, *arguments):
    """The rows of a command by `key` have what is expected; no row is missing or too many."""
    rows = ask(analyze, truth, command, chosen, *arguments, empty=not expected)
    found = {tuple(r[k] for k in key) if len(key) > 1 else r[key[0]]: r for r in rows}
    assert len(found) == len(rows) and set(found) == set(expected), chosen
    for k, row in expected.items():
        assert {name: found[k][name] for name in row} == {name: close(name, value) for name, value in row.items()}, (chosen, k)


def each(truth):
    for chosen in filters(truth):
        yield chosen, list(simanswers.choose(truth, **chosen))


# ---- device time ----

@pytest.mark.parametrize('group', ['kernel', 'category', 'op'])
def test_breakdown(truth, analyze, group):
    key = {'kernel': lambda w: (w.row, w.name), 'category': lambda w: (w.row, w.category), 'op': lambda w: (w.row, '(none)')}[group]
    for chosen, works in each(truth):
        works = [w for w in works if group != 'kernel' or w.t == 'kernel']
        check(analyze, truth, 'breakdown', simanswers.breakdown(works, key), ['stage', 'name'], chosen, '--group-by', group)


def test_timeline_kinds_overlap(truth, analyze):
    for chosen, works in each(truth):
        if not works:  # on a machine that stood still the middle of the run may have none
            continue
        check(analyze, truth, 'timeline', {0: simanswers.timeline(works)}, ['rank'], chosen)
        check(analyze, truth, 'kinds', {k: {'total_us': t, 'pct': pct} for k, (t, pct) in simanswers.kinds(works).items()}, ['kind'], chosen)
        check(analyze, truth, 'overlap', {0: dict(zip(('overlap_us', 'communication_us', 'overlap_pct'), simanswers.overlap(works)))}, ['rank'], chosen)


# ---- streams ----

def test_idle(truth, analyze):
    for chosen in filters(truth):
        expected, works = {}, simanswers.choose(truth, **{k: v for k, v in chosen.items() if k != 'window'})
        for lane, (count, *gaps) in simanswers.idle(truth, works, chosen.get('window')).items():
            row = dict(zip(('host_wait_us', 'kernel_wait_us', 'other_us'), (gap / 1000 for gap in gaps)))
            shares = {k.replace('_us', '_pct'): 100 * v / sum(row.values()) if sum(row.values()) else None for k, v in row.items()}
            expected[lane] = {'works': count, **row, **shares}
        check(analyze, truth, 'idle', expected, ['device', 'stream'], chosen)


def test_queue(truth, analyze):
    for chosen in filters(truth):
        works = simanswers.choose(truth, **{k: v for k, v in chosen.items() if k != 'window'})
        expected = {lane: {**row, 'blocked_us': 0} for lane, row in simanswers.queue(truth, works, chosen.get('window')).items()}
        check(analyze, truth, 'queue', expected, ['device', 'stream'], chosen)


def test_bandwidth(truth, analyze):
    for chosen, works in each(truth):
        check(analyze, truth, 'bandwidth', simanswers.bandwidth(works), ['kind'], chosen)
    assert {'Memcpy PtoP', 'Memcpy HtoD', 'Memcpy DtoH', 'Memcpy DtoD', 'Memset'} == set(simanswers.bandwidth(truth.works))


# ---- stages ----

def test_annotations(truth, analyze):
    for chosen, works in each(truth):
        rows = ask(analyze, truth, 'annotations', chosen, empty=not works)
        found = {tuple(r['stack']): (r['kernels'], r['total_us'], r['copies'], r['copies_us']) for r in rows}
        assert len(found) == len(rows) and found == {
            stack: (kernels, took / 1000, copies, copying / 1000) for stack, (kernels, took, copies, copying) in simanswers.annotations(works).items()}, chosen


@pytest.mark.parametrize('name', ['e', 'ProfilerStep', 'encode', 'up', 'step'])
def test_patterns(truth, analyze, name):
    for chosen, works in each(truth):
        expected = simanswers.patterns(truth, works, name)
        rows = ask(analyze, truth, 'patterns', chosen, '--operator', name, empty=not expected)
        assert {tuple(r['pattern']): (r['count'], r['kernels'], r['gpu_us'], r['cpu_us']) for r in rows} == {
            k: (count, len(k) - 1, gpu / 1000, cpu / 1000) for k, (count, gpu, cpu) in expected.items()}, chosen


def test_stages(truth, analyze):
    for chosen in ({}, {'device': 0}, {'device': 1, 'stream': 1}):
        check(analyze, truth, 'stages', simanswers.stages(truth, list(simanswers.choose(truth, **chosen))), ['stage'], chosen)


def test_api(truth, analyze):
    check(analyze, truth, 'api', simanswers.api(truth), ['name'], {})


def test_launches(truth, analyze):
    rows = analyze('launches', truth.directory)['rows']
    kinds = {kind for _, kind in simanswers.KINDS_OF_CALLS}
    found = {(r['stage'], r['name']): ({k: r[k] for k in kinds if r[k]}, r['cpu_us'], r['gpu_us'], r['delay_us'], r['short_kernels'], r['slow_launches'],
                                       r['delayed']) for r in rows}
    assert len(found) == len(rows) and found == {
        key: ({kind: calls}, cpu / 1000, gpu / 1000, delay / 1000, short, slow, delayed)
        for key, (kind, calls, cpu, gpu, delay, short, slow, delayed) in simanswers.launches(truth).items()}


def test_steps(truth, analyze):
    answer = analyze('steps', truth.directory)
    found = {r['step']: {k: v for k, v in r.items() if k not in ('rank', 'pid', 'step', 'dataloader_us', 'cpu_exec_us')} for r in answer['rows']}
    assert found == {k: {n: close(n, v) for n, v in row.items()} for k, row in simanswers.steps(truth).items()}
    assert {(r['dataloader_us'], r['cpu_exec_us']) for r in answer['rows']} == {(0, None)}
    for key, words in (('tensor_core_plugin_pct', simanswers.TENSOR), ('tensor_core_pct', simanswers.TENSOR + simanswers.NEWER)):
        shares = {d['device']: (d['gpu_utilization_pct'], d['sm_efficiency_pct'], d[key]) for d in answer['totals']['devices']}
        assert shares == {d: tuple(pytest.approx(v, abs=6e-5) for v in row) for d, row in simanswers.device_shares(truth, words).items()}


def test_counters(truth, analyze):
    """CUPTI's counters replace its records, so our traces have none."""
    assert 'counter' in analyze('counters', truth.directory, rc=1, format='text').err


# ---- two runs ----

def test_diff(play, analyze):
    a, b = play(1, 30, 'a'), play(5, 40, 'b')
    for chosen in ({}, {'stage': 'denoise'}, {'device': 1}, {'step': 1}):
        sides = [simanswers.totals(simanswers.choose(t, **chosen)) for t in (a, b)]
        rows = analyze('diff', a.directory, b.directory, *simanswers.options(**chosen))['rows']
        found = {r['name']: tuple(r[k] for k in ('calls_a', 'calls_b', 'total_a_us', 'total_b_us', 'change_us', 'state')) for r in rows}
        assert len(found) == len(rows) and found == simanswers.difference(*sides), chosen
    stages = [simanswers.stage_totals(t) for t in (a, b)]
    rows = analyze('diff', '--by', 'stage', a.directory, b.directory)['rows']
    found = {r['name']: tuple(r[k] for k in ('calls_a', 'calls_b', 'total_a_us', 'total_b_us', 'change_us', 'state')) for r in rows}
    assert found == simanswers.difference(*stages)
