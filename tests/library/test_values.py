"""test_values - the program's data in a trace: secrets of the command line, and TFI_RECORD_VALUES=0.

The tests search everything that a run and its report leave for the program's inputs: the trace's strings, the fields of
its records, and the unpacked bytes of every file.
"""

import gzip
import json
import os
import sys

import pytest

import tfr
from conftest import ROOT, clean_environment, execute

NUMBER, FLOAT, TEXT, KEY = 987654321, 54321.0625, 'a private prompt', 'sk-SECRET-123'
TELLING = (str(NUMBER), str(FLOAT), TEXT, KEY, 'SECRET')

PIPELINE = '''
import dataclasses, enum, sys
import torch
class Kind(enum.Enum):
    SECRET = 'sk-SECRET-123'
@dataclasses.dataclass
class Request:
    prompt: str
    steps: int = 987654321
def denoise(latents, prompt, steps, scale=1.0, more=None, kind=None, request=None, options=None, flag=True, nothing=None, **kwargs):
    latents = latents.add(987654321).mul(54321.0625).clamp(-987654321, 987654321)
    torch.einsum('ij,jk->ik', latents, latents)
    with torch.profiler.record_function('step', 'a private prompt'):
        return {'sk-SECRET-123': steps, 'image': latents, 'text': prompt, 'many': [steps] * 40}
class Model:
    def __call__(self, prompt):
        return prompt * 2
for _ in range(2):
    out = denoise(torch.ones(4, 4), 'a private prompt', 987654321, scale=54321.0625, more={'sk-SECRET-123': 987654321, 5: [54321.0625]},
                  kind=Kind.SECRET, request=Request('a private prompt'), options=('sk-SECRET-123', {987654321}, torch.float16), extra='sk-SECRET-123')
Model()('a private prompt')
'''


def contents(directory):
    """{name: bytes} of all files, unpacked. A trace gives its strings and the values of its records."""
    out = {}
    for path in sorted(p for p in directory.rglob('*') if p.is_file()):
        data = path.read_bytes()
        if path.suffix == '.gz':
            data = gzip.decompress(data)
        if path.suffix == '.tfr':
            trace = tfr.read(path)
            texts = [*trace.strings.values(), *(f'{k}={v}'.encode() for k, v in {**trace.info, **trace.footer}.items())]
            data = b'\n'.join(texts) + json.dumps([r.values for r in trace.records]).encode()
        out[path.name] = data
    return out


def found(directory, words=TELLING):
    return {(name, word) for name, data in contents(directory).items() for word in words if word.encode() in data}


@pytest.fixture(scope='module')
def pipeline(tmp_path_factory, lib, python, tfanalyze):
    """pipeline(values): the directory of a run of PIPELINE with its report, once for each value of TFI_RECORD_VALUES."""
    runs = {}

    def pipeline(values):
        if values not in runs:
            base = tmp_path_factory.mktemp(f'values{values}')
            (base / 'pipe.py').write_text(PIPELINE)
            env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(base / 'run'), 'TFI_RECORD_VALUES': values,
                   'TFI_STAGES': '__main__:denoise,__main__:Model.__call__', 'MASTER_ADDR': KEY, 'TFI_METADATA': 'model=wan'}
            result = execute([python, 'pipe.py', f'--note={TEXT}', f'--steps={NUMBER}'], env, base)
            assert (result.rc, result.err) == (0, '')
            result = execute([tfanalyze, 'report', base / 'run'], clean_environment(), base)
            assert result.rc == 0, result.err
            runs[values] = base
        return runs[values]
    return pipeline


def described(directory, name):
    """{argument: description} of the first call of a stage."""
    trace = tfr.read(next(directory.glob('*.tfr')))
    text = next(trace.strings[r.values['text']] for r in trace.records if r.kind == 'signature' and
                trace.strings[r.values['name']].decode() == name and r.values['direction'] == 0)
    return json.loads(text)


def test_no_values(pipeline):
    """TFI_RECORD_VALUES=0 leaves no number and no text of the program in any file of the run or its report."""
    assert found(pipeline('0') / 'run') == set()


def test_values_are_there_by_default(pipeline):
    """By default the same search finds the values, so it looks in the right places."""
    assert {word for _, word in found(pipeline('1') / 'run')} == set(TELLING)
    assert {name.split('.')[-1] for name, _ in found(pipeline('1') / 'run')} >= {'tfr', 'py', 'json', 'gz'}


def test_types_and_shapes_stay(pipeline):
    """A signature keeps types, shapes, dtypes and the structure of containers."""
    d = described(pipeline('0') / 'run', 'denoise')
    assert d['latents'] == described(pipeline('1') / 'run', 'denoise')['latents']
    assert d['prompt'] == {'type': 'str'} and d['steps'] == {'type': 'int'} and d['scale'] == {'type': 'float'}
    assert d['more'] == {'items': [[{'type': 'str'}, {'type': 'int'}], [{'type': 'int'}, [{'type': 'float'}]]]}
    assert d['kind'] == {'type': '__main__.Kind'} and d['extra'] == {'type': 'str'}
    assert d['request'] == {'type': '__main__.Request', 'fields': {'prompt': {'type': 'str'}, 'steps': {'type': 'int'}}}
    assert d['options']['tuple'][1:] == [{'set': [{'type': 'int'}]}, {'type': 'torch.dtype', 'value': 'float16'}]


def test_shapes_of_operators_stay(pipeline, tfanalyze):
    """Operators are counted and grouped by shapes as usual, with the same floating-point operations."""
    rows = []
    for values in '01':
        result = execute([tfanalyze, 'ops', pipeline(values) / 'run', '--group-by', 'name,shapes', '--format', 'json'])
        assert result.rc == 0, result.err
        rows.append(sorted((r['name'], str(r['shapes']), r['calls'], r['flops']) for r in json.loads(result.out)['rows']))
    assert rows[0] == rows[1] and any(r[3] for r in rows[0])


def test_stages_keep_their_names(pipeline, tfanalyze):
    result = execute([tfanalyze, 'stages', pipeline('0') / 'run', '--format', 'json'])
    assert {r['stage']: r['calls'] for r in json.loads(result.out)['rows'] if r['stage'] != '(start-up)'} == {'denoise': 2, 'step': 2, 'Model.__call__': 1}


def test_header_without_values(pipeline, tfanalyze):
    """The program's name, the library's variables and TFI_METADATA stay; launchers' variables do not."""
    info = tfr.read(next((pipeline('0') / 'run').glob('*.tfr'))).info
    assert info['values'] == '0' and info['command'] == os.path.basename(os.path.realpath(sys.executable)).split(' ')[0]
    assert 'env.MASTER_ADDR' not in info and info['env.TFI_RECORD_VALUES'] == '0' and info['meta.model'] == 'wan'
    row = json.loads(execute([tfanalyze, 'info', pipeline('0') / 'run', '--format', 'json']).out)['rows'][0]
    assert row['metadata']['model'] == 'wan'
    assert row['reveals']['command_line'] == "program's name" and row['reveals']['values'] is False


def test_script_without_values(pipeline, forked):
    """profile_denoise.py names the missing values, asks for them in values(), and runs after they are filled in."""
    base = pipeline('0')
    script = next((base / 'run').glob('profile_denoise.py'))
    (base / 'pipe_alone.py').write_text(PIPELINE.split('for _ in')[0])
    env = {**clean_environment(), 'PYTHONPATH': str(ROOT / 'scripts')}
    command = ['python', script, '--target', 'pipe_alone:denoise', '--warmup', '0', '--output-dir', base / 'out']
    result = forked(command, env, base)
    assert 'prompt: the trace has no value of this str; the value is None: set it in values()' in result.out, result.out + result.err
    assert 'steps: the trace has no value of this int' in result.out and 'latents:' not in result.out
    text = script.read_text()
    edited = base / 'profile_edited.py'
    edited.write_text(text.replace('    return inputs\n', '    return {**inputs, "prompt": "x", "steps": 1}\n', 1))
    command[1] = edited
    result = forked(command, env, base)
    assert result.rc == 0 and 'Median iteration time' in result.out, result.out + result.err


@pytest.mark.parametrize('values', ['1', '0'])
def test_payloads(run, victim, values):
    """TFI_RECORD_VALUES=0 removes NVTX payloads, which are the program's numbers; name, category and colour stay."""
    result = run([victim('fixture'), 'log.json', 'whole'], {'TFI_RECORD_VALUES': values}, preload='test')
    assert result.rc == 0, result.err
    trace = tfr.read(next(result.dir.glob('*.tfr')))
    with_payload = [r for r in trace.records if r.kind in ('range_begin', 'mark') and r.values['payload_type']]
    assert bool(with_payload) == (values == '1')
    assert [r for r in trace.records if r.kind == 'range_begin' and r.values['color']]


# ---- the command line ----

SCRIPT = '''
import ctypes, os, sys
library = ctypes.CDLL(os.environ['LD_PRELOAD'])
library.tfi_range_push(b'stage')
library.tfi_range_pop()
if os.environ.get('AGAIN'):
    os.environ['AGAIN'] = ''
    os.execv(sys.executable, [sys.executable, *sys.argv[:2], '--token', 'hunter2', '--lr', '2'])
'''


@pytest.fixture
def header(run, tmp_path):
    """header(*arguments): headers of the traces of a program with these arguments, in the order of their names."""
    (tmp_path / 'script.py').write_text(SCRIPT)

    def header(*arguments, rc=0, **env):
        result = run([sys.executable, 'script.py', *arguments], env)
        assert (result.rc, result.err) == (rc, '')
        return [tfr.read(p).info for p in sorted(result.dir.glob('*.tfr'))]
    return header


def test_command_line_is_kept(header):
    info, = header('--lr', '0.1', 'a b')
    assert info['command'].endswith('script.py --lr 0.1 a b') and info['values'] == '1' and 'command.left_out' not in info


@pytest.mark.parametrize('arguments, left_out', [
    (['--password=hunter2', '--lr', '1'], '1'), (['--password', 'hunter2'], '1'), (['--API-Key', 'hunter2', '--hf_token=hunter2'], '2'),
    (['-H', 'Authorization: Bearer hunter2'], '1'), (['https://me:hunter2@host/x'], '1'), (['HF_TOKEN=hunter2'], '1'),
    (['-c', 'run --secret "hunter2 hunter2" --lr 1'], '1'), (['{"client_secret": "hunter2"}'], '1'), (['--password', '--lr', '1'], None),
    (['--password=hunter2' + 'x' * 100000], None), ([*['x'] * 20000, '--password=hunter2'], None), (['\udcff--password=hunter2'], '1'),
    (['--password=' + 'hunter2' * 600], None), (['--password=' + 'hunter2' * 300, '--lr'], '1'), (['x' * 4060, 'https://me:hunter2hunter2hunter2@host/x'], None), (['', '--password', '', ''], None),
])
def test_secrets_of_the_command_line(header, arguments, left_out, tmp_path):
    """No form of a secret is anywhere in the trace; the header says how many were left out."""
    info, = header(*arguments)
    assert 'hunter2' not in json.dumps(info) and info.get('command.left_out') == left_out, info['command']
    assert info['command'].endswith(' ...') == (sum(map(len, arguments)) > 4000)
    assert found(tmp_path / 'run', ['hunter2']) == set()


def test_exec_keeps_no_secrets(header, tmp_path):
    """A program that calls exec has a second header, shortened in the same way."""
    first, second = sorted(header('one', AGAIN='1'), key=lambda info: len(info['command']))
    assert first['command'].endswith('script.py one') and second['command'].endswith('script.py one --token *** --lr 2')


def test_rewritten_command_line(run, tmp_path, analyze):
    """A title written over the arguments, as setproctitle does, is one text; an empty title is unknown."""
    (tmp_path / 'title.py').write_text('''
import ctypes, os, sys
line = open('/proc/self/cmdline', 'rb').read()
stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
start, end = int(stat[45]), int(stat[46])
title = sys.argv[1].encode()[:end - start - 1]
ctypes.memmove(start, title + bytes(end - start - len(title)), end - start)
library = ctypes.CDLL(os.environ['LD_PRELOAD'])
library.tfi_range_push(b'stage')
library.tfi_range_pop()
''')
    for title, kept in ('server: --hf_token hunter2 --lr 1', 'server: --hf_token *** --lr 1'), ('', None):
        env = {'TFI_OUTPUT_DIR': tmp_path / f'run{len(title)}'}
        result = run([sys.executable, 'title.py', title, 'x' * 50], env)
        assert (result.rc, result.err) == (0, '')
        row = analyze('info', result.dir)['rows'][0]
        assert row['command'] == kept
        assert row['reveals']['command_line'] == ('without secrets' if kept else None)


def test_info_shows_what_a_trace_reveals(header, tmp_path, analyze, tfanalyze):
    """info shows it by keys in JSON and in one line of text; for a PyTorch trace it is null."""
    header('--password=hunter2')
    reveals = analyze('info', tmp_path / 'run')['rows'][0]['reveals']
    assert (reveals['command_line'], reveals['left_out'], reveals['values']) == ('without secrets', 1, True)
    assert 'directory' in reveals['paths'] and 'LD_PRELOAD' in reveals['environment'] and reveals['texts'] >= 1
    assert 'reveals           command_line without secrets, left_out 1, values yes' in analyze('info', tmp_path / 'run', format=None).out
    trace = ROOT / 'tests' / 'data' / 'v1' / 'whole.tfr'
    assert analyze('info', trace)['rows'][0]['reveals']['command_line'] == 'whole'
    (tmp_path / 'k.json').write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    assert analyze('info', tmp_path / 'k.json')['rows'][0]['reveals'] is None
