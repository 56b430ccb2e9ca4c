"""test_answers - situations of public reports in which an answer was wrong and sure of itself, and their siblings."""

import gzip
import json
import os
import pickle
import stat
from decimal import Decimal

import pytest

from growth_shapes import SHAPES
from kineto import Trace


def written(tmp_path, t, name='trace.json'):
    return t.write(tmp_path / name)


# ---- names of stages ----

def serving(names):
    t = Trace()
    for i, name in enumerate(names):
        t.stage(name, 100 * i, 50).call(100 * i + 5, i + 1).kernel('k', 100 * i + 10, 20, i + 1)
    return t


@pytest.mark.parametrize('pattern, folded', [('execute_{}_context_0_generation_{}', 'execute_*_context_*_generation_*'),
                                             ('step {}', 'step *'), ('block.{}.attn', 'block.*.attn'), ('[{}/80]', '[*/*]'),
                                             ('{}', '*'), ('layer{}', None), ('conv{}d', None)])
def test_folded_stages(analyze, tmp_path, pattern, folded):
    """Names that differ in numbers alone are one stage if there are more than 8; a number that a letter touches is none."""
    few, many = [pattern.format(i, i) for i in range(8)], [pattern.format(i, i) for i in range(9)]
    path = written(tmp_path, serving(few))
    assert {row['stage'] for row in analyze('stages', path)['rows']} == set(few)
    path = written(tmp_path, serving(many))
    rows = analyze('stages', path)['rows']
    assert {row['stage']: row['calls'] for row in rows} == ({folded: 9} if folded else dict.fromkeys(many, 1))
    assert {row['stage'] for row in analyze('breakdown', path)['rows']} == ({folded} if folded else set(many))
    for command in 'stages', 'breakdown':
        assert {row['stage'] for row in analyze(command, path, '--stage-names', 'full')['rows']} == set(many)


def test_names_that_are_asked_for(analyze, tmp_path):
    """A glob with a number means one of the names; exports and torch's table keep all of them."""
    path = written(tmp_path, serving([f'step {i}' for i in range(12)]).stage('other', 5000, 10))
    assert [row['stage'] for row in analyze('stages', path, '--stage', 'step 7')['rows']] == ['step 7']
    assert [(row['stage'], row['calls']) for row in analyze('stages', path, '--stage', 'step *')['rows']] == [('step *', 12)]
    names = {row['name'] for row in analyze('ops', path, rc=None)['rows']}
    assert 'step 7' in names and 'step *' not in names
    t = Trace()
    for i in range(3):
        t.stage(f'ProfilerStep#{i}', 100 * i, 90)
    path = written(tmp_path, t)
    assert [row['stage'] for row in analyze('stages', path)['rows']] == ['ProfilerStep*']
    full = analyze('stages', path, '--stage-names', 'full')['rows']
    assert sorted(row['stage'] for row in full) == ['ProfilerStep#0', 'ProfilerStep#1', 'ProfilerStep#2']


# ---- events that outlive what they are part of ----

def test_a_call_that_bleeds_into_the_next_operator(analyze, tmp_path):
    """It begins inside a sibling that ends at once: the external id says whose it is. Without one, time does."""
    t = Trace().operator('aten::outer', 1000, 100, 1).operator('aten::empty', 1010, 10, 2)
    t.call(Decimal('1019.95'), 7, dur=8).kernel('k', 1040, 30, 7, 1)
    t.call(1015, 8, dur=2).kernel('inner', 1075, 5, 8, 2)
    rows = analyze('breakdown', '--group-by', 'op', written(tmp_path, t))['rows']
    assert {row['name']: row['total_us'] for row in rows} == {'aten::outer': 30, 'aten::empty': 5}
    rows = analyze('patterns', '--operator', 'aten::empty', written(tmp_path, t), rc=any)['rows']
    assert [row['gpu_us'] for row in rows] == [5]


@pytest.mark.parametrize('whole', [True, False])
def test_times_of_whole_microseconds(analyze, tmp_path, whole):
    """A child may seem to end up to 1 us late, since both ends are cut: no self time is negative."""
    late = 1 if whole else Decimal('1.5')
    t = Trace().operator('aten::grandparent', 1000, 101, 1).operator('aten::parent', 1001, 99, 2)
    t.operator('aten::child', 1002, 98 + late, 3).operator('aten::next', 2000, 10, 4)
    found = {row['name']: row['self_cpu_us'] for row in analyze('ops', written(tmp_path, t))['rows']}
    nested = {'aten::grandparent': 2, 'aten::parent': 1, 'aten::child': 98, 'aten::next': 10}
    assert found == (nested if whole else {**nested, 'aten::parent': 99, 'aten::child': Decimal('99.5')})


@pytest.mark.parametrize('overlap', ['0.7', '300'])
def test_steps_that_overlap(analyze, tmp_path, overlap):
    t = Trace()
    for i in range(4):
        t.stage(f'ProfilerStep#{i}', 1000 * i, 1000 + Decimal(overlap)).call(1000 * i + 10, i + 1).kernel('k', 1000 * i + 20, 5, i + 1)
    path = written(tmp_path, t)
    for step in range(4):
        row, = analyze('stages', path, '--step', str(step))['rows']
        assert row['calls'] == 1
        row, = analyze('breakdown', path, '--step', str(step))['rows']
        assert row['calls'] == 1


def frames(*calls):
    t = Trace(with_stack=1)
    for i, (name, start, dur, parent) in enumerate(calls):
        t.add('python_function', name, start, dur, args={'Python id': i + 1, 'Python parent id': parent})
    return t


def test_a_function_that_returns_late(analyze, tmp_path):
    """Its caller has long returned: what runs later is not called by it, and `info` counts it."""
    t = frames(('main.py(1): <module>', 1000, 1000, None), ('a.py(10): step', 1010, 200, 1), ('<built-in>', 1050, 950, 2),
               ('inner.py(1): f', 1060, 900, 3), ('b.py(20): evaluate', 1300, 300, 1))
    t.operator('aten::mm', 1070, 40, 1).operator('aten::add', 1400, 50, 2)
    path = written(tmp_path, t)
    lines = dict(line.rsplit(' ', 1) for line in analyze('stacks', path, format=None).out.splitlines())
    assert lines['main.py(1):_<module>;b.py(20):_evaluate'] == '50'
    assert lines['main.py(1):_<module>;a.py(10):_step;<built-in>;inner.py(1):_f'] == '40'
    assert len(lines) == 5
    assert '2 of 5 Python functions end after their callers' in analyze('stacks', path, format=None).err


@pytest.mark.parametrize('separator', ['\n', '\r', '\r\n'])
def test_a_line_feed_in_a_frame(analyze, tmp_path, separator):
    t = frames(('main.py(1): run', 1000, 100, None), (f'<string>(1): lam{separator}bda', 1010, 80, 1))
    t.operator('aten::mul', 1030, 10, 1)
    lines = analyze('stacks', written(tmp_path, t), format=None).out.splitlines()
    assert f'main.py(1):_run;<string>(1):_lam{"_" * len(separator)}bda 10' in lines and len(lines) == 2


# ---- texts that nobody escaped ----

@pytest.mark.parametrize('name', [r'torch\cuda\__init__.py(219): _lazy_init', r'C:\users\new\top\u0041bc.py(3): f',
                                  r'D:\x\n'])
def test_paths_of_windows(analyze, tmp_path, name):
    """One invalid escape proves that the text is written as it is: nothing in it is decoded, and no name is null."""
    path = tmp_path / 'windows.json'
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}' % name)
    assert [row['stage'] for row in analyze('stages', path)['rows']] == [name]
    exported = json.loads(analyze('export', 'chrome', path, format=None).out)
    assert [e['name'] for e in exported['traceEvents'] if e['ph'] == 'X'] == [name]
    path.write_text(path.read_text().replace(name, r'a\\b\nc'))
    assert [row['stage'] for row in analyze('stages', path)['rows']] == ['a\\b\nc']


# ---- unknown is null ----

def memory_event(ts, allocated, bytes_, device, kind, reserved=4096):
    args = {'Total Allocated': allocated, 'Total Reserved': reserved, 'Bytes': bytes_, 'Addr': ts, 'Device Id': device, 'Device Type': kind}
    return {'ph': 'i', 'cat': 'cpu_instant_event', 's': 't', 'name': '[memory]', 'pid': 100, 'tid': 100, 'ts': ts,
            'args': {k: v for k, v in args.items() if v is not None}}


@pytest.mark.parametrize('allocated, reserved', [(-4900, 0), (None, 0), (100, None)])
def test_one_event_without_totals(analyze, tmp_path, allocated, reserved):
    """Its own totals are unknown, and the largest of all; those of the other events stand."""
    t = Trace(profile_memory=1).stage('s', 0, 1000)
    t.events += [memory_event(10, 1000, 1000, 0, 1), memory_event(20, 3000, 2000, 0, 1), memory_event(30, allocated, 512, -1, 0, reserved)]
    path = written(tmp_path, t)
    answer = analyze('memory', path)
    assert [row['allocated_bytes'] for row in answer['rows']] == [1000, 3000, None]
    totals = analyze('memory', path, '--layout', 'peaks')['totals']
    assert totals['peak_allocated_bytes'] is None
    t.events.pop()
    assert analyze('memory', written(tmp_path, t), '--layout', 'peaks')['totals']['peak_allocated_bytes'] == 3000


def test_launches_that_nothing_links(analyze, tmp_path):
    """ROCm's calls without a correlation id: what they launched is unknown, not 0."""
    t = Trace().stage('s', 0, 1000).operator('aten::mm', 10, 50, 7)
    t.add('cuda_runtime', 'hipLaunchKernel', 15, 6, args={'External id': 7})
    t.add('kernel', 'k', 40, 32, pid=2, tid=0, args={'External id': 7})
    t.add('cuda_runtime', 'hipDeviceSynchronize', 90, 6, args={'External id': 8})  # it launches nothing
    answer = analyze('launches', written(tmp_path, t))
    assert [(row['name'], row['launches'], row['gpu_us'], row['delay_us']) for row in answer['rows']] == [('hipDeviceSynchronize', 0, 0, 0),
                                                                                                       ('hipLaunchKernel', 1, None, None)]
    assert answer['totals']['gpu_us'] is None and answer['totals']['launches'] == 1


# ---- other files ----

KINDS = {'zstd': b'\x28\xb5\x2f\xfd', 'xz': b'\xfd7zXZ\0', 'bzip2': b'BZh9', 'lz4': b'\x04\x22\x4d\x18', 'zip': b'PK\x03\x04',
         'SQLite': b'SQLite format 3\0', 'UTF-16': b'\xff\xfe{\0', 'Perfetto': b'\x0a\x80\x01\x08\x01', 'tar': bytes(257) + b'ustar',
         'UTF-16LE': '{"traceEvents"'.encode('utf-16-le'), 'UTF-16BE': '[{"ph"'.encode('utf-16-be'), 'UTF-32': '{"traceEvents"'.encode('utf-32'),
         'UTF-32LE': '{"traceEvents"'.encode('utf-32-le'), 'lzma': b'\x5d\0\0\x80\0', 'HDF5': b'\x89HDF\r\n\x1a\n', 'Parquet': b'PAR1'}


@pytest.mark.parametrize('kind', KINDS)
def test_files_of_other_kinds(analyze, tmp_path, kind):
    path = tmp_path / 'rank1.json.zst'
    path.write_bytes(KINDS[kind] + b'rest of it')
    err = analyze('timeline', path, rc=1, format=None).err
    assert kind.lower() in err.replace(str(path), '').lower() and ';' in err


def test_what_a_gz_holds(analyze, tmp_path):
    (tmp_path / 'a.tar.gz').write_bytes(gzip.compress(KINDS['tar'] + bytes(9)))
    (tmp_path / 'b.json.gz').write_bytes(gzip.compress(KINDS['zstd'] + bytes(9)))
    for name, kind in (('a.tar.gz', 'a tar archive'), ('b.json.gz', 'compressed with zstd')):
        assert f'{name}: unpacks to what is {kind}' in analyze('timeline', tmp_path / name, rc=1, format=None).err


def test_our_own_pftrace(analyze, tmp_path):
    path = Trace().call(1, 1).kernel('k', 5, 5, 1).write(tmp_path / 'a.json')
    said = analyze('export', 'pftrace', path, '--output', tmp_path / 'a.pftrace', format=None).err
    assert not said and not analyze('merge', path, format=None).err  # there are no other inputs to say something of
    assert 'Perfetto' in analyze('timeline', tmp_path / 'a.pftrace', rc=1, format=None).err


def test_the_list_of_a_legacy_profiler(analyze, tmp_path):
    """FunctionEvents as torch.autograd's profilers export them: no categories, and rows that say where they ran."""
    events = [{'name': name, 'ph': 'X', 'ts': ts, 'dur': dur, 'tid': tid, 'pid': pid, 'args': {}} for name, ts, dur, tid, pid in (
        ('aten::mm', 1.5, 20, 1, 'CPU functions'), ('aten::empty', 2, 3, 1, 'CPU functions'), ('gemm', 9, 11, 0, 'CUDA functions'))]
    events.append({'name': 'gemm', 'ph': 's', 'ts': 2, 'tid': 1, 'pid': 'CPU functions', 'id': 0, 'cat': 'cpu_to_cuda', 'args': {}})
    (tmp_path / 'legacy.json').write_text(json.dumps(events))
    rows = {r['name']: r['self_cpu_us'] for r in analyze('ops', tmp_path / 'legacy.json')['rows']}
    assert (rows['aten::mm'], rows['aten::empty']) == (17, 3)
    assert [(r['name'], r['total_us']) for r in analyze('breakdown', tmp_path / 'legacy.json')['rows']] == [('gemm', 11)]


@pytest.mark.parametrize('name', ['rank1.pt.trace.json.zst', 'rank1.json.xz', 'rank1.json.bz2'])
def test_packed_traces_of_a_directory(analyze, tmp_path, name):
    Trace().call(1, 1).kernel('k', 5, 5, 1).write(tmp_path / 'rank0.json')
    (tmp_path / name).write_bytes(KINDS['zstd'] + b'...')
    assert f'{name}: is compressed with zstd' in analyze('timeline', tmp_path, rc=3, format=None).err
    (tmp_path / name).unlink()
    analyze('timeline', tmp_path)


def test_json_may_begin_with_a_line_feed(analyze, tmp_path):
    path = tmp_path / 'trace.json'
    path.write_text('\n' + Trace().call(1, 1).kernel('k', 5, 5, 1).text())
    assert len(analyze('breakdown', path)['rows']) == 1


# ---- torch's flight recorder ----

def flight(tmp_path, rank, entries):
    made = [{'record_id': i, 'pg_id': 0, 'process_group': ('0', 'default_pg'), 'collective_seq_id': 1, 'p2p_seq_id': 1, 'op_id': 1,
             'time_created_ns': 10 ** 18 + 10 * i, 'input_sizes': [[64]], 'input_dtypes': ['Float'], 'output_sizes': [[64]],
             'output_dtypes': ['Float'], 'state': 'completed', 'time_discovered_completed_ns': 10 ** 18 + 500, 'retired': True,
             'is_p2p': True, **entry} for i, entry in enumerate(entries)]
    path = tmp_path / f'dump_{rank}'
    path.write_bytes(pickle.dumps({'version': '2.10', 'pg_config': {'0': {'name': '0', 'desc': 'd', 'ranks': '[0, 1]'}}, 'entries': made,
                                   'pg_status': {}}, 2))
    return path


OPEN = {'state': 'scheduled', 'time_discovered_completed_ns': None, 'retired': False}


def test_the_two_sides_of_a_message_meet(analyze, tmp_path):
    files = [flight(tmp_path, 0, [{'profiling_name': 'nccl:send 0->1'}]), flight(tmp_path, 1, [{'profiling_name': 'nccl:recv 1<-0'}])]
    row, = analyze('comm', *files)['rows']
    assert row['ranks'] == 2 and row['name'] in ('send', 'recv')


@pytest.mark.parametrize('name, words', [('nccl:recv 0<-1', 'from rank 1 to rank 0'), ('nccl:send 0->1', 'from rank 0 to rank 1'),
                                         ('nccl:recv', 'the trace does not say with which rank')])
def test_a_message_that_hangs(analyze, tmp_path, name, words):
    """No internal code is printed as a rank."""
    collective = {'is_p2p': False, 'profiling_name': 'nccl:all_reduce'}
    files = [flight(tmp_path, 0, [collective, {'profiling_name': name, **OPEN}]), flight(tmp_path, 1, [collective])]
    result = analyze('hang', *files, rc=None, format=None)
    assert words in result.out.splitlines()[0]
    assert 'rank 10' not in result.out


def test_frames_that_a_pickle_shares(analyze, tmp_path):
    """torch's pickler writes a frame once and refers to it: it stands finished on the stack when it is used again."""
    frame = {'name': 'forward', 'filename': 'module.py', 'line': 7}
    files = [flight(tmp_path, r, [{'profiling_name': 'nccl:all_reduce', 'is_p2p': False, 'frames': [frame, frame, {'a': frame}]}]) for r in range(2)]
    row, = analyze('comm', *files)['rows']
    assert row['ranks'] == 2


@pytest.mark.parametrize('recursive', [b'\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.', b'\x80\x02]q\x00]h\x00aa.',
                                       b'\x80\x02}q\x00(X\x01\x00\x00\x00a](h\x00eu.'])
def test_a_container_inside_itself(analyze, tmp_path, recursive):
    path = tmp_path / 'dump_0'
    path.write_bytes(recursive)
    assert 'would contain itself' in analyze('hang', path, rc=1, format=None).err


# ---- from an attacker ----

def test_a_name_that_explodes(analyze, tmp_path):
    """Each parameter is a template of the one before, twice: the name has 400 bytes, its meaning 2 to the 40."""
    def reference(n):
        digits, n = '', n - 1
        while n >= 0:
            digits, n = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ'[n % 36] + digits, n // 36 - (n < 36)
            if n <= 0:
                break
        return f'S{digits}_'
    name = '_Z1f1AIiiE' + ''.join(f'S_I{reference(k + 1)}{reference(k + 1)}E' for k in range(40))
    t = Trace().kernel(name, 1, 1, 1).kernel('_Z1gPKci', 5, 1, 2)
    rows = analyze('breakdown', written(tmp_path, t))['rows']
    assert {row['name'] for row in rows} == {name, 'g(char const*, int)'}


def test_a_key_that_many_dictionaries_share(analyze, tmp_path):
    path = tmp_path / 'dump_0'
    key = b'X' + (1 << 20).to_bytes(4, 'little') + b'k' * (1 << 20)
    path.write_bytes(b'\x80\x02' + key + b'q\x00]q\x01(' + b'}h\x00Ns' * 3000 + b'e\x86.')
    assert 'its keys have more than 134,217,728 bytes' in analyze('hang', path, rc=1, format=None).err


def test_groups_that_share_many_ranks(analyze, tmp_path):
    ranks = '[' + ', '.join(map(str, range(6000))) + ']'
    entries = [{'record_id': i, 'pg_id': i, 'process_group': (str(i), 'd'), 'collective_seq_id': 1, 'profiling_name': 'nccl:all_reduce',
                'time_created_ns': 10 ** 18 + i, 'state': 'scheduled', 'retired': False, 'is_p2p': False} for i in range(2000)]
    path = tmp_path / 'dump_0'
    path.write_bytes(pickle.dumps({'version': '2.10', 'pg_config': {str(i): {'name': str(i), 'desc': 'd', 'ranks': ranks} for i in range(2000)},
                                   'entries': entries, 'pg_status': {}}, 2))
    result = analyze('hang', path, rc=3, format=None)
    assert 'groups list so many ranks that those without a trace were left out' in result.err


def test_a_time_that_the_loader_refuses(analyze, tmp_path):
    """Later readings of the file meet it too; the sanitizer build tells of an overflow."""
    t = Trace().stage('s', 0, 100).call(5, 1).kernel('k', 10, 5, 1).stage('late', 9 * 10 ** 15, 9 * 10 ** 15)
    path = written(tmp_path, t)
    for command in ('stages', 'critical-path', 'dump'):
        analyze(command, path, rc=None, format=None)
    analyze('merge', '-o', tmp_path / 'merged.json', path, rc=None, format=None)


def test_nobody_else_reads_a_dump(analyze, tmp_path):
    t = Trace().stage('s', 0, 100)
    analyze('dump', written(tmp_path, t), '--output', tmp_path / 'dump.txt', format=None)
    assert stat.S_IMODE(os.stat(tmp_path / 'dump.txt').st_mode) == 0o600


def test_no_artefact_looks_like_an_option(analyze, tmp_path):
    t = Trace().stage('--help', 0, 100).call(5, 1).kernel('k', 10, 5, 1)
    analyze('report', written(tmp_path, t), '--output', tmp_path / 'out', format=None)
    assert '_-help_rank0.breakdown.json' in os.listdir(tmp_path / 'out')


def test_an_empty_trace_that_was_just_made(analyze, tmp_path):
    """Its process writes the head next: that is no full disk, and no loss."""
    SHAPES['our_other_records'][0](tmp_path, 20)
    (tmp_path / 'rank1.host.77.tfr').touch()
    assert 'its process has just begun' in analyze('stages', tmp_path, format=None).err
    os.utime(tmp_path / 'rank1.host.77.tfr', (1, 1))
    assert 'is empty' in analyze('stages', tmp_path, rc=3, format=None).err
