"""rank_traces - makes the traces of a job of any number of ranks from the recorded traces of a few.

A rank r has the records of the recorded rank r modulo their number, with these changes: its rank, host, pid, the size
of the world and of the communicator, and when its kernels of collectives start. Eight ranks are on a host, and each
host's clock is a millisecond ahead of the one before. All ranks also get FILL kernels of a nanosecond each, so that a
rank has far more events than its summaries. The result is Job.truth, computed from these changes alone.

The readings of the device's clock are replaced by an exact one, so a time of the device is a time of day, plus the lead
of its host's clock.
"""

from types import SimpleNamespace

import tfr
from tfr import rec

FILL = 3000
PER_HOST = 8
AHEAD = 1_000_000  # ns, of a host's clock over that of the host before
STRAGGLER_LATE = 2_000_000


def shift(rank, place, straggler):
    """Nanoseconds by which a kernel starts earlier than the recorded one."""
    return 0 if rank == straggler else STRAGGLER_LATE + 1000 * ((7 * rank + 13 * place) % 101)


class Template:
    """One recorded trace: the parts that all its ranks share, packed, and those that differ between ranks."""

    def __init__(self, trace):
        self.trace, w = trace, tfr.Writer(head=False, kinds=tfr.KINDS)
        self.strings = dict(trace.strings)
        fill_name = max(self.strings) + 1
        self.strings[fill_name] = b'void fill(float*)'
        def of(kind):
            return sorted((r for r in trace.records if r.kind == kind), key=lambda r: r.values.get('sequence', r.values.get('start', 0)))
        self.collectives, self.kernels = of('collective'), of('kernel')
        assert len(self.collectives) == len(self.kernels)
        first = self.kernels[0].values
        begin = min(k.values['start'] for k in self.kernels) - 10_000_000
        self.fill = [(begin + i, begin + i + 1) for i in range(FILL)]
        fill = [rec('kernel', **{**first, 'name': fill_name, 'start': s, 'duration': 1, 'correlation': 1_000_000}) for s, _ in self.fill]
        shared = [r for r in trace.records if r.kind not in ('collective', 'kernel', 'clock')]
        w.data += tfr.pack_block(tfr.STRINGS, tfr.pack_strings(sorted(self.strings.items())))
        for thread in sorted({r.thread for r in shared}):
            records = [r for r in shared if r.thread == thread]
            w.chunk([rec(r.kind, **r.values) for r in records], thread, records[0].tid)
        w.chunk(fill)
        self.shared, self.chunks = bytes(w.data), w.appended
        self.thread, self.tid = self.collectives[0].thread, self.collectives[0].tid
        self.clocks = [r.values for r in trace.records if r.kind == 'clock' and r.values['clock'] != tfr.DEVICE]

    def write(self, path, rank, world, starts, ends):
        ahead = AHEAD * (rank // PER_HOST)
        info = {**self.trace.info, 'rank': rank, 'world': world, 'host': f'host{rank // PER_HOST}', 'pid': 10_000 + rank}
        info['clock.realtime'] = int(info['clock.realtime']) + ahead
        w = tfr.Writer(head=False)
        w.data += tfr.file_head()
        w.block(tfr.HEADER, tfr.pairs(info))
        w.block(tfr.SCHEMA, tfr.schema_text())
        w.data += self.shared
        w.serial = w.appended = self.chunks
        w.chunk([rec('clock', **{**c, 'value': c['value'] + ahead * (c['clock'] == tfr.REALTIME)}) for c in self.clocks]
                + [rec('clock', clock=tfr.DEVICE, ticks=int(info['clock.ticks']), value=int(self.trace.info['clock.realtime']), error=1)])
        w.chunk([rec('collective', **{**c.values, 'rank': rank, 'ranks': world}) for c in self.collectives], self.thread, self.tid)
        w.chunk([rec('kernel', **{**k.values, 'start': s, 'duration': e - s}) for k, s, e in zip(self.kernels, starts, ends)])
        w.footer()
        w.save(path)


def make(recorded, directory, world, straggler):
    """Writes the traces of `world` ranks. Returns the truth: the collectives in order, and the fill of each rank."""
    templates = [Template(t) for t in recorded]
    ends = [max(t.kernels[k].values['start'] + t.kernels[k].values['duration'] for t in templates) for k in range(len(templates[0].kernels))]
    truth = SimpleNamespace(starts=[{} for _ in ends], ends=ends, fill=[t.fill for t in templates],
                            collectives=[c.values for c in templates[0].collectives])
    for rank in range(world):
        template = templates[rank % len(templates)]
        starts = [k.values['start'] - shift(rank, place, straggler) for place, k in enumerate(template.kernels)]
        for place, start in enumerate(starts):
            truth.starts[place][rank] = start
        template.write(directory / f'rank{rank}.host{rank // PER_HOST}.{10_000 + rank}.tfr', rank, world, starts, ends)
    return truth
