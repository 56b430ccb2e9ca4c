"""test_tfrun - the launcher: the variables it sets, the options it passes on, and its last message."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BUILD, COMMAND_TIMEOUT, ROOT, built, clean_environment

TFRUN = ROOT / 'scripts' / 'tfrun'
SHOW = [sys.executable, '-c', 'import json, os; print(json.dumps(dict(os.environ)))']
HOST = os.uname().nodename


@pytest.fixture
def tfrun(run, lib):
    """tfrun(*arguments, env={}, **options): runs the launcher without the library and without TFI_OUTPUT_DIR."""
    def tfrun(*arguments, env=None, program=TFRUN, **options):
        return run([program, *arguments], preload=False, env={'TFI_OUTPUT_DIR': None, **(env or {})}, **options)
    return tfrun


@pytest.fixture
def marker(victim):
    """A program that records something."""
    return victim('api_calls')


def environment_of(result):
    assert result.rc == 0, result.err
    return json.loads(result.out)


def messages(result):
    return [line for line in result.err.splitlines() if line.startswith('tfrun:')]


@pytest.mark.parametrize('status', [0, 1, 7, 255])
def test_exit_status_and_streams(tfrun, status):
    result = tfrun('--', 'bash', '-c', f'read -r line; echo "got $line"; echo problem >&2; exit {status}', stdin='text\n')
    assert result.rc == status
    assert result.out == 'got text\n'
    assert 'problem' in result.err.splitlines()


def test_status_of_signals_and_missing_commands(tfrun, tmp_path):
    assert tfrun('bash', '-c', 'kill -KILL $$').rc == 128 + signal.SIGKILL
    for command, status in (('/no/such/command', 127), (tmp_path, 126)):
        result = tfrun('--', command)
        assert result.rc == status and result.out == ''
        assert 'could not be started' in messages(result)[-1]


def test_without_any_input(lib, tmp_path):
    line = f'exec <&-; "{TFRUN}" -- bash -c "cat; echo read"'
    result = subprocess.run(['bash', '-c', line], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, 'read\n'), result.stderr


def test_arguments_arrive_as_they_are(tfrun):
    arguments = ['--stages', 'a b', '', '*', "it's", '--', '-x']
    result = tfrun('--', sys.executable, '-c', 'import json, sys; print(json.dumps(sys.argv[1:]))', *arguments)
    assert json.loads(result.out) == arguments


def test_options_set_the_variables(tfrun, tmp_path):
    environment = environment_of(tfrun('--stages', 'denoise,vae_*', '--output=out', '--name', 'flux', '--max-mb=64',
                                       '--log', 'error', '--', *SHOW))
    expected = {'ENABLE_PROFILER_NAMES': 'denoise,vae_*', 'TFI_OUTPUT_DIR': str(tmp_path / 'out'),
                'TFI_PIPELINE_NAME': 'flux', 'TFI_MAX_MB': '64', 'TFI_LOG': 'error'}
    assert {k: environment.get(k) for k in expected} == expected
    assert environment_of(tfrun('--stages', '', *SHOW))['ENABLE_PROFILER_NAMES'] == ''
    assert 'ENABLE_PROFILER_NAMES' not in environment_of(tfrun(*SHOW))


def test_every_option_is_explained_and_names_a_known_variable(tfrun):
    result = tfrun('--help')
    assert result.rc == 0 and result.out == ''
    table = (ROOT / 'include/env.def').read_text()
    rows = re.findall(r'^ENV\((\w+), (\w+), \w+, "(--[\w-]+) \w+"', table, re.M)
    assert len(rows) >= 10
    valid = {**dict.fromkeys(re.findall(r'^RANGE\((\w+)', table, re.M), '7'), 'SWITCH': '1',
             'WORDS': 'cpu,io', 'SCHEDULE': 'wait=1,active=2', 'CAPTURE': 'delay=1,duration=2', 'TRIGGER': 'file:/x',
             **dict(re.findall(r'^(LEVEL|GRAPHS|MODES)\(\w+, "(\w+)"', table, re.M))}
    for kind, variable, option in rows:
        assert re.search(rf'^  {option} [^(]*(?s:.*?)\({variable}\)', result.err, re.M), option
        assert environment_of(tfrun(option, valid.get(kind, '/x'), *SHOW))[variable]


@pytest.mark.parametrize('arguments, words', [
    (['--stage', 'x', 'true'], ['--stage;', 'did you mean --stages?']),
    (['--ouput=x', 'true'], ['--ouput;', 'did you mean --output?']),
    (['--zebra-crossing', 'true'], ['--zebra-crossing; tfrun --help']),
    (['--activities', 'ops,gpuu', 'true'], ['--activities ops,gpuu', 'cpu gpu mem nccl ops io stack']),
    (['--schedule', 'bla', 'true'], ['--schedule bla', '--help']),
    (['--trigger', 'signal', 'true'], ['--trigger signal']),
    (['--capture', 'soon', 'true'], ['--capture soon']),
    (['--output', '--', 'true'], ['--output needs a value']),
    (['--output=-x', 'true'], ['--output needs a directory, not -x']),
    (['--max-mb', '0', 'true'], ['--max-mb 0', '1 to 1048576']),
    (['--max-mb', '12x', 'true'], ['--max-mb 12x']),
    (['--log', 'loud', 'true'], ['--log loud', 'error warn info debug']),
    (['--output', '', 'true'], ['--output needs a directory']),
    (['--name'], ['--name needs a value']),
    (['--'], ['usage:']),
    ([], ['usage:']),
])
def test_wrong_usage(tfrun, arguments, words):
    result = tfrun(*arguments)
    assert result.rc == 2 and result.out == ''
    for word in words:
        assert word in result.err


@pytest.mark.parametrize('before', [None, '', 'libm.so.6', 'libm.so.6:libdl.so.2', 'libm.so.6 libdl.so.2'])
def test_keeps_what_is_preloaded(tfrun, lib, before):
    preload = environment_of(tfrun(*SHOW, env={'LD_PRELOAD': before}))['LD_PRELOAD']
    assert preload == (f'{before}:{lib}' if before else str(lib))
    again = environment_of(tfrun(*SHOW, env={'LD_PRELOAD': f'{lib} libm.so.6'}))['LD_PRELOAD']
    assert again == f'{lib} libm.so.6'


@pytest.mark.parametrize('before', [None, 'libm.so.6 libdl.so.2'])
def test_host_memory(tfrun, lib, before):
    """The second library stands before an allocator that the user preloads; the first one stays behind it."""
    alloc = lib.with_name('libtfinject-alloc.so')
    preload = environment_of(tfrun('--host-memory', *SHOW, env={'LD_PRELOAD': before}))['LD_PRELOAD']
    assert preload == (f'{alloc}:{before}:{lib}' if before else f'{alloc}:{lib}')
    again = environment_of(tfrun('--host-memory', '--', *SHOW, env={'LD_PRELOAD': f'{alloc} {lib}'}))['LD_PRELOAD']
    assert again == f'{alloc} {lib}'


# ---- the run directory ----

def test_default_directory_is_decided_once(tfrun, tmp_path, marker):
    result = tfrun('--name', 'flux', '--', 'bash', '-c', f'echo $TFI_RUN_DIR; mkdir sub; cd sub; {marker} >&2')
    directory = result.out.partition('//')[0]
    assert re.fullmatch(re.escape(str(tmp_path)) + r'/work_dirs/profiler_output/flux/\d{8}_\d{4}', directory)
    assert len(list((tmp_path / directory).glob('*.tfr'))) == 1
    assert not (tmp_path / 'sub' / 'work_dirs').exists()


def test_an_outer_decision_holds(tfrun, tmp_path, marker):
    outer = str(tmp_path / 'outer')
    result = tfrun('--', 'bash', '-c', f'echo $TFI_RUN_DIR; {marker} >&2', env={'TFI_RUN_DIR': outer})
    assert result.out.strip() == outer
    assert os.listdir(outer)
    other = tfrun('--output', 'inner', '--', marker, env={'TFI_RUN_DIR': outer})
    assert other.rc == 0 and list((tmp_path / 'inner').glob('*.tfr'))


@pytest.mark.parametrize('variable', ['TFI_OUTPUT_DIR', 'TELEFUSER_PROFILER_OUTPUT_DIR', 'PROFILER_OUTPUT_DIR',
                                      'CACHE_DIT_TORCH_PROFILER_DIR'])
@pytest.mark.parametrize('value', ['plain', 'on_%h/x'])
def test_directory_from_the_environment(tfrun, tmp_path, marker, variable, value):
    result = tfrun(marker, env={variable: value})
    directory = tmp_path / value.replace('%h', HOST)
    assert len(list(directory.glob('*.tfr'))) == 1
    assert messages(result)[0] == f'tfrun: 1 trace in {directory.relative_to(tmp_path)}'


# ---- the end ----

def test_last_lines_name_results_and_next_command(tfrun, tmp_path, marker, tfanalyze):
    result = tfrun('--output', 'with blank', '--', 'bash', '-c', f'{marker}; {marker}')
    said, *lines, following = messages(result)
    assert said == 'tfrun: 2 traces in with blank' and len(lines) == 3 and lines[-1].startswith('tfrun: not judged: ')
    line = following.removeprefix('tfrun: next: ')
    shown = subprocess.run(line, shell=True, executable='/bin/bash', cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, (line, shown.stderr)
    assert 'api outer' in shown.stdout
    again = tfrun('--quiet', '--output', 'with blank', '--', marker)
    assert len(messages(again)) == 3 and messages(again)[:2] == ['tfrun: 1 trace in with blank',
                                   'tfrun: 2 traces of earlier runs lie there too, and tfanalyze reads all of them together']


IN_TORCHRUN = 'TORCHELASTIC_RUN_ID="$1" exec "$0"'  # as torchrun runs its workers


@pytest.mark.parametrize('env, command', [
    ({'SLURM_JOB_ID': '17'}, ['bash', '-c', 'exec "$0"', 'MARKER']),
    ({'SLURM_JOB_ID': '17', 'SLURM_STEP_ID': '2', 'TORCHELASTIC_RUN_ID': 'a'}, ['bash', '-c', 'exec "$0"', 'MARKER']),
    ({'PMIX_NAMESPACE': 'prterun-a-17@1'}, ['bash', '-c', 'exec "$0"', 'MARKER']),
    ({'TORCHELASTIC_RUN_ID': 'my job/1'}, ['bash', '-c', 'exec "$0"', 'MARKER']),
    ({'PET_RDZV_ID': 'job'}, ['bash', '-c', IN_TORCHRUN, 'MARKER', 'job']),
    ({}, ['bash', '-c', IN_TORCHRUN, 'MARKER', 'my job/1', '--rdzv-id=my job/1']),
    ({}, ['bash', '-c', IN_TORCHRUN, 'MARKER', 'job', '--rdzv_id', 'job']),
])
def test_finds_the_directory_that_another_host_has_decided(tfrun, tmp_path, marker, env, command):
    """The second host starts in another minute. Its traces lie in the first one's directory, and the launcher says so."""
    command = [marker if word == 'MARKER' else word for word in command]
    for minute, found in ('20200101_0000', 1), ('20200101_0001', 2):
        result = tfrun('--', *command, env={**env, 'TFI_RUN_DIR': f'{tmp_path}/job/{minute}'})
        assert (result.rc, messages(result)[0]) == (0, f'tfrun: {found} trace{"s"[:found - 1]} in job/20200101_0000'), result.err


@pytest.mark.parametrize('text, age', [('20200101_0000', 700), ('..', 0), ('a/b', 0), ('', 0)])
def test_follows_no_old_note_and_no_nonsense(tfrun, tmp_path, marker, text, age):
    note = tmp_path / 'job/.slurm-17.0'
    note.parent.mkdir()
    note.write_text(text)
    os.utime(note, (time.time() - age,) * 2)
    result = tfrun('--', 'true', env={'TFI_RUN_DIR': f'{tmp_path}/job/20200101_0001', 'SLURM_JOB_ID': '17'})
    assert f'recorded anything in {tmp_path}/job/20200101_0001.' in messages(result)[0]


def test_says_why_there_may_be_nothing(tfrun, tmp_path):
    result = tfrun('true', env={'NVTX_INJECTION64_PATH': '/other/tool.so'})
    assert result.rc == 0 and not (tmp_path / 'work_dirs').exists()
    text = '\n'.join(messages(result))
    for word in ('no process recorded anything', 'LD_PRELOAD', 'CUDA_INJECTION64_PATH=', '/other/tool.so'):
        assert word in text
    failed = messages(tfrun('false'))
    assert len(failed) == 1 and 'ended with status 1' in failed[0]
    killed = messages(tfrun('bash', '-c', 'kill -9 $$'))
    assert len(killed) == 1 and 'signal 9 ended' in killed[0]
    (tmp_path / 'file').write_text('')
    blocked = tfrun('--output', 'file/below', '--log', 'error', 'true')
    assert f'{tmp_path}/file cannot be written to' in messages(blocked)[1]


# ---- signals ----

SLEEPER = r'''
import os, signal, sys, time
def got(number, frame):
    os.write(1, (signal.Signals(number).name + '\n').encode())  # the handler may interrupt a print
    count.append(number)
count = []
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(s, got)
print('ready', flush=True)
end = time.monotonic() + 100
while not count and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.3)
sys.exit(40 + len(count))
'''


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_passes_signals_on(lib, tmp_path, number):
    process = subprocess.Popen([TFRUN, '--', sys.executable, '-c', SLEEPER], env=clean_environment(), cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == 'ready\n'
    process.send_signal(number)
    out, err = process.communicate(timeout=COMMAND_TIMEOUT)
    assert (out, process.returncode) == (number.name + '\n', 41), err


def test_a_signal_from_the_terminal_arrives_once(lib, tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(TFRUN, [str(TFRUN), '--', sys.executable, '-c', SLEEPER], clean_environment())
    text, typed = b'', False
    while True:  # until the terminal is closed: the program ends by itself
        try:
            text += os.read(terminal, 4096)
        except OSError:
            break
        if b'ready' in text and not typed:
            typed = bool(os.write(terminal, b'\x03'))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 41 and text.count(b'SIGINT') == 1, text


def test_an_ignored_signal_stays_ignored(lib, tmp_path):
    program = 'import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)'
    for ignore, expected in (("trap '' INT; ", 'True\n'), ('', 'False\n')):
        line = f'{ignore}exec "{TFRUN}" -- "{sys.executable}" -c "{program}"'
        result = subprocess.run(['bash', '-c', line], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True)
        assert result.stdout == expected, result.stderr


# ---- the library's place ----

def installed(prefix):
    for source, target in ((BUILD / 'libtfinject.so', 'lib'), (BUILD / 'tfanalyze', 'bin'), (TFRUN, 'bin')):
        (prefix / target).mkdir(parents=True, exist_ok=True)
        shutil.copy2(built(source), prefix / target)
    return prefix / 'bin' / 'tfrun'


def test_installed_and_through_a_link(tfrun, tmp_path, marker, tfanalyze):
    program = installed(tmp_path / 'prefix')
    link = tmp_path / 'link'
    link.symlink_to(program)
    for command in (program, link):
        environment = environment_of(tfrun(*SHOW, program=command))
        assert environment['LD_PRELOAD'] == str(tmp_path / 'prefix/lib/libtfinject.so')
    result = tfrun('--output', 'out', marker, program=link, env={'PATH': f'{tmp_path}/prefix/bin:{os.environ["PATH"]}'})
    assert messages(result)[-1] == 'tfrun: next: tfanalyze out'


def test_library_that_cannot_be_preloaded(tfrun, tmp_path, tfanalyze):
    blank = tfrun('true', program=installed(tmp_path / 'with blank'))
    assert blank.rc == 1 and 'a path with a blank' in blank.err
    program = installed(tmp_path / 'missing')
    (tmp_path / 'missing/lib/libtfinject.so').unlink()
    missing = tfrun('true', program=program)
    assert missing.rc == 1 and 'no libtfinject.so' in missing.err and '`make`' in missing.err
