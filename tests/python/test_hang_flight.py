"""test_hang_flight - dumps of PyTorch's flight recorder: those that torch writes with gloo, and hostile pickles.

torch writes the dumps of two ranks of which one never comes. All other pickles are built here, opcode by opcode.
"""

import json
import os
import pickle
import random
import resource
import struct
import subprocess

import pytest

from conftest import clean_environment, free_port

PROGRAM = """
import json, os, sys, threading, time
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
rank = int(os.environ['RANK'])
dist.init_process_group('gloo')
x = torch.ones(10)
for _ in range(3):
    dist.all_reduce(x)
def dump():
    while rank == 0 and len(json.loads(c10d._dump_fr_trace_json())['entries']) < 4: # the call that waits
        time.sleep(0.05)
    while rank == 1 and not os.path.exists('done_0'): # who dumps before the other one waits is not blamed
        time.sleep(0.05)
    open(f'dump_rank_{rank}', 'wb').write(c10d._dump_fr_trace())
    open(f'json_{rank}.json', 'wb').write(c10d._dump_fr_trace_json())
    open(f'done_{rank}', 'w').close()
    while not all(os.path.exists(f'done_{r}') for r in (0, 1)):
        time.sleep(0.05)
    os._exit(0)
threading.Thread(target=dump).start()
def wait_for_ever():
    time.sleep(1000)
if rank == 1:
    wait_for_ever()
dist.all_reduce(x)
"""


@pytest.fixture(scope='module')
def dumps(tmp_path_factory, python):
    directory = tmp_path_factory.mktemp('dumps')
    program = directory / 'program.py'
    program.write_text(PROGRAM)
    env = {**clean_environment(), 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port()), 'TORCH_FR_BUFFER_SIZE': '100'}
    ranks = [subprocess.Popen([python, program], cwd=directory, env={**env, 'RANK': str(r)}) for r in range(2)]
    for rank in ranks:
        assert rank.wait(timeout=200) == 0
    return directory


def check(answer, frames):
    [fault] = answer['totals']['unmatched']
    assert (fault['collective'], fault['seq'], fault['size'], fault['fault']) == ('all_reduce', 4, 2, 'missing')
    assert (fault['waiting_ranks'], fault['missing_ranks'], fault['blamed_ranks']) == ([0], [1], [1])
    [row] = [row for row in answer['rows'] if row['rank'] == 0]
    assert (row['state'], row['collective'], row['missing_ranks']) == ('in collective', 'all_reduce', [1])
    last = len(PROGRAM.splitlines())
    assert (row['stack'][-1].endswith(f'program.py:{last}') if frames else row['stack'] is None), row
    assert [i['kind'] for i in answer['inputs']] == ['flight', 'flight']


@pytest.mark.slow
def test_dumps_of_torch(analyze, dumps):
    """A pickle and JSON give the answer of a trace, and the pickle the line that waits."""
    check(analyze('hang', *dumps.glob('dump_rank_*')), True)
    check(analyze('hang', *dumps.glob('json_*')), False)
    check(analyze('hang', f'rank=0:{dumps}/dump_rank_0', f'rank=1:{dumps}/dump_rank_1'), True)


@pytest.mark.slow
def test_a_dump_alone(analyze, dumps):
    """Nobody is named if the other dump is missing."""
    answer = analyze('hang', dumps / 'dump_rank_0', rc=3)
    assert answer['totals']['unmatched'] == [] and any('rank 1 of 2 ranks has no trace' in line for line in answer['totals']['not_known'])


# ---- dumps that are written here ----

def entry(seq, rank, retired, op='all_reduce', count=10):
    return {'record_id': seq, 'pg_id': 0, 'process_group': ('0', 'default_pg'), 'collective_seq_id': seq, 'p2p_seq_id': 0, 'op_id': seq,
            'profiling_name': f'gloo:{op}', 'time_created_ns': 10 ** 18 + seq * 10 ** 6 + rank, 'input_sizes': [[count]], 'input_dtypes': ['Float'],
            'output_sizes': [[count]], 'output_dtypes': ['Float'], 'state': 'scheduled', 'time_discovered_started_ns': None,
            'time_discovered_completed_ns': None, 'retired': retired, 'timeout_ms': 1800000, 'is_p2p': False,
            'frames': [{'name': 'f', 'filename': '/job/x.py', 'line': 7}]}


def dump(entries, last, world=4):
    return {'version': '2.10', 'pg_config': {'0': {'name': '0', 'desc': 'default_pg', 'ranks': str(list(range(world)))}}, 'entries': entries,
            'pg_status': {'0': {'last_enqueued_collective': last, 'last_started_collective': -1, 'last_completed_collective': last}}}


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_every_protocol(analyze, tmp_path, protocol):
    for rank in range(4):
        last = 3 if rank == 2 else 4
        entries = [entry(i, rank, i < 4, count=11 if (rank, i) == (1, 4) else 10) for i in range(1, last + 1)]
        (tmp_path / f'r{rank}').write_bytes(pickle.dumps(dump(entries, last), protocol))
    [fault] = analyze('hang', tmp_path)['totals']['unmatched']
    assert (fault['fault'], fault['seq'], fault['blamed_ranks'], fault['missing_ranks']) == ('mismatch', 4, [1], [2])


def test_a_dump_of_active_calls_only_names_nobody(analyze, tmp_path):
    """The missing rank may have called anything that its dump leaves out."""
    for rank in range(2):
        (tmp_path / f'r{rank}').write_bytes(pickle.dumps(dump([] if rank else [entry(4, 0, False)], 3 if rank else 4, world=2), 2))
    totals = analyze('hang', tmp_path, rc=3)['totals']
    assert totals['unmatched'] == [] and totals['verdict'][0].startswith('no collective is known to be unmatched')
    assert any('1 process: its trace lost records' in line for line in totals['not_known'])


class Evil:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def text(length):
    return b'X' + struct.pack('<I', length)


START = b'\x80\x02'
HOSTILE = {
    'GLOBAL': (START + b'cposix\nsystem\nX\x04\0\0\0true\x85R.', 'byte 2, opcode 0x63 GLOBAL'),
    'INST': (START + b'(S"x"\niposix\nsystem\n.', 'byte 3'),
    'BUILD': (START + b'}}b.', 'byte 4, opcode 0x62 BUILD'),
    'PERSID': (START + b'Px\n.', 'opcode 0x50 PERSID'),
    'BINPERSID': (START + b'NQ.', 'opcode 0x51 BINPERSID'),
    'STACK_GLOBAL': (b'\x80\x04\x8c\x05posix\x8c\x06system\x93.', 'opcode 0x93 STACK_GLOBAL'),
    'a gigantic text': (START + text(0xfffffff0) + b'x.', 'longer than 1,048,576'),
    'a text beyond the end': (START + text(1000) + b'x.', 'beyond the end'),
    'a gigantic text of 64 bits': (b'\x80\x04\x8d' + b'\xff' * 8 + b'.', 'longer than'),
    'deep nesting': (START + b']' * 100 + b'a' * 99 + b'.', 'nested too deeply'),
    'deep nesting by tuples': (START + b')' + b'\x85' * 100 + b'.', 'nested too deeply'),
    'deep nesting by the memo': (START + b')q\0' + b'h\0\x85q\0' * 100 + b'.', 'nested too deeply'),
    'a list in itself': (START + b']q\0h\0a.', 'would contain itself'),
    'a list in itself through another one': (START + b']q\0]h\0aa.', 'would contain itself'),
    'a list that is changed later': (START + b']q\0]aNaN0h\0Na.', 'opcode'),
    'a gigantic memo': (START + b'Nr\xff\xff\xff\xff.', 'memo is above'),
    'an unknown place of the memo': (START + b'h\x07.', 'no such value'),
    'an empty stack': (START + b'.', 'no value'),
    'no mark': (START + b'}u.', 'no mark'),
    'no STOP': (START + b'N', 'without STOP'),
    'a number of 2,040 bits': (START + b'\x8a\xff' + b'x' * 255 + b'.', '64 bits'),
    'four million values': (START + b'N' * (4 << 20) + b']q\0.', '4,194,304 values'),
    'a new protocol': (START + b'\x80\x09N.', 'protocol'),
    'no dump': (START + b'N.', 'no list of entries'),
    'a key that is a list': (START + b'}]Ns.', 'a key'),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_pickles(analyze, tmp_path, name):
    """Each is refused with what is wrong and where."""
    data, why = HOSTILE[name]
    (tmp_path / 'dump_0').write_bytes(data)
    result = analyze('hang', tmp_path / 'dump_0', rc=1, format=None)
    assert why in result.err and 'dump_0' in result.err, result.err


def test_nothing_is_executed(analyze, tmp_path):
    for protocol in range(2, 6):
        (tmp_path / 'dump_0').write_bytes(pickle.dumps({'entries': [Evil(tmp_path / 'made')]}, protocol))
        assert 'nothing in it was executed' in analyze('hang', tmp_path / 'dump_0', rc=1, format=None).err
    assert not (tmp_path / 'made').exists()


def test_a_memo_bomb(analyze, tmp_path):
    """Twenty lists of a hundred times the one before are small in the reader."""
    bombs = b''.join(b'(' + b'h%c' % i * 100 + b'tq%c' % (i + 1) for i in range(1, 21))
    (tmp_path / 'dump_0').write_bytes(START + b'}X\x07\0\0\0entries((' + b'N' * 100 + b'tq\1' + bombs + b'ts.')
    answer = analyze('hang', tmp_path / 'dump_0', rc=3)
    assert answer['totals']['unmatched'] == []


def test_large_values_in_every_entry(analyze, tmp_path):
    """A shape of 100,000 sizes and a text of 1 MB are shared by 200,000 entries: reading them takes seconds, not hours."""
    shared = {**entry(1, 0, True), 'input_sizes': [[1] * 100000], 'process_group': ('0', 'x' * 1000000)}
    one = pickle.dumps(shared, 2)[2:-1] + b'r' + struct.pack('<I', 1000)
    entries = b'(' + (b'j' + struct.pack('<I', 1000)) * 200000 + b't'
    (tmp_path / 'dump_0').write_bytes(START + b'}X\1\0\0\0x' + one + b'sX\7\0\0\0entries' + entries + b's.')
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    answer = analyze('hang', tmp_path / 'dump_0', rc=3)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 20
    assert answer['totals']['unmatched'] == []


def test_random_damage(analyze, tmp_path):
    """Flipped bytes and cuts: an answer or a refusal, never a crash."""
    rng = random.Random(3)
    whole = pickle.dumps(dump([entry(i, 0, i < 4) for i in range(1, 5)], 4), 2)
    as_json = json.dumps({'comm_lib_version': '', **dump([entry(i, 0, i < 4) for i in range(1, 5)], 4)}).encode()
    for i in range(80):
        data = bytearray(rng.choice([whole, as_json]))
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(2, len(data))] = rng.randrange(256)
        (tmp_path / 'dump_0').write_bytes(data[:rng.choice([len(data), rng.randrange(3, len(data))])])
        result = analyze('hang', tmp_path / 'dump_0', rc=any, format=None)
        assert result.rc in (0, 1, 3), result
