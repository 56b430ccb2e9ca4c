"""test_signature_files - the files of `report` for stages that are functions: signatures, memory, names and scripts.

TeleFuser's own harness reads timing_io_signature.json too. tests/tfr.py writes the traces; descriptions look as in
preload/python/shim/shim_signature.py.
"""

import json
import pickle
import sys

import pytest

from conftest import ROOT, execute
from test_values import contents
from tfr import MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

CACHE_DIT, FUNCTION = 0x8000, 0x800
MB = 1 << 20


def tensor(shape, dtype='float32', device='cpu', grad=False, stride=None, **more):
    return {**more, 'shape': shape, 'dtype': dtype, 'device': device, 'requires_grad': grad, 'stride': stride}


class Run:
    """A run directory with traces of described stages; one tick is a nanosecond."""

    def __init__(self, directory):
        self.directory, self.traces = directory, []

    def rank(self, rank=0, world=1, **header):
        self.w, self.now, self.ids = Writer(rank=rank, world=world, pid=4000 + rank, clock='monotonic', **header), 1000, 0
        self.path = self.directory / f'rank{rank}.host.{4000 + rank}.tfr'
        self.records = []
        for at in (0, 10 ** 9):
            self.records += [rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at)]
        return self

    def stage(self, name, arguments=None, result=None, flags=0, memory=(), raw=False):
        self.ids += 1
        text = (lambda d: d) if raw else json.dumps
        begin = self.now
        number, description = self.w.string(name), lambda d: self.w.string(text(d))
        self.records.append(rec('range_begin', name=number, time=begin, id=self.ids, flags=NESTED | STAGE | flags))
        if arguments is not None:
            self.records.append(rec('signature', text=description(arguments), time=begin + 1, id=self.ids, name=number, direction=0))
        if result is not None:
            self.records.append(rec('signature', text=description(result), time=begin + 9000, id=self.ids, name=number, direction=1))
        self.now += 10000
        self.records.append(rec('range_end', name=number, time=self.now, duration=10000, id=self.ids, flags=NESTED | STAGE | flags, thread=1))
        for device, values in memory:
            self.records.append(rec('stage_memory', device=device, time=self.now, id=self.ids, **values))
        return self

    def save(self):
        self.w.chunk(self.records, thread=1, tid=7)
        self.w.footer()
        self.w.save(self.path)
        return self


def signature_in(path, monkeypatch):
    """The signature that a script holds, as the interpreter of its reader makes it; runs nothing of the stage."""
    monkeypatch.syspath_prepend(ROOT / 'scripts')
    space = {'__name__': 'imported'}
    exec(compile(path.read_text(), path.name, 'exec'), space)
    return space['SIGNATURE']


@pytest.fixture
def made(tmp_path):
    return Run(tmp_path)


@pytest.fixture
def report(analyze, tmp_path):
    """report() -> the files that `report` says it wrote, and the signatures by stage."""
    def report(*options):
        answer = analyze('report', tmp_path, *options)
        path = tmp_path / 'timing_io_signature.json'
        return answer['totals']['files'], json.loads(path.read_text())['stages'] if path.exists() else None
    return report


def test_telefusers_format(made, report, tmp_path):
    latents = tensor([1, 4, 8, 8], 'bfloat16', 'cuda:0', True, [256, 64, 8, 1])
    made.rank().stage('denoise', {'': 'pipe.dit:denoise', 'latents': latents, 'steps': 4, 'cfg': 1.5, 'name': 'a "b"', 'on': True, 'mask': None},
                      tensor([1, 4, 8, 8])).save()
    files, stages = report()
    s = stages['denoise']
    assert s['stage_name'] == 'denoise' and s['target'] == 'pipe.dit:denoise' and s['rank'] == 0 and s['signatures'] == 1
    assert s['input_signatures'] == {'latents': latents, 'steps': 4, 'cfg': 1.5, 'name': 'a "b"', 'on': True, 'mask': None}
    assert list(s['input_signatures']) == ['latents', 'steps', 'cfg', 'name', 'on', 'mask']
    assert s['output_signature'] == tensor([1, 4, 8, 8])
    assert s['metadata'] == {'steps': 4, 'cfg': 1.5, 'name': 'a "b"', 'on': True}
    whole = json.loads((tmp_path / 'timing_io_signature.json').read_text())
    assert whole['timestamp'].startswith('2001-09-09T01:46:40') and whole['request_id'].startswith('req_20010909_')
    assert {str(tmp_path / n) for n in ('timing_io_signature.json', 'profile_denoise.py')} <= set(files)


def test_the_last_call_that_was_described(made, report):
    made.rank()
    for n in (1, 2, 3):
        made.stage('a', {'x': tensor([n])}, tensor([10 * n]) if n != 3 else None)
    made.stage('a').stage('b', {'y': 1}).save()
    _, stages = report()
    assert list(stages) == ['a', 'b']
    assert stages['a']['input_signatures']['x']['shape'] == [3] and stages['a']['signatures'] == 3
    assert stages['a']['output_signature']['shape'] == [20]  # of the last call with an output
    assert stages['b']['output_signature'] is None and 'output' not in stages['b']


def test_the_result_is_that_of_the_same_call(made, report):
    made.rank().stage('a', {'x': 1}, tensor([1])).stage('a', None, tensor([2])).save()
    assert report()[1]['a']['output_signature']['shape'] == [1]


def test_the_lowest_rank_and_numbered_stages(made, report):
    made.rank(1, 2).stage('a#1', {'x': 'one'}).save()
    made.rank(0, 2).stage('a#4', {'x': 'zero'}).stage('a#5').save()
    _, stages = report()
    assert list(stages) == ['a*'] and stages['a*']['input_signatures'] == {'x': 'zero'} and stages['a*']['rank'] == 0


NESTED_VALUES = {
    'list': [tensor([2]), tensor([3])], 'tuple': {'tuple': [1, tensor([2])]}, 'dict': {'dict': {'shape': tensor([1])}},
    'array': {'type': 'numpy.ndarray', 'shape': [2, 3], 'dtype': 'uint8'}, 'ragged': tensor(None, type='torch.nested.X'),
    'image': {'type': 'PIL.Image.Image', 'size': [4, 4], 'mode': 'RGB'}, 'other': {'type': 'm.Thing'}, 'huge': 2 ** 70,
    'quote': "it's '''three''' \\ \u2028 é", 'enum': {'type': 'm.E', 'value': 'A'}, 'many': [1, {'more': 40}]}


def test_telefusers_own_reader(made, report, forked, tmp_path):
    """TeleFuser's reader accepts the file: a value with a shape that is no tensor would stop it."""
    made.rank().stage('odd', NESTED_VALUES, {'tuple': [tensor([1])]}).stage('plain', {'x': tensor([2, 3], 'int64')}, tensor([2])).save()
    _, stages = report()
    odd = stages['odd']['input_signatures']
    assert {k: v for k, v in odd.items() if k not in ('array', 'ragged')} == {k: v for k, v in NESTED_VALUES.items() if k not in ('array', 'ragged')}
    assert odd['array'] == {'array': NESTED_VALUES['array']} and odd['ragged'] == {'tensor': NESTED_VALUES['ragged']}
    assert stages['odd']['output_signature'] is None and stages['odd']['output'] == {'tuple': [tensor([1])]}
    code = '''
import sys
from telefuser.utils.stage_bench_harness import StageBenchHarness, TensorSignature
for name in ('odd', 'plain'):
    h = StageBenchHarness.from_signature_file(sys.argv[1], name)
    print(name, *(type(v).__name__ for v in h.io_signature.input_signatures.values()), h.io_signature.output_signature)
print(h.io_signature.input_signatures['x'])
'''
    result = forked(['python', '-c', code, tmp_path / 'timing_io_signature.json'])
    assert result.rc == 0, result.err[-2000:]
    lines = [line for line in result.out.splitlines() if line.startswith(('odd ', 'plain ', 'TensorSignature'))]
    assert lines[0] == 'odd list dict dict dict dict dict dict int str dict list None'
    assert lines[1].startswith('plain TensorSignature TensorSignature(shape=(2,)')
    assert lines[2] == "TensorSignature(shape=(2, 3), dtype='int64', device='cpu', requires_grad=False)"


def test_no_signatures_no_file(made, report, tmp_path):
    made.rank().stage('a').save()
    files, stages = report()
    assert stages is None and not list(tmp_path.glob('profile_*'))


@pytest.mark.parametrize('text', ['', '{', '{"x": }', '{"x": 1} tail', 'nothing', '{"x": "\udce9"}', '["x"]'])
def test_descriptions_that_make_no_sense(made, report, text, tmp_path, monkeypatch):
    """A damaged trace may hold any text; the files are still readable."""
    made.rank()
    w = made.w
    number = w.string(b'a')
    made.stage('a', {'x': 2}, raw=False)
    made.records.append(rec('signature', text=w.string(text.encode('utf-8', 'surrogateescape')), time=made.now - 1, id=1, name=number, direction=0))
    made.save()
    _, stages = report()
    assert stages['a']['input_signatures'] == {} and stages['a']['metadata'] == {}
    assert signature_in(tmp_path / 'profile_a.py', monkeypatch)['input_signatures'] == {}


# ---- files with the same names ----

def test_files_of_others_stay(made, report, tmp_path):
    theirs = '{"request_id": "req", "stages": {}}'
    (tmp_path / 'timing_io_signature.json').write_text(theirs)
    made.rank().stage('a', {'x': 1}).save()
    report()
    assert (tmp_path / 'timing_io_signature.json').read_text() == theirs
    ours = json.loads((tmp_path / 'timing~2_io_signature.json').read_text())
    assert list(ours['stages']) == ['a']
    report()
    assert not (tmp_path / 'timing~3_io_signature.json').exists()


def test_an_edited_script_stays(made, report, tmp_path):
    made.rank().stage('a', {'x': 1}).save()
    path = tmp_path / 'profile_a.py'
    report()
    first = path.read_text()
    report()
    assert path.read_text() == first and len(list(tmp_path.glob('profile_*'))) == 1
    edited = first.replace("return tfharness.target_of(SIGNATURE, device, trust)", 'return made_by_hand()')
    path.write_text(edited)
    report()
    assert path.read_text() == edited != first
    assert (tmp_path / 'profile_a~2.py').read_text() == first


@pytest.mark.parametrize('name, file', [('vae decode', 'profile_vae decode.py'), ('a/../b', 'profile_a_.._b.py'), ('pipe:f', 'profile_pipe_f.py'),
                                        ("'''", 'profile____.py'), ('.x', 'profile__x.py'), ('"""\n\\', 'profile______.py')])
def test_names_of_stages(made, report, name, file, tmp_path, monkeypatch):
    made.rank().stage(name, {'x': "'" * 7 + '\\'}).save()
    _, stages = report()
    assert list(stages) == [name]
    assert signature_in(tmp_path / file, monkeypatch) == {
        'stage_name': name, 'input_signatures': {'x': "'" * 7 + '\\'}, 'target': None, 'recorded': {'calls': 1, 'median_ms': 0.01}}


CACHE = {'type': 'm.Cache', 'layers': [[tensor([1, 8, 512, 64], 'bfloat16', 'cuda:0')] * 2] * 32}
STRANGE = ['"""', "'''", '\\', '\\"); exit()', '{x}', '%s', '\n', '\r\n', '\x7f', '\u2028', '\u202e', '\ud83d\ude00', '\\N{BEL}', '/']
SIGNATURES = {
    'every kind': NESTED_VALUES, 'strange texts': {'x': STRANGE, **dict.fromkeys(STRANGE, 1)},
    'numbers': {'x': [0, -1, 2 ** 70, -1.5e-300, 1e5, True, False, None]},
    'tensors': {'a': tensor([2, 3], stride=[1, 2], grad=True), 'b': tensor(['s0', 3]), 'c': tensor([2], type='torch.nn.Parameter'),
                'd': {**tensor([2]), 'eval': 1}, 'e': {**tensor([2]), 'requires_grad': 'exit()'}, 'f': tensor([2], 'x', "'); exit()")},
    'a large cache': {'x': CACHE, 'y': CACHE, **{f'input {i}': i for i in range(20)}},
    'many inputs': {f'x{i}': tensor([i]) for i in range(300)},
}


@pytest.mark.parametrize('inputs', SIGNATURES.values(), ids=SIGNATURES)
def test_a_script_that_a_person_reads(made, report, inputs, tmp_path, monkeypatch):
    """A script of at most 150 lines holds the inputs of any signature, with object and target, as they were."""
    made.rank().stage('a', {'': 'm:f', '.': {'class': 'm:C', 'config': {'x': None}}, **inputs}).save()
    wanted = report()[1]['a']
    path = tmp_path / 'profile_a.py'
    lines = path.read_text().splitlines()
    assert len(lines) <= 150 and (max(map(len, lines)) < 140 or len(str(inputs)) > 5000)
    assert signature_in(path, monkeypatch) == {key: wanted[key] for key in ('stage_name', 'input_signatures', 'target', 'object', 'recorded')}


def test_strides_that_a_shape_implies_are_left_out(made, report, tmp_path, monkeypatch):
    """Whoever edits a shape need not edit strides, unless the tensor was not contiguous."""
    strides = {'a': ([2, 3, 4], [12, 4, 1]), 'b': ([2, 0, 4], [4, 4, 1]), 'c': ([], []), 'd': ([3, 1], [1, 1])}
    others = {'e': ([2, 3, 4], [12, 1, 3]), 'f': ([2, 2], [4, 2]), 'g': ([2, 3], [0, 1])}
    made.rank().stage('a', {name: tensor(shape, stride=stride) for name, (shape, stride) in {**strides, **others}.items()}).save()
    report()
    text = (tmp_path / 'profile_a.py').read_text()
    assert '\n        "a": tensor([2, 3, 4], "float32", "cpu"),\n' in text
    assert '\n        "f": tensor([2, 2], "float32", "cpu", stride=[4, 2]),\n' in text
    found = signature_in(tmp_path / 'profile_a.py', monkeypatch)['input_signatures']
    assert {name: d['stride'] for name, d in found.items()} == {**dict.fromkeys(strides), **{name: stride for name, (_, stride) in others.items()}}


def test_what_python_would_not_read(made, report, tmp_path, monkeypatch):
    """Brackets nested hundreds of times become a value that cannot be made."""
    deep = '[' * 500 + '1' + ']' * 500
    made.rank().stage('a', f'{{"deep": {deep}, "long": {"7" * 300}, "longer": 0.{"7" * 5000}, "good": 1}}', raw=True).save()
    report()
    inputs = signature_in(tmp_path / 'profile_a.py', monkeypatch)['input_signatures']
    assert inputs['good'] == 1 and inputs['long'] == int('7' * 300) and inputs['longer'] == 7 / 9
    assert str(inputs['deep']).strip('[]') == "{'type': 'value that is nested too deep'}"


@pytest.mark.parametrize('variable', ['PATH', 'PYTHONPATH', None])
def test_where_a_script_finds_the_harness(made, report, variable, tmp_path):
    made.rank().stage('a', {'x': 1}).save()
    report()
    env = {'PATH': '/usr/bin:/bin'}
    if variable:
        env[variable] = f'{ROOT}/scripts:{env["PATH"]}'
    result = execute([sys.executable, '-B', tmp_path / 'profile_a.py', '--help'], env, tmp_path)
    assert (result.rc == 0 and "Runs the stage 'a' alone" in result.out) if variable else (result.rc, result.err) == (
        1, 'profile_a.py: tfharness.py is not found: add scripts/ of the checkout of tfinject, or bin/ of its installation, to PYTHONPATH or PATH\n')


@pytest.mark.parametrize('command, directory, target', [
    ('python run.py --out x.json', '/tmp/d', '/tmp/d/run.py:f.g'), ('python3 -X dev /opt/run.py', '/tmp/d', '/opt/run.py:f.g'),
    ('python -c code', '/tmp/d', None), ('python', None, None), ('python a.pyc', '/', None)])
def test_target_in_the_script_itself(made, report, command, directory, target):
    made.rank(command=command, **({'directory': directory} if directory else {})).stage('s', {'': '__main__:f.g', 'x': 1}).save()
    s = report()[1]['s']
    assert s['target'] == target and s['input_signatures'] == {'x': 1}


# ---- memory ----

def memory(allocated, reserved, peak, peak_reserved, before=0):
    return {'allocated_before': before, 'reserved_before': before, 'allocated_after': allocated * MB, 'reserved_after': reserved * MB,
            'allocated_peak': peak * MB, 'reserved_peak': peak_reserved * MB}


def test_memory_in_timing_json(made, report, tmp_path):
    made.rank().stage('a', memory=[(-1, memory(900, 0, 900, 0)), (0, memory(1, 2, 30, 40)), (1, memory(3, 4, 10, 20))])
    made.stage('a', memory=[(0, memory(5, 6, 7, 8))]).stage('host', memory=[(-1, memory(1, 0, 2, 0))]).stage('none').save()
    report()
    stages = json.loads((tmp_path / 'timing.json').read_text())['stages']
    assert stages['a']['memory'] == {'allocated_mb': 5, 'reserved_mb': 6, 'peak_allocated_mb': 7, 'peak_reserved_mb': 8, 'device': 0}
    assert stages['host']['memory'] == {'allocated_mb': 1, 'reserved_mb': 1, 'peak_allocated_mb': 2, 'peak_reserved_mb': 2, 'device': -1}
    assert 'memory' not in stages['none']


def test_memory_of_ranks(made, report, tmp_path):
    made.rank(0, 2).stage('a', memory=[(0, memory(1, 2, 3, 512))]).save()
    made.rank(1, 2).stage('a', memory=[(-1, memory(1, 0, 256, 0))]).save()
    report()
    a = json.loads((tmp_path / 'timing.json').read_text())['stages']['a']
    assert 'memory' not in a and a['parallel_info']['num_ranks'] == 2
    assert [(r['rank'], r['peak_memory_gb'], r['duration_ms']) for r in a['parallel_info']['ranks']] == [(0, 0.5, 0.01), (1, 0.25, 0.01)]


# ---- cache-dit's names ----

@pytest.mark.parametrize('world, names', [(1, {'flux.trace.json.gz'}), (2, {'flux-rank0.trace.json.gz', 'flux-rank1.trace.json.gz'})])
def test_traces_with_cache_dits_names(made, report, world, names, tmp_path):
    for rank in range(world):
        made.rank(rank, world).stage('flux', flags=CACHE_DIT).stage('other').save()
    for _ in range(2):
        report()
        traces = {p.name for p in tmp_path.glob('*.trace.json.gz')}
        assert traces == names | {f'other_rank{r}.trace.json.gz' for r in range(world)}
        assert not list(tmp_path.glob('flux*.breakdown.json'))  # it has no content


def test_memory_of_stages_whose_names_meet(made, report, tmp_path):
    """Each stage has its own files, even if they end in the same second; impossible devices and sizes stop nothing."""
    made.rank()
    for name, frame, size, device in (('a/b', 'first', 100, -1), ('a_b', 'second', -2 ** 63, -1), ('c', 'third', 100, 2 ** 31 - 1)):
        made.records.append(rec('memory', time=made.now + 5, address=4096, bytes=size, device=device,
                                stack=made.w.stack((frame, 'm.py', 7), ('<module>', 'm.py', 1))))
        made.records.append(rec('memory', time=made.now + 6, address=8192, bytes=1, device=-1, stack=made.w.stack((frame, 'm.py', 8))))
        made.stage(name, flags=CACHE_DIT)
    made.save()
    report()
    found = {}
    for path in tmp_path.glob('*.pickle'):
        events = pickle.loads(path.read_bytes())['device_traces'][0]
        found[path.name.split('-')[0]] = [(e['frames'][0]['name'], e['size'], len(e['frames'])) for e in events]
    freed = [('second', 2 ** 63 - 1, 2)] * 2
    assert found == {'a_b': [('first', 100, 2), ('first', 1, 1)], 'a_b~2': freed + [('second', 1, 1)], 'c': [('third', 1, 1)]}
    assert len(list(tmp_path.glob('*-memory-*.txt'))) == 3


def test_frames_in_a_pickle(made, report, tmp_path):
    """A block has Python frames first, then native ones by their C++ names, and none of libtorch's internals."""
    torch = '/v/libtorch_cpu.so'
    stack = made.rank().w.stack(('0x40d57', '/v/libc10.so', 0), ('_ZN2at6native9empty_cpuEl', torch, 0),
                                ('_ZN2at4_ops5empty4callEl', torch, 0), ('0x2f', '/v/libmine.so', 0), ('f', 'm.py', 7))
    made.records.append(rec('memory', time=made.now + 5, address=4096, bytes=100, device=-1, stack=stack))
    made.stage('a', flags=CACHE_DIT).save()
    report()
    (path,) = tmp_path.glob('*.pickle')
    event, = pickle.loads(path.read_bytes())['device_traces'][0]
    assert [(f['name'], f['filename'], f['line']) for f in event['frames']] == [
        ('f', 'm.py', 7), ('at::native::empty_cpu', torch, 0), ('libmine.so+0x2f', '', 0)]


SECRETS = '''
import dataclasses
@dataclasses.dataclass
class Login:
    user: str
    password: str
def login(user, token=None, api_key=None, url='', prompt='', login=None, max_new_tokens=3):
    return {'secret': 'S-result', 'bytes': 3}
def varied(**options):
    return None
login('bob', token='S-token', api_key='S-key', url='https://u:S-pass@h/x?a=1&X-Amz-Signature=S-sign', prompt='my key: a lock',
      login=Login('al', 'S-word'))
varied(hf='hf_S0123456789012345678', open='see sk-S012345678901234567', headers={'Authorization': 'Bearer S-bear'})
'''


def test_secrets_are_left_out(run, tmp_path, tfanalyze):
    """Values whose names are those of secrets, and texts that look like keys, stand in no file of the run."""
    (tmp_path / 'script.py').write_text(SECRETS)
    result = run([sys.executable, 'script.py'], {'TFI_STAGES': '__main__:login,__main__:varied'})
    assert (result.rc, result.err) == (0, '')
    report = run([tfanalyze, 'report', result.dir], preload=False)
    assert report.rc == 0, report.err
    files = contents(result.dir)
    assert len(files) > 3
    for name, data in files.items():
        assert b'S-' not in data and b'S01' not in data, name
    dump = run([tfanalyze, 'dump', result.dir, '--format', 'json'], preload=False)
    texts = [json.loads(row['values']['text']) for row in json.loads(dump.out)['rows'] if row['kind'] == 'signature']
    assert any(t.get('user') == 'bob' and t['token'] == {'type': 'str'} and t['prompt'] == 'my key: a lock' and t['max_new_tokens'] == 3
               for t in texts if isinstance(t, dict)), texts
