"""test_promises_files - obstacles where the library writes, before or during the run: the program runs as without it.

The tests have a table of faults: links, FIFOs, devices, directories and foreign files at every name the library makes,
and directories that are moved, removed or swapped. A test plants a fault before the program starts (bash knows its pid,
and becomes the program) or in the middle of the run. After each run the status and output equal those of a run without
the library, nothing hangs, and files outside the run directory are unchanged.
"""

import json
import os
import socket
import stat

import pytest

from conftest import clean_environment, execute

pytestmark = pytest.mark.slow

ROOT_ONLY = 'needs root to make a link of another user'
ENV = {'TFI_NO_SUCH_VARIABLE': '1', 'FILES_STAGES': '4000'}  # 4,000 stages fill eight chunks
TRACE = 'run/rank0.$(uname -n).$$'
# {place: (its path, as bash writes it, and the variables that lead the library there)}
PLACES = {
    'trace': (TRACE + '.tfr', {}), 'live': (TRACE + '.tfr.live', {}), 'timing': (TRACE + '.timing.json', {}),
    'temporary': (TRACE + '.timing.json.tmp1', {}), 'claim': ('run/.said', {'ENABLE_PROFILER_NAMES': 'nobody'}),
    'note': ('work_dirs/profiler_output/default/.slurm-1.0', {'TFI_OUTPUT_DIR': None, 'SLURM_JOB_ID': '1'}),
    'elastic note': ('work_dirs/profiler_output/default/.run-x', {'TFI_OUTPUT_DIR': None, 'TORCHELASTIC_RUN_ID': 'x'}),
    'live directory': ('lives', {'TFI_LIVE_DIR': 'lives'}), 'trigger': ('switch', {'TFI_TRIGGER': 'file:switch'}),
    'directory': ('run', {}), 'parent': ('work_dirs', {'TFI_OUTPUT_DIR': None}),
}
THINGS = {
    'link': 'ln -s "$PWD/outside/precious" "$it"', 'dangling link': 'ln -s "$PWD/outside/made" "$it"',
    'loop': 'ln -s "$it" "$it"', 'fifo': 'mkfifo "$it"', 'device': 'mknod "$it" c 1 7', 'directory': 'mkdir "$it"',
    'full directory': 'mkdir "$it"; touch "$it"/something', 'file': 'echo text >"$it"',
    'foreign link': 'ln -s "$PWD/outside" "$it"; chown -h 12345 "$it"',
    'foreign file': 'echo elsewhere >"$it"; chown 12345 "$it"', 'socket': 'mv made.socket "$it"',
}
NEEDS_ROOT = ('device', 'foreign link', 'foreign file')


def everything(directory):
    """{path: (mode, content)} of everything in a directory."""
    found = {}
    for path in sorted(directory.rglob('*')):
        st = path.lstat()
        found[str(path.relative_to(directory))] = (st.st_mode, path.read_bytes() if stat.S_ISREG(st.st_mode) else None)
    return found


@pytest.fixture(scope='session')
def bare(victim, tmp_path_factory):
    """The run of the program without the library."""
    return execute([victim('files'), 'true'], clean_environment(), tmp_path_factory.mktemp('bare'))


def make_socket(directory):
    """A short path leads to the directory, because a socket's name has room for 107 bytes."""
    place = os.open(directory, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f'/proc/self/fd/{place}/made.socket')
    finally:
        os.close(place)


@pytest.fixture
def play(run, bare, victim, tmp_path):
    """play(command, plant=..., close=..., env=...) -> the watched run, compared with a bare one."""
    def play(command='true', plant='true', close=False, env=None):
        outside = tmp_path / 'outside'
        outside.mkdir()
        (outside / 'precious').write_text('precious')
        before = everything(outside)
        words = [victim('files'), command, *(['close'] if close else [])]
        line = ['env', '-u', 'LD_PRELOAD', 'bash', '-c', f'{plant}\nexport LD_PRELOAD=$LIBRARY; exec "$0" "$@"', *words]
        watched = run(line, {'LIBRARY': library(victim), **ENV, **(env or {})})
        assert (bare.rc, bare.out) == (5, 'done\n')
        assert (watched.rc, watched.out) == (bare.rc, bare.out), watched.err
        assert everything(outside) == before
        return watched
    return play


def library(victim):
    return victim('files').parent.parent / 'libtfinject.so'


@pytest.mark.parametrize('thing', THINGS)
@pytest.mark.parametrize('place', PLACES)
def test_planted_before_the_start(play, tmp_path, place, thing):
    """Each kind of obstacle is planted at each name that the library makes or reads."""
    if thing in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip(ROOT_ONLY)
    path, env = PLACES[place]
    plant = f'it="$PWD/{path}"; mkdir -p "$(dirname "$it")"; {THINGS[thing]}'
    if thing == 'socket':
        make_socket(tmp_path)
    if place in ('directory', 'parent', 'live directory') and thing in ('link', 'dangling link'):
        plant += '; chown -h 12345 "$it"'  # the library rightly follows the user's own link
    play(plant=plant, env=env)


CHANGES = {
    'removed': 'rm -rf run', 'moved': 'mv run moved', 'swapped for a file': 'rm -rf run; echo text >run',
    'swapped for another directory': 'mv run moved; mkdir run',
    'swapped for a foreign link': 'mv run moved; ln -s outside run; chown -h 12345 run',
    'swapped for a link of ours': 'mv run moved; ln -s outside run', 'emptied': 'rm -f run/*',
    'names swapped for links': 'for f in run/*; do mv $f $f.old; ln -s $PWD/outside/precious $f; done',
    'timing linked': 'for f in run/*.tfr; do ln -s $PWD/outside/made ${f%.tfr}.timing.json; done',
    'timing is a directory': 'for f in run/*.tfr; do mkdir ${f%.tfr}.timing.json; done',
    'temporary linked': 'for f in run/*.tfr; do ln -s $PWD/outside/made ${f%.tfr}.timing.json.tmp1; done',
    'temporary is a fifo': 'for f in run/*.tfr; do mkfifo ${f%.tfr}.timing.json.tmp1; done',
}


@pytest.mark.parametrize('close', [False, True], ids=['', 'closed'])
@pytest.mark.parametrize('change', CHANGES)
def test_changed_in_the_middle(play, change, close):
    """The directory, or a name in it, changes while the program runs, with the library's descriptors open and closed."""
    if 'chown' in CHANGES[change] and os.geteuid() != 0:
        pytest.skip(ROOT_ONLY)
    result = play(CHANGES[change], close=close)
    said = [line for line in result.err.splitlines() if 'TFI_NO_SUCH_VARIABLE' not in line]
    assert all(line.startswith('tfinject: ') for line in said)
    if change in ('removed', 'emptied'):
        assert len(said) == 1 and 'is lost' in said[0] and 'TFI_OUTPUT_DIR' in said[0], said


def test_moved_directory_is_still_the_right_one(play, analyze, tmp_path):
    """The library's descriptor follows a moved directory: trace and timing.json are whole under its new name."""
    assert 'gone' not in play('mv run moved; mkdir run').err
    assert [row['complete'] for row in analyze('info', tmp_path / 'moved')['rows']] == [True]
    assert len(list((tmp_path / 'moved').glob('*.timing.json'))) == 1 and not list((tmp_path / 'run').iterdir())


@pytest.mark.parametrize('umask', ['0', '077', '0777'])
def test_modes(play, tmp_path, umask):
    """Only the owner may read a trace, its live file and timing.json, under any umask."""
    play('stat -c "%a %n" run/*.tfr run/*.live >modes', plant=f'mkdir run; umask {umask}')
    modes = [line.split()[0] for line in (tmp_path / 'modes').read_text().splitlines()] if umask != '0777' else []
    modes += [oct(path.stat().st_mode & 0o7777)[2:] for path in (tmp_path / 'run').iterdir()]
    assert len(modes) >= 3 and '600' in modes and set(modes) <= {'600', '400'}


def test_a_fifo_as_trigger_gives_one_message(play):
    result = play(plant='mkfifo switch', env={'TFI_TRIGGER': 'file:switch'})
    assert result.err.count('switch is not a regular file and is ignored until it is one') == 1


def test_foreign_note_is_ignored_with_a_message(play, tmp_path):
    """Another user's note, which would choose the directory's name, is ignored with a message."""
    if os.geteuid() != 0:
        pytest.skip(ROOT_ONLY)
    path, env = PLACES['note']
    result = play(plant=f'it=$PWD/{path}; mkdir -p $(dirname $it); {THINGS["foreign file"]}', env=env)
    assert result.err.count('.slurm-1.0 is not a regular file of yours and is ignored') == 1
    assert not (tmp_path / path).with_name('elsewhere').exists()


def test_names_that_are_taken_get_a_number(play, tmp_path):
    """A file with the trace's name stays: trace and timing.json both get the suffix .2."""
    play(plant=f'mkdir run; echo text >{TRACE}.timing.json')
    names = sorted(path.name for path in (tmp_path / 'run').iterdir() if path.name.startswith('rank'))
    assert [name.split('.', 3)[3] for name in names] == ['2.tfr', '2.timing.json', 'timing.json'], names


def test_many_stages_with_long_names(run, victim, tmp_path):
    """timing.json has room for 20,000 stages and for names of 60,000 bytes."""
    words = [word for i in range(30) for word in (f'push={chr(97 + i % 26) * 60000}{i}', 'pop')]
    long = run([victim('script'), *words])
    many = run([victim('files'), 'true'], {'TFI_OUTPUT_DIR': tmp_path / 'many'})
    for result, count in ((long, 30), (many, 20003)):
        path, = result.dir.glob('*.timing.json')
        assert result.err == '' and len(json.loads(path.read_text())['stages']) == count
