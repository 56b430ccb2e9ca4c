"""optrace - .tfr traces with operators, memory and stages in pieces, or with all that questions read; times in nanoseconds."""

import json
import random

from test_device_records import US, Trace, ticks
from tfr import STAGE, rec

PAUSES = 0x10000
FUNCTION, BACKWARD, USER, NATIVE = 0, 1, 7, 100
FLOAT = 6
LAST = 3000 * US
KERNELS = ['_ZN3foo3barIfEEvT_', '_Z4fillIiEvPT_S0_', 'ncclDevKernel_AllReduce_Sum_f32', 'triton_poi_fused_0']


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


class Mixed(OpTrace):
    """A rank of a job. Three threads have operators, also backward ones, calls on files and stages, of which one is asked for in vain."""

    def __init__(self, rank=0, world=2, seed=1):
        super().__init__(rank=rank, world=world, pid=4000 + rank, **{'env.ENABLE_PROFILER_NAMES': 'denoise,missing'})
        self.rng, self.rank, self.world = random.Random(seed + rank), rank, world
        for step in range(4):
            self.begun(f'ProfilerStep#{step}', (200 + 600 * step) * US, (790 + 600 * step) * US)
        for start in range(0, LAST // US, 500):
            self.begun('denoise', start * US, (start + 400) * US)
            self.begun('attention', (start + 100) * US, (start + 200) * US)
            self.begun('load', (start + 50) * US, (start + 450) * US, thread=2)
        self.operators()
        self.files()
        self.memory()
        self.collectives()
        self.records.append(rec('message', level=1, text=self.w.string('something to know'), time=ticks(5)))

    def begun(self, name, start, end, thread=1):
        """A stage with a record of its beginning too, which `info` reads."""
        self.stage(name, start, end, thread)
        self.records.insert(-1, rec('range_begin', name=self.w.string(name), time=ticks(start), id=self.ranges, flags=self.records[-1].values['flags']))

    def operators(self):
        for i, start in enumerate(range(10, LAST // US, 40)):
            backward, thread = i % 5 == 4, 1 + i % 3
            self.op(f'aten::op{i % 7}{"_backward" * backward}', start * US, (start + 30) * US, thread, sequence=i - backward,
                    forward=backward and 1 + (i - 1) % 3, scope=BACKWARD if backward else FUNCTION, shapes=[[i % 3, 2]],
                    frames=[('f', 'a.py', i % 4)], flops=i)
            self.op('mylib::call', (start + 2) * US, (start + 20) * US, thread, scope=NATIVE if i % 2 else FUNCTION)

    def files(self):
        function = self.w.string('io\x1fFILE\x1fread\x1ffd:INT,count:SIZE')
        for i, start in enumerate(range(30, LAST // US, 90)):
            self.later_on(1 + i % 3, rec('io', func=function, path=self.w.string(f'/data/{i % 4}'), time=ticks(start * US),
                                         duration=ticks(25 * US), result=100 + i, bytes=128, fd=5, other_fd=-1))

    def memory(self):
        for i in range(60):
            self.block(40 * i * US, 4096 * (i // 2 % 5), -512 if i % 2 else 512, 0 if i % 2 else 512, 8192, i % 2 - 1)
        self.stage_memory(2, 300 * US, 4096, 8192)

    def collectives(self):
        for i in range(5):
            at, same = (300 + 450 * i + 20 * self.rank) * US, {'tensor': 500 + i, 'peer': -1}
            self.later_on(1, rec('framework_collective', name=self.w.string('c10d::allreduce_'), time=ticks(at), duration=ticks(US), type=FLOAT,
                                 group=self.w.string('0'), tensors=1, rank=self.rank, ranks=self.world, thread=1, out=8, **same, **{'in': 8}))
            self.later_on(2, rec('framework_collective', name=self.w.string('gloo:all_reduce'), time=ticks(at + 5 * US), duration=ticks(90 * US),
                                 type=-1, rank=-1, flags=1, thread=2, out=-1, **same, **{'in': -1}))

    def devices(self):
        """Adds device work of each kind, with and without a known launch, calls and samples of devices."""
        for device in (0, 1):
            self.device(device, f'made {device}', simulated=1)
        for i, launched in enumerate(range(15, LAST // US, 35)):
            thread, stream = 1 + i % 3, 7 + i % 4
            self.work('kernel', None if i % 11 == 0 else launched * US, (launched + 12) * US, (10 + i % 5) * US, thread, stream, i % 2,
                      name=KERNELS[i % 4], **{f'grid_{axis}': 2 for axis in 'xyz'}, **{f'block_{axis}': 8 for axis in 'xyz'})
            if i % 4 == 0:
                self.work('copy', (launched + 3) * US, (launched + 20) * US, 8 * US, thread, 9, direction=1 + i % 3, bytes=1 << 20)
            if i % 6 == 0:
                self.work('set', (launched + 4) * US, (launched + 30) * US, 4 * US, thread, 9, bytes=4096)
            self.call('cudaLaunchKernel', launched * US, 2 * US, thread)
        for i in range(50):
            self.call('cudaMalloc', (60 * i + 5) * US, 3 * US, 2, kind='MEMORY', result=i % 9 == 0)
            self.later_on(3, rec('device_sample', device=i % 2, time=ticks(60 * i * US), duration=1000, known=63, sm_mhz=1000 + i, temperature=50,
                                 power_mw=300000, reasons=4 * (i % 3)))
        return self

    def write(self, directory):
        directory.mkdir(exist_ok=True)
        for records in self.later.values():
            records.sort(key=lambda r: r.values['time'] + r.values.get('duration', 0))
        return self.save(directory / f'rank{self.rank}.elsewhere.{4000 + self.rank}.tfr')


class Long(Mixed):
    """The same in small chunks and without backward operators, so that operators and blocks stay in the file."""

    def op(self, name, *more, forward=0, scope=FUNCTION, **others):
        super().op(name, *more, scope=scope if scope == NATIVE else FUNCTION, **others)

    def save(self, path):
        self.w.chunk(self.records, thread=1, tid=101)
        for thread, records in self.later.items():
            for at in range(0, len(records), 9):
                self.w.chunk(records[at:at + 9], thread=thread, tid=100 + thread)
        self.w.footer()
        return self.w.save(path)


def job(directory, with_devices, world=2):
    for rank in range(world):
        trace = Mixed(rank, world)
        (trace.devices() if with_devices else trace).write(directory)
    return directory
