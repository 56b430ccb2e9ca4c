"""test_promises_stderr - a message of the library never kills or blocks the program, whatever its stderr is.

tests/victims/stderr.c spoils its own stderr and never writes to it. The library prints messages when it wakes (an
unknown variable, or a directory it cannot make), at the end of each stage (TELEFUSER_PROFILE_DEBUG) and at the end (the
run directory is gone). The program's status, output, signal mask and pending signals equal those of a run without the
library.
"""

import pytest

KINDS = ['plain', 'pipe', 'pipe dead', 'pipe full', 'pipe nearly full', 'socket', 'socket dead', 'socket full', 'terminal',
         'terminal full', 'terminal nearly full', 'terminal stopped', 'terminal dead', 'terminal master', 'limit', 'closed',
         'own', 'readonly']
MOMENTS = {'asleep': {'TFI_OUTPUT_DIR': '/proc/no/such'},
           'awake': {'TFI_NO_SUCH_VARIABLE': '1', 'TELEFUSER_PROFILE_DEBUG': 'true', 'TFI_LOG': 'debug'}}


@pytest.mark.parametrize('waiting', [[], ['waiting']], ids=['', 'one waits'])
@pytest.mark.parametrize('moment', MOMENTS)
@pytest.mark.parametrize('kind', KINDS)
def test_messages_harm_nobody(run, victim, tmp_path, kind, moment, waiting):
    """A stderr that is dead, full, at its limit, closed, the program's file or read-only changes nothing."""
    line = ['bash', '-c', 'exec "$0" "$@" 2>err', victim('stderr'), kind, tmp_path / 'run', *waiting]
    bare = run(line, preload=False)
    (tmp_path / 'own').unlink(missing_ok=True)
    watched = run(line, MOMENTS[moment])
    assert bare.rc == 5 and bare.out.endswith('done\n')
    assert (watched.rc, watched.out) == (bare.rc, bare.out)
    if kind == 'own':
        assert (tmp_path / 'own').read_bytes() == b''
    if kind == 'limit':
        assert (tmp_path / 'err').read_bytes() == b''
    if kind == 'plain':
        assert 'tfinject: ' in (tmp_path / 'err').read_text()


def test_a_reader_that_ends_early(run, victim, tmp_path):
    """`program 2> >(head -1)`: the reader is gone before the first message."""
    line = f'( sleep 0.2; {victim("stderr")} plain {tmp_path}/run; echo $? ) 2> >(exec true)'
    assert run(['bash', '-c', line], MOMENTS['asleep']).out.split() == ['done', '5']


def test_lines_arrive(run, victim, tmp_path):
    """Every line arrives through a healthy pipe and through a terminal."""
    env = MOMENTS['awake']
    piped = run([victim('stderr'), 'plain', tmp_path / 'gone'], env)
    assert piped.err.count('[Rank 0] [Timing] stage: ') == 20 and 'TFI_NO_SUCH_VARIABLE' in piped.err
    through = run(['script', '-qec', f'{victim("stderr")} plain {tmp_path}/gone', '/dev/null'], env)
    assert through.out.count('[Rank 0] [Timing] stage: ') == 20


def test_background_job_on_a_terminal_that_stops_them(run, victim, tmp_path):
    """`stty tostop` stops background jobs that write; our message does not stop a silent program."""
    inner = f'set -m; stty tostop; {victim("stderr")} plain {tmp_path}/gone >out & wait $!; echo status $?'
    result = run(['script', '-qec', f'bash -c {inner!r}', '/dev/null'], MOMENTS['awake'])
    assert 'status 5' in result.out, result.out
