"""test_rundir - the places of files: one directory per run, names that overwrite nothing, timing.json, late loading."""

import json
import os
import re
import time
from functools import partial

import pytest

import scripted
from conftest import BUILD
from scripted import called, only, stages

STEPS = 'push=a call=1 pop'
OLDER = '20200101_0000'


@pytest.fixture
def script(run, victim):
    return partial(scripted.play, run, victim('script'))


@pytest.fixture
def default(script, tmp_path):
    """default(steps, env) -> the traces below the test's directory, with the default run directory in use."""
    def default(steps=STEPS, env=None, **options):
        script(steps, {'TFI_OUTPUT_DIR': None, **(env or {})}, **options)
        return scripted.traces(tmp_path)
    return default


def directories(traces):
    return {t.path.parent for t in traces}


# ---- the default ----

def test_default_directory(default, tmp_path):
    before = time.time()
    path = only(default()).path.parent
    assert path.parent == tmp_path / 'work_dirs/profiler_output/default'
    minutes = {time.strftime('%Y%m%d_%H%M', time.localtime(t)) for t in (before, time.time())}
    assert path.name in minutes


def test_pipeline_in_the_directory(default, tmp_path):
    assert only(default(env={'TFI_PIPELINE_NAME': 'flux'})).path.parent.parent == tmp_path / 'work_dirs/profiler_output/flux'


def test_directory_is_made_only_at_wake(default, tmp_path):
    seen = f'test ! -e {tmp_path}/work_dirs'
    default([f'system={seen}', 'push=a', f'system=! {{ {seen}; }}', 'pop'])
    assert (tmp_path / 'work_dirs').is_dir()


def test_directory_is_of_the_start(default, tmp_path):
    (tmp_path / 'sub').mkdir()
    assert only(default(f'chdir=sub {STEPS}')).path.parent.parent.parent.parent.parent == tmp_path


# ---- children ----

CHILDREN = {
    'plain': '{0}', 'bash': "bash -c '{0}; true'", 'sh': "sh -c 'cd sub && {0}'", 'without': 'env -u TFI_RUN_DIR {0}',
    'bash without': "bash -c 'unset TFI_RUN_DIR; {0}; true'", 'chdir': 'cd sub && {0}',
    'python': 'python3 -c "import os, subprocess; e = os.environ.copy(); subprocess.run({1}, env=e, check=True)"',
    'cwd': 'python3 -c "import subprocess; subprocess.run({1}, cwd=\'sub\', check=True)"',
    'new environment': 'python3 -c "import os, subprocess; '
                       'subprocess.run({1}, env={{\'LD_PRELOAD\': os.environ[\'LD_PRELOAD\']}}, check=True)"',
}


@pytest.mark.parametrize('way', CHILDREN)
def test_children_write_into_the_same_directory(run, victim, tmp_path, way):
    """A child writes into its parent's directory, whose minute is in the past: a directory of its own would show."""
    (tmp_path / 'sub').mkdir()
    words = [str(victim('script')), *STEPS.split()]
    given = f'{tmp_path}/work_dirs/profiler_output/default/{OLDER}'
    env = {'TFI_OUTPUT_DIR': None, 'TFI_RUN_DIR': given}
    if 'without' in way or 'new' in way:
        script = CHILDREN[way].format(' '.join(words), str(words).replace('"', "'"))
        result = run([victim('script'), 'push=parent', f'system={script}', 'pop'], env, preload='test')
    else:
        result = run(['bash', '-c', CHILDREN[way].format(' '.join(words), str(words))], env, preload='test')
    assert (result.rc, result.err) == (0, '')
    traces = scripted.traces(tmp_path)
    assert any(stages(t) == ['a'] for t in traces)
    assert {str(d) for d in directories(traces)} == {given}


def test_relative_directory_of_children_elsewhere(script, victim, tmp_path):
    """A relative TFI_OUTPUT_DIR starts at the run's first directory, not at the child's current one."""
    (tmp_path / 'sub').mkdir()
    steps = ['push=parent', f'system=cd sub && {victim("script")} {STEPS}', 'pop']
    script(steps, {'TFI_OUTPUT_DIR': 'rel/run'})
    assert directories(scripted.traces(tmp_path)) == {tmp_path / 'rel/run'} and len(scripted.traces(tmp_path)) == 2


def test_output_directory_set_for_a_child_wins(script, victim, tmp_path):
    steps = ['push=parent', f'system=TFI_OUTPUT_DIR={tmp_path}/own {victim("script")} {STEPS}', 'pop']
    script(steps)
    assert {d.name for d in directories(scripted.traces(tmp_path))} == {'run', 'own'}


@pytest.mark.parametrize('value', ['relative', 'relative//token', '', '//', '//token', '///x', '%n%s//%s'])
def test_inherited_directory_that_is_not_absolute_is_ignored(default, value):
    """An inherited directory that is relative, or that has no name before its token, is ignored."""
    assert re.fullmatch(r'\d{8}_\d{4}', only(default(env={'TFI_RUN_DIR': value})).path.parent.name)


def test_one_directory_across_a_minute(run, victim, tmp_path):
    """The launcher chooses the directory though it never wakes; its child's clock would give another hour."""
    line = f'TZ=Asia/Tokyo {victim("script")} {STEPS}; {victim("script")} {STEPS}'
    result = run(['bash', '-c', line], {'TFI_OUTPUT_DIR': None, 'TZ': 'UTC'}, preload='test')
    traces = scripted.traces(tmp_path)
    assert (result.rc, len(traces), len(directories(traces))) == (0, 2, 1)


# ---- several jobs ----

def test_two_jobs_of_one_minute_have_a_directory_each(run, victim, tmp_path):
    """Three jobs choose the same name before one of them wakes; each gets its own directory, and its children follow."""
    child = f'{victim("script")} {STEPS}'
    env = {'TFI_OUTPUT_DIR': None, 'LD_PRELOAD': None}
    library = next(BUILD.glob('test/libtfinject.so'))
    jobs = ' & '.join(f"LD_PRELOAD={library} {victim('script')} wait=200 push=parent 'system={child}' pop" for _ in range(3))
    result = run(['bash', '-c', f'{jobs} & wait'], env, preload=False)
    assert (result.rc, result.err) == (0, '')
    found = sorted(directories(scripted.traces(tmp_path)))
    minutes = {d.name.partition('~')[0] for d in found}
    assert len(found) == 3 and (len(minutes) > 1 or [d.name.partition('~')[2] for d in found] == ['', '2', '3'])
    for directory in found:
        assert sorted(stages(t)[0] for t in scripted.traces(directory)) == ['a', 'parent']


def test_a_job_that_chose_its_directory_goes_there_again(script, tmp_path):
    """A directory that the user names gets no number, unlike the default one."""
    for _ in range(2):
        script(STEPS, {'TFI_OUTPUT_DIR': 'mine'})
    assert directories(scripted.traces(tmp_path)) == {tmp_path / 'mine'} and not (tmp_path / 'mine/.job').exists()


PLANTED = {
    'a FIFO': lambda note, precious: os.mkfifo(note),
    'a directory': lambda note, precious: note.mkdir(),
    'a link': lambda note, precious: note.symlink_to(precious),
    'a link to nothing': lambda note, precious: note.symlink_to(precious.with_name('made')),
    'a link to a device': lambda note, precious: note.symlink_to('/dev/zero'),
    'an empty file': lambda note, precious: note.write_text(''),
    'no name': lambda note, precious: note.write_bytes(b'\0\n/'),
    'a long file': lambda note, precious: note.write_text('x' * 100000),
}


@pytest.mark.parametrize('marker', ['.job', '.said'])
@pytest.mark.parametrize('planted', PLANTED)
def test_an_obstacle_at_a_notes_name_stops_no_job(run, victim, tmp_path, marker, planted):
    """An obstacle at the name of a note in the directory stops no job; the library follows no link and changes nothing."""
    directory, precious = tmp_path / 'run', tmp_path / 'precious'
    directory.mkdir()
    precious.write_text('precious')
    PLANTED[planted](directory / marker, precious)
    env = {'TFI_OUTPUT_DIR': None, 'TFI_RUN_DIR': f'{directory}//1-token', 'ENABLE_PROFILER_NAMES': 'a,nothing'}
    result = run([victim('script'), *STEPS.split()], env, preload='test')
    assert result.rc == 0 and len(list(tmp_path.rglob('*.tfr'))) == 1
    assert precious.read_text() == 'precious' and not (tmp_path / 'made').exists()


# ---- several hosts ----

def host(default, tmp_path, minute, env):
    """Runs a job's process on its own host, started in another minute; returns its trace's directory name."""
    before = set(tmp_path.rglob('*.tfr'))
    default(env={'TFI_RUN_DIR': f'{tmp_path}/job/{minute}', **env})
    path, = set(tmp_path.rglob('*.tfr')) - before
    return path.parent.name


@pytest.mark.parametrize('env', [{'SLURM_JOB_ID': '17'}, {'TORCHELASTIC_RUN_ID': 'my job/1'}, {'PMIX_NAMESPACE': 'prterun-a-17@1'},
                                 {'SLURM_JOB_ID': '17', 'SLURM_STEP_ID': '3'}])
def test_hosts_agree(default, tmp_path, env):
    found = [host(default, tmp_path, f'20200101_000{i}', env) for i in range(3)]
    assert found == ['20200101_0000'] * 3


@pytest.mark.parametrize('first, second', [
    ({}, {}), ({'TORCHELASTIC_RUN_ID': 'none'}, {'TORCHELASTIC_RUN_ID': 'none'}), ({'SLURM_JOB_ID': '17'}, {'SLURM_JOB_ID': '18'}),
    ({'SLURM_JOB_ID': '1', 'SLURM_STEP_ID': '0'}, {'SLURM_JOB_ID': '1', 'SLURM_STEP_ID': '1'})])
def test_different_jobs_do_not_agree(default, tmp_path, first, second):
    assert host(default, tmp_path, '20200101_0000', first) == '20200101_0000'
    assert host(default, tmp_path, '20200101_0001', second) == '20200101_0001'


def test_an_old_note_is_not_followed(default, tmp_path):
    env = {'SLURM_JOB_ID': '17'}
    host(default, tmp_path, '20200101_0000', env)
    note, = (p for p in (tmp_path / 'job').iterdir() if p.name.startswith('.'))
    for age, found in ((500, '20200101_0000'), (700, '20200101_0002')):
        os.utime(note, (time.time() - age,) * 2)
        assert host(default, tmp_path, '20200101_0002', env) == found


@pytest.mark.parametrize('text', ['', '../elsewhere', '..', '.', 'a/b', '/tmp/x', 'x\ny'])
def test_a_note_of_nonsense_is_not_followed(default, tmp_path, text):
    """A note never leads outside the directory of the run."""
    (tmp_path / 'job').mkdir()
    (tmp_path / 'job/.slurm-17.0').write_text(text)
    assert host(default, tmp_path, '20200101_0000', {'SLURM_JOB_ID': '17'}) == '20200101_0000'


def test_no_note_in_a_given_directory(script, tmp_path):
    script(STEPS, {'SLURM_JOB_ID': '17'})
    assert not [p for p in tmp_path.iterdir() if p.name.startswith('.')]


# ---- ranks ----

RANKS = ['RANK', 'OMPI_COMM_WORLD_RANK', 'PMI_RANK', 'PMIX_RANK', 'SLURM_PROCID']


def rank(script, env):
    trace = only(script(STEPS, env).traces)
    assert trace.path.name == f'rank{trace.info["rank"]}.{trace.info["host"]}.{trace.info["pid"]}.tfr'
    return int(trace.info['rank'])


@pytest.mark.parametrize('first', range(6))
def test_order_of_ranks(script, first):
    assert rank(script, {name: str(i + 1) for i, name in enumerate(RANKS) if i >= first}) == (first + 1 if first < 5 else 0)


@pytest.mark.parametrize('bad', ['', 'x', '3x', '-1', '4294967296', '99999999999999999999999', ' 5'])
def test_bad_ranks_are_ignored(script, bad):
    assert rank(script, {'RANK': bad, 'PMI_RANK': '2'}) == 2


@pytest.mark.parametrize('env, world', [({}, 1), ({'WORLD_SIZE': '8'}, 8), ({'WORLD_SIZE': '0'}, 1),
                                        ({'WORLD_SIZE': 'x', 'SLURM_NTASKS': '3'}, 3)])
def test_world(script, env, world):
    assert int(only(script(STEPS, env).traces).info['world']) == world


# ---- names that are taken ----

def test_nothing_is_overwritten(run, victim, tmp_path):
    """The shell's pid is the program's, so the test can take the names in advance."""
    (tmp_path / 'run').mkdir()
    line = (f'h=$(uname -n); for n in "" .2; do echo taken > run/rank0.$h.$$$n.tfr; done; '
            f'exec {victim("script")} {STEPS}')
    result = run(['bash', '-c', line], preload='test')
    assert (result.rc, result.err) == (0, '')
    files = sorted(p for p in (tmp_path / 'run').iterdir() if p.suffix == '.tfr')
    assert len(files) == 3
    assert [p.read_text() for p in files if not p.name.endswith('.3.tfr')] == ['taken\n'] * 2
    new = only([p for p in files if p.name.endswith('.3.tfr')])
    assert called(scripted.trace(new)) == [1]
    assert new.with_name(new.name.replace('.tfr', '.timing.json')).exists()


# ---- timing.json ----

def timing(result):
    path, = result.dir.glob('*.timing.json')
    tfr_path, = result.dir.glob('*.tfr')
    assert path.name == tfr_path.name.replace('.tfr', '.timing.json')
    return json.loads(path.read_text())


def test_timing(script):
    steps = ['push=outer', 'wait=40', 'push=in "quoted" \\ \n', 'wait=20', 'pop', 'push=in "quoted" \\ \n', 'wait=5', 'pop', 'pop']
    result = script(steps, {'RANK': '1', 'WORLD_SIZE': '2', 'TFI_PIPELINE_NAME': 'pipe'})
    said, info = timing(result), only(result.traces).info
    assert [said[k] for k in ('rank', 'world', 'host', 'pid', 'pipeline')] == [1, 2, info['host'], int(info['pid']), 'pipe']
    outer, inner = said['stages']['outer'], said['stages']['in "quoted" \\ \n']
    assert set(said['stages']) == {'outer', 'in "quoted" \\ \n'}
    assert (outer['calls'], inner['calls']) == (1, 2)
    assert 65 <= outer['host_ms'] <= said['wall_clock_ms'] and 25 <= inner['host_ms'] <= outer['host_ms'] - 40
    assert 20 <= inner['max_ms'] < inner['host_ms'] and outer['max_ms'] == outer['host_ms']


def test_recursion_counts_once(script):
    said = timing(script('push=r wait=20 push=r wait=20 push=x push=r wait=20 pop pop pop pop'))
    assert said['stages']['r']['calls'] == 3 and said['stages']['x']['calls'] == 1
    assert 60 <= said['stages']['r']['host_ms'] <= said['wall_clock_ms']


def test_times_of_threads_add_up(script):
    said = timing(script('push=t b.push=t wait=30 b.pop pop start=across wait=10 b.end=0'))
    assert said['stages']['t']['calls'] == 2 and said['stages']['t']['host_ms'] >= 60
    assert said['stages']['across']['calls'] == 1 and said['stages']['across']['host_ms'] >= 10


def test_timing_only_of_stages(script):
    result = script('call=1 mark=m')
    assert called(only(result.traces)) == [1] and not list(result.dir.glob('*.json'))


def test_timing_is_written_without_selected_stages(script):
    assert timing(script(STEPS, {'ENABLE_PROFILER_NAMES': ''}))['stages']['a']['calls'] == 1


# ---- loaded late ----

LATE = ['nvtx_push=a', 'nvtx_push=b', 'nvtx_pop', 'nvtx_pop']


@pytest.mark.parametrize('preload, route', [(False, 'dlopen'), ('test', 'preload'), ('test', 'both')])
def test_cuda_injection(script, testlib, preload, route):
    """The driver opens the library and calls InitializeInjection(); NVTX then finds the library exactly once."""
    steps = [f'dlopen={testlib}', 'inject'] if route != 'preload' else []
    result = script([*steps, *LATE], preload=preload)
    assert stages(only(result.traces)) == ['b', 'a']
    assert result.out == ('injected\n' if steps else '')


def test_injection_after_another_tool_was_named(script, testlib, tmp_path):
    """The user's own NVTX tool stays in place, so there are no stages and no files."""
    env = {'NVTX_INJECTION64_PATH': str(tmp_path / 'tool.so')}
    assert script([f'dlopen={testlib}', 'inject', *LATE], env, preload=False).traces == []


def test_injection_after_the_first_nvtx_call(script, testlib):
    """This copy of NVTX is already initialised; nothing is recorded, and nothing breaks."""
    assert script(['nvtx_push=early', f'dlopen={testlib}', 'inject', *LATE, 'nvtx_pop'], preload=False).traces == []


@pytest.mark.parametrize('steps', [['dlclose', 'wait=1'], [*LATE, 'dlclose', *LATE], ['dlclose', *LATE]])
def test_library_that_is_closed_again(script, testlib, steps):
    """The library stays mapped, because NVTX and the end of the process still call into it."""
    result = script([f'dlopen={testlib}', 'inject', *steps], preload=False)
    assert [len(stages(t)) for t in result.traces] == ([] if 'wait=1' in steps else [sum(s == 'nvtx_pop' for s in steps)])
    assert all(t.complete for t in result.traces)
