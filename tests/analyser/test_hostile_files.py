"""test_hostile_files - tfanalyze among hostile files: no regular file, a link, a file swapped or cut during the read.

The tests build a fault table. `report` runs once to learn the names it writes and the number of its calls. Then each
test plants every kind of obstacle at every name, and before every call (by libadversary.so). Nothing outside the run
directory may change, nothing may hang, and no temporary file may stay.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

import kineto
from conftest import clean_environment, execute
from small_traces import live_pair
from test_reader_live import own_process
from test_signature_files import CACHE_DIT, FUNCTION, MB, Run, tensor

HANG = 100  # seconds; a command takes a few hundredths of a second
TRACE = 'rank0.host.4000.tfr'


@pytest.fixture
def place(tmp_path):
    """run/: a run directory whose report has every kind of artefact. outside/: files that must not change."""
    outside = tmp_path / 'outside'
    (outside / 'dir').mkdir(parents=True)
    (outside / 'precious').write_text('precious')
    (outside / 'dir' / 'inner').write_text('inner')
    (tmp_path / 'run').mkdir()
    memory = dict(allocated_before=0, allocated_after=MB, allocated_peak=MB, reserved_after=MB, reserved_peak=MB)
    run = Run(tmp_path / 'run').rank()
    known = {f.name for f in __import__('tfr').KINDS['stage_memory'].fields}
    run.stage('denoise', {'': 'pipe:denoise', 'x': tensor([2])}, flags=FUNCTION, memory=[(0, {k: v for k, v in memory.items() if k in known})])
    run.stage('flux', flags=CACHE_DIT).save()
    return tmp_path


def tree(directory):
    found = {}
    for path in sorted(directory.rglob('*')):
        status = path.lstat()
        found[str(path.relative_to(directory))] = (stat.S_IFMT(status.st_mode), os.readlink(path) if path.is_symlink()
                                                   else path.read_bytes() if path.is_file() else None)
    return found


def report(tfanalyze, place, *more, env=None, directory=None):
    return execute([tfanalyze, 'report', directory or place / 'run', *more], {**clean_environment(), **(env or {})}, place, HANG)


def reset(place):
    for path in (place / 'run').iterdir():
        if path.name != TRACE:
            if path.is_dir() and not path.is_symlink():
                for inner in path.iterdir():
                    inner.unlink()
                path.rmdir()
            else:
                path.unlink()


def artefacts(tfanalyze, place):
    result = report(tfanalyze, place)
    assert result.rc == 0, result.err
    names = sorted(p.name for p in (place / 'run').iterdir() if p.name != TRACE)
    reset(place)
    return names


def no_temporaries(place):
    return not [p for p in place.rglob('*') if p.name.endswith('.tmp')]


PLANTS = {
    'a link to a file': lambda path, outside: path.symlink_to(outside / 'precious'),
    'a dangling link': lambda path, outside: path.symlink_to(outside / 'created'),
    'a link to a directory': lambda path, outside: path.symlink_to(outside / 'dir'),
    'a link to a device': lambda path, outside: path.symlink_to('/dev/full'),
    'a FIFO': lambda path, outside: os.mkfifo(path),
    'a socket': lambda path, outside: bind(path),
    'a directory': lambda path, outside: path.mkdir(),
    "somebody's file": lambda path, outside: path.write_text('theirs'),
}


def bind(path):
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path.name)
    os.chdir(here)


@pytest.mark.parametrize('plant', PLANTS)
def test_an_obstacle_at_an_artefacts_name_stays(tfanalyze, place, plant):
    """An obstacle at an artefact's name stays unchanged, a message names it, and the artefact gets the suffix ~2."""
    names = artefacts(tfanalyze, place)
    assert {'timing.json', 'timing_io_signature.json', 'profile_denoise.py', 'flux.trace.json.gz'} <= set(names)
    before = tree(place / 'outside')
    for name in names:
        path = place / 'run' / name
        PLANTS[plant](path, place / 'outside')
        planted = tree(place / 'run')[name]
        result = report(tfanalyze, place)
        assert result.rc == 0, (name, result.err)
        assert tree(place / 'outside') == before and tree(place / 'run')[name] == planted, name
        assert no_temporaries(place)
        assert any('~2' in p.name for p in (place / 'run').iterdir()), name
        assert plant == "somebody's file" or f'{path}: is not overwritten: ' in result.err, result.err
        reset(place)


def test_modes(tfanalyze, place):
    """Only the owner can read files with values of the run; everybody can read those with kernel names and times."""
    old = os.umask(0o022)
    try:
        assert report(tfanalyze, place).rc == 0
    finally:
        os.umask(old)
    for path in (place / 'run').iterdir():
        shared = path.name.endswith('.breakdown.json') or path.name == TRACE
        assert stat.S_IMODE(path.stat().st_mode) == (0o644 if shared else 0o600), path


# The attacker's action before a call. $RUN is the run directory, $NAMES the artefacts, $OUTSIDE must not change.
SWAPS = {
    'links to a file': 'cd "$RUN"; for n in $NAMES; do ln -sfn "$OUTSIDE/precious" "$n"; done',
    'dangling links': 'cd "$RUN"; for n in $NAMES; do ln -sfn "$OUTSIDE/created" "$n"; done',
    'FIFOs': 'cd "$RUN"; for n in $NAMES; do rm -f "$n"; mkfifo "$n"; done',
    'directories': 'cd "$RUN"; for n in $NAMES; do rm -f "$n"; mkdir -p "$n"; done',
    'the directory': 'mv "$RUN" "$RUN.moved"; ln -s "$OUTSIDE/dir" "$RUN"',
    'links to temporaries': 'cd "$RUN"; for n in .*.tmp; do if [ -f "$n" ]; then rm "$n"; ln -s "$OUTSIDE/precious" "$n"; fi; done',
}


def restore(place):
    if (place / 'run.moved').exists():
        (place / 'run').unlink()
        (place / 'run.moved').rename(place / 'run')
    reset(place)


@pytest.mark.slow
@pytest.mark.parametrize('swap', SWAPS)
def test_a_swap_before_every_call(tfanalyze, victim, place, swap):
    """A swap before any call changes nothing outside and hangs nothing; a failed write gives a message and status 1."""
    names = artefacts(tfanalyze, place)
    before = tree(place / 'outside')
    env = {'LD_PRELOAD': str(victim('libadversary.so')), 'RUN': str(place / 'run'), 'OUTSIDE': str(place / 'outside'),
           'NAMES': ' '.join(names), 'ADVERSARY_DO': SWAPS[swap]}
    count = place / 'count'
    assert report(tfanalyze, place, env={**env, 'ADVERSARY_COUNT': str(count), 'ADVERSARY_DO': ''}).rc == 0
    reset(place)
    calls = int(count.read_text().split()[-1])
    assert 40 < calls < 1000
    outcomes = set()
    for at in range(1, calls + 1, 1 + calls // 60):
        result = report(tfanalyze, place, env={**env, 'ADVERSARY_AT': str(at)})
        assert tree(place / 'outside') == before, (at, result.err)
        assert result.rc in (0, 1) and (result.rc == 0 or result.err.startswith('tfanalyze: ')), (at, result.rc, result.err)
        restore(place)
        outcomes.add(result.rc)
    assert 0 in outcomes


def test_a_name_that_was_guessed(tfanalyze, victim, place):
    """A link planted at a guessed temporary name is not written through: the name must be new."""
    (place / 'run' / ('.' + 32 * '0' + '.tmp')).symlink_to(place / 'outside' / 'precious')
    before = tree(place / 'outside')
    result = report(tfanalyze, place, env={'LD_PRELOAD': str(victim('libadversary.so')), 'ADVERSARY_KNOWN': '1'})
    assert result.rc == 1 and 'timing.json: cannot be written (File exists)' in result.err
    assert tree(place / 'outside') == before


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_temporary_file(tfanalyze, victim, place, number):
    """A signal before the first rename leaves no temporary file; the status is that of the signal."""
    env = {'LD_PRELOAD': str(victim('libadversary.so')), 'ADVERSARY_COUNT': str(place / 'count'),
           'ADVERSARY_DO': 'ls -A "$RUN" >>"$SEEN"; kill -s $NUMBER $PPID', 'RUN': str(place / 'run'), 'SEEN': str(place / 'seen'),
           'NUMBER': number.name[3:]}
    assert report(tfanalyze, place, env={**env, 'ADVERSARY_DO': ''}).rc == 0
    reset(place)
    for at in range(1, int((place / 'count').read_text().split()[-1]) + 1, 3):
        result = report(tfanalyze, place, env={**env, 'ADVERSARY_AT': str(at)})
        assert result.rc == -number and no_temporaries(place), (at, result.rc, result.err)
        reset(place)
    assert '.tmp\n' in (place / 'seen').read_text()  # there was a temporary file to remove


def test_a_full_disk_leaves_no_temporary_file(tfanalyze, place):
    """SIGXFSZ, the signal for a file too large, ends in an ordinary error."""
    result = execute(['sh', '-c', f'ulimit -f 0; exec {tfanalyze} report {place}/run'], clean_environment(), place, HANG)
    assert result.rc == 1 and 'cannot be written (File too large)' in result.err and no_temporaries(place)


def test_links_that_the_user_names_are_followed(tfanalyze, place):
    """--output may be a FIFO, a device, a link, or a link to a missing file."""
    os.mkfifo(place / 'fifo')
    reader = subprocess.Popen(['cat', place / 'fifo'], stdout=subprocess.PIPE, text=True)
    assert execute([tfanalyze, 'stages', place / 'run', '--output', place / 'fifo'], timeout=HANG).rc == 0
    assert 'denoise' in reader.communicate(timeout=HANG)[0]
    (place / 'new').symlink_to(place / 'target')
    for _ in range(2):
        assert execute([tfanalyze, 'stages', place / 'run', '--output', place / 'new'], timeout=HANG).rc == 0
        assert (place / 'new').is_symlink() and 'denoise' in (place / 'target').read_text()
    assert 'denoise' in execute([tfanalyze, 'stages', place / 'run', '--output', '/dev/stdout'], timeout=HANG).out
    (place / 'linked').symlink_to(place / 'run')
    assert report(tfanalyze, place, directory=place / 'linked').rc == 0
    assert (place / 'run' / 'timing.json').exists()
    socket_path = place / 'socket'
    bind(socket_path)
    for target, why in ((place / 'outside' / 'dir', 'Is a directory'), (socket_path, 'No such device'), (place / 'no' / 'x', 'No such file')):
        result = execute([tfanalyze, 'stages', place / 'run', '--output', target], timeout=HANG)
        assert result.rc == 1 and f'{target}: cannot be written ({why}' in result.err


def test_a_directory_for_tensorboard_is_no_link(tfanalyze, place):
    (place / 'run' / 'tensorboard').symlink_to(place / 'outside' / 'dir')
    before = tree(place / 'outside')
    result = execute([tfanalyze, 'export', 'tensorboard', place / 'run'], timeout=HANG)
    assert result.rc == 1 and 'cannot be created (a component of the path is a symbolic link or a file)' in result.err
    assert tree(place / 'outside') == before


# ---- the directory that a cache-dit context asks for ----

def asked(place, **header):
    """A run whose trace names place/own as a context's directory."""
    run = Run(place / 'run').rank(**header)
    run.stage('flux', flags=CACHE_DIT)
    text = json.dumps({'name': 'flux', 'own_dir': True, 'dir': str(place / 'own' / 'below'), 'holds': ['cpu']})
    run.records.append(__import__('tfr').rec('metadata', time=run.now, key=run.w.string('cache_dit.profile.1'), value=run.w.string(text)))
    run.save()


def header_of_this_boot():
    own = own_process()
    return {'host': own['host'], 'boot': own['boot']}


def test_a_directory_that_a_trace_names(tfanalyze, place):
    """A directory named by a trace counts only for the reader's own user, host and boot, and without links."""
    asked(place, **header_of_this_boot())
    assert report(tfanalyze, place).rc == 0
    assert [p.name for p in (place / 'own' / 'below').iterdir()] == ['flux.trace.json.gz']
    (place / 'own' / 'below' / 'flux.trace.json.gz').unlink()
    (place / 'own' / 'below').rmdir()
    (place / 'own').rmdir()
    cases = {'another boot': dict(header_of_this_boot(), boot='0' * 36), 'another host': dict(header_of_this_boot(), host='elsewhere'),
             'another owner': header_of_this_boot(), 'a link': header_of_this_boot()}
    for case, header in cases.items():
        asked(place, **header)
        if case == 'another owner':
            if os.geteuid():
                continue
            os.chown(place / 'run' / TRACE, 65534, 65534)
        if case == 'a link':
            os.chown(place / 'run' / TRACE, os.geteuid(), -1)
            (place / 'own').symlink_to(place / 'outside' / 'dir')
        before = tree(place / 'outside')
        result = report(tfanalyze, place)
        assert result.rc == 0 and 'beside the other files' in result.err, (case, result.err)
        assert (place / 'run' / 'flux.trace.json.gz').exists() and tree(place / 'outside') == before, case
        assert case == 'a link' or not (place / 'own').exists()


# ---- inputs ----

INPUTS = {
    'a FIFO': (lambda p: os.mkfifo(p), 'it is a FIFO'),
    'a socket': (bind, 'it is a socket'),
    'a device': (lambda p: p.symlink_to('/dev/zero'), 'it is a device'),
    'a terminal': (lambda p: p.symlink_to('/dev/ptmx'), 'it is a device'),
    'a dangling link': (lambda p: p.symlink_to('nowhere'), 'No such file'),
    'a link to itself': (lambda p: p.symlink_to(p.name), 'Too many levels'),
}
COMMANDS = ['info', 'stages', 'dump', 'breakdown', 'ops', 'report', ('export', 'chrome')]


@pytest.mark.parametrize('kind', INPUTS)
@pytest.mark.parametrize('name', ['x.tfr', 'x.tfr.live', 'x.json', 'x.json.gz', 'x'])
def test_an_input_that_is_no_file(tfanalyze, place, kind, name):
    """An input that is no file gives status 1 alone, and status 3 beside a good one. Nothing waits for it."""
    path = place / name
    make, words = INPUTS[kind]
    make(path)
    for command in COMMANDS if name == 'x.tfr' else COMMANDS[:2]:
        command = [command] if isinstance(command, str) else list(command)
        result = execute([tfanalyze, *command, path], cwd=place, timeout=HANG)
        assert result.rc == 1 and result.out == '' and f'{path}: ' in result.err and words in result.err, (command, result)
    result = execute([tfanalyze, 'stages', path, place / 'run'], cwd=place, timeout=HANG)
    assert result.rc == 3 and 'denoise' in result.out and words in result.err


@pytest.mark.parametrize('name', ['x.tfr', 'x.tfr.live', 'x.json', 'x.json.gz', f'{TRACE}.live'])
@pytest.mark.parametrize('kind', [*INPUTS, 'a link'])
def test_links_and_fifos_in_a_run_directory(tfanalyze, place, kind, name):
    """Links in a run directory are not followed, even to good traces; the rest is answered."""
    good = place / 'outside' / 'good.json'
    kineto.Trace().stage('elsewhere', 0, 9).write(good)
    directory = place / 'run'
    if 'json' in name:
        (directory / TRACE).unlink()
        kineto.Trace().stage('denoise', 0, 9).write(directory / 'a.json')
    path = directory / name
    path.symlink_to(good) if kind == 'a link' else INPUTS[kind][0](path)
    result = execute([tfanalyze, 'stages', directory], cwd=place, timeout=HANG)
    assert 'denoise' in result.out and 'elsewhere' not in result.out, result
    live_of_a_trace = name.startswith(TRACE) or name == 'x.tfr.live' and not path.exists()
    assert result.rc in ((0, 3) if live_of_a_trace else (3,)), result


LIVE_PLACES = {'another name': '{away}/precious', 'a FIFO': '{away}/rank0.h.1.tfr.live', 'a link': '{away}/rank0.h.1.tfr.live',
               'no path': 'rank0.h.1.tfr.live', 'a device': '/dev/zero', 'up': '/dev/shm/../../{away}/tfinject.0.rank0.h.1.tfr.live'}


@pytest.mark.parametrize('kind', LIVE_PLACES)
def test_a_header_that_names_a_live_file(tfanalyze, victim, tmp_path, kind):
    """A trace's header opens no file but a live file of the trace's own name and owner, and never a link or a FIFO."""
    away, run = tmp_path / 'away', tmp_path / 'run'
    away.mkdir()
    run.mkdir()
    (away / 'precious').write_text('precious')
    where = LIVE_PLACES[kind].format(away=away)
    _, _, path, live = live_pair(run, live=where)
    if kind == 'a FIFO':
        live.unlink()
        os.mkfifo(where)
    elif kind == 'a link':
        live.rename(away / 'real')
        Path(where).symlink_to(away / 'real')
    else:
        live.unlink()
    log = tmp_path / 'log'
    env = {**clean_environment(), 'LD_PRELOAD': str(victim('libadversary.so')), 'ADVERSARY_LOG': str(log)}
    result = execute([tfanalyze, 'info', path], env, tmp_path, HANG)
    assert result.rc == 3 and 'the .live file with its last records is missing' in result.err
    assert where not in log.read_text().splitlines() or kind == 'a link'


def test_a_live_file_of_others(tfanalyze, analyze, tmp_path):
    """A live file elsewhere is read only if one user owns both, or at the library's own place."""
    if os.geteuid():
        return
    away, run = tmp_path / 'away', tmp_path / 'run'
    away.mkdir()
    run.mkdir()
    _, _, path, live = live_pair(run, live=away / 'rank0.h.1.tfr.live')
    live.rename(away / 'rank0.h.1.tfr.live')
    assert len(analyze('dump', run)['rows']) == 2 + 57
    for owner_of_trace, owner_of_live in ((0, 65534), (65534, 65534), (65534, 0)):
        os.chown(path, owner_of_trace, -1)
        os.chown(away / 'rank0.h.1.tfr.live', owner_of_live, -1)
        assert len(analyze('dump', run, rc=3)['rows']) == 2 + 20


@pytest.mark.slow
def test_files_that_change_while_they_are_read(tfanalyze, victim, place):
    """A file that is cut or grows before any call gives an answer or a message, never a crash or a hang."""
    trace = place / 'x.json'
    kineto.Trace().stage('denoise', 0, 9).write(trace)
    for path in (place / 'run' / TRACE, trace):
        data = path.read_bytes()
        env = {**clean_environment(), 'LD_PRELOAD': str(victim('libadversary.so')), 'ADVERSARY_COUNT': str(place / 'count'), 'F': str(path)}
        assert execute([tfanalyze, 'report', path, '--output', place / 'o'], env, place, HANG).rc == 0
        calls = int((place / 'count').read_text().split()[-1])
        for do in (': >"$F"', f'truncate -s {len(data) // 2} "$F"', 'printf "%65536s" x >>"$F"', 'rm "$F"; mkfifo "$F"'):
            for at in range(1, calls + 1, 1 + calls // 15):
                result = execute([tfanalyze, 'report', path, '--output', place / 'o'], {**env, 'ADVERSARY_DO': do, 'ADVERSARY_AT': str(at)}, place, HANG)
                assert result.rc in (0, 1, 3), (path, do, at, result)
                assert result.rc == 0 or result.err.startswith('tfanalyze: ')
                path.unlink()
                path.write_bytes(data)


def test_a_file_of_holes_is_searched_quickly(tfanalyze, place):
    """A trace with a terabyte-long hole behind one block is cut there within seconds, and the block is answered."""
    path = place / 'run' / TRACE
    os.truncate(path, 1 << 40)
    began = time.process_time()
    result = execute([tfanalyze, 'stages', path], cwd=place, timeout=HANG)
    assert 'denoise' in result.out and result.rc == 3 and time.process_time() - began < 10
