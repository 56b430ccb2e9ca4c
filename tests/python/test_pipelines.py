"""test_pipelines - pipelines as users have them, alone and as two ranks: their output, stages and operators.

Each pipeline of tests/pipelines runs once per mode and session, and all checks read that run: plain, with the library,
and with it under torchrun. The expected stages are the pipeline's own journal, the expected operators those of the
torch.profiler that it runs itself.
"""

import functools
import json
import re
import sys
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

import cachedit_alone
import tfr
from conftest import ROOT, clean_environment, execute, short_form

sys.path.append(str(ROOT / 'scripts' / 'gpu'))
from operators import same_line

PIPELINES = ROOT / 'tests' / 'pipelines'
AUTO, TELEFUSER, CACHE_DIT, ASYNC = 0x1000, 0x4000, 0x8000, 0x20000


def of(name, *values):
    """A parameter whose tests run on one worker, the one that runs the pipeline."""
    return pytest.param(name, *values, marks=pytest.mark.xdist_group('pipeline-' + name))


ALONE = {
    'telefuser_stages': ({}, []),
    'cachedit_profile': ({}, []),
    'diffusion': ({'TFI_STAGES': 'auto', 'PROFILE': '{dir}/profile.json'}, []),
    # inductor takes twice as long: the run of two ranks has it.
    'training': ({'PROFILE': '{dir}/profile.json', 'TABLE': '{dir}/table.txt', 'BACKEND': 'aot_eager'}, []),
    'profiled': ({'PROFILE': '{dir}/profile.json'}, []),
    'generate': ({'TFI_STAGES': 'auto'}, []),
    'torchfx_chain': ({}, []),
}
RANKS = {
    'diffusion': ({'TFI_STAGES': 'auto'}, ['dit']),
    'telefuser_stages': ({'ENABLE_PROFILER_NAMES': 'denoise,vae_*'}, []),
    'training': ({}, []),
}


class Run(SimpleNamespace):
    """rc, out, err, dir (work directory), and readers of its files."""

    @property
    def traces(self):
        if not hasattr(self, 'read'):
            self.read = {int(re.search(r'\.(\d+)\.tfr$', p.name)[1]): Process(p) for p in sorted(self.dir.glob('run/*.tfr'))}
        return self.read

    def trace(self, rank=0):
        """The trace of the process that kept this rank's journal."""
        return self.traces[self.pid(rank)]

    def pid(self, rank=0):
        return int(next(self.dir.glob(f'journal.{rank}.*')).name.split('.')[2])

    def journal(self, rank=0):
        """Journal entries as (name, names around it), in the order of each lane."""
        lanes, entries = defaultdict(list), []
        for line in next(self.dir.glob(f'journal.{rank}.*')).read_text().splitlines():
            lane, what, name = json.loads(line)
            if what == 'enter':
                entries.append((name, tuple(lanes[lane])))
                lanes[lane].append(name)
            else:
                assert lanes[lane].pop() == name
        return entries


class Process:
    def __init__(self, path):
        self.path = path
        self.trace = tfr.read(path)
        self.clock = tfr.Clock(self.trace.records)

    def text(self, number):
        return tfr.name_of(self.trace.strings, number)

    def kind(self, *kinds):
        return [r for r in self.trace.records if r.kind in kinds]

    def stages(self):
        """Stages in the order they began: name, names of open ones around, flags, number, thread, start, end, id.

        A paused stage is open nowhere."""
        stacks, known, entries = defaultdict(list), {}, []
        order = {'range_resume': 0, 'range_begin': 1, 'range_pause': 2, 'range_end': 2}
        for r in sorted(self.kind(*order), key=lambda r: r.values['time']):
            v = r.values
            if r.kind == 'range_begin':
                entry = known[v['id']] = SimpleNamespace(
                    name=self.text(v['name']), around=tuple(e.name for e in stacks[r.tid]), flags=v['flags'], id=v['id'],
                    number=v['payload'] if v['payload_type'] else None, thread=r.tid, start=v['time'], end=None)
                entries.append(entry)
            entry = known[v['id']]
            if r.kind in ('range_begin', 'range_resume'):
                stacks[r.tid].append(entry)
            else:
                for stack in stacks.values():
                    if entry in stack:
                        stack.remove(entry)
            if r.kind == 'range_end':
                entry.end = v['time']
        return entries

    def operators(self):
        """[(name, shapes, depth)] by thread, in the order they began, from the first stage on."""
        return {thread: nested(rows) for thread, rows in self._operators().items()}

    def _operators(self):
        rows = defaultdict(list)
        for r in self.kind('op'):
            v = r.values
            rows[r.tid].append((v['time'], v['time'] + v['duration'], self.text(v['name']),
                                json.loads(self.text(v['shapes']) or '[]')))
        return rows

    def signatures(self):
        """{(stage, direction): [descriptions]}, and {stage: functions}, described under an empty name. `#` has torch's threads."""
        found, functions = defaultdict(list), defaultdict(set)
        for r in self.kind('signature'):
            name, direction, what = self.text(r.values['name']), r.values['direction'], json.loads(self.text(r.values['text']))
            if direction == 0:
                functions[name].add(what.pop('', None))
                assert what.pop('#') >= 1
            found[name, direction].append(what)
        return found, functions


def nested(rows):
    """[(name, shapes, depth)] of [(start, end, name, shapes)]."""
    ends, out = [], []
    for start, end, name, shapes in sorted(rows, key=lambda row: (row[0], -row[1])):
        while ends and ends[-1] <= start:
            ends.pop()
        out.append((name, shapes, len(ends)))
        ends.append(end)
    return out


@pytest.fixture(scope='session')
def play(tmp_path_factory, lib, python, forked):
    """play(pipeline, mode): that run. mode is plain, library, ranks, or a pair (environment, arguments)."""
    done = {}
    light = cachedit_alone.environment(python, tmp_path_factory.mktemp('light'))  # test_cache_dit has a run with the whole package
    cache = tmp_path_factory.mktemp('inductor')  # torch.compile compiles each function once

    def play(name, mode, preload=True):
        key = name, str(mode), preload
        if key in done:
            return done[key]
        directory = tmp_path_factory.mktemp(name)
        given, arguments = mode if isinstance(mode, tuple) else (RANKS if mode == 'ranks' else ALONE)[name]
        env = {**clean_environment(), 'JOURNAL': f'{directory}/journal.{{rank}}.{{pid}}', 'TFI_OUTPUT_DIR': f'{directory}/run',
               'TORCHINDUCTOR_CACHE_DIR': str(cache), 'PYTHONWARNINGS': 'ignore'}
        env.update({k: v.replace('{dir}', str(directory)) for k, v in given.items()}, **(light if name == 'cachedit_profile' else {}))
        if mode != 'plain' and preload:
            env['LD_PRELOAD'] = str(lib)
        launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2'] if mode == 'ranks' else []
        start = forked if mode == 'plain' else functools.partial(execute, timeout=300)
        result = start([python, *launcher, PIPELINES / f'{name}.py', *arguments], env, directory)
        done[key] = Run(rc=result.rc, out=result.out, err=result.err, dir=directory)
        return done[key]
    return play


def results(run):
    """A pipeline's own output; TeleFuser's log, which has times, goes to the same stream."""
    return run.out[run.out.index('results:'):] if 'results:' in run.out else run.out


# ---- nothing changes ----

@short_form(1, 'name', [of(n) for n in ALONE])
def test_output_and_status_are_unchanged(play, name):
    plain, run = play(name, 'plain'), play(name, 'library')
    assert (run.rc, results(run)) == (plain.rc, results(plain)), run.err[-2000:]
    if plain.rc == 77:
        pytest.skip(plain.out.splitlines()[-1])
    assert plain.rc == 0, plain.err[-2000:]
    assert 'tfinject' not in run.err


# ---- stages ----

def check_journal(run, rank, origin, names=None):
    """The process's stages of this origin are the journal's entries, with the same names around them."""
    def only(entries):
        wanted = names or {name for name, _ in entries}
        return Counter((name, tuple(n for n in around if n in wanted)) for name, around in entries if name in wanted)
    stages = [(s.name, s.around) for s in run.trace(rank).stages() if s.flags & origin]
    assert only(stages) == only(run.journal(rank))
    assert all(s.end is not None for s in run.trace(rank).stages())
    return stages


@short_form(1, 'name, mode, ranks', [of('telefuser_stages', 'library', 1), of('telefuser_stages', 'ranks', 2)])
def test_telefuser(play, name, mode, ranks):
    run = play(name, mode)
    assert run.rc == 0, run.err[-2000:]
    for rank in range(ranks):
        stages = check_journal(run, rank, TELEFUSER)
        assert Counter(n for n, _ in stages) == {'text encoding': 1, 'gather': 1, 'fetch': 3, 'parse': 3, 'never': 1,
                                                 'denoise': 1, 'predict': 4, 'decode': 1, 'broken': 1}
        # The tasks' stages take turns on one thread: while one waits, the others run, and none is inside another.
        paused = [run.trace(rank).text(r.values['name']) for r in run.trace(rank).kind('range_pause')]
        assert Counter(paused) == {'gather': 1, 'fetch': 6, 'never': 1}


PARTS = {('text_encoder', 7), ('text_encoder_2', 5), ('transformer', 18), ('scheduler', 15), ('vae.encode', 1),
         ('vae.decode', 5), ('image_processor.preprocess', 1), ('image_processor.postprocess', 3),
         ('video_processor.postprocess_video', 1), ('DiTPipeline', 1), ('StableDiffusion3Pipeline', 1),
         ('StableDiffusion3Img2ImgPipeline', 1), ('FluxPipeline', 1), ('WanPipeline', 1)}


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('diffusion')])
def test_parts_of_diffusers_pipelines(play, name):
    run = play(name, 'library')
    stages = [s for s in run.trace().stages() if s.flags & AUTO]
    watched = {'transformer', 'text_encoder', 'text_encoder_2', *(n for n, _ in PARTS if n.endswith('Pipeline'))}
    journal = [(n, tuple(a for a in around if a in watched)) for n, around in run.journal() if n in watched]
    # The script journals the second pipeline inside the first one's entry, but the first one's call has ended by then.
    journal = [(n, around[1:] if 'Img2Img' in ''.join((n, *around)) else around) for n, around in journal]
    assert [(s.name, s.around) for s in stages if s.name in watched] == journal
    assert set(Counter(s.name for s in stages).items()) == PARTS
    assert all(s.around in ((), (pipe,)) for s in stages for pipe in s.around or [''])
    steps = {pipe: [s.number for s in stages if s.name == 'transformer' and s.around == (pipe,)] for pipe, _ in PARTS}
    assert {k: v for k, v in steps.items() if v} == {
        'DiTPipeline': [0, 1, 2], 'StableDiffusion3Pipeline': [0, 1, 2], 'StableDiffusion3Img2ImgPipeline': [0, 1, 2],
        'FluxPipeline': [0, 1, 2], 'WanPipeline': [0, 0, 1, 1, 2, 2]}


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('diffusion')])
def test_parts_on_two_ranks(play, name):
    run = play(name, 'ranks')
    assert run.rc == 0, run.err[-2000:]
    for rank in range(2):
        stages = [s for s in run.trace(rank).stages() if s.flags & AUTO]
        assert Counter(s.name for s in stages) == {'DiTPipeline': 1, 'transformer': 3, 'scheduler': 3, 'vae.decode': 1}
        check_journal(run, rank, AUTO, {'DiTPipeline', 'transformer'})


@pytest.mark.parametrize('name', [of('generate')])
def test_generate(play, name):
    run = play(name, 'library')
    stages = run.trace().stages()
    calls = [s for s in stages if s.name == 'generate']
    assert [s.around for s in calls] == [()] * 4
    forwards = [len([1 for n, around in run.journal() if n == 'forward' and around == (way,)])
                for way in ('greedy', 'sampled', 'beams', 'translate')]
    for call, count in zip(calls, forwards):
        inside = [s for s in stages if s.around == ('generate',) and call.start < s.start < call.end]
        assert [(s.name, s.number) for s in inside] == [('prefill', 0)] + [('decode', n) for n in range(1, count)]


@short_form(1, 'name, mode, ranks', [of('training', 'library', 1), of('training', 'ranks', 2)])
def test_training(play, name, mode, ranks):
    run = play(name, mode)
    assert run.rc == 0, run.err[-2000:]
    own = {'step', 'forward', 'backward', 'beside'}
    for rank in range(ranks):
        stages = check_journal(run, rank, tfr.STAGE, own)
        assert Counter(n for n, _ in stages if n in own) == {'step': 8 // ranks, 'forward': 8 // ranks,
                                                             'backward': 8 // ranks, 'beside': 1}
        assert Counter(n for n, _ in stages)['Optimizer.step#AdamW.step'] == 8 // ranks
        assert [r.values['threads'] for r in run.trace(rank).kind('thread_pool')][0] == 1  # torch.set_num_threads(1)
        frames = [run.trace(rank).text(r.values['frame']) for r in run.trace(rank).kind('compile') if r.values['frame']]
        assert any(frame.startswith('loss_of ') and 'training.py:' in frame for frame in frames), frames
    # Workers, two forked and one spawned per rank, each with its own trace.
    workers = [p.stages() for pid, p in run.traces.items() if pid not in {run.pid(rank) for rank in range(ranks)}]
    assert Counter(s.name for stages in workers for s in stages if s.name == 'augment') == {'augment': 32}
    assert len([1 for stages in workers if stages]) == 3 * ranks


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('profiled')])
def test_record_function_around_and_inside_torch_profiler(play, name):
    run = play(name, 'library')
    stages = check_journal(run, 0, tfr.STAGE, {'run', 'step', 'block'})
    assert Counter(re.sub(r'#\d+', '#', n) for n, _ in stages) == {'run': 1, 'step': 6, 'block': 6, 'ProfilerStep#': 7}


# ---- operators ----

def profiled(run, pid):
    """Operators that torch.profiler saw in a process: [(name, shapes, depth)] by thread."""
    trace = json.loads((run.dir / 'profile.json').read_text())
    rows = defaultdict(list)
    for e in trace['traceEvents']:
        if e.get('cat') == 'cpu_op' and e['pid'] == pid:
            rows[e['tid']].append((e['ts'], e['ts'] + e['dur'], e['name'], e['args'].get('Input Dims', [])))
    return {thread: nested(r) for thread, r in rows.items()}


def blocks(run):
    """Blocks of torch.profiler's trace in order: bytes, and the totals after each."""
    events = [e for e in json.loads((run.dir / 'profile.json').read_text())['traceEvents'] if e['name'] == '[memory]']
    return [{k: v for k, v in e['args'].items() if k not in ('Addr', 'Ev Idx')} for e in sorted(events, key=lambda e: e['ts'])]


@short_form(1, 'name, least', [of('training', 2000), of('diffusion', 30000)])
def test_operators_equal_those_of_torch_profiler(play, name, least):
    run = play(name, 'library')
    theirs = profiled(run, run.pid())
    ours = run.trace().operators()
    for thread, rows in theirs.items():
        mine = ours[thread]
        # Our operators begin with the process, torch's with the profile; ours also continue after it.
        size = min(20, len(rows))
        at = next(i for i in range(len(mine)) if mine[i:i + size] == rows[:size])
        mine = mine[at:][:len(rows)]
        assert mine == rows, next((a, b) for a, b in zip(mine, rows) if a != b)
    assert sum(map(len, theirs.values())) > least


@pytest.mark.parametrize('name', [of('training')])
def test_collectives_of_gloo_equal_torch_profilers(play, name, tfanalyze):
    """gloo's ranges have the tensors they transfer. They are asynchronous, so they contain no ranges and lie in none."""
    run = play(name, 'library')
    trace = json.loads((run.dir / 'profile.json').read_text())
    theirs = Counter((e['name'], *(json.dumps(e['args'].get(k)) for k in ('Input Dims', 'Input type', 'Input Strides')))
                     for e in trace['traceEvents'] if e.get('cat') == 'user_annotation')
    process, flags = run.trace(), {}
    for r in process.kind('range_end'):
        flags.setdefault(process.text(r.values['name']), set()).add(r.values['flags'] & ASYNC)
    ours = Counter((process.text(r.values['name']), *(process.text(r.values[k]) or 'null' for k in ('shapes', 'types', 'strides')))
                   for r in process.kind('range_begin'))
    collectives = [key for key in theirs if key[0].startswith('gloo:')]
    assert {(key, ours[key]) for key in collectives} == {(key, theirs[key]) for key in collectives}
    assert sum(theirs[key] for key in collectives) > 10 and flags['gloo:all_reduce'] == {ASYNC}
    assert flags['step'] == flags['DistributedDataParallel.forward'] == {0}
    chrome = run.dir / 'chrome.json'
    assert execute([tfanalyze, 'export', 'chrome', run.dir / 'run', '--output', chrome], clean_environment()).rc in (0, 3)
    shown = [e['args'].get('Input Dims') for e in json.loads(chrome.read_text())['traceEvents'] if e.get('name') == 'gloo:all_reduce']
    assert shown.count([[12 * 24 + 24 + 24 * 3 + 3]]) == 8  # the gradients of the model's layers, in each step


@pytest.mark.parametrize('name', [of('training')])
def test_table_is_that_of_torch(play, name, tfanalyze):
    """The analyser prints, for the trace that torch wrote, the table that torch printed of its profile."""
    run = play(name, 'library')
    result = execute([tfanalyze, 'ops', '--group-by', 'name,shapes', '--row-limit', '-1', run.dir / 'profile.json'],
                     clean_environment())
    ours, theirs = (text.rstrip().splitlines() for text in (result.out, (run.dir / 'table.txt').read_text()))
    assert len(ours) == len(theirs) > 300
    assert not [pair for pair in zip(ours, theirs) if not same_line(*pair)]


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('profiled')])
def test_the_profile_of_the_pipeline_is_the_same(play, name):
    plain, run = play(name, 'plain'), play(name, 'library')
    assert profiled(run, run.pid()) == {run.pid(): rows for rows in profiled(plain, plain.pid()).values()}
    assert blocks(run) == blocks(plain) and len(blocks(plain)) > 50


@pytest.mark.soak
@pytest.mark.parametrize('name, stage', [of('telefuser_stages', 'denoise')])
def test_detail_only_in_the_selected_stages(play, name, stage):
    """With ENABLE_PROFILER_NAMES all stages are recorded, but operators only inside the selected stage."""
    for rank in range(2):
        trace = play(name, 'ranks').trace(rank)
        chosen = next(s for s in trace.stages() if s.name == stage)
        times = [r.values['time'] for r in trace.kind('op') if r.tid == chosen.thread]
        assert len(times) > 10 and chosen.start < min(times) and max(times) < chosen.end


@pytest.mark.parametrize('name', [of('diffusion')])
def test_detail_of_a_part(play, name):
    run = play(name, ({'TFI_STAGES': 'auto', 'ENABLE_PROFILER_NAMES': 'vae.*,scheduler'}, ['dit']))
    stages = run.trace().stages()
    assert Counter(s.name for s in stages) == {'DiTPipeline': 1, 'transformer': 3, 'scheduler': 3, 'vae.decode': 1}
    chosen = [(s.start, s.end) for s in stages if s.name in ('vae.decode', 'scheduler')]
    times = [r.values['time'] for r in run.trace().kind('op')]
    assert len(times) > 100 and all(any(a < t < b for a, b in chosen) for t in times)
    assert [s.number for s in stages if s.name == 'transformer'] == [0, 1, 2]


# ---- TeleFuser's and cache-dit's profilers ----

@pytest.fixture(scope='session')
def debugged(play):
    """TeleFuser's pipeline with the parts that TeleFuser refuses without a device, and its console lines."""
    run = play('telefuser_stages', ({'TELEFUSER_PROFILE_DEBUG': 'true'}, ['all']))
    assert run.rc == 0, run.err[-2000:]
    return run


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_a_line_for_each_stage(debugged, name):
    lines = re.findall(r'__exit__:\d+ \| \[Rank 0\] \[Timing\] (.*): (\d+\.\d\d) ms, memory: \d+/\d+ MB \(peak: \d+/\d+ MB\)$', debugged.out, re.M)
    stages = sorted(debugged.trace().stages(), key=lambda s: s.end)
    assert [n for n, _ in lines] == [s.name for s in stages]
    clock = debugged.trace().clock
    apart = sorted(abs(float(clock(s.end) - clock(s.start)) / 1e6 - float(ms)) for (_, ms), s in zip(lines, stages))
    assert apart[len(apart) // 2] < 0.5  # the median: a busy machine may interrupt the process between their clock and ours
    assert len(re.findall(r'\[Timing\]', debugged.err + debugged.out)) == len(stages)


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_telefusers_own_report_still_works(debugged, name):
    """get_timing_report() and print_timing_summary() work as usual, and TeleFuser writes its files at exit."""
    check_journal(debugged, 0, TELEFUSER)
    names = [s.name for s in sorted(debugged.trace().stages(), key=lambda s: s.end)]
    assert f'stages {sorted(set(names))}' in debugged.out
    rows = re.findall(r'^  (\S.*?) +(\d+\.\d) ms \([ \d.]+%\)  mem: \d+/\d+ MB \(peak: \d+/\d+\)$', debugged.out, re.M)
    assert [n for n, _ in rows] == names
    assert 'Memory Checkpoints:\n  before_refine: ' in debugged.out
    left = {re.sub(r'\.\d+', '', p.name) for p in debugged.dir.rglob('[!.]*') if p.is_file()}
    assert {re.sub(r'^rank0\..*?\.(tfr|timing\.json)$', r'\1', n) for n in left} == {
        'tfr', 'timing.json', 'timing_io_signature.json', 'journal'}


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_originals_are_kept_on_request(play, name):
    """TeleFuser refuses its ProfilingContext without a device; its contexts until then are stages."""
    run = play(name, ({'TFI_KEEP_ORIGINALS': '1'}, ['all']))
    assert run.rc == 1 and run.err.rstrip().endswith('NotImplementedError'), run.err[-500:]
    stages = {s.name for p in run.traces.values() for s in p.stages() if s.flags & TELEFUSER}
    assert stages >= {'text encoding', 'denoise', 'predict', 'decode'}, stages


@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_signatures_of_decorated_functions(play, name):
    said, functions = play(name, 'library').trace().signatures()
    tensor = {'dtype': 'float32', 'device': 'cpu', 'requires_grad': False}
    latents, context = {'shape': [3, 16], 'stride': [16, 1], **tensor}, {'shape': [8, 16], 'stride': [16, 1], **tensor}
    assert said['denoise', 0] == [{'latents': latents, 'context': {**context, 'requires_grad': True}, 'steps': 4}]
    assert said['denoise', 1] == [latents]
    assert said['predict', 0][0].keys() == {'latents', 'context', 'step'} and len(said['predict', 0]) == 1
    assert said['fetch', 0] == [{'number': 0}] and said['fetch', 1] == [{'shape': [16], 'stride': [1], **tensor}]
    assert ('broken', 0) in said and ('broken', 1) not in said
    assert functions['denoise'] == {'__main__:Denoiser.process'} and functions['fetch'] == {'__main__:fetch'}


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('diffusion')])
def test_signatures_of_parts(play, name):
    said, functions = play(name, 'library').trace().signatures()
    sizes = [one['hidden_states']['shape'] for one in said['transformer', 0]]
    assert [2, 4, 8, 8] in sizes and [1, 16, 16] in sizes and [1, 16, 2, 2, 2] in sizes
    assert said['FluxPipeline', 1][0]['fields'] == {'images': [{'type': 'PIL.Image.Image', 'size': [16, 16], 'mode': 'RGB'}]}
    assert said['vae.decode', 0][0].keys() == {'.', 'z'} and said['vae.decode', 1][0]['fields']['sample']['shape'] == [1, 3, 16, 16]
    assert 'diffusers.models.autoencoders.autoencoder_kl:AutoencoderKL.decode' in functions['vae.decode']
    assert all('self' not in one for (_, direction), all_of in said.items() if not direction for one in all_of)


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_telefusers_files_of_two_ranks(play, analyze, tmp_path, name):
    run = play(name, 'ranks')
    analyze('report', run.dir / 'run', '--output', tmp_path / 'report', format=None)
    timing = json.loads((tmp_path / 'report' / 'timing.json').read_text())
    denoise = timing['stages']['denoise']
    assert denoise['parallel_info']['num_ranks'] == 2 and denoise['calls'] == 2
    longest = max(r['duration_ms'] for r in denoise['parallel_info']['ranks'])
    assert [r['rank'] for r in denoise['parallel_info']['ranks']] == [0, 1] and denoise['duration_ms'] == longest
    said = json.loads((tmp_path / 'report' / 'timing_io_signature.json').read_text())['stages']['denoise']
    assert said['input_signatures']['latents']['shape'] == [3, 16] and said['metadata'] == {'steps': 4}


@pytest.mark.parametrize('name', [of('cachedit_profile')])
def test_cache_dit(play, tmp_path, name):
    """cache-dit's arguments decide the stage's name, the trace's path and the recorded steps."""
    asked = tmp_path / 'asked'
    run = play(name, ({'TFI_STEP': 'step'}, ['--profile', '--profile-name', 'toy', '--profile-dir', str(asked),
                                             '--profile-activities', 'CPU', 'MEM', '--profile-wait', '1',
                                             '--profile-warmup', '1', '--profile-active', '2']))
    assert run.rc == 0 and 'tfinject' not in run.err, run.err[-2000:]
    assert run.out.splitlines() == [f'traces: {asked}/toy.trace.json.gz', play(name, 'plain').out.strip()]
    assert not asked.exists()
    stages = run.trace().stages()
    assert [(s.name, s.around) for s in stages if s.flags & CACHE_DIT] == [('toy', ()), ('upscale', ())]
    check_journal(run, 0, tfr.STAGE, {'toy', 'upscale', 'step'})
    facts = [json.loads(run.trace().text(r.values['value'])) for r in run.trace().kind('metadata')
             if run.trace().text(r.values['key']) == 'cache_dit.profile.toy']
    assert facts == [{'name': 'toy', 'dir': str(asked), 'ranked': False, 'activities': ['CPU', 'MEM'], 'with_stack': False,
                      'record_shapes': True, 'wait': 1, 'warmup': 1, 'active': 2, 'holds': ['cpu', 'mem', 'shapes']}]
    steps = [s for s in stages if s.name == 'step']
    times = [r.values['time'] for r in run.trace().kind('op')]
    busy = [any(s.start < t < s.end for t in times) for s in steps]
    assert busy == [False, True, True, True, False, False]  # records of the warm-up are marked as such
    switched = [(r.values['state'], sum(s.start <= r.values['time'] for s in steps)) for r in run.trace().kind('recording')
                if run.trace().text(r.values['cause']) == 'schedule']
    assert switched == [(0, 0), (1, 1), (2, 2), (0, 4), (2, 6)]  # off, warm-up, on, off by steps begun; the schedule ends it


# ---- torchfx, torch.compile ----

@pytest.fixture
def torchfx_counts(play):
    """{(stage, function of the extension): calls}, as the pipeline counts them in a run without the library."""
    run = play('torchfx_chain', ({'COUNTS': '{dir}/counts.json'}, []), preload=False)
    if run.rc == 77:
        pytest.skip(run.out.splitlines()[-1])
    assert run.rc == 0, run.err[-2000:]
    counts = json.loads((run.dir / 'counts.json').read_text())
    return {(stage.replace('outside', '(none)'), f'torchfx.torchfx_ext.{function}'): count
            for stage, of_stage in counts.items() for function, count in of_stage.items()}


def dispatches(analyze, run):
    rows = analyze('launches', run.dir / 'run')['rows']
    return {(r['stage'], r['name']): r['dispatches'] for r in rows if r['dispatches']}


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('torchfx_chain')])
def test_native_dispatches_by_stage(play, analyze, torchfx_counts, name):
    run = play(name, 'library')
    check_journal(run, 0, tfr.STAGE)
    found = dispatches(analyze, run)
    trial = '(none)', 'torchfx.torchfx_ext.sos_forward'  # a call that tests the extension before counting starts
    assert found == {**torchfx_counts, trial: torchfx_counts.get(trial, 0) + 1}
    for kind in ('butterworth', 'biquad'):
        for depth in (2, 5, 10):
            assert found[f'fused {kind} {depth}', 'torchfx.torchfx_ext.sos_forward'] == 1
            assert found[f'unfused {kind} {depth}', 'torchfx.torchfx_ext.sos_forward'] == depth


@pytest.mark.soak
@pytest.mark.parametrize('name', [of('torchfx_chain')])
def test_native_dispatches_of_selected_stages(play, analyze, torchfx_counts, name):
    run = play(name, ({'ENABLE_PROFILER_NAMES': 'fused *,effect'}, []))
    assert dispatches(analyze, run) == {key: count for key, count in torchfx_counts.items() if key[0][:5] in ('fused', 'effec')}


FULL_GRAPH = '''
import torch
from telefuser.utils.profiler import ProfilingContext4Debug
bare = lambda x: x.sin() + 1
inner = ProfilingContext4Debug('inner')(lambda x: x.sin() + 1)
def marked(x):
    with ProfilingContext4Debug('block'):
        return inner(x) * 2
counters = torch._dynamo.utils.counters
for f in marked, lambda x: bare(x) * 2:
    f = torch.compile(f, fullgraph=True, backend='eager')
    with ProfilingContext4Debug('around'):
        print(f(torch.ones(3)), dict(counters['graph_break']), dict(counters['stats']))
    counters.clear()
'''


@pytest.mark.parametrize('name', [of('telefuser_stages')])
def test_markers_break_no_graph(run, python, name):
    """The graphs of a function with markers are those of the same function without."""
    ours = run([python, '-c', FULL_GRAPH])
    assert ours.rc == 0, ours.err[-2000:]
    marked, bare = ours.out.splitlines()
    assert marked == bare and "'unique_graphs': 1" in bare
    process = Process(next(ours.dir.glob('*.tfr')))
    assert [s.name for s in process.stages()] == ['around', 'around']  # a compiled region has no stages
