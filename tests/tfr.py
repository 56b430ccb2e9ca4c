"""tfr.py - the trace format of include/tfi_trace.h in Python: writes traces of every shape, and reads them.

It shares no code with the two programs: it parses the record kinds from records.def, and the rest follows the comments
of tfi_trace.h. Tests make fixtures with Writer and compare tfanalyze's answers with those of this file.

    w = Writer(rank=3)
    w.chunk([rec('mark', name=w.string('hello'), time=5)], thread=1, tid=77)
    w.footer(reason='exit')
    w.save(directory / 'rank3.host.1.tfr')
    for record in read(path).records: record.kind, record.values['time'], ...
"""

import bisect
import itertools
import operator
import re
import struct
import zlib
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

INCLUDE = Path(__file__).resolve().parent.parent / 'include'

HEADER, SCHEMA, STRINGS, CHUNK, FOOTER = 1, 2, 3, 4, 5
DEFLATED, ROWS = 1, 2
PLAIN, DELTA, KEYED, LIST, RUNS = 1, 2, 3, 4, 5
CODECS = {'PLAIN': PLAIN, 'DELTA': DELTA, 'KEYED': KEYED, 'LIST': LIST}
REALTIME, MONOTONIC, DEVICE = 1, 2, 3
NESTED, STAGE, UNTRACKED = 1, 2, 4
FREE, TAKEN, OPEN, CLOSED = 0, 1, 2, 3
ROW_AGAIN = 0xffff
BLOCK_MAGIC = 0x424b5446
BLOCK_MAX = 4 << 20
STRING_LOST = 0xffffffff
BLOCK = struct.Struct('<IHHQIIIIIII')  # without head_crc
MASK = (1 << 64) - 1


# ---- records.def ----

@dataclass
class Field:
    name: str
    ctype: str
    type: str
    codec: str

    @cached_property
    def signed(self):
        return self.ctype.startswith('int')

    @cached_property
    def size(self):
        return int(re.search(r'\d+', self.ctype).group()) // 8


@dataclass
class Kind:
    number: int
    name: str
    fields: list = field(default_factory=list)

    def field(self, name):
        return next(f for f in self.fields if f.name == name)


def parse_table(path=INCLUDE / 'records.def'):
    text = re.sub(r'/\*.*?\*/', '', Path(path).read_text(), flags=re.S)
    kinds = {}
    for row, arguments in re.findall(r'^(RECORD|FIELD|LIST|RECORD_END)\(([^"\n)]*)', text, re.M):
        a = [x.strip() for x in arguments.split(',')]
        if row == 'RECORD':
            kinds[a[1]] = Kind(int(a[0]), a[1])
        elif row == 'FIELD':
            kinds[a[0]].fields.append(Field(a[2], a[1], a[3], a[4]))
        elif row == 'LIST':
            kinds[a[0]].fields.append(Field(a[1], 'uint64_t', a[2], 'LIST'))
    return kinds


def parse_drops(path=INCLUDE / 'drops.def'):
    text = re.sub(r'/\*.*?\*/', '', Path(path).read_text(), flags=re.S)
    return {name.lower(): (int(number), bool(int(lost)))
            for number, name, lost in re.findall(r'^DROP\((\d+),\s*(\w+),\s*(\d)', text, re.M)}


KINDS = parse_table()
DROPS = parse_drops()


def schema_text(kinds=None):
    lines = []
    for kind in (kinds or KINDS).values():
        lines.append(f'{kind.number} {kind.name}' + ''.join(f' {f.name}:{f.ctype}:{f.type}:{f.codec}' for f in kind.fields))
    return ('\n'.join(lines) + '\n').encode()


def parse_schema(text):
    kinds = {}
    for line in text.decode().splitlines():
        number, name, *fields = line.split(' ')
        kinds[int(number)] = Kind(int(number), name, [Field(*f.split(':')) for f in fields])
    return kinds


@dataclass
class Record:
    kind: str
    values: dict
    thread: int = 0
    tid: int = 0
    serial: int = 0
    live: bool = False


def rec(kind, **values):
    """A record; a missing column is 0, a missing list is empty."""
    known = {f.name: [] if f.codec == 'LIST' else 0 for f in KINDS[kind].fields} if kind in KINDS else {}
    assert not known or set(values) <= set(known), (kind, values)
    return Record(kind, {**known, **values})


# ---- numbers ----

def varint(value):
    return packed_varints([value & MASK])


def packed_varints(numbers):
    out = bytearray()
    for v in numbers:
        while v >= 128:
            out.append(v & 127 | 128)
            v >>= 7
        out.append(v)
    return bytes(out)


def signed64(value):
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def zigzag(value):
    value &= MASK
    return (value << 1 ^ -(value >> 63)) & MASK


def unzigzag(value):
    return (value >> 1 ^ -(value & 1)) & MASK


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & MASK, at
        shift += 7


# ---- rows ----

def pack_row(record, kinds=KINDS):
    kind = kinds[record.kind]
    out = bytearray()
    for f in kind.fields:
        value = record.values[f.name]
        if f.codec == 'LIST':
            out += b''.join(struct.pack('<Q', v & MASK) for v in value)
        else:
            out += (value & ((1 << 8 * f.size) - 1)).to_bytes(f.size, 'little')
    out += bytes(-(len(out) + 4) % 8)
    return struct.pack('<HH', kind.number, len(out) + 4) + out


def pack_rows(records, kinds=KINDS):
    return b''.join(pack_row(r, kinds) for r in records)


def unpack_rows(data, kinds):
    """Rows as records, with kinds by number. Stops at the first bytes that are no row."""
    records, at, by_offset = [], 0, {}
    while at + 4 <= len(data):
        number, size = struct.unpack_from('<HH', data, at)
        if not number or size < 4 or size % 8 or at + size > len(data):
            break
        kind = kinds.get(number)
        values, p = {}, at + 4
        if number == ROW_AGAIN:
            back, error, time, duration, changed = struct.unpack_from('<HHQII', data, p)
            before, args = by_offset[at - 8 * back], struct.iter_unpack('<Q', data[at + 24:at + size])
            assert before.kind == 'call' and changed >> len(before.values['args']) == 0
            args = [next(args)[0] if changed >> i & 1 else value for i, value in enumerate(before.values['args'])]
            records.append(Record('call', {**before.values, 'time': time, 'duration': duration, 'error': error, 'args': args}))
            at += size
            continue
        for f in kind.fields if kind else []:
            if f.codec == 'LIST':
                values[f.name] = [struct.unpack_from('<Q', data, q)[0] for q in range(p, at + size - 7, 8)]
            else:
                values[f.name] = int.from_bytes(data[p:p + f.size], 'little', signed=f.signed)
                p += f.size
        by_offset[at] = Record(kind.name if kind else f'kind{number}', values)
        records.append(by_offset[at])
        at += size
    return records


# ---- columns ----

def encode_values(codec, values, keys, signed):
    numbers, last, before = [], 0, {}
    if codec == RUNS:
        for value, run in itertools.groupby(values):
            numbers += zigzag(value), len(list(run))
    elif codec == PLAIN:
        numbers = [zigzag(v) if signed else v & MASK for v in values]
    elif codec == DELTA:
        for v in values:
            numbers.append(zigzag(v - last))
            last = v
    elif codec == KEYED:
        for key, v in zip(keys, values):
            numbers.append(zigzag(v - before.get(key % 256, 0)))
            before[key % 256] = v
    elif codec == LIST:
        for key, row in zip(keys, values):
            slot = before.setdefault(key % 256, [0] * 8)
            numbers.append(len(row))
            for i, v in enumerate(row):
                if i < 8:
                    numbers.append(zigzag(v - slot[i]))
                    slot[i] = v
                else:
                    numbers.append(zigzag(v))
    return packed_varints(numbers)


def varints(data):
    """All numbers of a column."""
    out, value, shift = [], 0, 0
    for byte in data:
        if byte < 128:
            out.append((value | byte << shift) & MASK)
            value = shift = 0
        else:
            value |= (byte & 127) << shift
            shift += 7
    assert not shift
    return out


def decode_values(codec, data, count, keys, signed):
    out, last, before, numbers = [], 0, {}, varints(data)
    if codec == RUNS:
        for v, run in zip(numbers[::2], numbers[1::2], strict=True):
            out += [unzigzag(v)] * run
    elif codec == PLAIN:
        out = list(map(unzigzag, numbers)) if signed else numbers
    elif codec == DELTA:
        for v in numbers:
            last = last + unzigzag(v) & MASK
            out.append(last)
    elif codec == KEYED:
        for key, v in zip(keys, numbers, strict=True):
            key %= 256
            before[key] = v = before.get(key, 0) + unzigzag(v) & MASK
            out.append(v)
    else:
        following = iter(numbers)
        for key, size in zip(keys, following):
            row, slot = [], before.setdefault(key % 256, [0] * 8)
            for i in range(size):
                v = unzigzag(next(following))
                if i < 8:
                    slot[i] = v = slot[i] + v & MASK
                row.append(v)
            out.append(row)
        assert next(following, None) is None
    assert len(out) == count
    return out if codec == LIST or not signed else [signed64(v) for v in out]


def pack_columns(records, kinds=KINDS, pick=None):
    """pick(field, values) -> a codec, or None for the table's; without pick, columns that hardly change get runs."""
    numbers, groups, order = [], {}, []
    for r in records:
        if r.kind not in groups:
            groups[r.kind] = []
            numbers.append(r.kind)
        groups[r.kind].append(r)
        index = numbers.index(r.kind)
        if order and order[-1][0] == index:
            order[-1][1] += 1
        else:
            order.append([index, 1])
    order_bytes = b''.join(varint(g) + varint(n) for g, n in order)
    out = struct.pack('<II', len(numbers), len(order_bytes)) + order_bytes
    for name in numbers:
        kind, rows = kinds[name], groups[name]
        keys = [r.values[kind.fields[0].name] for r in rows]
        body = b''
        for i, f in enumerate(kind.fields):
            values = [r.values[f.name] for r in rows]
            changes = sum(map(operator.ne, values, values[1:]))
            codec = CODECS[f.codec]
            if pick:
                codec = pick(f, values) or codec
            elif codec != LIST and changes <= len(values) // 8:
                codec = RUNS
            data = encode_values(codec, values, keys, f.signed)
            body += struct.pack('<HHI', i, codec, len(data)) + data
        out += struct.pack('<HHII', kind.number, len(kind.fields), len(rows), len(body)) + body
    return out


def unpack_columns(data, kinds):
    count, order_bytes = struct.unpack_from('<II', data)
    at, end = 8, 8 + order_bytes
    order = []
    while at < end:
        group, at = read_varint(data, at)
        run, at = read_varint(data, at)
        order.append((group, run))
    groups = []
    for _ in range(count):
        number, columns, rows, size = struct.unpack_from('<HHII', data, at)
        at += 12
        kind, table, p, keys = kinds.get(number), {}, at, None
        for c in range(columns):
            index, codec, length = struct.unpack_from('<HHI', data, p)
            p += 8
            if kind and index < len(kind.fields):
                f = kind.fields[index]
                table[f.name] = decode_values(codec, data[p:p + length], rows, keys, f.signed)
                keys = table[f.name] if c == 0 else keys
            p += length
        at += size
        groups.append([Record(kind.name if kind else f'kind{number}', {k: v[i] for k, v in table.items()})
                       for i in range(rows)])
    iterators = [iter(g) for g in groups]
    return [next(iterators[g]) for g, n in order for _ in range(n)]


# ---- writing ----

def pairs(items):
    return b''.join(str(k).encode() + b'\0' + (v if isinstance(v, bytes) else str(v).encode()) + b'\0' for k, v in items.items())


def pack_strings(strings):
    out = b''
    for number, text in strings:
        out += struct.pack('<II', number, len(text)) + text + bytes(-len(text) % 8)
    return out


def pack_block(type, payload, flags=0, serial=0, thread=0, tid=0, records=0, level=1, raw=None):
    raw = len(payload) if raw is None else raw
    if flags & DEFLATED:
        z = zlib.compressobj(level, zlib.DEFLATED, -15)
        payload = z.compress(payload) + z.flush()
    head = BLOCK.pack(BLOCK_MAGIC, type, flags, serial, thread, tid, len(payload), raw, records, zlib.crc32(payload), 0)
    return head + struct.pack('<I', zlib.crc32(head)) + payload + bytes(-len(payload) % 8)


def file_head(major=1, minor=0, magic=b'TFITRACE'):
    return magic + struct.pack('<HHI', major, minor, 16)


class Writer:
    """A trace under construction. It keeps every block's place: blocks[i] = (offset, end, type, serial, records)."""

    def __init__(self, rank=0, world=1, pid=4242, host='elsewhere', boot='00000000-0000-0000-0000-000000000000',
                 start_time=7, clock='monotonic', live='memory', head=True, major=1, minor=0, kinds=None, **more):
        self.info = {'host': host, 'boot_id': boot, 'pid': pid, 'start_time': start_time, 'rank': rank, 'world': world,
                     'command': 'python pipeline.py', 'directory': '/somewhere', 'clock': clock, 'live': live,
                     'version': '0.0.1', **more}
        self.info = {k: v for k, v in self.info.items() if v is not None}
        self.kinds = kinds or KINDS
        self.data = bytearray()
        self.blocks, self.records = [], []
        self.numbers, self.pending, self.strings = {}, [], {}
        self.serial = 0
        self.appended = 0
        if head:
            self.data += file_head(major, minor)
            self.block(HEADER, pairs(self.info))
            self.block(SCHEMA, schema_text(self.kinds))

    def string(self, text):
        text = text if isinstance(text, bytes) else text.encode()
        if text not in self.numbers:
            self.numbers[text] = len(self.numbers) + 1
            self.pending.append((self.numbers[text], text))
            self.strings[self.numbers[text]] = text
        return self.numbers[text]

    def stack(self, *frames):
        """A call stack, the innermost frame first: (function, file, line)."""
        return self.string(' '.join(f'{self.string(chr(9).join(map(str, f))):x}' for f in frames))

    def block(self, type, payload, **head):
        offset = len(self.data)
        self.data += pack_block(type, payload, **head)
        self.blocks.append(SimpleNamespace(offset=offset, end=len(self.data), type=type, serial=head.get('serial', 0),
                                           records=head.get('records', 0)))

    def flush_strings(self, **head):
        if self.pending:
            self.block(STRINGS, pack_strings(self.pending), **head)
            self.pending = []

    def next_serial(self):
        self.serial += 1
        return self.serial

    def chunk(self, records, thread=0, tid=0, form='columns', deflate=True, serial=None, pick=None, level=1):
        """Appends a chunk; its records get thread and serial, and .records, the truth about this trace, keeps them."""
        self.flush_strings()
        serial = self.next_serial() if serial is None else serial
        for r in records:
            r.thread, r.tid, r.serial = thread, tid, serial
        payload = pack_rows(records, self.kinds) if form == 'rows' else pack_columns(records, self.kinds, pick)
        flags = (ROWS if form == 'rows' else 0) | (DEFLATED if deflate else 0)
        self.block(CHUNK, payload, flags=flags, serial=serial, thread=thread, tid=tid, records=len(records), level=level)
        self.records += records
        self.appended += 1
        return serial

    def footer(self, reason='exit', **more):
        self.flush_strings()
        self.block(FOOTER, pairs({'reason': reason, 'records': sum(b.records for b in self.blocks), 'chunks': self.appended,
                                  'strings': len(self.numbers), 'cost_ns': 1234567, **more}))

    def save(self, path):
        Path(path).write_bytes(bytes(self.data))
        return Path(path)


def pack_slot(thread, tid, calls=(), stages=(), collective=None, name=b'python'):
    """A slot of a .live file. calls and stages: (start, number of the string); collective: (communicator, sequence,
    bytes, peer, place among the calls, count, type, reduction)."""
    data = struct.pack('<IIIIIIQQ16s', 1, thread, tid, len(calls), len(stages), 0, 0, 0, name)
    data += b''.join(struct.pack('<QII', start, func, 0) for start, func in calls[:4]).ljust(4 * 16, b'\0')
    data += b''.join(struct.pack('<QII', start, number, 0) for start, number in stages[:36]).ljust(36 * 16, b'\0')
    return (data + struct.pack('<QQQiIQIi', *(collective or (0,) * 8))).ljust(1024, b'\0')


LIVE_HEAD = struct.Struct('<8sHHIQ' + 'QQ' * 6 + 'IIIIQQQ')
CHUNK_HEAD = struct.Struct('<IIQIIII32x')


def pack_live(writer, chunks, small=4096, large=65536, slots=4, schema=None, strings=None, serial=None, drops=None,
              info=None, minor=0, used=()):
    """A .live file. chunks: dicts of records (or rows: bytes), thread, tid, serial, state, large (bool). `used`: slots
    of pack_slot."""
    def place(payload, room):
        nonlocal at
        start = at
        regions.append((start, len(payload)))
        at += room
        body.append((start, payload))
    at, regions, body = 4096, [], []
    strings = sorted(writer.strings.items()) if strings is None else strings
    packed = pack_strings(strings)
    place(pairs(writer.info) if info is None else info, 8192)
    place(schema_text(writer.kinds) if schema is None else schema, 16384)
    place(b''.join(used).ljust(1024 * slots, b'\0'), 1024 * max(slots, len(used)))
    place(packed, len(packed) + 4096)
    for is_large, size in ((False, small), (True, large)):
        region = bytearray()
        for c in chunks:
            if bool(c.get('large')) != is_large:
                continue
            rows = c['rows'] if 'rows' in c else pack_rows(c['records'], writer.kinds)
            assert len(rows) <= size - 64
            committed = c.get('committed', len(rows))
            region += CHUNK_HEAD.pack(c.get('state', OPEN), committed, c.get('serial', 0), c.get('thread', 0),
                                      c.get('tid', 0), size, 0) + rows + bytes(size - 64 - len(rows))
        region += bytes(size)
        place(bytes(region), len(region))
    counts = [0] * 64
    for name, count in (drops or {}).items():
        counts[DROPS[name][0]] = count
    given = max([writer.serial] + [c.get('serial', 0) for c in chunks]) if serial is None else serial
    flat = [x for region in regions for x in region]
    head = LIVE_HEAD.pack(b'TFILIVE\0', 1, minor, LIVE_HEAD.size + 8 * 64, at, *flat, 1024, small, large, 0, len(packed), given, 0)
    data = bytearray(at)
    data[0:len(head)] = head
    data[len(head):len(head) + 512] = struct.pack('<64Q', *counts)
    for start, payload in body:
        data[start:start + len(payload)] = payload
    return bytes(data)


def clocks(ticks, monotonic, realtime, error=10):
    return [rec('clock', clock=MONOTONIC, ticks=ticks, value=monotonic, error=error),
            rec('clock', clock=REALTIME, ticks=ticks, value=realtime, error=error)]


def end_of(begin, time, thread):
    v = begin.values
    return rec('range_end', name=v['name'], time=time, duration=time - v['time'], id=v['id'], flags=v['flags'],
               thread=thread, depth=v['depth'])


# ---- reading ----

def parse_pairs(payload):
    parts = payload.split(b'\0')
    return {k.decode(): v.decode(errors='replace') for k, v in zip(parts[0::2], parts[1::2])}


def parse_strings(payload):
    out, at = {}, 0
    while at + 8 <= len(payload):
        number, length = struct.unpack_from('<II', payload, at)
        out.setdefault(number, payload[at + 8:at + 8 + length])
        at += 8 + length + (-length % 8)
    return out


def good_block(data, at):
    """The head of the block at `at`, or None."""
    if at + 48 > len(data) or data[at:at + 4] != struct.pack('<I', BLOCK_MAGIC):
        return None
    head = data[at:at + 44]
    if zlib.crc32(head) != struct.unpack_from('<I', data, at + 44)[0]:
        return None
    names = ('magic', 'type', 'flags', 'serial', 'thread', 'tid', 'stored', 'raw', 'records', 'crc', 'reserved')
    return SimpleNamespace(**dict(zip(names, BLOCK.unpack(head))))


def read_live(data):
    v = LIVE_HEAD.unpack_from(data)
    assert v[0] == b'TFILIVE\0'
    regions = [(v[5 + 2 * i], v[6 + 2 * i]) for i in range(6)]
    _, small, large, _, used, serial, _ = v[17:24]
    cut = [data[o:o + n] for o, n in regions]
    live = SimpleNamespace(info=parse_pairs(cut[0]), kinds=parse_schema(cut[1]), strings=parse_strings(cut[3][:used]),
                           chunks=[], serial=serial)
    live.drops = dict(enumerate(struct.unpack_from('<64Q', data, LIVE_HEAD.size)))
    for region, size in ((cut[4], small), (cut[5], large)):
        for at in range(0, len(region) - size + 1, size):
            state, committed, number, thread, tid, _, _ = CHUNK_HEAD.unpack_from(region, at)
            if state in (OPEN, CLOSED) and committed:
                rows = region[at + 64:at + 64 + min(committed, size - 64)]
                live.chunks.append(SimpleNamespace(serial=number, thread=thread, tid=tid, rows=rows))
    live.chunks.sort(key=lambda c: c.serial)
    return live


def read(path, live=None):
    """The content of a .tfr (path, or bytes) and its .live: records, strings, info, footer, complete, bad (offsets).

    SIGKILL may cut the last block; if the .live has it too, the block is not bad.
    """
    data = path if isinstance(path, bytes) else Path(path).read_bytes()
    if live is None and not isinstance(path, bytes) and Path(f'{path}.live').exists():
        live = Path(f'{path}.live').read_bytes()
    live = read_live(live) if live and live[:8] != bytes(8) else None  # one that could not be removed has no head any more
    trace = SimpleNamespace(records=[], strings={}, info={}, footer={}, complete=False, bad=[], serials=set(),
                            kinds=dict(live.kinds) if live else {}, live=live)
    at, chunks = 16, []
    while at < len(data):
        head = good_block(data, at)
        payload = data[at + 48:at + 48 + head.stored] if head else b''
        if not head or len(payload) < head.stored or zlib.crc32(payload) != head.crc:
            trace.complete = False
            following = data.find(struct.pack('<I', BLOCK_MAGIC), at + 1)
            if head and len(payload) == head.stored:
                following = at + 48 + (head.stored + 7) // 8 * 8
            is_cut = following < 0 and (len(payload) < head.stored if head else len(data) - at < 48)
            if not (is_cut and live):
                trace.bad.append(at)
            if following < 0:
                break
            at = following
            continue
        at += 48 + (head.stored + 7) // 8 * 8
        if head.flags & DEFLATED:
            payload = zlib.decompress(payload, -15)
        assert len(payload) == head.raw
        trace.complete = head.type == FOOTER
        if head.type == HEADER:
            trace.info.update(parse_pairs(payload))
        elif head.type == SCHEMA:
            trace.kinds.update(parse_schema(payload))
        elif head.type == STRINGS:
            trace.strings.update(parse_strings(payload))
        elif head.type == CHUNK:
            chunks.append((head, payload, False))
        elif head.type == FOOTER:
            trace.footer.update(parse_pairs(payload))
    if live:
        trace.strings = {**live.strings, **trace.strings}
        trace.info = {**live.info, **trace.info}
        for c in live.chunks:
            chunks.append((SimpleNamespace(serial=c.serial, thread=c.thread, tid=c.tid, flags=ROWS), c.rows, True))
    for head, payload, is_live in chunks:
        if head.serial in trace.serials:
            continue
        trace.serials.add(head.serial)
        unpack = unpack_rows if head.flags & ROWS else unpack_columns
        for r in unpack(payload, trace.kinds):
            r.thread, r.tid, r.serial, r.live = head.thread, head.tid, head.serial, is_live
            trace.records.append(r)
    return trace


class Clock:
    """Converts ticks to nanoseconds, in fractions."""

    def __init__(self, records, kind='tsc', info=None):
        points = {MONOTONIC: {}, REALTIME: {}}
        for r in records:
            if r.kind == 'clock' and r.values['clock'] in points:
                points[r.values['clock']].setdefault(r.values['ticks'], r.values['value'])
        info = info or {}
        for which, name in ((MONOTONIC, 'clock.monotonic'), (REALTIME, 'clock.realtime')):
            if name in info:
                points[which].setdefault(int(info['clock.ticks']), int(info[name]))
        self.line = sorted(points[MONOTONIC].items())
        if kind == 'monotonic':
            self.line = [(0, 0), (1, 1)]
        self.offset = 0
        real = sorted(points[REALTIME].items())
        if real:
            self.offset = real[0][1] - self.monotonic(real[0][0])

    def monotonic(self, ticks):
        line = self.line
        i = bisect.bisect_right([t for t, _ in line], ticks) - 1
        if i < 0 or i + 1 >= len(line):
            a, b, at = line[0], line[-1], line[max(i, 0)]
        else:
            a, b, at = line[i], line[i + 1], line[i]
        return at[1] + Fraction((ticks - at[0]) * (b[1] - a[1]), b[0] - a[0])

    def __call__(self, ticks):
        return self.monotonic(ticks) + self.offset


def name_of(strings, number):
    return '' if number == 0 else strings.get(number, b'(lost)').decode(errors='replace')


def stack_of(strings, number):
    """A stack's frames as (function, file, line), all texts."""
    return [tuple(name_of(strings, int(n, 16)).split('\t')) for n in name_of(strings, number).split()]
