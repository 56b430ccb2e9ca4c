"""test_directories - a file of a directory that looks like a rank's trace and cannot be read is said by every command, and is no success."""

import gzip
import random

import pytest

import growth
from kineto import Trace
from test_answers import flight
from test_snapshots import Recorded, snapshot, write

RANDOM = random.Random(3).randbytes(5000)
GONE = {'random bytes': RANDOM, 'zeros': bytes(5000), 'a page of a proxy': b'<html>404</html>', 'nothing': b'', 'an answer': b'{"error": 404}',
        'a list': b'[1, 2]', 'a packed page': gzip.compress(b'<html>'), 'a cut gzip': gzip.compress(RANDOM)[:4000],
        'a gzip of random bytes': gzip.compress(RANDOM), 'no text': b'{"schemaVersion": 1, \xff\xfe}'}


def ranks(directory, name='rank{}.json', count=2):
    for rank in range(count):
        Trace(distributedInfo={'rank': rank, 'world_size': 3}).call(1, 1).kernel('k', 5, 5, 1).write(directory / name.format(rank))
    return directory


@pytest.mark.parametrize('what', GONE)
@pytest.mark.parametrize('name', ['rank2.json', 'rank2.json.gz', 'rank2.json.zst'])
def test_a_rank_that_cannot_be_read(analyze, tmp_path, what, name):
    ranks(tmp_path)
    (tmp_path / name).write_bytes(GONE[what])
    for command in ('info', 'report', 'timeline', 'comm', 'screen'):
        result = analyze(command, tmp_path, *(['--output', tmp_path.parent / 'out'] if command == 'report' else []), rc=3, format=None)
        assert f'{name}: ' in result.err and 'not traces and were left out' not in result.err, (command, result.err)
        assert 'nothing was lost' not in result.out


@pytest.mark.parametrize('name', ['worker_{}.17.pt.trace.json', 'host_{}_rank.json', 'nccl_trace_rank_{}', '{}.pickle'])
def test_names_of_ranks(analyze, tmp_path, name):
    """A name that differs from that of a trace in its numbers alone is that of a rank."""
    device = Recorded(1).work(20)
    for rank in range(2):
        if 'json' in name:
            Trace().call(1, 1).kernel('k', 5, 5, 1).write(tmp_path / name.format(rank))
        else:
            write(tmp_path / name.format(rank), snapshot(device))
    (tmp_path / name.format(17)).write_bytes(b'x' if 'json' not in name else b'{}')
    err = analyze('info', tmp_path, rc=3, format=None).err
    assert f'{name.format(17)}: is named like' in err and 'a rank may be missing' in err


def test_other_files_are_no_loss(analyze, tmp_path):
    """JSON of other programs, directories, and files that only resemble each other."""
    ranks(tmp_path)
    (tmp_path / 'config.json').write_text('{"batch": 3}')
    (tmp_path / 'notes 1.txt').write_text('x')
    (tmp_path / 'rank0').mkdir()
    (tmp_path / 'rank5.json').mkdir()
    assert '1 .json files beside it are not traces' in analyze('info', tmp_path, format=None).err
    assert len(analyze('timeline', tmp_path)['rows']) == 2


def test_a_link_to_a_trace_beside_it(analyze, tmp_path):
    ranks(tmp_path)
    (tmp_path / 'rank7.json').symlink_to('rank1.json')
    assert len(analyze('timeline', tmp_path)['rows']) == 2
    (tmp_path / 'rank8.json').symlink_to('gone.json')
    assert 'rank8.json: ' in analyze('timeline', tmp_path, rc=3, format=None).err


def test_snapshots_beside_traces(analyze, tmp_path):
    """Neither hides the other."""
    ranks(tmp_path)
    device = Recorded(1).work(20)
    write(tmp_path / 'rank0_memory.pickle', snapshot(device))
    result = analyze('timeline', tmp_path, format=None)
    assert 'rank0_memory.pickle: is left out' in result.err
    assert len(analyze('timeline', tmp_path)['rows']) == 2
    assert [row['kind'] for row in analyze('info', tmp_path)['rows']].count('kineto') == 2
    leaked = sum(row['leaked_bytes'] for row in analyze('memory', '--layout', 'leaks', tmp_path, rc=3)['rows'])  # the others do not tell
    assert leaked == sum(size for size, _ in device.live.values())


def test_profiles_beside_dumps(analyze, tmp_path):
    """The dumps of a job that hangs answer alone, and a line says what was left out."""
    for rank in range(2):
        flight(tmp_path, rank, [{'profiling_name': 'nccl:all_reduce', 'collective_seq_id': 1 + rank, 'is_p2p': False}])
    alone = analyze('hang', tmp_path, rc=None)['rows']
    ranks(tmp_path)
    result = analyze('hang', tmp_path, rc=any, format=None)
    assert '2 traces of a profiler beside the dumps of the flight recorder were left out' in result.err
    assert analyze('hang', tmp_path, rc=None)['rows'] == alone
    result = analyze('timeline', tmp_path, format=None)
    assert "dump_0: is left out, as the other dumps of the flight recorder are" in result.err and len(analyze('timeline', tmp_path)['rows']) == 2


def test_dumps_answer_what_they_have(analyze, tmp_path):
    """Questions about more than collectives are refused: a command that read a dump as a trace of ours was killed by it."""
    for rank in range(2):
        flight(tmp_path, rank, [{'profiling_name': 'nccl:all_reduce', 'collective_seq_id': 1, 'is_p2p': False}])
    for name, words in growth.COMMANDS.items():
        if name in ('watch', 'ncu plan', 'ncu report') or words[0] == 'diff':
            continue
        first, *rest = words
        output = tmp_path.parent / 'out'
        result = analyze(*first.split(), *(output if w == '@' else w for w in rest), tmp_path, rc=any, format=None)
        reads = first in ('info', 'comm', 'stragglers', 'reduce', 'hang')
        assert reads or (result.rc == 1 and 'these commands read it: ' in result.err), (name, result.err)
