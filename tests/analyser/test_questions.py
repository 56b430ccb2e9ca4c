"""test_questions - several questions in one run: each answer equals that of a run of its own."""

import gzip
import json
import random
import re
import subprocess
import sys
import zlib

import pytest

import kineto
import optrace
from conftest import ROOT, clean_environment, execute
from test_device_records import ticks
from tfr import BLOCK, rec

TOGETHER = ('info', 'stages', 'breakdown', 'api', 'timeline', 'kinds', 'overlap', 'idle', 'queue', 'steps', 'bandwidth', 'annotations', 'comm', 'stragglers')


@pytest.fixture
def job(shared_traces):
    return shared_traces / 'hta' / 'trace_filter'


def ask(tfanalyze, tmp_path, *words, rc=0):
    result = execute([tfanalyze, *words], clean_environment(), tmp_path)
    assert result.rc == rc, result.err
    return result


def test_json_is_a_list_of_the_single_answers(job, tfanalyze, tmp_path):
    together = json.loads(ask(tfanalyze, tmp_path, ','.join(TOGETHER), job, '--format', 'json').out)
    alone = [json.loads(ask(tfanalyze, tmp_path, name, job, '--format', 'json').out) for name in TOGETHER]
    for one, other in zip(together, alone):
        if one['command'] in ('info', 'overlap', 'kinds', 'timeline', 'api', 'idle', 'queue', 'steps', 'bandwidth', 'annotations', 'comm', 'stragglers'):
            assert one == other
        else:
            assert (one['command'], one['rows']) == (other['command'], other['rows'])
    assert len(together) == len(alone) == len(TOGETHER)


def test_text_is_one_below_the_other(job, tfanalyze, tmp_path):
    alone = [f'{name}:\n' + ask(tfanalyze, tmp_path, name, job, '--rules', 'hta').out for name in ('kinds', 'timeline')]
    assert ask(tfanalyze, tmp_path, 'kinds,timeline', job, '--rules', 'hta').out == '\n'.join(alone)


def test_tables_and_pages(tfanalyze, tmp_path):
    """torch's table of operators stands below the other answers; a page of memory stands alone."""
    job = optrace.job(tmp_path / 'job', True)
    alone = [f'{name}:\n' + ask(tfanalyze, tmp_path, name, job).out for name in ('kinds', 'ops', 'memory')]
    assert ask(tfanalyze, tmp_path, 'kinds,ops,memory', job).out == '\n'.join(alone)
    refused = ask(tfanalyze, tmp_path, 'info,memory', job, '--layout', 'html', rc=2)
    assert not refused.out and '--layout html' in refused.err and 'cannot be combined' in refused.err


def test_a_file(job, tfanalyze, tmp_path):
    result = ask(tfanalyze, tmp_path, 'kinds,timeline', job, '--format', 'json', '--output', tmp_path / 'two.json')
    assert result.out == '' and [a['command'] for a in json.loads((tmp_path / 'two.json').read_text())] == ['kinds', 'timeline']


def test_some_without_an_answer(job, tfanalyze, tmp_path):
    both = ask(tfanalyze, tmp_path, 'stages,breakdown', job, '--stage', 'nothing', '--format', 'json', rc=1)
    assert both.out == '' and both.err.count('nothing matches --stage nothing') == 2
    host_only = job.parent / 'cpu_only'
    one = ask(tfanalyze, tmp_path, 'stages,breakdown', host_only, '--stage', 'gloo:*', '--format', 'json')
    assert [bool(a['rows']) for a in json.loads(one.out)] == [True, False] and one.err.count('nothing matches') == 1


def test_nothing_to_read(tfanalyze, tmp_path):
    result = ask(tfanalyze, tmp_path, 'stages,timeline', tmp_path / 'missing.json', rc=1)
    assert result.out == '' and result.err.count('missing.json') == 1


def test_names_beside_info(analyze, tfanalyze, tmp_path):
    """How a kernel is called does not depend on what is asked beside it."""
    path = kineto.Trace().stage('s', 0, 100).launch('_ZN3foo3barIfEEvT_', 10, 1).write(tmp_path / 'in.json')
    _, beside = json.loads(ask(tfanalyze, tmp_path, 'info,breakdown', path, '--format', 'json').out)
    assert beside == analyze('breakdown', path) and beside['rows'][0]['name'] == 'void foo::bar<float>(float)'


ALL = re.findall(r'^COMMAND\("([^"]+)"(?:(?!^COMMAND).)*?\bTOGETHER\b', (ROOT / 'analysis' / 'commands.def').read_text(), re.M | re.S)
MIXED = [[], ['--stage', 'denoise'], ['--stage', 'load', '--from', '0.0005'], ['--step', '1'], ['--device', '0', '--stage', 'attention'], ['--rules', 'tracelens']]
LONG = [[], ['--stage', 'denoise'], ['--from', '0.0005', '--to', '0.0012'], ['--step', '1']]
KINETO = [[], ['--stage', 'forward'], ['--stream', '9'], ['--rules', 'hta'], ['--rules', 'tracelens']]


def answers(tfanalyze, directory, names, trace, options):
    """The answers of one run by name; None if it refuses an option."""
    result = execute([tfanalyze, ','.join(names), *options, '--format', 'json', trace], clean_environment(), directory)
    assert result.rc in (0, 1, 2, 3), result.err
    found = json.loads(result.out) if result.out else []
    return None if result.rc == 2 else dict(zip(names, found if len(names) > 1 else [found]))


def made(kind, directory):
    """A trace with what questions read: `device` with samples of devices too, `long` with operators and blocks that stay in the file."""
    if kind == 'kineto':
        return kineto.sample().write(directory / 'in.json')
    return optrace.Long().write(directory / 'job') if kind == 'long' else optrace.job(directory / 'job', kind == 'device')


@pytest.mark.parametrize('kind, options', [*(('device', o) for o in MIXED), *(('host', o) for o in MIXED[:4]), *(('long', o) for o in LONG),
                                           *(('kineto', o) for o in KINETO)],
                         ids=lambda value: value if isinstance(value, str) else ' '.join(value) or 'all')
def test_all_in_any_order(tfanalyze, tmp_path, kind, options):
    """No answer depends on what is asked beside it, nor on what is asked first."""
    trace = made(kind, tmp_path)
    alone = {}
    for name in ALL:
        alone.update(answers(tfanalyze, tmp_path, [name], trace, options) or {})
    names = [name for name in alone if answers(tfanalyze, tmp_path, ['kinds', name] if '--rules' in options else [name], trace, options) is not None]
    assert sum(bool(alone[name]) for name in names) >= 3
    for seed in range(5):
        order = sorted(names, reverse=True) if not seed else random.Random(seed).sample(names, len(names))
        together = answers(tfanalyze, tmp_path, order, trace, options)
        asked = [name for name in order if alone[name]]
        assert [name for name in asked if together[name] != alone[name]] == []


@pytest.mark.parametrize('kind, options', [('device', []), ('host', []), ('device', ['--step', '1']), ('kineto', ['--rules', 'hta'])], ids=str)
def test_each_reads_what_it_needs(tfanalyze, tfanalyze_asan, tmp_path, kind, options):
    """In the sanitizer build a question fails that reads a table which its needs lack, though another one has it read."""
    trace = made(kind, tmp_path)
    names = [name for name in ALL if answers(tfanalyze, tmp_path, ['kinds', name], trace, options)]
    assert len(names) > 5
    together = answers(tfanalyze_asan, tmp_path, names, trace, options)
    assert together == answers(tfanalyze, tmp_path, names, trace, options)


def peak(*words):
    """The memory that a program takes, in KiB. Another one starts it, as a child's peak includes what its parent had in memory."""
    start = 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)'
    return int(subprocess.run([sys.executable, '-c', start, *words], capture_output=True, check=True).stdout)


def test_memory_of_two_questions(tfanalyze, tmp_path):
    """The operators of a long run stay in its file unless a question needs all of them at once. Two questions take at most
    the sum of what each takes."""
    trace, r = optrace.Mixed(seed=3), random.Random(3)
    name = trace.w.string('aten::add')
    trace.w.chunk([rec('op', name=name, time=ticks(5 * i) + r.randrange(900), duration=2, sequence=-1) for i in range(20000)], thread=1, tid=101)
    chunk = bytes(trace.w.data[trace.w.blocks[-1].offset:])
    for _ in range(40):
        head = list(BLOCK.unpack_from(chunk))
        head[3] = trace.w.next_serial()
        packed = BLOCK.pack(*head)
        trace.w.data += packed + zlib.crc32(packed).to_bytes(4, 'little') + chunk[BLOCK.size + 4:]
    path = trace.write(tmp_path)
    took = {names: peak(tfanalyze, names, path) for names in ('info', 'stages', 'ops', 'launches', 'timeline', 'info,stages', 'info,ops',
                                                              'stages,ops', 'launches,timeline')}
    assert took['info,stages'] < took['stages'] + 2000, took
    for both in (names for names in took if ',' in names):
        assert took[both] <= sum(took[name] for name in both.split(',')), took


FRAMES = ('breakdown', 'timeline', 'kinds', 'overlap', 'idle', 'queue')


@pytest.mark.parametrize('questions', [FRAMES, FRAMES[::-1], ('idle', 'launches', 'timeline'), ('kinds', 'bandwidth')])
def test_htas_questions_share_their_frames(job, tfanalyze, tmp_path, questions):
    """HTA's frames are made once, and nothing else is read for them; beside other questions everything is read."""
    together = json.loads(ask(tfanalyze, tmp_path, ','.join(questions), job, '--rules', 'hta', '--format', 'json').out)
    assert [one['command'] for one in together] == list(questions)
    for one in together:
        alone = json.loads(ask(tfanalyze, tmp_path, one['command'], job, '--rules', 'hta', '--format', 'json').out)
        assert one == alone and one['rows']


@pytest.mark.parametrize('factor', [3, 100003, 2**32 + 5])
def test_htas_frames_with_correlations_far_apart(job, tfanalyze, tmp_path, factor):
    """Correlations are only names of calls: other ones give the same answers."""
    source = sorted(job.glob('*.json.gz'))[0]
    trace = json.loads(gzip.decompress(source.read_bytes()))
    for event in trace['traceEvents']:
        args = event.get('args')
        if isinstance(args, dict) and isinstance(args.get('correlation'), int) and args['correlation'] > 0:
            args['correlation'] = args['correlation'] * factor + 1
    found = []
    for name in 'as it is', 'far apart':
        directory = tmp_path / name
        directory.mkdir()
        (directory / source.name).write_bytes(
            source.read_bytes() if name == 'as it is' else gzip.compress(json.dumps(trace).encode()))
        answers = json.loads(ask(tfanalyze, tmp_path, ','.join(FRAMES), directory, '--rules', 'hta', '--format', 'json').out)
        found.append([(a['rows'], a['totals']) for a in answers])
    assert found[0] == found[1] and any(row['works'] for row in found[0][4][0])
