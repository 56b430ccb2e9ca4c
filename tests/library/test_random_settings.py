"""test_random_settings - programs of others behave as without the library, whatever the variables say.

`make soak` draws others each day; SOAK_ALL=1 draws 300 of each kind of program.
"""

import pytest

import random_settings
from conftest import ROOT, short_form
from random_settings import SEEDS

DATA = ROOT / 'tests' / 'data'
COMMANDS = [
    f'ls {DATA} | sort -r | tail -n +2 | md5sum; exit 3',
    f'find {DATA} -type f -name "*.t*" | sort | xargs -n 3 -P 2 cat | wc -c',
    f'cp -r {DATA} copy && diff -r {DATA} copy && rm -r copy && echo same',
    f'tar cf - -C {DATA} . | gzip -1 | gunzip | tar tf - | sort | md5sum',
    '(for i in 1 2 3 4 5; do (seq $i 1000 | tail -1; echo $i) & done; wait) | sort',
    'seq 1 50000 | split -l 5000 - part; cat part* | md5sum; rm part*; ls part*',
    'head -c 300000 /dev/zero | dd bs=4k status=none | sha256sum; yes | head -3; cat /nowhere; (exit 4); echo $?',
    'seq 1 30000 | shuf --random-source=/dev/zero | sort -n --parallel=2 -S 1M | md5sum; mkfifo f; (echo through >f &); cat f',
    'trap "echo caught" USR1; kill -USR1 $$; timeout 5 sh -c "kill -TERM \\$\\$"; echo $?; env -i /bin/true; (ulimit -n 9; cat /dev/null; echo few)',
    'perl -e \'if (fork) { wait; print $? >> 8, "\\n" } else { exit 7 }\'; awk \'BEGIN { system("echo from awk"); exit 2 }\'',
    'python3 -S -c "import subprocess, threading, os; t = [threading.Thread(target=os.listdir) for _ in range(9)]; [x.start() for x in t]; print(subprocess.run([\'false\']).returncode)"',
    'printf "a\\nb\\n" >x; sed -i s/a/c/ x; cat x; stdbuf -oL cut -c1 x; echo y | tee -a x >/dev/null; paste x x; exec sh -c "exit 9"',
]
VICTIMS = [('mixed', '40'), ('mixed', '41'), ('weather', 'threads'), ('weather', 'forks'), ('weather', 'spawns'), ('weather', 'execs'),
           ('weather', 'cancel'), ('weather', 'fork_busy'), ('weather', 'close_all'), ('weather', 'daemon')]


@short_form(2, 'seed', SEEDS)
@pytest.mark.slow
@pytest.mark.sampled(20)
def test_commands(run, analyze, tmp_path, seed):
    """Short processes of coreutils and others, in shells, each with the same variables."""
    random_settings.check(run, analyze, seed, tmp_path, ['sh', '-c', random_settings.chosen(seed, COMMANDS)], {'LC_ALL': 'C'})


@short_form(2, 'seed', SEEDS)
@pytest.mark.slow
@pytest.mark.sampled(20)
def test_programs_with_threads_and_forks(run, victim, analyze, tmp_path, seed):
    """A program of C++ with threads, streams, exceptions and children, and one that does odd things to itself."""
    name, *arguments = random_settings.chosen(seed, VICTIMS)
    env = {'WEATHER_LOG': tmp_path / 'log'}
    random_settings.check(run, analyze, seed, tmp_path, [victim(name), *arguments], env, preload='test', tidy=lambda out: sorted(out.splitlines()))
