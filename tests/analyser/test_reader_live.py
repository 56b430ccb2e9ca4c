"""test_reader_live - a trace and its live file, for processes that were killed or still run."""

import os
import time
from pathlib import Path

import pytest

import tfr
from small_traces import clock_chunk, live_pair


def test_live_chunks_complete_the_trace(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    for given in (path, live, tmp_path):
        answer = analyze('dump', given)
        names = [r['values']['name'] for r in answer['rows'] if r['kind'] == 'mark']
        assert names == [f'm{i}' for i in range(20)] + [f'closed{i}' for i in range(30)] + [f'open{i}' for i in range(7)]
        assert [r['live'] for r in answer['rows'] if r['kind'] == 'mark'] == [False] * 20 + [True] * 37
    result = analyze('info', path, format='text')
    assert 'ended             killed' in result.out and 'was killed; everything recorded before that was read' in result.err
    row = analyze('info', path)['rows'][0]
    assert row['ended'] == 'killed' and not row['complete'] and row['lost'] == {}
    assert analyze('info', path, live, tmp_path)['totals']['processes'] == 1


def test_a_chunk_in_both_files_counts_once(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    w.chunk(chunks[1]['records'], thread=2, tid=6, serial=3)
    w.save(path)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 57
    # The chunk was appended while its thread was still recording, so the live file has more records.
    short = tfr.Writer(host='elsewhere')
    short.numbers, short.strings = dict(w.numbers), dict(w.strings)
    clock_chunk(short, [(0, 0, 10 ** 18)], thread=1)
    short.pending = sorted(w.strings.items())
    short.chunk(chunks[0]['records'][:3], thread=1, tid=5, serial=4)
    short.footer()
    short.save(path)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 37


def test_a_torn_block_whose_chunk_is_live_is_no_loss(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    w.chunk(chunks[1]['records'], thread=2, tid=6, serial=3)
    whole = bytes(w.data)
    start = w.blocks[-1].offset
    for cut in (start + 1, start + 20, start + 48, start + 49, len(whole) - 9):
        path.write_bytes(whole[:cut])
        answer = analyze('dump', path)
        assert len([r for r in answer['rows'] if r['kind'] == 'mark']) == 57, cut
    damaged = bytearray(whole)
    damaged[start + 60] ^= 4
    path.write_bytes(damaged)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 57
    live.unlink()
    os.utime(path, (1, 1))
    result = analyze('dump', path, format='text', rc=3)
    assert '30 records lost' in result.err and str(start) in result.err


def test_a_lone_live_file(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    path.unlink()
    for given in (live, tmp_path):
        answer = analyze('dump', given, rc=3)  # the .tfr had chunks 1 and 2
        assert answer['inputs'][0]['kind'] == 'live' and len(answer['rows']) == 37
        assert answer['inputs'][0]['lost'] == 2  # lost chunks, so at least two records
    path.write_bytes(b'')  # as if the disk was full when the file was made
    os.utime(path, (1, 1))
    assert len(analyze('dump', path, rc=3)['rows']) == 37


HEAD = b'TFITRACE\x01\x00\x04\x00\x10\x00\x00\x00'


@pytest.mark.parametrize('start, live', [(b'', b''), (b'', bytes(1 << 16)), (HEAD, b''), (HEAD, bytes(1 << 16)), (HEAD, None)])
def test_killed_before_it_recorded_anything(tmp_path, analyze, start, live):
    """A process that was killed while it opened its trace is no loss and no error of the disk."""
    w, chunks, path, _ = live_pair(tmp_path)
    early = tmp_path / 'rank0.h.9.tfr'
    early.write_bytes(start)
    if live is not None:
        (tmp_path / 'rank0.h.9.tfr.live').write_bytes(live)
    assert len(analyze('dump', tmp_path)['rows']) > 50
    result = analyze('dump', tmp_path, format='text')
    line, = [x for x in result.err.splitlines() if 'rank0.h.9' in x]
    assert line.endswith('rank0.h.9.tfr: its process was killed before it recorded anything')


def test_one_line_for_many_killed_processes(tmp_path, analyze):
    for i in range(30):
        w = tfr.Writer(pid=str(i))
        clock_chunk(w, [(0, 0, 10 ** 18)], thread=1)
        w.save(tmp_path / f'rank0.h.{i}.tfr')
        (tmp_path / f'rank0.g.{i}.tfr').write_bytes(HEAD)
        os.utime(tmp_path / f'rank0.h.{i}.tfr', (1, 1))
    lines = analyze('dump', tmp_path, format='text', rc=3).err.splitlines()
    assert len(lines) == 2 and all(line.endswith('; the same holds for 29 other inputs') for line in lines), lines


def test_a_live_file_elsewhere(tmp_path, analyze):
    """A live file elsewhere is found through the header, and used only if it is of the same process."""
    away = tmp_path / 'shm' / 'tfinject.0.rank0.h.1.tfr.live'
    away.parent.mkdir()
    run = tmp_path / 'run'
    run.mkdir()
    w, chunks, path, live = live_pair(run, live=away)
    live.rename(away)
    assert len(analyze('dump', run)['rows']) == 2 + 57
    away.write_bytes(away.read_bytes().replace(b'start_time\x007', b'start_time\x008'))
    assert len(analyze('dump', run, rc=3)['rows']) == 2 + 20


def own_process():
    stat = Path('/proc/self/stat').read_text()
    return dict(pid=os.getpid(), start_time=int(stat[stat.rindex(')') + 2:].split()[19]), host=os.uname().nodename,
                boot=Path('/proc/sys/kernel/random/boot_id').read_text().strip())


def test_a_running_process_is_a_snapshot(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path, **own_process())
    result = analyze('info', path, format='text')
    assert 'ended             running' in result.out and 'still running' in result.err
    torn = w.data + tfr.pack_block(tfr.CHUNK, b'x' * 500, serial=9, records=10)[:100]  # an append in progress
    path.write_bytes(torn)
    assert analyze('info', path)['rows'][0]['lost'] == {}
    process = own_process()
    live_pair(tmp_path, **dict(process, start_time=process['start_time'] + 1))
    assert analyze('info', path)['rows'][0]['ended'] == 'killed'


@pytest.mark.parametrize('namespace, after', [(None, 'running'), ('the same', 'running'), ('pid:[1]', 'killed')])
def test_a_process_of_a_container_is_judged_by_its_files(tmp_path, analyze, namespace, after):
    """Its number means another process here, so only a quiet minute tells that it is gone."""
    if namespace == 'the same':
        namespace = os.readlink('/proc/self/ns/pid')
    live_pair(tmp_path, quiet=False, **own_process(), pid_namespace=namespace)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == 'running'
    for p in tmp_path.iterdir():
        os.utime(p, (time.time() - 90,) * 2)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == after


def test_on_another_host_a_live_file_is_dead_when_it_is_quiet(tmp_path, analyze):
    live_pair(tmp_path, quiet=False)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == 'running'
    for p in tmp_path.iterdir():
        os.utime(p, (time.time() - 90,) * 2)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == 'killed'


def test_live_rows_that_make_no_sense_end_their_chunk(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    rows = bytearray(tfr.pack_rows(chunks[0]['records']))
    size = len(rows) // 7
    rows[3 * size + 2:3 * size + 4] = b'\x05\x00'
    for broken in (b'\x05\x00', b'\x00\x00', b'\x02\x00', b'\xf8\xff'):
        rows[3 * size + 2:3 * size + 4] = broken
        live.write_bytes(tfr.pack_live(w, [dict(chunks[0], rows=bytes(rows)), chunks[1]]))
        os.utime(live, (1, 1))
        answer = analyze('dump', path, rc=3)
        assert len([r for r in answer['rows'] if r['kind'] == 'mark']) == 20 + 30 + 3
    assert f'{4 * size} bytes' in analyze('dump', path, rc=3, format='text').err


def test_a_chunk_that_is_being_given_out_is_no_loss(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    live.write_bytes(tfr.pack_live(w, [*chunks, dict(records=[], serial=5, state=tfr.TAKEN)], serial=5))
    os.utime(live, (1, 1))
    assert analyze('info', path)['rows'][0]['lost'] == {}
