"""test_reader_damage - lost records, cut and changed files, and sizes that no writer writes."""

import json
import os
import resource
import struct
import subprocess

import pytest

import random_traces
import tfr
from conftest import COMMAND_TIMEOUT
from small_traces import live_pair, simple
from tfr import rec


# ---- losses ----

def test_drops_are_reported_and_counted(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('drop', cause=1, time=3, count=5), rec('drop', cause=1, time=4, count=9), rec('drop', cause=7, time=4, count=2)])
    w.footer(**{'drop.CAP': 30, 'drop.NO_CHUNK': 9})
    path = w.save(tmp_path / 'a.tfr')
    answer = analyze('info', path, rc=3)
    assert answer['rows'][0]['lost'] == {'no_chunk': 9, 'cap': 30} and answer['rows'][0]['counted'] == {'unmatched': 2}
    assert answer['inputs'][0]['lost'] == 39 and answer['inputs'][0]['complete'] is False
    assert 'TFI_MAX_MB' in analyze('stages', path, format='text', rc=3).err


def test_lost_names_are_a_loss(tmp_path, analyze):
    """Rows of names that the library could not keep are wrong, so the answer says so and its status is 3."""
    w = simple(tmp_path / 't.tfr', footer=False)
    w.footer(**{'drop.STRINGS': 1344000})
    w.save(tmp_path / 't.tfr')
    answer = analyze('info', tmp_path / 't.tfr', rc=3)
    assert answer['rows'][0]['lost'] == {'strings': 1344000}
    err = analyze('info', tmp_path / 't.tfr', rc=3, format='text').err
    assert '1344000 names: they are shown as (lost)' in err and 'TFI_TENSOR_ADDRESSES=0' in err


def test_missing_chunks_are_counted(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    w.footer(records=30, chunks=4)
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['lost'] == {'missing': 30 - 2 - 7 - 4}


def test_serials_that_stand_twice_count_once(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('mark', time=5)] * 4, thread=1, serial=9)
    w.chunk([rec('mark', time=5)] * 4, thread=1, serial=9)
    w.footer(chunks=3)
    assert analyze('info', w.save(tmp_path / 'a.tfr'))['rows'][0]['events']['mark'] == 4


# ---- damage ----

def test_a_file_cut_anywhere(tmp_path, analyze):
    """A truncated file gives the chunks before the cut, the place, and status 3 (1 if nothing is left)."""
    w = random_traces.everything()
    path = tmp_path / 'cut.tfr'
    for cut in [*range(0, len(w.data), 997), *(b.offset for b in w.blocks), *(b.offset + 5 for b in w.blocks)]:
        path.write_bytes(w.data[:cut])
        os.utime(path, (1, 1))
        whole = sum(b.records for b in w.blocks if b.end <= cut)
        rc = 3 if cut > 16 else 1  # a bare head is of a process that was killed at its start
        result = analyze('info', path, rc=rc, format='json' if rc == 3 else 'text')
        if rc == 3:
            events = result['inputs'][0]['events']
            assert events == whole and result['inputs'][0]['complete'] is False, cut
        else:
            assert 'cut.tfr' in result.err


def test_damage_is_reported_with_its_place(tmp_path, analyze):
    """Damage in unpacked rows, which only the checksum detects, is reported with its place."""
    w = random_traces.everything(footer=False)
    w.chunk([rec('mark', name=w.string('here'), time=10 ** 8 + i, payload=i) for i in range(9)], thread=1, tid=101,
            form='rows', deflate=False)
    w.footer()
    path = tmp_path / 'a.tfr'
    chunks = [b for b in w.blocks if b.type == tfr.CHUNK]
    lost = chunks[-1]
    data = bytearray(w.data)
    data[lost.offset + 72] ^= 1
    path.write_bytes(data)
    result = analyze('info', path, format='text', rc=3)
    assert f'damaged in 1 place, the first at byte {lost.offset}: {lost.records} records lost' in result.err
    data[lost.offset + 2] ^= 1  # the block's head too: only the footer still knows its number of records
    path.write_bytes(data)
    answer = analyze('info', path, rc=3)
    assert answer['rows'][0]['lost'] == {'missing': lost.records}
    assert answer['inputs'][0]['events'] == len(w.records) - lost.records


def test_a_damaged_beginning_is_read_all_the_same(tmp_path, analyze):
    w = random_traces.everything()
    data = bytearray(w.data)
    data[0:16] = bytes(16)
    (tmp_path / 'a.tfr').write_bytes(data)
    result = analyze('info', tmp_path / 'a.tfr', format='text', rc=3)
    assert 'the first 16 bytes are damaged (expected TFITRACE)' in result.err
    assert analyze('info', tmp_path / 'a.tfr', rc=3)['inputs'][0]['events'] == len(w.records)


def test_lost_descriptions(tmp_path, analyze):
    """Damaged HEADER, SCHEMA and STRINGS blocks, one by one, lose no record."""
    w = random_traces.everything()
    for block in [b for b in w.blocks if b.type in (tfr.HEADER, tfr.SCHEMA, tfr.STRINGS)][:6]:
        data = bytearray(w.data)
        data[block.offset + 50] ^= 255
        (tmp_path / 'rank5.x.1.tfr').write_bytes(data)
        answer = analyze('dump', tmp_path / 'rank5.x.1.tfr', rc=3)
        assert len(answer['rows']) == len(w.records)
        assert answer['rows'][0]['rank'] == (5 if block.type == tfr.HEADER else 0)
    data = bytearray(w.data)
    for block in [b for b in w.blocks if b.type == tfr.STRINGS]:
        data[block.offset + 50] ^= 255
    (tmp_path / 'rank5.x.1.tfr').write_bytes(data)
    names = {r['values']['name'] for r in analyze('dump', tmp_path / 'rank5.x.1.tfr', rc=3)['rows'] if r['kind'] == 'mark'}
    assert '(lost)' in names and names <= {'(lost)', None}


def test_blocks_after_a_gap_are_found(tmp_path, analyze):
    """Blocks are found although bytes before them are missing and every offset is wrong."""
    w = random_traces.everything()
    chunks = [b for b in w.blocks if b.type == tfr.CHUNK]
    data = w.data[:chunks[3].offset + 30] + w.data[chunks[6].offset + 13:]
    (tmp_path / 'a.tfr').write_bytes(data)
    lost = sum(b.records for b in chunks[3:7])
    answer = analyze('info', tmp_path / 'a.tfr', rc=3)
    assert answer['inputs'][0]['events'] == len(w.records) - lost
    assert answer['rows'][0]['lost'] == {'missing': lost}


def test_a_torn_write_in_the_middle(tmp_path, analyze):
    """Blocks are found after a torn write, though they lie inside the size that the torn block claims."""
    w = simple(tmp_path / 'a.tfr', footer=False)
    torn = tfr.pack_block(tfr.CHUNK, os.urandom(5000), serial=50, records=17)
    before = bytes(w.data)
    w.data += torn[:700]
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    w.footer(chunks=4)
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['events']['mark'] == 4 and answer['rows'][0]['lost'] == {'damaged': 17}
    w.data[len(before):] = torn[:700] + bytes(w.data[len(before) + 700:]) + bytes(8) * 1000
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['events']['mark'] == 4


def test_a_newer_trace_is_refused_with_its_live_file(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    path.write_bytes(tfr.file_head(major=2) + bytes(w.data[16:]))
    result = analyze('info', path, format='text', rc=1)
    assert result.out == '' and 'has format 2.0' in result.err


# ---- hostile sizes ----

HOSTILE = {
    'huge counts in runs': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(count=0xfffffff0), serial=9, records=9),
    'many columns': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(columns=65535), serial=9, records=9),
    'a group larger than the chunk': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(bytes_=0xffffffff), serial=9, records=9),
    'many kinds': lambda w: tfr.pack_block(tfr.CHUNK, b'\xff\xff\xff\xff\0\0\0\0', serial=9, records=9),
    'a deflated bomb': lambda w: tfr.pack_block(tfr.CHUNK, bytes(64 << 20), flags=tfr.DEFLATED, serial=9, raw=4 << 20),
    'more raw than a block may have': lambda w: tfr.pack_block(tfr.CHUNK, bytes(64 << 20), flags=tfr.DEFLATED, serial=9),
    'strings without end': lambda w: tfr.pack_block(tfr.STRINGS, b'\x01\0\0\0\xff\xff\xff\xff' * 1000),
    'ids far apart': lambda w: tfr.pack_block(tfr.STRINGS, b''.join(
        n.to_bytes(4, 'little') + bytes(4) for n in range(1, 2 ** 32 - 2, 2 ** 22))),
    'a schema of nonsense': lambda w: tfr.pack_block(tfr.SCHEMA, b'1 a b:c:d:e\n' * 1000 + b'99999 x\n7\n:::: \n5 x y:z\n'),
    'keys without values': lambda w: tfr.pack_block(tfr.HEADER, b'a\0b\0c'),
}


def hostile_group(count=1, columns=1, bytes_=None):
    data = tfr.varint(tfr.zigzag(5)) + tfr.varint(count)
    column = struct.pack('<HHI', 0, tfr.RUNS, len(data)) + data
    order = tfr.varint(0) + tfr.varint(count)
    return (struct.pack('<II', 1, len(order)) + order
            + struct.pack('<HHII', 12, columns, count, len(column) if bytes_ is None else bytes_) + column)


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_sizes(tmp_path, tfanalyze, tfanalyze_asan, name):
    """Impossible sizes with valid checksums: no crash, and at most 400 MB of address space."""
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.data += HOSTILE[name](w)
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    path = w.save(tmp_path / 'a.tfr')

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    for command in (['info', '--format', 'json'], ['stages'], ['dump'], ['export', 'chrome']):
        result = subprocess.run([tfanalyze, *command, path], capture_output=True, preexec_fn=limit, timeout=COMMAND_TIMEOUT)
        assert result.returncode == 3, result.stderr
        checked = subprocess.run([tfanalyze_asan, *command, path], capture_output=True, timeout=COMMAND_TIMEOUT)
        assert (checked.returncode, checked.stdout, checked.stderr) == (3, result.stdout, result.stderr)
        if command[0] == 'info':
            assert json.loads(result.stdout)['rows'][0]['events']['mark'] == 4
