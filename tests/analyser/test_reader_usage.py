"""test_reader_usage - the command line of tfanalyze: wrong usage, help, filters."""

import os
import random
import re
import subprocess

import pytest

from small_traces import simple
from tfr import Writer, rec


@pytest.mark.parametrize('line, words', [
    (['stagse', '.'], 'did you mean stages'),
    (['exprt', 'chrome', '.'], 'did you mean export chrome'),
    (['export', '.'], 'did you mean export et'),
    (['stages', '--formt', 'json', '.'], 'did you mean --format'),
    (['stages', '--format', 'jsn', '.'], 'did you mean json'),
    (['stages', '--zebra', '.'], 'there is no option --zebra'),
    (['export', 'et', '--et', 'et.json', '.'], "--et is gone: Chakra's trace_link joins"),
    (['export', 'et', '--et=et.json', '.'], '--et is gone'),
    (['stages', '--top', '0', '.'], '--top needs N'),
    (['stages', '--top', 'x', '.'], '--top needs N'),
    (['stages', '--rank', '1-', '.'], '--rank needs LIST'),
    (['stages', '--rank', '3-1', '.'], '--rank needs LIST'),
    (['stages', '--from', 'nan', '.'], '--from needs S'),
    (['stages', '--from', '2', '--to', '1', '.'], 'is not before'),
    (['stages', '--output'], '--output needs a value: FILE'),
    (['stages', '--exclusive=1', '.'], 'takes no value'),
    (['info', '--exclusive', '.'], 'is not an option of info'),
    (['info'], 'info needs an INPUT: a run directory, .tfr files, PyTorch or dftracer traces'),
    (['idle'], 'idle needs an INPUT: a run directory, .tfr files or PyTorch traces'),
    (['diff'], 'diff compares two inputs, A and B, and 0 are given'),
    (['idle', '--rules', 'tracelens', '.'], 'idle has no --rules tracelens; it takes exact|hta'),
    (['comm', '--rules', 'hta', '.'], 'comm has no --rules hta; it takes exact|tracelens'),
    (['timeline,queue', '--rules', 'tracelens', '.'], 'queue has no --rules tracelens; it takes exact|hta'),
    (['timeline', '--rules', 'exactly', '.'], '--rules takes exact|tracelens|hta, not exactly'),
    (['io,idle', '--rules', 'exact', '.'], '--rules has other values for idle than for io'),
    ([], 'a COMMAND is missing'),
    (['--format', 'json'], 'a COMMAND is missing before the options'),
])
def test_wrong_usage(tfanalyze, line, words):
    result = subprocess.run([tfanalyze, *line], capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ''
    assert words in result.stderr and len(result.stderr.splitlines()) == 1 and result.stderr.startswith('tfanalyze: ')


def test_help_and_version(tfanalyze):
    def out(*line):
        result = subprocess.run([tfanalyze, *line], capture_output=True, text=True)
        assert result.returncode == 0 and result.stderr == ''
        return result.stdout
    general = out('--help')
    for command in ('info', 'stages', 'dump', 'export chrome'):
        assert re.search(rf'^ +{command}  +\w', general, re.M)
        text = out(*command.split(), '--help')
        assert f'usage: tfanalyze {command} [options] INPUT' in text
        assert ('--exclusive' in text) == (command == 'stages')
    assert re.fullmatch(r'tfanalyze \S+\n', out('--version'))


def test_filters(tmp_path, analyze):
    for rank in range(4):
        simple(tmp_path / f'rank{rank}.a.{rank + 100}.tfr', rank=rank, pid=rank + 100)
    assert [r['rank'] for r in analyze('info', '--rank', '0,2-3', tmp_path)['rows']] == [0, 2, 3]
    assert [r['rank'] for r in analyze('info', '--pid=101', tmp_path)['rows']] == [1]
    assert [r['rank'] for r in analyze('info', '-j1', '--rank', 3, tmp_path)['rows']] == [3]
    assert len(analyze('stages', '--top', 2, tmp_path)['rows']) == 8
    assert len(analyze('dump', '--from', 0.0045, '--to', 0.0065, tmp_path)['rows']) == 4 * 2
    for filters, words in ((['--rank', 9], 'rank 3 pid 103'), (['--pid', 9], 'no process matches --pid'),
                           (['--stage', 'x*'], 'nothing matches --stage x*'), (['--from', 100], 'nothing matches --from 100')):
        result = analyze('stages', *filters, tmp_path, format='text', rc=1)
        assert result.out == '' and words in result.err
    # A damaged rank changes no answer about another rank.
    bad = tmp_path / 'rank1.a.101.tfr'
    bad.write_bytes(bad.read_bytes()[:-60])
    os.utime(bad, (1, 1))
    analyze('stages', tmp_path, rc=3)
    analyze('stages', '--rank', '0,2', tmp_path)


def test_a_closed_pipe_is_quiet(tmp_path, tfanalyze):
    w = Writer()
    r = random.Random(1)
    w.chunk([rec('mark', time=1000 * i + r.randrange(900)) for i in range(20000)], thread=1)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    result = subprocess.run(['bash', '-c', f'{tfanalyze} dump {path} | head -1'], capture_output=True, text=True)
    assert result.stderr == '' and len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize('command, rules', [('idle', 'exact|hta'), ('comm', 'exact|tracelens'), ('timeline', 'exact|tracelens|hta'),
                                            ('io', 'exact|dfanalyzer'), ('patterns', 'exact|hta')])
def test_help_lists_the_rules_that_a_command_has(tfanalyze, tmp_path, command, rules):
    """All rules that a page lists are accepted, and no others; a heading is followed by text."""
    page = subprocess.run([tfanalyze, command, '--help'], capture_output=True, text=True).stdout
    assert re.findall(r'^--rules (\S+)$', page, re.M) == [rules] and not re.search(r'^[A-Z]+\n\n(\n|[A-Z]+\n\n)', page, re.M)
    needs = ['--operator', 'x'] if command == 'patterns' else []
    for word in ('exact', 'tracelens', 'hta', 'dfanalyzer'):
        result = subprocess.run([tfanalyze, command, *needs, '--rules', word, tmp_path / 'nothing'], capture_output=True, text=True)
        assert result.returncode == (1 if word in rules.split('|') else 2), result.stderr
