"""test_unmatched - names of ENABLE_PROFILER_NAMES and TFI_STAGES that match nothing get one message.

The library prints it when the process ends; `info` finds it again in the records of all processes.
"""

import json
import os
import re
import resource
import subprocess

import pytest

import tfr

SCRIPT = '''
import ctypes, sys
lib = ctypes.CDLL(None)
def load(x): return x
class A:
    def run(self): pass
for name in sys.argv[1:]:
    lib.tfi_range_push(name.encode())
    lib.tfi_range_pop()
load(1)
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / 'script.py'
    path.write_text(SCRIPT)
    return path


def said(result):
    return [line.removeprefix('tfinject: ') for line in result.err.splitlines() if line.startswith('tfinject:')]


def unmatched(analyze, directory):
    return {tuple(n.values()) for row in analyze('info', directory)['rows'] for n in row['unmatched_names']}


@pytest.mark.parametrize('names, stages, expected', [
    ('denoize', ['vae', 'denoise', 'load'], {('denoize', 'denoise')}),
    ('denoise,vae_*', ['denoise', 'vea_decode'], {('vae_*', 'vea_decode')}),
    ('de*,v?e', ['denoise', 'vae'], set()),
    ('*', ['a'], set()),
], ids=['misspelt', 'glob', 'matched', 'all'])
def test_a_name_that_matches_no_stage(run, python, script, analyze, names, stages, expected):
    result = run([python, script, *stages], env={'ENABLE_PROFILER_NAMES': names})
    assert result.rc == 0
    lines = said(result)
    assert len(lines) == len(expected)
    for name, nearest in expected:
        assert f'ENABLE_PROFILER_NAMES: {name} matched no stage' in lines[0] and lines[0].endswith(f'seen is {nearest}')
    assert unmatched(analyze, result.dir) == {('ENABLE_PROFILER_NAMES', *e) for e in expected}


def test_functions_that_are_missing_or_not_called(run, python, script, analyze):
    result = run([python, script, 'x'], env={'TFI_STAGES': '__main__:lod,__main__:A.run,nosuch.module:f,__main__:load,json:dmps,auto'})
    assert result.rc == 0
    text = '\n'.join(said(result))
    assert '__main__:lod does not exist' in text and 'the nearest name is load' in text
    assert 'A.run' not in text, 'A.run exists and is only not called, so no message names it'
    assert 'did not import the module of nosuch.module:f' in text
    assert '__main__:load' not in text and 'auto' not in text
    names = {entry for _, entry, _ in unmatched(analyze, result.dir)}
    assert names == {'__main__:lod', '__main__:A.run', 'nosuch.module:f', 'json:dmps'}


def test_a_name_that_a_module_lacks_comes_with_the_nearest_of_the_module(run, python, tmp_path):
    (tmp_path / 'loads.py').write_text('import json\njson.loads("1")\n')
    result = run([python, tmp_path / 'loads.py'], env={'TFI_STAGES': 'json:lods'})
    assert any('json:lods does not exist' in line and line.endswith('the nearest name is loads') for line in said(result))


def test_a_program_without_stages_gets_a_message(run, python, tmp_path):
    """Nothing is recorded and no file is left; only the message says why."""
    (tmp_path / 'work.py').write_text('import torch\ntorch.ones(3).add(1)\n')
    result = run([python, tmp_path / 'work.py'], env={'ENABLE_PROFILER_NAMES': 'denoise'})
    assert result.rc == 0 and not result.dir.exists()
    line, = said(result)
    assert 'denoise matched no stage' in line and line.endswith('the process opened no stage')


@pytest.mark.parametrize('command', ["ls / >/dev/null; true", "{python} -c 'pass'"], ids=['shell', 'python'])
def test_programs_that_do_no_work_say_nothing(run, python, command):
    result = run(['bash', '-c', command.format(python=python)], env={'ENABLE_PROFILER_NAMES': ''})
    assert not said(result)
    result = run(['bash', '-c', 'ls / >/dev/null; true'], env={'ENABLE_PROFILER_NAMES': 'denoise', 'TFI_STAGES': 'm:f'})
    assert not said(result)


def test_two_ranks_say_it_once(run, python, script, tmp_path):
    """Two ranks print one message; a forked child, a Python child of the job and an exec print none."""
    (tmp_path / 'ranks.py').write_text(f'''
import os, subprocess, sys
subprocess.run([sys.executable, '-c', 'pass'], check=True)
if not os.fork():
    os._exit(0)
os.wait()
exec(open({str(script)!r}).read())
''')
    result = run([python, '-m', 'torch.distributed.run', '--nproc-per-node', '2', tmp_path / 'ranks.py', 'denoise'],
                 env={'ENABLE_PROFILER_NAMES': 'denoize,denoise', 'OMP_NUM_THREADS': 1})
    assert result.rc == 0, result.err
    assert len(said(result)) == 1, result.err
    assert len([f for f in os.listdir(result.dir) if f.endswith('.tfr')]) == 2


def test_a_name_that_one_of_two_processes_has_is_no_unmatched_one(run, python, script, analyze):
    for stages in (['denoise'], ['vae']):
        result = run([python, script, *stages], env={'ENABLE_PROFILER_NAMES': 'denoise,vae,nothing'})
    assert unmatched(analyze, result.dir) == {('ENABLE_PROFILER_NAMES', 'nothing', 'denoise')}


def test_the_names_of_a_killed_process_are_found_too(run, python, script, analyze):
    script.write_text(SCRIPT + 'import os\nos.kill(os.getpid(), 9)\n')
    result = run([python, script, 'denoise'], env={'ENABLE_PROFILER_NAMES': 'denoize'})
    rows = analyze('info', result.dir, rc=0)['rows']
    assert rows[0]['unmatched_names'] == [{'variable': 'ENABLE_PROFILER_NAMES', 'name': 'denoize', 'nearest': 'denoise'}]


def test_every_name_of_a_long_list_is_compared(run, python, script):
    """Nineteen of twenty names match, and the message names the last one. Of many unmatched names it names at most 16."""
    names = ','.join(f'stage{i}' for i in range(19))
    result = run([python, script, *names.split(',')], env={'ENABLE_PROFILER_NAMES': names + ',denoise'})
    assert [line.split(':')[1].split()[0] for line in said(result)] == ['denoise']
    result = run([python, script, 'x'], env={'ENABLE_PROFILER_NAMES': names + ',denoise', 'TFI_OUTPUT_DIR': result.dir / 'many'})
    assert len(said(result)) == 16


MANY = '''
import ctypes, sys
lib = ctypes.CDLL(None)
for i in range(60000):
    lib.tfi_range_push(b'stage-%d-of-the-pipeline-with-a-long-name-x' % i)
    lib.tfi_range_pop()
'''


def test_many_names_do_not_hold_up_the_end_of_a_program_with_many_stages(run, python, tmp_path):
    """60,000 stages and 16 or 400 unmatched names delay the program's end by less than a second of CPU.

    A message says that some names were not compared."""
    (tmp_path / 'many.py').write_text(MANY)

    def cpu(turn, names):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        result = run([python, tmp_path / 'many.py'], env={'ENABLE_PROFILER_NAMES': names, 'TFI_OUTPUT_DIR': tmp_path / turn})
        assert result.rc == 0
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, said(result)
    usual, _ = cpu('usual', 'stage-7-of-the-pipeline-with-a-long-name-x')
    near, lines = cpu('near', ','.join(f'stage-{i}-of-the-pipeline-with-a-long-nome-y' for i in range(16)))
    assert len(lines) >= 15 and near < usual + 1, (near, usual)
    names = ['stage-7-of-the-pipeline-with-a-long-name-x'] * 200 + [f'?{i}' for i in range(200)]
    _, lines = cpu('many', ','.join(names))
    assert lines and 'has too many stages to compare every name' in lines[-1]


def hostile_trace(directory, rank, asked, stages):
    w = tfr.Writer(rank=rank, world=1, pid=4000 + rank, **{'env.ENABLE_PROFILER_NAMES': ','.join(asked)})
    w.chunk([c for t in (0, 10 ** 9) for c in tfr.clocks(t, t, 10 ** 18 + t)])
    records = []
    for i, name in enumerate(stages):
        begin = tfr.rec('range_begin', name=w.string(name), time=1000 + 10 * i, id=i + 1, flags=tfr.NESTED | tfr.STAGE)
        records += [begin, tfr.end_of(begin, 1005 + 10 * i, 1)]
    w.chunk(records, thread=1, tid=7)
    w.footer()
    directory.mkdir(exist_ok=True)
    w.save(directory / f'rank{rank}.elsewhere.{4000 + rank}.tfr')


def user_cpu(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, result


def test_the_names_of_many_ranks_are_compared_once(tfanalyze, analyze, tmp_path):
    """The ranks of a run have the same names and stages, so four times the ranks take less than sixteen times the CPU."""
    asked, stages = [f'name-{i}-that-nobody-has' for i in range(100)], [f'stage-{i}-of-the-pipeline' for i in range(200)]
    times = []
    for ranks in (12, 48):
        for rank in range(ranks):
            hostile_trace(tmp_path / str(ranks), rank, asked, stages)
        times.append(min(user_cpu([tfanalyze, 'info', '--format', 'json', tmp_path / str(ranks)])[0] for _ in range(2)))
    assert times[1] < max(8 * times[0], 0.4), times
    rows = analyze('info', tmp_path / '12')['rows']
    assert all([n['name'] for n in row['unmatched_names']] == asked for row in rows)


def test_a_trace_that_asks_for_too_many_names_gets_a_partial_answer(tfanalyze, tmp_path):
    """3,000 globs against 3,000 stages would take minutes: the answer is partial, with a message and status 3.

    A name that equals a stage is never reported as unmatched."""
    stages = ['a' * 60 + str(i) for i in range(3000)]
    hostile_trace(tmp_path / 'run', 0, [stages[0], *('*' + 'a*' * 100 + f'b{i}' for i in range(3000)), stages[1]], stages)
    seconds, result = user_cpu([tfanalyze, 'info', '--format', 'json', tmp_path / 'run'])
    assert result.returncode == 3 and 'too many to compare every name of ENABLE_PROFILER_NAMES' in result.stderr
    names = [n['name'] for n in json.loads(result.stdout)['rows'][0]['unmatched_names']]
    assert names and not set(names) & set(stages) and len(names) < 3000
    assert seconds < 10, seconds


def test_the_nearest_name_ends_where_the_stage_name_ends(run, victim):
    """Names of stages stand one behind the other in memory, each after its length: 10 would be a new line."""
    result = run([victim('script'), 'push=denoise_step', 'pop', 'push=vae_decode', 'pop'], {'ENABLE_PROFILER_NAMES': 'denoise'})
    assert re.fullmatch(r'tfinject: ENABLE_PROFILER_NAMES: denoise matched no stage in process \d+; '
                        r'the nearest name seen is denoise_step\n', result.err)


def test_each_key_of_info_stands_apart_from_its_value(run, victim, analyze):
    result = run([victim('script'), 'push=a', 'pop'], {'ENABLE_PROFILER_NAMES': 'b'})
    lines = [line for line in analyze('info', result.dir, format=None).out.splitlines() if line.startswith('  ')]
    assert len(lines) > 20 and not [line for line in lines if not re.match(r'  \w+  +\S', line)]


@pytest.mark.parametrize('stage, env, said', [
    ('ProfilerStep#0', {}, ''), ('step', {'TFI_STEP': 's*'}, ''), ('step', {}, r'ProfilerStep#\*'), ('step', {'TFI_STEP': 'it*'}, r'it\*')])
def test_a_schedule_whose_step_never_comes(run, victim, stage, env, said):
    result = run([victim('script'), f'push={stage}', 'pop'], {'TFI_SCHEDULE': 'wait=1', **env})
    assert re.fullmatch(rf'(tfinject: TFI_SCHEDULE: no stage of process \d+ matched TFI_STEP \({said}\), so no step began .*\n){{{1 if said else 0}}}',
                        result.err)
