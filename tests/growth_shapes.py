"""growth_shapes.py - traces of hostile shapes and any size: ours and dftracer's; growth.py has PyTorch's.

A shape is a function of a number N that writes a trace (or a directory of traces) and returns its path.
"""

import json
import pickle
import re
from pathlib import Path

import tfr
from tfr import NESTED, STAGE, Writer, rec

CACHE_DIT = 0x8000  # a flag of the ranges of its contexts

SHAPES = {}


def shape(size):
    """Registers a shape, and the N at which its time exceeds that of starting the program."""
    def add(function):
        SHAPES[function.__name__] = (function, size)
        return function
    return add


# ---- events of Kineto traces ----

def event(category, name, start, time, tid=1, pid=1, **args):
    return json.dumps({'ph': 'X', 'cat': category, 'name': name, 'pid': pid, 'tid': tid, 'ts': start, 'dur': time, 'args': args})


def kineto(directory, events, rank=0, world=1, name='trace.json'):
    path = Path(directory) / name
    with open(path, 'w') as file:
        file.write('{"schemaVersion":1,"deviceProperties":[],"distributedInfo":{"rank":%d,"world_size":%d},"traceEvents":[\n'
                   % (rank, world))
        for i, text in enumerate(events):
            file.write(',\n' + text if i else text)
        file.write('\n]}')
    return path


def launch(i, at, kernel='kernel', stream=7, device=0, tid=1, wait=3, time=1):
    """A call and the kernel it launches."""
    yield event('cuda_runtime', 'cudaLaunchKernel', at, 1, tid, correlation=i + 1)
    yield event('kernel', kernel, at + wait, time, stream, device, correlation=i + 1, stream=stream, device=device)


# ---- .tfr traces ----

class Recording:
    """A .tfr trace of one thread whose records are written in chunks."""

    def __init__(self, directory, rank=0, world=1, pid=None, rows=20000, **info):
        pid = pid or 4000 + rank
        self.w = Writer(rank=rank, world=world, pid=pid, **info)
        self.path = Path(directory) / f'rank{rank}.elsewhere.{pid}.tfr'
        self.w.chunk([c for t in (0, 10 ** 9) for c in tfr.clocks(t, t, 1_700_000_000_000_000_000 + t) +
                      [rec('clock', clock=tfr.DEVICE, ticks=t, value=t, error=10)]])
        self.records, self.rows = [], rows  # of a chunk

    def add(self, *records):
        self.records += records
        if len(self.records) > self.rows:
            self.flush()

    def flush(self):
        if self.records:
            self.w.chunk(self.records, thread=1, tid=77)
            self.records = []

    def save(self):
        self.flush()
        self.w.footer()
        self.w.save(self.path)
        return self.path

    def begin(self, name, time, id, depth=0):
        return rec('range_begin', name=self.w.string(name), time=time, id=id, flags=NESTED | STAGE, depth=depth)

    def range(self, name, time, end, id, depth=0):
        begin = self.begin(name, time, id, depth)
        self.add(begin, tfr.end_of(begin, end, 1))

    def operator(self, name, time, end, **more):
        self.add(rec('op', time=time, duration=end - time, name=self.w.string(name), sequence=-1, **more))


def leak(directory, n, names):
    r = Recording(directory)
    for i in range(n):
        r.add(r.begin(f'stage{i % names}', 1000 + 100 * i, 2 * i + 1, i))
        r.range('inner', 1010 + 100 * i, 1090 + 100 * i, 2 * i + 2, i + 1)
        r.operator('aten::op', 1020 + 100 * i, 1030 + 100 * i)
    return r.save()


@shape(10000)
def leaked_pushes(directory, n):
    """N pushes of seven names without a pop, each with a whole range and an operator."""
    return leak(directory, n, 7)


@shape(10000)
def leaked_names(directory, n):
    """N pushes of N names without a pop."""
    return leak(directory, n, n)


@shape(10000)
def our_nested_operators(directory, n):
    """N nested operators in one stage of a .tfr trace, each with its own stack."""
    r = Recording(directory)
    r.range('stage', 100, 1000 + 100 * n, 1)
    for i in range(n):
        r.operator(f'aten::op{i % 50}', 1000 + i, 1000 + 10 * n - i, stack=r.w.stack((f'f{i}', 'a.py', i), ('main', 'a.py', 1)))
    return r.save()


@shape(40000)
def our_kernels(directory, n):
    """N kernels of N names in a .tfr trace, in N nested stages."""
    r = Recording(directory)
    function = r.w.string('cuda\x1fLAUNCH\x1fcuLaunchKernel\x1f')
    r.add(rec('thread', serial=1, tid=77, pthread=0x10000, time=900, name=r.w.string('main')))
    for i in range(n):
        r.range(f'stage{i}', 1000 + i, 1000 + 40 * n - i, i + 1, i)
    for i in range(n):
        at = 1000 + 2 * n + 10 * i
        r.add(rec('call', func=function, time=at, duration=3, result=0), rec('op', time=at, duration=4, name=r.w.string('op'), sequence=-1),
              rec('correlation', correlation=i + 1, func=function, thread=0x10000, time=at + 1, duration=1),
              rec('kernel', name=r.w.string(f'_Z1k{i}v'), start=at + 5, duration=4, correlation=i + 1, stream=7))
    return r.save()


@shape(10000)
def our_stage_memories(directory, n):
    """N stages of N names, each with memory records of three allocators and with signatures."""
    r = Recording(directory)
    for i in range(n):
        at = 1000 + 100 * i
        r.range(f'stage{i}', at, at + 90, i + 1)
        r.add(*(rec('stage_memory', device=device, time=at + 90, id=i + 1, allocated_peak=i, reserved_peak=2 * i) for device in (-1, 0, 1)))
        r.add(rec('signature', text=r.w.string(f'[{i}, 2, 3, 4]'), time=at + 80, id=i + 1, name=r.w.string(f'stage{i}'), direction=2),
              rec('signature', text=r.w.string('{"x": %d}' % i), time=at + 1, id=i + 1, name=r.w.string(f'stage{i}')))
    return r.save()


@shape(10000)
def our_calls_at_once(directory, n):
    """N calls of one function on one thread and their N correlation records, all overlapping."""
    r = Recording(directory)
    function = r.w.string('cudart\x1fLAUNCH\x1fcudaLaunchKernel\x1f')
    r.add(rec('thread', serial=1, tid=77, pthread=0x10000, time=900, name=r.w.string('main')))
    r.range('stage', 1000, 1000 + 60 * n, 1)
    for i in range(n):
        r.add(rec('call', func=function, time=1000 + 2 * i, duration=50 * n, result=0),
              rec('correlation', correlation=i + 1, func=function, thread=0x10000, time=1001 + 2 * i, duration=50 * n - 4),
              rec('kernel', name=r.w.string('k'), start=1000 + 2 * i, duration=1, correlation=i + 1, stream=7))
    return r.save()


@shape(20000)
def our_pieces(directory, n):
    """N nested stages, N coroutines that run in pieces in the innermost, and one coroutine of N pieces."""
    r = Recording(directory)
    def piece(id, name, start, end, kind='range_begin', **more):
        r.add(rec(kind, name=r.w.string(name), time=start, id=id, **more), rec('range_pause', name=r.w.string(name), time=end, id=id))
    for i in range(n):
        r.add(r.begin(f'stage{i}', 1000 + i, i + 1, i))
    for i in range(n):
        at, id, flags = 1000 + n + 40 * i, 2 * n + i, STAGE | 0x10000
        piece(id, f'stage{i}', at, at + 5, flags=flags)
        piece(id, f'stage{i}', at + 7, at + 10, 'range_resume')
        r.add(rec('range_end', name=r.w.string(f'stage{i}'), time=at + 11, duration=11, id=id, flags=flags, thread=1))
        piece(n + 1, 'generator', at + 12, at + 20, 'range_resume' if i else 'range_begin', **({} if i else dict(flags=flags)))
    for i in reversed(range(n)):
        begin = r.begin(f'stage{i}', 1000 + i, i + 1, i)
        r.add(tfr.end_of(begin, 2000 + 42 * n - i, 1))
    return r.save()


@shape(10000)
def our_devices(directory, n):
    """N devices with one kernel each, and N categories with one range each."""
    r = Recording(directory)
    for i in range(n):
        r.add(rec('device', device=i, uuid_high=i, uuid_low=1, name=r.w.string('GPU')),
              rec('category', domain=0, category=i + 1, name=r.w.string(f'category{i}')))
    for i in range(n):
        begin = rec('range_begin', name=r.w.string('stage'), time=1000 + 20 * i, id=i + 1, flags=NESTED | STAGE, category=i + 1)
        r.add(begin, tfr.end_of(begin, 1010 + 20 * i, 1), rec('kernel', name=r.w.string('k'), start=1000 + 20 * i, duration=4, device=i, stream=7))
    return r.save()


@shape(4000)
def our_other_records(directory, n):
    """N records of each kind that no other shape has, with N names, places, threads or groups."""
    r = Recording(directory)
    call = r.w.string('nccl\x1fCOLLECTIVE\x1fncclAllReduce\x1f')
    r.range('stage', 1000, 1000 + 100 * n, 1)
    for i in range(n):
        at, text = 1000 + 90 * i, r.w.string(f'text{i}')
        r.add(rec('metadata', key=text, value=text, source=text, time=at), rec('message', level=i % 4, text=text, time=at),
              rec('recording', state=i % 3, time=at, activities=0xff, step=i, cause=text),
              rec('mark', name=text, time=at, flags=0), rec('thread', serial=i + 2, tid=100 + i, pthread=0x10000 + i, time=at, name=text),
              rec('thread_name', tid=100 + i, name=text, time=at),
              rec('copy', start=at, duration=50 * n, bytes=i, correlation=i, stream=i), rec('set', start=at, duration=3, bytes=i, stream=7),
              rec('sync', start=at, duration=3, context=i, stream=i), rec('overhead', start=at, duration=3),
              rec('graph_launch', start=at, duration=2, graph=i, stream=7),
              rec('stage_device', id=1, device=i, start=at, stream=i, duration=5),
              rec('memory', allocator=r.w.string('c10'), time=at, address=i, bytes=512, allocated=512 * i, reserved=4096 * i, device=i % 3),
              rec('oom', allocator=r.w.string('c10'), time=at, bytes=512, device=i), rec('io', func=call, time=at, duration=3, path=text, fd=i),
              rec('collective', func=call, time=at, duration=20, communicator=i, sequence=i, ranks=2),
              rec('device_sample', device=i, time=at, duration=3, reasons=2 ** 64 - 1, known=63, temperature=i, sm_mhz=i))
    return r.save()


@shape(4000)
def framework_collectives(directory, n):
    """Calls and works of torch's groups that do not match: N calls whose works are lost, N works whose calls are, N groups,
    N threads, one tensor, and N works that come when all calls have been made, the last one first."""
    r = Recording(directory)
    name, work = r.w.string('c10d::allreduce_'), r.w.string('gloo:all_reduce')
    for i in range(n):
        at, alone = 1000 + 10 * i, r.w.string(f'group{i}')
        for group, tensor in ((r.w.string('lost'), 1), (alone, 2), (r.w.string('late'), 10 + i)):
            r.add(rec('framework_collective', name=name, time=at, duration=5, group=group, tensor=tensor, thread=1, ranks=1))
        for thread, tensor, start in ((2, 10 + n - i, 10 * n + at), (3 + i, 2, at + 6), (2, 5, at + 7)):
            r.add(rec('framework_collective', name=work, time=start, duration=5, tensor=tensor, thread=thread, flags=1))
    return r.save()


@shape(4000)
def names_asked(directory, n):
    """N requested names, none of which matches one of N stages."""
    r = Recording(directory, **{'env.ENABLE_PROFILER_NAMES': ','.join(f'wanted{i}*' for i in range(n)),
                                'env.TFI_STAGES': ','.join(f'module:Class{i}.method' for i in range(n))})
    for i in range(n):
        r.range(f'stage{i}', 1000 + 10 * i, 1009 + 10 * i, i + 1)
    return r.save()


@shape(40)
def our_workers(directory, n):
    """N processes of one rank with ranges of libraries; only the last one has a stage."""
    for i in range(n):
        r = Recording(directory, 0, 1, pid=4000 + i)
        for k in range(500):
            begin = rec('range_begin', name=r.w.string(f'mark{k % 9}'), time=1000 + 20 * k, id=k + 1, flags=NESTED, domain=r.w.string('NCCL'))
            r.add(begin, tfr.end_of(begin, 1010 + 20 * k, 1))
        if i == n - 1:
            r.range('stage', 1000, 9000, 1000)
        r.save()
    return Path(directory)


@shape(60)
def our_loader_workers(directory, n):
    """One process with 100 N stages and waits for batches, and N workers of one rank with batches and calls on files."""
    call = 'POSIX\x1fFILE\x1fread\x1f'
    for i in range(n):
        r = Recording(directory, 0, 1, pid=4000 + i)
        for k in range(100):
            at = 1000 + 1000 * (i + n * k)
            r.add(rec('io', func=r.w.string(call), time=at + 5, duration=400, result=7, bytes=7, offset=k, path=r.w.string(f'/f{k}')),
                  rec('range_end', name=r.w.string(f'DataLoader worker {i}'), time=at + 500, duration=500, id=k + 1, flags=NESTED))
        r.save()
    r = Recording(directory, 0, 1, pid=9000)
    for k in range(100 * n):
        r.range(f's{k % 10}', 1000 * k, 1000 * k + 900, 2 * k + 1)
        r.range('enumerate(DataLoader)#_Iter.__next__', 1000 * k + 10, 1000 * k + 700, 2 * k + 2)
    r.save()
    return Path(directory)


@shape(150)
def our_comm_ranks(directory, n):
    """N ranks with twenty collectives and their kernels each, one .tfr trace per rank."""
    for rank in range(n):
        r = Recording(directory, rank, n)
        all_reduce, kernel = r.w.string('nccl\x1fCOLLECTIVE\x1fncclAllReduce\x1f'), r.w.string('ncclDevKernel_AllReduce')
        launch = r.w.string('cuda\x1fLAUNCH\x1fcuLaunchKernelEx\x1f')
        r.add(rec('thread', serial=1, tid=1, pthread=1, time=1))
        r.range('s0e0', 1000, 60000, 1)
        for i in range(20):
            at = 2000 + 1000 * i
            r.add(rec('collective', func=all_reduce, time=at, duration=90, communicator=1, sequence=i, bytes=4, count=1, rank=rank, ranks=n),
                  rec('correlation', correlation=i + 1, func=launch, thread=1, time=at + 10, duration=20),
                  rec('kernel', name=kernel, start=at + 100 + rank % 7, duration=300 - rank % 7, correlation=i + 1))
        r.save()
    return Path(directory)


@shape(40)
def our_ranks(directory, n):
    """N ranks with three stages each, one .tfr trace per rank."""
    for rank in range(n):
        r = Recording(directory, rank, n)
        for i in range(3):
            r.range(f's{i}', 1000 + 1000 * i, 1900 + 1000 * i, i + 1)
        r.save()
    return Path(directory)


# ---- segments of allocators ----

class Context(Recording):
    """A context of cache-dit that asks for a snapshot: reports of an allocator, and the calls underneath it."""

    def __init__(self, directory):
        super().__init__(directory)
        self.now, self.function, self.reporter = 1000, {}, self.w.stack(('f', 'm.py', 7))
        self.add(rec('range_begin', name=self.w.string('s'), time=self.now, id=1, flags=NESTED | STAGE | CACHE_DIT))

    def report(self, address, size, reserved):
        self.now += 10
        self.add(rec('memory', time=self.now, address=address, bytes=size, allocated=reserved, reserved=reserved, stack=self.reporter))

    def call(self, kind, name, *args):
        """A call that ends before the next report; its arguments are the address and the size."""
        self.now += 10
        if name not in self.function:
            names = ','.join(f'{n}:HEX' for n in ('address', 'bytes')[:len(args)])
            self.function[name] = self.w.string(f'{"cuda" if name.startswith("cuM") else "cudart"}\x1f{kind}\x1f{name}\x1f{names}')
        self.add(rec('call', func=self.function[name], time=self.now, duration=1, args=list(args)))

    def save(self):
        self.add(rec('range_end', name=self.w.string('s'), time=self.now + 10, duration=self.now - 990, id=1,
                     flags=NESTED | STAGE | CACHE_DIT, thread=1))
        return super().save()


BASE, MIB = 0x7f0000000000, 1 << 20


@shape(40000)
def our_segments(directory, n):
    """N segments of cudaMalloc, each below the one before it and with a block, which all end from the lowest one on."""
    r = Context(directory)
    for i in reversed(range(n)):
        r.call('ALLOC', 'cudaMalloc', BASE + 4 * MIB * i, 2 * MIB)
        r.report(BASE + 4 * MIB * i, MIB, 2 * MIB * (n - i))
    for i in range(n):
        r.report(BASE + 4 * MIB * i, -MIB, 2 * MIB * (n - i))
        r.call('FREE', 'cudaFree', BASE + 4 * MIB * i)
    return r.save()


@shape(20000)
def our_guessed_segments(directory, n):
    """N segments of N sizes that no call tells, N blocks at other places, and a total that falls by one segment each time."""
    r, total = Context(directory), 0
    def at(i):
        return BASE + 8 * MIB * (i * 7919 % n)
    for i in range(n):
        total += MIB + 512 * i
        r.report(at(i), 512, total)
    for i in range(n):
        r.report(at(i), -512, total)
    for i in range(n):
        r.report(at(i) + 4 * MIB * n * 3, 512, total)
    for i in range(n):
        total -= MIB + 512 * i
        r.report(at(i) + 4 * MIB * n * 3, -512, total)
    return r.save()


@shape(20000)
def our_mappings(directory, n):
    """N pieces of an expandable segment, and N blocks that lie in all of them, one after the other."""
    r = Context(directory)
    r.call('ALLOC', 'cuMemAddressReserve', BASE, 2 * MIB * n)
    for i in range(n):
        r.call('ALLOC', 'cuMemMap', BASE + 2 * MIB * i, 2 * MIB)
    for i in range(n):
        r.report(BASE + 1024 * (i % 512), 2 * MIB * (n - 1), 2 * MIB * n)
        r.report(BASE + 1024 * (i % 512), -2 * MIB * (n - 1), 2 * MIB * n)
    return r.save()


@shape(20000)
def our_lost_unmaps(directory, n):
    """N pieces of N sizes in reservations of two, a block in every third one, and a total that falls by one piece each time."""
    r, total, start, size = Context(directory), 0, BASE, []
    for i in range(n):
        size.append(2 * MIB + 4096 * (i * 7919 % n))
        if i % 2 == 0:
            r.call('ALLOC', 'cuMemAddressReserve', start, 8 * MIB + 8192 * n)
        r.call('ALLOC', 'cuMemMap', start, size[i])
        r.report(start, 512, total + size[i])
        total += size[i]
        if i % 3:
            r.report(start, -512, total)
        start += size[i] + (i % 2) * (8 * MIB + 8192 * n)
    for i in range(0, n, 2):
        total -= size[i]
        r.report(start, 512, total)
        r.report(start, -512, total)
    return r.save()


# ---- traces of dftracer ----

def dftracer(directory, lines):
    path = Path(directory) / 'trace.pfw'
    path.write_text('[\n' + '\n'.join(lines) + '\n]\n')
    return path


def on_file(i, **args):
    """One call of read on a file."""
    return json.dumps({'id': i, 'name': 'read', 'cat': 'POSIX', 'pid': 1, 'tid': 1, 'ts': 10 ** 15 + 2 * i, 'dur': 1, 'ph': 'X', 'args': args})


@shape(40000)
def dftracer_files(directory, n):
    """Each call is on a file of its own; half of the hashes are explained behind the calls, the others never."""
    names = [json.dumps({'id': 0, 'name': 'FH', 'cat': 'dftracer', 'pid': 1, 'tid': 1, 'ph': 'M', 'args': {'name': f'/f{i}', 'value': f'{i:x}'}})
             for i in range(0, n, 2)]
    return dftracer(directory, [on_file(i, fhash=f'{i:x}', ret=1) for i in range(n)] + names)


@shape(60000)
def dftracer_damage(directory, n):
    """Every second line is damaged: brackets and strings that stay open."""
    return dftracer(directory, [on_file(i) if i % 2 else '{"a":' + ('[' * 50 if i % 4 else '"') for i in range(n)])


@shape(40000)
def dftracer_stages(directory, n):
    """Stages inside each other, each with a name, a category and a thread of its own, and facts without end."""
    half = 10 ** 15 + n
    stages = [json.dumps({'name': f's{i}', 'cat': f'c{i}', 'pid': 1, 'tid': i % 1000, 'ts': half - i, 'dur': 2 * i, 'ph': 'X'}) for i in range(n)]
    return dftracer(directory, stages + [json.dumps({'name': 'CM', 'cat': 'dftracer', 'ph': 'M', 'args': {'name': f'k{i}', 'value': i}})
                                         for i in range(n)])

# ---- traces of ours with libtorch's functions, for export et ----

TENSOR, INT, TUPLE = 1 | 2 << 8 | 6 << 24 | 7 << 16, 5 | 1 << 16, 11  # a tensor of two dimensions with sizes, strides and storage


@shape(10000)
def our_functions(directory, n):
    """N functions in each other, N on threads of their own and N whose handle is used again, in a trace of ours with the
    inputs, outputs and modules of each, and kernels."""
    r = Recording(directory)
    name, schema, launched = r.w.string('f'), r.w.string('f(Tensor a) -> Tensor'), r.w.string('cuda\x1fLAUNCH\x1fcuLaunchKernel\x1f')
    r.add(rec('thread', serial=1, tid=77, pthread=0x10000, time=900, name=r.w.string('main')))

    def begin(handle, time, thread=1, forward=0):
        words = [TENSOR, 64 * handle, 64 * handle + 8, 0, 6, 2, 3, 3, 1, TUPLE | 2 << 32, INT, handle, INT, 7]
        r.add(rec('function_begin', name=name, time=time, handle=handle, sequence=-1, logical_thread=thread, forward=forward, inputs=words))

    def end(handle, time):
        r.add(rec('function_end', schema=schema, time=time, handle=handle, outputs=[TENSOR, 64 * handle, 8, 0, 6, 2, 3, 3, 1],
                  modules=r.w.string(f'top.m{handle % 97}')))
    for i in range(n):
        at = 1000 + 40 * n + 10 * i
        begin(i + 1, 1000 + i)
        r.add(rec('call', func=launched, time=at, duration=3, result=0),
              rec('correlation', correlation=i + 1, func=launched, thread=0x10000, time=at + 1, duration=1),
              rec('kernel', name=r.w.string(f'k{i % 97}'), start=at + 5, duration=4, correlation=i + 1, stream=7))
        begin(n + i + 1, 1000 + i, i + 2, i + 1)
        end(n + i + 1, 1000 + 30 * n - i)
        begin(2 * n + 1, 1000 + i, 1)
    for i in reversed(range(n)):
        end(i + 1, 1000 + 60 * n - i)
    return r.save()


# ---- tables of Nsight Compute ----

NCU_HEAD = '"ID","Process ID","Kernel Name","Block Size","Grid Size"'


@shape(20000)
def ncu_launches(directory, n):
    """N launches of as many kernels, with two metrics each."""
    path = Path(directory) / 'ncu.csv'
    rows = (f'"{i}","1","void kernel<{i}>(T1)","(1, 1, 1)","(2, 1, 1)","{label}","%","{i % 100}.25"' for i in range(n)
            for label in ('Compute (SM) Throughput', 'Memory Throughput'))
    path.write_text('\n'.join([NCU_HEAD + ',"Metric Name","Metric Unit","Metric Value"', *rows]) + '\n')
    return path


@shape(20000)
def ncu_columns(directory, n):
    """N columns that all mean the same, in ten launches of one kernel, each below a head of its own."""
    path = Path(directory) / 'ncu.csv'
    head = NCU_HEAD + ',"sm__throughput.avg.pct_of_peak_sustained_elapsed"' * n
    row = '"{}","1","k","(1, 1, 1)","(2, 1, 1)"' + ',"1,234.5"' * n
    path.write_text('\n'.join(line for i in range(10) for line in (head, row.format(i))) + '\n')
    return path


@shape(100000)
def ncu_quotes(directory, n):
    """N lines that a program printed, each of quotes, before the table, and a kernel whose name has N brackets."""
    path = Path(directory) / 'ncu.csv'
    path.write_text('"\n' * n + NCU_HEAD + ',"Metric Name","Metric Value"\n"1","1","' + '<(' * n + '","b","g","Duration","1"\n')
    return path


# ---- files of several processes, dumps of the flight recorder, memory snapshots ----

def merged(directory, ranks, launches):
    """A file as SGLang merges them: the ids of each rank count from 1, and its label stands before its pid."""
    def events():
        for rank in range(ranks):
            for i in range(launches):
                for text in (event('user_annotation', f's{i % 9}e0', 10 * i, 9), event('cpu_op', 'op', 10 * i + 1, 5),
                             *launch(i, 10 * i + 2, 'ncclDevKernel_AllReduce(x)' if i % 7 == 0 else 'kernel', device=rank)):
                    yield re.sub(r'"pid": (\d+)', rf'"pid": "[TP{rank:02d}] \1"', text, count=1)
    return kineto(directory, events())


@shape(500)
def merged_ranks(directory, n):
    """A file of N processes with two launches each."""
    return merged(directory, n, 2)


@shape(10000)
def merged_launches(directory, n):
    """A file of four processes with N launches each."""
    return merged(directory, 4, n)


def flight_dump(directory, rank, entries, groups):
    """A dump of torch's flight recorder as torch's pickler writes it: equal values are shared."""
    path = Path(directory) / f'nccl_trace_rank_{rank}'
    path.write_bytes(pickle.dumps({'version': '2.10', 'pg_config': groups, 'entries': entries, 'pg_status': {}}, 2))
    return path


def flight_entry(i, group, frames):
    return {'record_id': i, 'pg_id': group, 'process_group': (str(group), 'd'), 'collective_seq_id': i + 1, 'p2p_seq_id': 0, 'op_id': i + 1,
            'profiling_name': 'nccl:all_reduce', 'time_created_ns': 10 ** 18 + 1000 * i, 'input_sizes': [[i + 1]], 'input_dtypes': ['Float'],
            'output_sizes': [[i + 1]], 'output_dtypes': ['Float'], 'state': 'completed', 'retired': True, 'is_p2p': False, 'timeout_ms': 600000,
            'time_discovered_completed_ns': 10 ** 18 + 1000 * i + 500, 'time_discovered_started_ns': 10 ** 18 + 1000 * i + 10, 'frames': frames}


@shape(3000)
def flight_entries(directory, n):
    """Two ranks with N collectives of N groups, each with a stack of its own; one rank lacks the last."""
    groups = {str(i): {'name': str(i), 'desc': 'd', 'ranks': '[0, 1]'} for i in range(n)}
    for rank in range(2):
        flight_dump(directory, rank, [flight_entry(i, i, [{'name': f'f{i}', 'filename': 'a.py', 'line': i}]) for i in range(n - rank)], groups)
    return Path(directory)


@shape(3000)
def flight_shared(directory, n):
    """N collectives of one group of N ranks share one stack of 2,000 frames, and the group's list stands in N groups."""
    frames = [{'name': f'f{i}', 'filename': 'a.py', 'line': i} for i in range(2000)]
    ranks = str(list(range(n)))
    groups = {str(i): {'name': str(i), 'desc': 'd', 'ranks': ranks} for i in range(n)}
    for rank in range(2):
        flight_dump(directory, rank, [flight_entry(i, 0, frames) for i in range(n - rank)], groups)
    return Path(directory)


def memory_snapshot(directory, events, segments, **more):
    path = Path(directory) / 'snapshot.pickle'
    path.write_bytes(pickle.dumps({'segments': segments, 'device_traces': [events], 'allocator_settings': {}, 'external_annotations': [],
                                   **more}, 4))
    return path


def snapshot_event(action, i, address, size, frames):
    return {'action': action, 'addr': address, 'size': size, 'stream': 0, 'time_us': 10 ** 15 + i, 'frames': frames}


@shape(10000)
def snapshot_events(directory, n):
    """N blocks of N stacks, all in use at once, of which half are freed; a hundred requests are refused."""
    stacks = [[{'name': f'f{i}', 'filename': 'a.py', 'line': i}, {'name': 'main', 'filename': 'a.py', 'line': 1}] for i in range(n)]
    events = [snapshot_event('alloc', i, (i + 1) << 20, 512 + i, stacks[i]) for i in range(n)]
    events += [snapshot_event('oom', n + i, 1 << 20, 1 << 40, stacks[i]) for i in range(100)]
    events += [snapshot_event('free_completed', 2 * n + i, (i + 1) << 20, 512 + i, stacks[-i]) for i in range(n // 2)]
    return memory_snapshot(directory, events, [])


@shape(3000)
def snapshot_shared(directory, n):
    """N segments of ten blocks and 2 N events share one stack of 100 frames."""
    frames = [{'name': f'f{i}', 'filename': 'a.py', 'line': i} for i in range(100)]
    blocks = [{'address': 0, 'size': 512, 'requested_size': 500, 'state': 'active_allocated', 'frames': frames}] * 10
    segments = [{'device': 0, 'address': (i + 1) << 22, 'total_size': 1 << 21, 'allocated_size': 5120, 'active_size': 5120, 'stream': i,
                 'segment_type': 'large', 'segment_pool_id': (0, i), 'is_expandable': False, 'frames': frames,
                 'blocks': [{**b, 'address': ((i + 1) << 22) + 512 * k} for k, b in enumerate(blocks)]} for i in range(n)]
    events = [snapshot_event('alloc' if i % 2 == 0 else 'free_completed', i, 1 << 40, 512, frames) for i in range(2 * n)]
    return memory_snapshot(directory, events, segments)
