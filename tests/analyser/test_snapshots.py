"""test_snapshots - memory snapshots of torch that a test writes: every version, rings, ranks, hostile and damaged pickles.

tests/gpu/test_memory_snapshot.py has those of real torch. Expected totals come from a replay in Python.
"""

import gzip
import pickle
import random
import struct

import pytest

import growth
from conftest import ROOT

MOSAIC = ROOT.parent / 'shared' / 'traces' / 'memory' / 'mosaic_snapshot.pickle'
SEGMENT = 64 << 20


def frames(*names):
    return [{'name': n, 'filename': f'/job/{n}.py', 'line': 7} for n in names]


class Recorded:
    """A device of torch's allocator: events, and the segments that they leave."""

    def __init__(self, seed=1, device=0, requests=True):
        self.rng, self.device, self.requests = random.Random(seed), device, requests
        self.events, self.live, self.segments, self.time = [], {}, [], 10 ** 15

    def event(self, action, **more):
        self.time += self.rng.randrange(3)
        self.events.append({'action': action, 'stream': 0, 'time_us': self.time, **more})

    def segment(self):
        address = (len(self.segments) + 1 + 100 * self.device) * (SEGMENT * 4)
        self.segments.append(address)
        self.event('segment_alloc', addr=address, size=SEGMENT, frames=frames('grow'))

    def alloc(self, size, *stack):
        if not self.segments or len(self.live) >= 60 * len(self.segments):
            self.segment()
        taken = {a for a in self.live}
        address = next(a + i * (1 << 20) for a in self.segments for i in range(64) if a + i * (1 << 20) not in taken)
        self.live[address] = (size, frames(*stack))
        self.event('alloc', addr=address, size=size, frames=frames(*stack))

    def free(self):
        address = self.rng.choice(list(self.live))
        size, stack = self.live.pop(address)
        if self.requests:
            self.event('free_requested', addr=address, size=size, frames=stack)
        self.event('free_completed', addr=address, size=size, frames=stack)

    def work(self, n):
        for i in range(n):
            if self.live and self.rng.random() < .45:
                self.free()
            else:
                self.alloc(self.rng.randrange(1, 1 << 20), self.rng.choice('abc'), 'step', 'main')
        return self

    def in_segments(self):
        for address in self.segments:
            blocks, at = [], address
            for a in sorted(a for a in self.live if address <= a < address + SEGMENT):
                size, stack = self.live[a]
                if a > at:
                    blocks.append({'address': at, 'size': a - at, 'requested_size': 0, 'state': 'inactive', 'frames': []})
                rounded = (size + 511) // 512 * 512
                blocks.append({'address': a, 'size': rounded, 'requested_size': size, 'state': 'active_allocated', 'frames': stack})
                at = a + rounded
            blocks.append({'address': at, 'size': address + SEGMENT - at, 'requested_size': 0, 'state': 'inactive', 'frames': []})
            active = sum(b['size'] for b in blocks if b['state'] != 'inactive')
            yield {'device': self.device, 'address': address, 'total_size': SEGMENT, 'allocated_size': active, 'active_size': active,
                   'stream': 0, 'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], 'blocks': blocks}


def snapshot(*devices, last=None):
    traces = [[] for _ in range(max(d.device for d in devices) + 1)]
    for d in devices:
        traces[d.device] = d.events[-last:] if last else d.events
    return {'segments': [s for d in devices for s in d.in_segments()], 'device_traces': traces,
            'allocator_settings': {'expandable_segments': False}, 'external_annotations': []}


def totals(device, last=None):
    """(time, allocated, reserved) after each event that changes one of them."""
    allocated = reserved = 0
    for i, e in enumerate(device.events):
        sign = {'alloc': 1, 'segment_alloc': 1, 'free_requested': -1, 'free_completed': 0 if device.requests else -1}[e['action']]
        if e['action'].startswith('segment'):
            reserved += sign * e['size']
        else:
            allocated += sign * e['size']
        if sign and (not last or i >= len(device.events) - last):
            yield e['time_us'], allocated, reserved


def write(path, data, protocol=4):
    path.write_bytes(pickle.dumps(data, protocol))
    return path


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
@pytest.mark.parametrize('requests', [True, False])
def test_totals(analyze, tmp_path, protocol, requests):
    device = Recorded(protocol, requests=requests).work(300)
    answer = analyze('memory', write(tmp_path / 'snapshot.pickle', snapshot(device), protocol))
    expected = list(totals(device))
    rows = [(r['time_us'] + device.events[0]['time_us'], r['allocated_bytes'], r['reserved_bytes']) for r in answer['rows']]
    assert rows == expected and answer['inputs'][0]['kind'] == 'snapshot' and answer['inputs'][0]['complete']
    peak, = analyze('memory', '--layout', 'peaks', tmp_path / 'snapshot.pickle')['rows']
    assert peak['peak_allocated_bytes'] == max(a for _, a, _ in expected) and peak['peak_reserved_bytes'] == max(r for *_, r in expected)


@pytest.mark.parametrize('last', [1, 50, 200])
def test_a_ring(analyze, tmp_path, last):
    """The totals are those of the whole run, also where the first events are gone; the line counts what is older."""
    device = Recorded(last).work(400)
    path = write(tmp_path / 'snapshot.pickle', snapshot(device, last=last))
    result = analyze('memory', path, format=None)
    assert result.rc == 0 and 'older than its first event' in result.err
    answer = analyze('memory', path)
    rows = [r for r in answer['rows'] if r['time_us'] is not None]
    assert [(r['allocated_bytes'], r['reserved_bytes']) for r in rows] == [t[1:] for t in totals(device, last)]
    raw = analyze('memory', '--layout', 'raw', path)['rows']
    older = [r for r in raw if r['action'] == 'preexisting']
    assert older and all(r['time_us'] is None for r in older) and {r['action'] for r in raw} <= {'preexisting', 'create', 'destroy'}
    in_use = sum(r['bytes'] for r in raw)
    assert in_use == sum(size for size, _ in device.live.values())
    leaks = analyze('memory', '--layout', 'leaks', path)['rows']
    assert {tuple(r['stack'])[0]: r['leaked_bytes'] for r in leaks} == {
        f'/job/{name}.py(7): {name}': sum(s for s, f in device.live.values() if f[0]['name'] == name) for name in {f[0]['name'] for _, f in device.live.values()}}


def old_form(data):
    """As torch 2.0 wrote it: no times, no settings, a block's last use in a list."""
    for s in data['segments']:
        for key in ('segment_pool_id', 'is_expandable', 'frames'):
            del s[key]
        for b in s['blocks']:
            requested, stack = b.pop('requested_size'), b.pop('frames')
            del b['address']
            if b['state'] != 'inactive':
                b['history'] = [{'addr': 1, 'real_size': requested, 'frames': stack}]
    for trace in data['device_traces']:
        for e in trace:
            del e['time_us']
    return {'segments': data['segments'], 'device_traces': data['device_traces']}


def test_torch_2_0(analyze, tmp_path):
    device = Recorded(5).work(200)
    expected = [t[1:] for t in totals(device, 100)]
    path = write(tmp_path / 'snapshot.pickle', old_form(snapshot(device, last=100)))
    answer = analyze('memory', path)
    assert [(r['allocated_bytes'], r['reserved_bytes']) for r in answer['rows']][1:] == expected
    assert all(r['time_us'] is None for r in answer['rows'])
    leaks = analyze('memory', '--layout', 'leaks', path)['rows']
    assert sum(r['leaked_bytes'] for r in leaks) == sum(size for size, _ in device.live.values()) and all(r['stack'] for r in leaks)


def test_no_events_at_all(analyze, tmp_path):
    """_record_memory_history('state'): what is in use, by stack."""
    device = Recorded(6).work(100)
    path = write(tmp_path / 'snapshot.pickle', {**snapshot(device), 'device_traces': []})
    row, = analyze('memory', path)['rows']
    assert (row['time_us'], row['allocated_bytes'], row['reserved_bytes']) == (None, sum(s for s, _ in device.live.values()), SEGMENT * len(device.segments))


def test_ranks_and_devices(analyze, tmp_path):
    """Several files are several processes, by the ranks in their names; a file may have several devices; gzip is unpacked."""
    first, second = Recorded(7).work(50), Recorded(8, device=1).work(80)
    write(tmp_path / 'a_rank3.pickle', snapshot(first))
    (tmp_path / 'rank_1.pickle.gz').write_bytes(gzip.compress(pickle.dumps(snapshot(first, second))))
    for inputs in ([tmp_path], [tmp_path / 'a_rank3.pickle', tmp_path / 'rank_1.pickle.gz']):
        rows = analyze('memory', '--layout', 'leaks', *inputs)['rows']
        sums = {key: sum(r['leaked_bytes'] for r in rows if (r['rank'], r['device']) == key) for key in {(r['rank'], r['device']) for r in rows}}
        assert sums == {(3, 0): sum(s for s, _ in first.live.values()), (1, 0): sum(s for s, _ in first.live.values()),
                        (1, 1): sum(s for s, _ in second.live.values())}
    answer = analyze('memory', write(tmp_path / 'x.pickle', snapshot(first)), write(tmp_path / 'y.pickle', snapshot(second)))
    assert [i['rank'] for i in answer['inputs']] == [0, 1]


def test_other_commands_say_what_it_is(analyze, tmp_path):
    path = write(tmp_path / 'snapshot.pickle', snapshot(Recorded(9).work(10)))
    for command in ('stages', 'hang', 'timeline', 'comm'):
        result = analyze(command, path, rc=1, format=None)
        assert 'a memory snapshot of torch' in result.err and 'these commands read it: info, memory' in result.err, result.err
    assert analyze('info', path)['rows'][0]['kind'] == 'snapshot'


@pytest.mark.skipif(not MOSAIC.exists(), reason='needs ../shared/traces')
def test_mosaics(analyze):
    """Events that balance over blocks that the segments have; the segments' own sums are not those of their blocks."""
    data = pickle.loads(MOSAIC.read_bytes())
    answer = analyze('memory', MOSAIC, rc=3)
    in_use = sum(b['requested_size'] for s in data['segments'] for b in s['blocks'] if b['state'] == 'active_allocated')
    total, expected = in_use, [in_use]
    for e in data['device_traces'][0]:
        total += e['size'] * {'alloc': 1, 'free_completed': -1}[e['action']]
        expected.append(total)
    assert [r['allocated_bytes'] for r in answer['rows']] == expected and total == in_use
    assert answer['totals']['peak_allocated_bytes'] == max(expected)
    assert {r['reserved_bytes'] for r in answer['rows']} == {None}  # less than what is in use
    err = analyze('memory', MOSAIC, rc=3, format=None).err
    assert '5 segments state other sums' in err and 'reserve less than they use' in err


# ---- hostile and damaged files ----

def text(value):
    return b'X' + struct.pack('<I', len(value)) + value


ROOT_KEYS = b'\x80\x02}(' + text(b'segments') + b']' + text(b'device_traces')
EVENT = {'action': 'alloc', 'addr': 1 << 40, 'size': 10, 'stream': 0, 'time_us': 5, 'frames': []}
HOSTILE = {
    'empty': (ROOT_KEYS + b']u.', 0, 'no memory was recorded'),
    'cut': (pickle.dumps(snapshot(Recorded(1).work(20)))[:-200], 1, 'is refused at byte'),
    'STOP is missing': (ROOT_KEYS + b']u', 1, 'without STOP'),
    'code': (ROOT_KEYS + b'cposix\nsystem\n' + text(b'true') + b'\x85Ru.', 1, 'GLOBAL: it is not an opcode of plain data; nothing in it was executed'),
    'a list in itself': (ROOT_KEYS + b']q\0h\0au.', 1, 'would contain itself'),
    'one trace a thousand times': (ROOT_KEYS + b'](](' + b'}(' + text(b'action') + text(b'oom') + text(b'size') + b'K\1u' + b'eq\1' + b'h\1' * 1000 + b'eu.', 1, 'more than once'),
    'an event twice in a dictionary': (ROOT_KEYS + b'](](}' + (text(b'action') + text(b'alloc') + b's') * 2 + b'eeu.', 3, 'are not valid'),
    'a gigantic text': (ROOT_KEYS + b'X\xf0\xff\xff\xffx', 1, 'longer than 1,048,576'),
    'a gigantic memo': (ROOT_KEYS + b']r\xff\xff\xff\xffu.', 1, 'memo is above'),
    'deep nesting': (ROOT_KEYS + b']' * 1000 + b'a' * 999 + b'u.', 1, 'nested too deeply'),
    'events are numbers': (ROOT_KEYS + b'](](K\1K\2eeu.', 3, '1 events, segments, blocks or lists are not valid'),
    'traces are a number': (ROOT_KEYS + b'K\1u.', 3, '1 events, segments, blocks or lists are not valid'),
    'no snapshot behind its first key': (b'\x80\x02]' + ROOT_KEYS[2:] + b']u0.', 1, ''),
    'two snapshots': (pickle.dumps(snapshot(Recorded(1).work(20))) * 2, 3, 'goes on behind the end of its snapshot'),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_files(analyze, tmp_path, name):
    data, rc, why = HOSTILE[name]
    (tmp_path / 'some.pickle').write_bytes(data)
    result = analyze('memory', tmp_path / 'some.pickle', rc=rc, format=None)
    assert why in result.err, result.err


WRONG = [('addr', 'x'), ('size', -1), ('size', None), ('time_us', -5), ('time_us', 1 << 62), ('action', 7), ('frames', 'x')]


@pytest.mark.parametrize('key, value', WRONG)
def test_wrong_types(analyze, tmp_path, key, value):
    """The event is left out and counted."""
    data = snapshot(Recorded(3).work(100))
    data['device_traces'][0].append({**EVENT, key: value})
    result = analyze('memory', write(tmp_path / 'some.pickle', data), rc=3, format=None)
    assert 'are not valid' in result.err


def test_a_bomb_of_frames(analyze, tmp_path):
    """Frames of a million bytes each, which share their texts, are refused before they fill the memory."""
    one = text(b'filename') + b'h\1' + text(b'name') + b'h\1' + text(b'line')
    bomb = ROOT_KEYS + b'](](}(' + text(b'x') + text(b'y' * 1000000) + b'q\1' + text(b'frames') + b'](' + b''.join(
        b'}(' + one + b'M' + struct.pack('<H', i) + b'u' for i in range(1000)) + b'eueeu.'
    (tmp_path / 'some.pickle').write_bytes(bomb)
    assert 'its frames have more than' in analyze('memory', tmp_path / 'some.pickle', rc=1, format=None).err


def test_more_holders_than_rows(analyze, tmp_path):
    """Each refused request has as many holders as there are stacks: the largest have rows, and a line counts the others."""
    n = 10004
    path = growth.make('snapshot_events', n, tmp_path / 'many')
    result = analyze('memory', '--layout', 'oom', '--from', '0', path, format='csv', rc=3)
    assert f'{16 * 4} smaller holders of refused requests have no row' in result.err
    rows = analyze('memory', '--layout', 'oom', '--top', '10003', path, rc=3)['rows']
    assert len(rows) == 16 * 10003 and [r['bytes'] for r in rows[:2]] == [512 + n - 1, 512 + n - 2]


@pytest.mark.parametrize('seed', range(3))
def test_random_damage(tfanalyze_asan, tmp_path, seed):
    """Flipped bytes and cuts, under sanitizers: an answer or a refusal."""
    from conftest import clean_environment, execute
    rng = random.Random(seed)
    device = Recorded(seed).work(60)
    for i in range(25):
        data = bytearray(pickle.dumps(snapshot(device, last=rng.choice([None, 30])), rng.randrange(2, 6)))
        for _ in range(rng.randrange(1, 12)):
            data[rng.randrange(40, len(data))] = rng.randrange(256)
        (tmp_path / 'rank2.pickle').write_bytes(data[:rng.choice([len(data)] * 4 + [rng.randrange(50, len(data))])])
        for layout in ('timeline', 'leaks', 'raw', 'peaks', 'oom'):
            result = execute([tfanalyze_asan, 'memory', '--layout', layout, tmp_path / 'rank2.pickle'], clean_environment())
            assert result.rc in (0, 1, 3) and 'Sanitizer' not in result.err and 'runtime error' not in result.err, (i, layout, result.err[-3000:])
