"""raw - reads the files that cupti_raw.c writes: CUPTI's unchanged buffers, with the offset of each record.

    for buffer in read(path)[1]: buffer.records is [(kind, bytes)], buffer.texts {pointer: text}
"""

import collections
import json
import struct
from types import SimpleNamespace


def read(path):
    """Returns (first line, buffers); a file that ends inside a buffer gives the buffers before it."""
    with open(path, 'rb') as file:
        head, data, at, buffers = json.loads(file.readline()), file.read(), 0, []
    try:
        while data[at:at + 1] == b'B':
            valid, records, texts = struct.unpack_from('<3I', data, at + 1)
            begin = at + 13
            at = begin + valid
            where = [struct.unpack_from('<2I', data, at + 8 * n) for n in range(records)]
            at += 8 * records
            found = {}
            for _ in range(texts):
                pointer, length = struct.unpack_from('<QI', data, at)
                found[pointer] = data[at + 12:at + 12 + length].decode(errors='replace')
                at += 12 + length
            ends = [offset for offset, _ in where[1:]] + [valid]
            rows = [(kind, data[begin + offset:begin + end]) for (offset, kind), end in zip(where, ends)]
            buffers.append(SimpleNamespace(records=rows, texts=found))
    except struct.error:
        pass
    return head, buffers


WORK = {3: (16, 92), 10: (16, 92), 1: (16, 44), 2: (16, 44)}  # {kind: offsets of start and correlation id}
DRIVER, RUNTIME, START, ID = 4, 5, 8, 32


def judged(buffers):
    """Counts work that starts before its own call, or has no id, and driver calls inside a call of the runtime."""
    calls, starts = {DRIVER: {}, RUNTIME: {}}, []
    for kind, data in (record for buffer in buffers for record in buffer.records):
        if kind in calls:
            calls[kind][struct.unpack_from('<I', data, ID)[0]] = struct.unpack_from('<Q', data, START)[0]
        elif kind in WORK:
            start, correlation = WORK[kind]
            starts.append((struct.unpack_from('<Q', data, start)[0], struct.unpack_from('<I', data, correlation)[0]))
    begun = {**calls[DRIVER], **calls[RUNTIME]}
    early = [begun[i] - start for start, i in starts if i in begun and start < begun[i]]
    return {'before_their_call': len(early), 'worst': max(early, default=0), 'without_a_call': sum(i not in begun for _, i in starts),
            'without_an_id': sum(i == 0 for _, i in starts), 'nested_calls': len(calls[DRIVER].keys() & calls[RUNTIME].keys())}


def summary(path):
    """Returns records and sizes by kind, and what judged() counts; a size reaches to the start of the next record."""
    head, buffers = read(path)
    counts, sizes, texts = collections.Counter(), collections.defaultdict(set), set()
    for buffer in buffers:
        texts.update(buffer.texts.values())
        for kind, data in buffer.records:
            counts[str(kind)] += 1
            sizes[str(kind)].add(len(data))
    return {'version': head['version'], 'buffers': len(buffers), 'records': dict(counts),
            'judged': judged(buffers), 'sizes': {kind: sorted(s)[:4] for kind, s in sizes.items()}, 'texts': sorted(texts)[:20]}
