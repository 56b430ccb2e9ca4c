"""optrace - .tfr traces with operators, memory and stages in pieces, written by tests/tfr.py; times in nanoseconds."""

import json

from test_device_records import Trace, ticks
from tfr import STAGE, rec

PAUSES = 0x10000
FUNCTION, BACKWARD, USER, NATIVE = 0, 1, 7, 100


class OpTrace(Trace):
    def later_on(self, thread, record):
        self.later.setdefault(thread, []).append(record)
        return record

    def text(self, value):
        if value is None:
            return 0
        return self.w.string(value if isinstance(value, str) else json.dumps(value))

    def op(self, name, start, end, thread=1, sequence=-1, forward=0, scope=FUNCTION, shapes=None, types=None,
           concrete=None, strides=None, modules=None, flops=0, frames=()):
        self.later_on(thread, rec(
            'op', name=self.w.string(name), time=ticks(start), duration=ticks(end - start), sequence=sequence,
            shapes=self.text(shapes), types=self.text(types), concrete=self.text(concrete), strides=self.text(strides),
            modules=self.text(modules), scope=scope, forward_thread=forward, flops=flops, stack=self.w.stack(*frames) if frames else 0))

    def block(self, time, address, size, allocated, reserved=0, device=-1, thread=1, frames=(), allocator='c10'):
        self.later_on(thread, rec('memory', allocator=self.w.string(allocator), time=ticks(time), address=address,
                                  bytes=size, allocated=allocated, reserved=reserved, device=device,
                                  stack=self.w.stack(*frames) if frames else 0))

    def coroutine(self, name, start, pieces, end, thread=1):
        """A stage in pieces (start, end, thread); a piece without an end lasts until the stage ends."""
        self.ranges += 1
        number, name = self.ranges, self.w.string(name)
        flags = STAGE | PAUSES
        self.later_on(thread, rec('range_begin', name=name, time=ticks(start), id=number, flags=flags))
        for i, (begin, stop, on) in enumerate(pieces):
            if i:
                self.later_on(on, rec('range_resume', name=name, time=ticks(begin), id=number))
            if stop is not None:
                self.later_on(on, rec('range_pause', name=name, time=ticks(stop), id=number))
        if end is not None:
            self.later_on(pieces[-1][2], rec('range_end', name=name, time=ticks(end), duration=ticks(end - start),
                                             id=number, flags=flags, thread=thread))
        return number

    def stage_memory(self, number, time, allocated, reserved=0, device=0):
        """Memory peaks of the number-th opened stage."""
        self.records.append(rec('stage_memory', device=device, time=ticks(time), id=number, allocated_peak=allocated,
                                reserved_peak=reserved))

    def said(self, key, value, source='test'):
        self.records.append(rec('metadata', key=self.w.string(key), value=self.w.string(value),
                                source=self.w.string(source), time=ticks(10)))

    def recording(self, time, state, cycle=0, step=0, cause='schedule'):
        self.records.append(rec('recording', state=state, time=ticks(time), activities=0xff, cycle=cycle, step=step,
                                cause=self.w.string(cause)))
