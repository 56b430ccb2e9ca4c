"""test_io_programs - SQLite, git, gcc and tar with file records: their results are unchanged, and their files are those of strace."""

import re
import shutil
import subprocess
import sys

import pytest

import iotrace
from conftest import CLOSING, clean_environment

SQLITE = '''
import sqlite3
base = sqlite3.connect('base.db')
base.execute('create table numbers (n integer, text text)')
for i in range(200):
    with base:
        base.execute('insert into numbers values (?, ?)', (i, str(i) * 50))
base.execute('pragma wal_checkpoint')
print(base.execute('select count(*), sum(n) from numbers').fetchall())
base.close()
'''

SCRIPTS = {
    'sqlite3': f"{sys.executable} -S -c '{SQLITE.replace(chr(39), chr(34))}'; sha256sum base.db",
    'git': '''git init -q . && git config user.email a@b && git config user.name n && git add one two three && git commit -qm first
git log --format=%H && git status --short && git gc -q && git fsck && git checkout -q -b other && git show --stat HEAD''',
    'gcc': 'for i in 1 2; do echo "int f$i(void) { return $i; }" >f$i.c; done; gcc -c f1.c -o f1.o && gcc -shared -o lib.out f1.c f2.c; sha256sum f1.o',
    'tar': 'mkdir x && tar cf t.tar --mtime=2020-01-01 one two three && tar xf t.tar -C x && tar tf t.tar && sha256sum t.tar x/*',
}


def prepare(directory):
    directory.mkdir()
    for i, name in enumerate(('one', 'two', 'three')):
        (directory / name).write_text(f'{name}\n' * (100 * i + 1))
        (directory / name).chmod(0o644)
    (directory / 'tmp').mkdir()


def environment(directory):
    date = '2020-01-01T00:00:00Z'
    return {**clean_environment(), 'TMPDIR': '/tmp', 'HOME': str(directory), 'GIT_AUTHOR_DATE': date, 'GIT_COMMITTER_DATE': date,
            'GIT_CONFIG_NOSYSTEM': '1', 'LC_ALL': 'C'}


def ordinary(paths, directory):
    """The paths below a directory, with the random and numbered parts of names made equal."""
    prefix = f'{directory}/'
    inside = {p[len(prefix):] for p in paths if p.startswith(prefix)}
    return {re.sub(r'(tmp_\w+_|tmp-\d+-|tmp_)\w+|\.tmp-[\w.-]+|pack-\w+|(?<=refs_|acks_)\w+|(?<=^\.git/)t\w{6}$', 'random', p) for p in inside}


@pytest.mark.slow
@pytest.mark.parametrize('program', SCRIPTS)
def test_results_and_files(program, lib, tmp_path):
    """The program prints the same; each file that strace sees opened in its directory has a record, and no other has."""
    if program != 'sqlite3':
        assert shutil.which(program), f'{program} is not installed'
    work, log = tmp_path / 'work', tmp_path / 'log'
    prepare(work)
    command = ['strace', '-f', '-qq', '-y', '-o', log, '-e', 'trace=open,openat,creat', 'sh', '-ec', SCRIPTS[program]]
    traced = subprocess.run(command, cwd=work, env=environment(work), capture_output=True, text=True, check=True)
    theirs = set(re.findall(r' = \d+<(.*?)(?:\(deleted\))?>$', log.read_text(), re.M))
    shutil.rmtree(work)
    prepare(work)
    env = {**environment(work), **iotrace.ON, 'TFI_IO_PATHS': '+so,+py,+pyc', 'TFI_OUTPUT_DIR': str(tmp_path / 'run'), 'LD_PRELOAD': str(lib)}
    ours = subprocess.run(['sh', '-ec', SCRIPTS[program]], cwd=work, env=env, capture_output=True, text=True, check=True)
    assert (ours.stdout, CLOSING.sub('', ours.stderr)) == (traced.stdout, traced.stderr)
    opened = {r.path for r in iotrace.all_records(tmp_path / 'run') if r.kind == 'OPEN' and not r.error and r.name != 'fdopen'}
    opened |= {r.path for r in iotrace.all_records(tmp_path / 'run') if r.name == 'opendir' and not r.error}
    assert ordinary(opened, work) == ordinary(theirs, work)
    assert ordinary(theirs, work)
