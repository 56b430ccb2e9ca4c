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


def summary(path):
    """Returns records and sizes by kind; a size reaches to the start of the next record."""
    head, buffers = read(path)
    counts, sizes, texts = collections.Counter(), collections.defaultdict(set), set()
    for buffer in buffers:
        texts.update(buffer.texts.values())
        for kind, data in buffer.records:
            counts[str(kind)] += 1
            sizes[str(kind)].add(len(data))
    return {'version': head['version'], 'buffers': len(buffers), 'records': dict(counts),
            'sizes': {kind: sorted(s)[:4] for kind, s in sizes.items()}, 'texts': sorted(texts)[:20]}
