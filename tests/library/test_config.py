"""test_config - the variables of include/env.def: messages about wrong values, and the effect of right ones."""

import re
import subprocess
from functools import partial

import pytest

import scripted
from conftest import CLOSING, COMMAND_TIMEOUT, ROOT, clean_environment
from scripted import called, only, stages

STEPS = 'push=a call=1 pop'


@pytest.fixture
def script(run, victim):
    return partial(scripted.play, run, victim('script'))


@pytest.fixture
def said(script):
    """said(env, steps) -> the stderr lines, without prefix, of a process that woke and recorded."""
    def said(env, steps=STEPS):
        result = script(steps, env, err=None)
        assert all(called(t) == [1] for t in result.traces)
        lines = result.err.splitlines()
        assert all(line.startswith('tfinject: ') for line in lines)
        return [line.removeprefix('tfinject: ') for line in lines]
    return said


# ---- messages about wrong values ----

@pytest.mark.parametrize('name, nearest', [('TFI_OUTPUT_DIRS', 'TFI_OUTPUT_DIR'), ('TFI_MAXMB', 'TFI_MAX_MB'),
                                           ('TFI_LOGS', 'TFI_LOG'), ('TFI_NVTX_DOMAIN', 'TFI_NVTX_DOMAINS')])
def test_unknown_name(said, name, nearest):
    line = only(said({name: 'x'}))
    assert line.startswith(f'{name} is not a known variable and is ignored; did you mean {nearest}? Known variables: ')
    known = line.partition('Known variables: ')[2].split(', ')
    table = (ROOT / 'include/env.def').read_text()
    assert known == re.findall(r'^ENV\(\w+, (\w+),', table, re.M)


def test_unknown_name_without_a_near_one(said):
    line = only(said({'TFI_SOMETHING_ELSE_ENTIRELY': ''}))
    assert line.startswith('TFI_SOMETHING_ELSE_ENTIRELY is not a known variable') and 'did you mean' not in line


@pytest.mark.parametrize('name, instead', re.findall(r'^GONE\((\w+), "(.*)"\)', (ROOT / 'include/env.def').read_text(), re.M))
def test_name_of_an_older_version(said, name, instead):
    assert said({name: '1'}) == [f'{name} is gone and is ignored: {instead}']


def test_very_long_unknown_name(said):
    """A name too long for a typing error still gets a message."""
    assert 'TFI_' + 'X' * 20 in only(said({'TFI_' + 'X' * 300: '1'}))


@pytest.mark.parametrize('name, value', [('TFI_MAX_MB', 'abc'), ('TFI_MAX_MB', '0'), ('TFI_MAX_MB', '-1'), ('TFI_MAX_MB', ''),
                                         ('TFI_MAX_MB', '1048577'), ('TFI_MAX_MB', '99999999999999999999999'),
                                         ('TFI_MAX_MB', '1e3'), ('TFI_LOG', 'loud'), ('TFI_LOG', 'WARN')])
def test_bad_value(said, name, value):
    line = only(said({name: value}))
    takes = {'TFI_MAX_MB': 'a whole number from 1 to 1048576', 'TFI_LOG': 'one of: error warn info debug'}[name]
    assert line == f'{name}={value} is not valid, and the default is used. Valid: {takes}'


@pytest.mark.parametrize('value', ['1', '1048576'])
def test_values_at_the_limits(said, value):
    assert said({'TFI_MAX_MB': value}) == []


def test_two_mistakes_are_two_lines(said):
    lines = said({'TFI_MAX_MB': 'abc', 'TFI_LOGS': 'info'})
    assert len(lines) == 2 and any('TFI_MAX_MB' in x for x in lines) and any('TFI_LOGS' in x for x in lines)


def test_warnings_are_kept_in_the_trace(script, analyze):
    result = script(STEPS, {'TFI_MAX_MB': 'abc'}, err=None)
    row, = analyze('info', result.dir)['rows']
    assert 'TFI_MAX_MB=abc is not valid' in str(row['messages'])


def test_alias_is_named_as_it_was_set(said):
    """A message names the alias that the user set, not the primary variable."""
    assert 'PROFILER_OUTPUT_DIR' in only(said({'PROFILER_OUTPUT_DIR': '/tmp/' + 'x' * 20000, 'TFI_OUTPUT_DIR': None}))


# ---- one warning per run ----

def test_one_warning_with_children(said):
    assert len(said({'TFI_MAX_MB': 'abc'}, 'push=a call=1 child push=a call=1 pop parent child push=a call=1 parent pop')) == 1


def test_one_warning_of_processes_that_start_together(victim, testlib, tmp_path):
    """Processes that torchrun starts together wake within a second in one directory and print one warning."""
    env = dict(clean_environment(), LD_PRELOAD=str(testlib), TFI_OUTPUT_DIR=str(tmp_path / 'run'), TFI_MAX_MB='abc')
    processes = [subprocess.Popen([victim('script'), *STEPS.split(), 'wait=300'], env=dict(env, RANK=str(i)), text=True,
                                  stderr=subprocess.PIPE) for i in range(3)]
    lines = [line for p in processes for line in CLOSING.sub('', p.communicate(timeout=COMMAND_TIMEOUT)[1]).splitlines()]
    assert len(list((tmp_path / 'run').glob('*.tfr'))) == 3
    assert len(lines) == 1, lines


def test_a_warning_for_each_run(script):
    """A second run in another directory prints the warning again."""
    for i in range(2):
        assert 'TFI_MAX_MB' in script(STEPS, {'TFI_MAX_MB': 'abc', 'TFI_OUTPUT_DIR': f'run{i}'}, err=None).err


def test_no_warning_while_asleep(script):
    script('wait=1', {'TFI_MAX_MB': 'abc', 'TFI_LOGS': 'x'}, err='')
    script('call=1', {'TFI_MAX_MB': 'abc', 'ENABLE_PROFILER_NAMES': 'a'}, err='')


# ---- TFI_LOG ----

@pytest.mark.parametrize('level, wanted', [('error', []), ('warn', ['warn']), (None, ['warn']), ('info', ['info', 'warn']),
                                           ('debug', ['info', 'warn'])])
def test_levels(said, level, wanted):
    lines = said({'TFI_LOG': level, 'TFI_MAX_MB': 'abc'})
    assert sorted('warn' if 'TFI_MAX_MB' in x else 'info' if x.startswith('recording to ') else x for x in lines) == wanted


# ---- the header ----

def header(script, env, steps=STEPS, **options):
    return only(script(steps, env, **options).traces).info


def test_metadata(script, analyze):
    result = script(STEPS, {'TFI_METADATA': ' model=flux ,seed=7,note=a b = c,empty=,flag,,', 'TFI_NVTX_DOMAINS': '-x'})
    row, = analyze('info', result.dir)['rows']
    assert row['metadata'] == {'model': 'flux', 'seed': '7', 'note': 'a b = c', 'empty': '', 'flag': ''}


def test_environment(script):
    env = {'RANK': '2', 'WORLD_SIZE': '4', 'MASTER_ADDR': 'somewhere', 'ENABLE_PROFILER_NAMES': 'a,*', 'TFI_MAX_MB': '77',
           'TELEFUSER_PIPELINE_NAME': 'pipe', 'SOMETHING_OF_THE_USER': 'secret'}
    info = header(script, env)
    assert {k: info.get(f'env.{k}') for k in env} == dict(env, SOMETHING_OF_THE_USER=None)
    assert (info['rank'], info['world'], info['pipeline']) == ('2', '4', 'pipe')


def test_values_longer_than_the_buffers(script, analyze):
    """Long values are cut or refused with a message; trace and program are unharmed."""
    value = ','.join(f'key{i}={"v" * 700}' for i in range(40))
    result = script(STEPS, {'TFI_METADATA': value}, err=None)
    assert len(result.err.splitlines()) == 1 and 'a shorter text' in result.err
    row, = analyze('info', result.dir)['rows']
    assert row['complete'] and row['events']['call'] == 1


def test_message_about_a_long_value_is_one_line(said):
    assert len(only(said({'TFI_LOG': 'x' * 5000}))) < 1100


def test_metadata_up_to_the_limit_is_kept_whole(script, analyze):
    value = 'v' * 500
    row, = analyze('info', script(STEPS, {'TFI_METADATA': f'key={value},b=2'}).dir)['rows']
    assert row['metadata'] == {'key': value, 'b': '2'}


@pytest.mark.parametrize('size', [9000, 70000])
def test_header_with_an_environment_that_does_not_fit(script, size):
    """The header's fields before the oversized environment stay whole; among them is the rank."""
    trace = only(script(STEPS, {'MASTER_ADDR': 'm' * size, 'RANK': '3', 'TFI_METADATA': 'k=v'}, err=None).traces)
    assert (trace.info['rank'], trace.info['env.TFI_METADATA'], called(trace)) == ('3', 'k=v', [1])


def test_environment_changed_by_the_program(script):
    """The environment at the start counts, even if the program changes it before the library wakes."""
    change = ['set=TFI_METADATA=k=other', 'set=TFI_PIPELINE_NAME=other', 'set=TFI_LOG=debug', 'set=TFI_OUTPUT_DIR=elsewhere']
    info = header(script, {'TFI_METADATA': 'k=v', 'TFI_PIPELINE_NAME': 'mine'}, [*change, *STEPS.split()])
    assert (info['meta.k'], info['pipeline']) == ('v', 'mine')


def test_header_shows_the_environment_of_the_start(script):
    """The header shows the environment at the start, not the program's changes before the library woke."""
    change = ['set=TFI_METADATA=k=other', 'unset=TFI_PIPELINE_NAME', 'unset=RANK']
    info = header(script, {'TFI_METADATA': 'k=v', 'TFI_PIPELINE_NAME': 'mine', 'RANK': '4'}, [*change, *STEPS.split()])
    assert [info.get(f'env.{k}') for k in ('TFI_METADATA', 'TFI_PIPELINE_NAME', 'RANK')] == ['k=v', 'mine', '4']


def test_no_warning_about_the_programs_own_changes(script):
    script(['set=TFI_MAX_MB=abc', 'set=TFI_LOGS=x', *STEPS.split()], err='')


@pytest.mark.parametrize('when', ['before', 'after'])
def test_environment_cleared(script, when):
    env = {'ENABLE_PROFILER_NAMES': 'a', 'TFI_METADATA': 'k=v'}
    steps = 'clear push=a call=1 pop call=2' if when == 'before' else 'push=a clear call=1 pop call=2'
    trace = only(script(steps, env).traces)
    assert called(trace) == [1] and stages(trace) == ['a']
    assert trace.info['meta.k'] == 'v'


def test_rank_after_the_environment_was_cleared(script):
    assert only(script('clear push=a pop', {'RANK': '4'}).traces).path.name.startswith('rank4.')


# ---- TFI_OUTPUT_DIR and other paths ----

OUTPUT = ['TFI_OUTPUT_DIR', 'TELEFUSER_PROFILER_OUTPUT_DIR', 'PROFILER_OUTPUT_DIR', 'CACHE_DIT_TORCH_PROFILER_DIR']


@pytest.mark.parametrize('first', range(4))
def test_aliases_of_the_output_directory(run, victim, tmp_path, first):
    env = {name: tmp_path / name if i >= first else None for i, name in enumerate(OUTPUT)}
    assert run([victim('script'), *STEPS.split()], env, preload='test').err == ''
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [OUTPUT[first]]
    assert len(list((tmp_path / OUTPUT[first]).glob('*.tfr'))) == 1


@pytest.mark.parametrize('env, name', [({}, 'default'), ({'TELEFUSER_PIPELINE_NAME': 'b'}, 'b'),
                                       ({'TFI_PIPELINE_NAME': 'a', 'TELEFUSER_PIPELINE_NAME': 'b'}, 'a')])
def test_pipeline_name(script, env, name):
    assert header(script, env)['pipeline'] == name


def test_host_in_a_path(script, tmp_path):
    script(STEPS, {'TFI_OUTPUT_DIR': f'{tmp_path}/out/%h/x%h%'})
    trace = only(scripted.traces(tmp_path / 'out'))
    host = trace.info['host']
    assert trace.path.parent == tmp_path / 'out' / host / f'x{host}%'


def test_relative_directory_is_of_the_start(script, tmp_path):
    """A relative output directory starts at the process's first directory, even if the program changes directory."""
    (tmp_path / 'sub').mkdir()
    script(['chdir=sub', *STEPS.split()], {'TFI_OUTPUT_DIR': 'rel/run/'})
    assert len(list((tmp_path / 'rel/run').glob('*.tfr'))) == 1 and not list((tmp_path / 'sub').iterdir())


# ---- TFI_LIVE_DIR ----

def killed(script, env):
    return only(script('push=a call=1 call=2 kill', env, rc=-9).traces)


def test_live_directory(script, analyze, tmp_path):
    """The reader finds the live file through the header."""
    result = script('push=a call=1 call=2 kill', {'TFI_LIVE_DIR': tmp_path / 'live'}, rc=-9)
    path, = (tmp_path / 'live').iterdir()
    tfr_path, = result.dir.glob('*.tfr')
    assert path.name == f'{tfr_path.name}.live'
    assert only(result.traces).info['live'] == str(path)
    row, = analyze('info', result.dir)['rows']
    assert row['events']['call'] == 2 and not row['complete']


def test_live_directory_is_empty_after_a_clean_end(script, tmp_path):
    script(STEPS, {'TFI_LIVE_DIR': tmp_path / 'live'})
    assert list((tmp_path / 'live').iterdir()) == []


def test_relative_live_directory(script, analyze, tmp_path):
    """A relative live directory starts at the process's first directory too; the reader's own does not matter."""
    (tmp_path / 'sub').mkdir()
    result = script('chdir=sub push=a call=1 call=2 kill', {'TFI_LIVE_DIR': 'live'}, rc=-9)
    assert only(result.traces).info['live'].startswith(f'{tmp_path}/live/')
    assert analyze('info', result.dir)['rows'][0]['events']['call'] == 2


def test_live_directory_with_the_host(script, tmp_path):
    trace = killed(script, {'TFI_LIVE_DIR': tmp_path / 'live-%h'})
    assert trace.info['live'].startswith(f'{tmp_path}/live-{trace.info["host"]}/')


def test_live_directory_that_can_not_be_used(script, tmp_path):
    (tmp_path / 'file').write_text('')
    result = script('push=a call=1 kill', {'TFI_LIVE_DIR': tmp_path / 'file'}, rc=-9, err=None)
    assert len(result.err.splitlines()) == 1 and 'TFI_LIVE_DIR' in result.err
    assert called(only(result.traces)) == [1]
