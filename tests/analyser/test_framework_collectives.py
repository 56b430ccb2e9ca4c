"""test_framework_collectives - torch's own collectives: the work of each call is found, and NCCL's communicators get names.

Made traces stand for torch and gloo. `Gloo` has two threads a group that take the calls of the group in order, as gloo
does, and keeps the truth about each call.
"""

import csv
import random
from collections import Counter

import pytest

from tfr import Writer, clocks, rec

WORK, DESCRIPTION, BEGUN, FLOAT, BYTES = 1, 2, 4, 6, 4
NAMES = {'all_reduce': 'c10d::allreduce_', 'broadcast': 'c10d::broadcast_', 'all_gather': 'c10d::_allgather_base_',
         'reduce_scatter': 'c10d::reduce_scatter_', 'barrier': 'c10d::barrier', 'send': 'c10d::send', 'recv': 'c10d::recv_'}


class Rank:
    """A trace of one rank; times are nanoseconds."""

    def __init__(self, rank=0, world=2):
        self.w, self.rank, self.world, self.records = Writer(rank=rank, world=world, pid=100 + rank), rank, world, []

    def call(self, op, at, group, size=2, rank=None, tensor=0, elements=1, tensors=1, peer=-1, thread=1, duration=10, sequence=-1, flags=0):
        known = {'in': elements, 'out': elements} if elements else {'in': -1, 'out': -1}
        self.add(thread, name=self.w.string(NAMES[op]), time=at, duration=duration, group=self.w.string(group), tensor=tensor,
                 tensors=tensors, type=FLOAT if elements else -1, rank=self.rank if rank is None else rank, ranks=size, peer=peer, sequence=sequence, flags=flags, **known)

    def description(self, name, at, group, members, sequence, thread=1, duration=4):
        self.add(thread, name=self.w.string(name), time=at, duration=duration, group=self.w.string(group), type=FLOAT, rank=self.rank,
                 ranks=len(members), members=self.w.string(str(members)), sequence=sequence, peer=-1, out=1, flags=DESCRIPTION, **{'in': 1})

    def work(self, op, at, end, thread, tensor=0):
        self.add(thread, name=self.w.string(f'gloo:{op}'), time=at, duration=end - at, tensor=tensor, rank=-1, peer=-1, type=-1,
                 out=-1, sequence=-1, flags=WORK, **{'in': -1})

    def add(self, thread, **values):
        self.records.append((thread, rec('framework_collective', thread=thread, **values)))

    def nccl(self, function, at, communicator, sequence, thread=1, count=1, size=2, rank=None, peer=-1, flags=0):
        func = self.w.string(f'nccl\x1fCOLLECTIVE\x1f{function}\x1f')
        self.records.append((thread, rec('collective', func=func, time=at, duration=5, communicator=communicator, sequence=sequence,
                                         count=count, type=7, peer=peer, rank=self.rank if rank is None else rank, ranks=size,
                                         reduction=-1, flags=flags)))

    def save(self, directory):
        self.w.chunk(clocks(0, 0, 10**18) + clocks(10**9, 10**9, 10**18 + 10**9), thread=1)
        for thread in sorted({t for t, _ in self.records}):
            self.w.chunk([r for t, r in self.records if t == thread], thread=thread, tid=1000 + thread)
        self.w.footer()
        return self.w.save(directory / f'rank{self.rank}.h.{100 + self.rank}.tfr')


class Gloo:
    """Makes random calls of several groups and their works. `truth` has (op, group, bytes, duration) of each call."""

    def __init__(self, rng, trace, groups):
        self.rng, self.trace, self.now, self.truth = rng, trace, 1000, []
        self.free = {g: [0, 0] for g in groups}  # when each thread of a group is free
        self.taken = Counter()                   # when the works before have been taken, by group
        self.busy = {}                           # tensors in use, and until when

    def works(self, op, group, tensors, swap):
        """Lets the group's threads take the works in order; returns the span of them all."""
        start, end = None, 0
        for tensor in tensors:
            free = self.free[group]
            which = free.index(min(free))
            begin = max(self.now, free[which], self.taken[group]) + 1
            self.taken[group] = begin
            begin += self.rng.randrange(3) if swap else 0  # the record begins a little later than the work was taken
            free[which] = until = begin + self.rng.randrange(10, 400)
            self.trace.work(op, begin, until, 10 + 2 * list(self.free).index(group) + which, tensor)
            start, end = min(start or begin, begin), max(end, until)
        return start, end

    def one(self, wait):
        group, op = self.rng.choice(list(self.free)), self.rng.choice(['all_reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'barrier'])
        self.now += self.rng.randrange(1, 60)
        count = self.rng.randrange(1, 5)
        tensor = self.rng.choice([t for t in range(500, 600) if self.busy.get(t, 0) < self.now])
        if op == 'barrier':
            self.trace.call(op, self.now, group, elements=0)
            start, end = self.works('barrier', group, [0], False)
        elif op == 'reduce_scatter':
            self.trace.call(op, self.now, group, tensor=tensor, elements=count, tensors=2)
            start, end = self.works('all_reduce', group, [700, 701], False)
        else:
            self.trace.call(op, self.now, group, tensor=tensor, elements=count)
            start, end = self.works(op, group, [tensor], True)
        self.busy[tensor] = end
        # Works without a tensor of the call are alike, so their calls wait, and so does the next call of the group.
        if wait or op in ('barrier', 'reduce_scatter'):
            self.now = max(end, *self.free[group])
        moved = count * BYTES * (2 if op in ('reduce_scatter', 'all_gather') else 1)  # by both ranks
        self.truth.append((op, group, None if op == 'barrier' else moved, end - start))


def answered(answer):
    return [(r['name'], r['group'], r['bytes'], r['duration_us'] if r['duration_us'] is None else round(r['duration_us'] * 1000))
            for r in answer['rows']]


@pytest.mark.parametrize('seed', range(6))
def test_each_call_finds_its_work(tmp_path, analyze, seed):
    """Calls of three groups, some under way at once, with tensors that are used again."""
    rng, trace = random.Random(seed), Rank(world=1)
    gloo = Gloo(rng, trace, ['0', '1', 'two'])
    for _ in range(400):
        gloo.one(rng.random() < 0.5)
    rows = analyze('comm', trace.save(tmp_path), rc=3)['rows']  # the other rank has no trace
    found = {group: [] for group in gloo.free}
    for row in sorted(rows, key=lambda r: r['seq']):
        found[row['group']] += answered({'rows': [row]})
    assert found == {group: [t for t in gloo.truth if t[1] == group] for group in found}


@pytest.mark.parametrize('tensors', [1, 3])
def test_a_lost_work(tmp_path, analyze, tensors):
    """A call whose work never ended has no duration, and the works of later calls stay theirs."""
    trace = Rank(world=1)
    for i in range(50):
        trace.call('all_reduce', 1000 * i, '0', 1, tensor=500 + i % tensors)
        if i != 7:
            trace.work('all_reduce', 1000 * i + 20, 1000 * i + 120 + i, 11 + i % 2, 500 + i % tensors)
    rows = analyze('comm', trace.save(tmp_path))['rows']
    assert answered({'rows': rows}) == [('all_reduce', '0', 4, None if i == 7 else 100 + i) for i in range(50)]
    assert rows[7]['transfer_us'] is None and rows[7]['busbw_gbs'] is None


@pytest.mark.parametrize('lost', [False, True])
def test_two_calls_on_a_tensor_wait_at_once(tmp_path, analyze, lost):
    """Each takes its own work, in order; where one work is lost, the later call takes the other one."""
    trace = Rank(world=1)
    for at in (1000, 1100, 9000):
        trace.call('all_reduce', at, '0', 1, tensor=500)
    for begin, end in [(2000, 2300), (3000, 3700), (9500, 9600)][lost:]:
        trace.work('all_reduce', begin, end, 11, 500)
    trace.save(tmp_path)
    assert [row['duration_us'] for row in analyze('comm', tmp_path)['rows']] == [None if lost else .3, .7, .1]


def test_entries_of_calls(tmp_path, analyze):
    """The entry of a call that ended says nothing more; one without an end is a collective without an end, and counts once
    where the dispatcher runs the call once more inside it."""
    trace = Rank(world=1)

    def begin(at, **values):
        trace.call('all_reduce', at, '0', 1, duration=0, flags=BEGUN, **values)
    for i in range(3):
        begin(1000 * i, tensor=500)
        trace.call('all_reduce', 1000 * i, '0', 1, tensor=500)
        trace.work('all_reduce', 1000 * i + 20, 1000 * i + 120, 11, 500)
    begin(1500, tensor=501, thread=2)  # its end is lost
    begin(1700, tensor=501, thread=2)
    trace.call('all_reduce', 1700, '0', 1, tensor=501, thread=2)
    trace.work('all_reduce', 1710, 1760, 12, 501)
    begin(5000, elements=3)
    begin(5002, elements=3)
    rows = analyze('comm', trace.save(tmp_path))['rows']
    assert answered({'rows': rows}) == [('all_reduce', '0', 4, t) for t in (100, 100, 50, 100)] + [('all_reduce', '0', 12, None)]


def test_a_group_of_barriers(tmp_path, analyze):
    """The threads of a group that has no tensors take the latest call."""
    trace = Rank(world=1)
    for i in range(4):
        trace.call('all_reduce', 1000 * i, '0', 1, tensor=500)
        trace.work('all_reduce', 1000 * i + 10, 1000 * i + 90, 11, 500)
        trace.call('barrier', 1000 * i + 200, '1', 1, elements=0)
        trace.work('barrier', 1000 * i + 210, 1000 * i + 240, 13)
    assert Counter(answered(analyze('comm', trace.save(tmp_path)))) == {('all_reduce', '0', 4, 80): 4, ('barrier', '1', None, 30): 4}


def test_calls_of_a_backend_without_works(tmp_path, analyze):
    """A backend that tells nothing of its works: groups, bytes and the skew of the calls are known, the transfer is not."""
    for rank in range(2):
        trace = Rank(rank)
        trace.call('all_gather', 1000 + 70 * rank, '0', tensor=500, elements=8)
        trace.save(tmp_path)
    row, = analyze('comm', tmp_path)['rows']
    assert (row['name'], row['group'], row['ranks'], row['bytes'], row['start_skew_us'], row['last_rank']) == ('all_gather', '0', 2, 64, 0.07, 1)
    assert row['wait_us'] == {'0': 0.07, '1': 0} and row['transfer_us'] is row['duration_us'] is None


def test_messages_work_inside_their_calls(tmp_path, analyze):
    for rank in range(2):
        trace = Rank(rank)
        for i in range(3):
            op, at = 'recv' if rank else 'send', 1000 * (i + 1) + 10 * rank
            trace.call(op, at, '0', tensor=500, elements=5, peer=1 - rank, duration=20)
            trace.work(op, at + 1, at + 300, 1, 500)
        trace.save(tmp_path)
    rows = analyze('comm', tmp_path)['rows']
    assert [(r['seq'], r['ranks'], r['bytes'], r['duration_us'], r['start_skew_us']) for r in rows] == [(i, 2, 20, 0.299, 0.01) for i in range(3)]


@pytest.fixture
def beside_nccl(tmp_path):
    """Two ranks: a communicator that torch calls, in part unseen; another one of the program's own; a pair's messages."""
    for rank in range(2):
        trace = Rank(rank)
        for i in range(4):
            at = 1000 * (i + 1) + 20 * rank
            if i != 2:  # recording of operators was off
                trace.call('all_reduce', at, 'dp', tensor=500, elements=3)
                trace.description('allreduce', at + 1, 'dp', [4, 5], 10 + i, duration=6)
            trace.nccl('ncclAllReduce', at + 2, 0xabc, i, count=3)
            trace.nccl('ncclBroadcast', at + 200, 0xdef, i, peer=0)
        trace.call('send' if rank else 'recv', 9000, 'dp', size=4, rank=2 + rank, tensor=501, elements=7, peer=3 - rank)
        trace.nccl('ncclSend' if rank else 'ncclRecv', 9002, 0x123, 0, count=7, peer=1 - rank)
        trace.call('all_reduce', 9500, 'dp', tensor=502)  # captured: it runs when the graph does
        trace.save(tmp_path)
    return tmp_path


def test_communicators_get_the_names_of_groups(beside_nccl, analyze):
    answer = analyze('comm', beside_nccl)
    rows = Counter((r['name'], r['group'], r['ranks'], r['bytes']) for r in answer['rows'])
    assert rows == {('all_reduce', 'dp', 2, 12): 4, ('broadcast', '0x0000000000000def', 2, 4): 4, ('recv', 'dp', 2, 28): 1}
    assert [r['seq'] for r in answer['rows'] if r['name'] == 'all_reduce'] == [0, 1, 2, 3]
    assert answer['totals']['incomplete'] == 0


def test_descriptions_inside_calls(tmp_path, analyze):
    """A backend that describes its collectives: the call and the description are one, which has the number and the ranks.
    Without a call the description stands for itself."""
    for rank in range(2):
        trace = Rank(rank)
        for i in range(3 - rank):
            trace.call('all_gather', 1000 * (3 - i), 'pp', tensor=500, elements=3)
            trace.description('_allgather_base', 1000 * (3 - i) + 2, 'pp', [2, 5, 7], 60 - i)
        trace.description('broadcast', 5000, 'tp', [0, 1], 9)
        trace.save(tmp_path)
    result = analyze('comm', tmp_path, rc=3, format='csv')
    rows = [[row[k] for k in ('name', 'group', 'seq', 'ranks', 'size', 'bytes')] for row in csv.DictReader(result.out.splitlines())]
    assert rows == [['all_gather', 'pp', '58', '1', '2', '24'], ['all_gather', 'pp', '59', '2', '2', '24'],
                    ['all_gather', 'pp', '60', '2', '2', '24'], ['broadcast', 'tp', '9', '2', '2', '4']]
    assert 'number 58 of group pp of ranks [2, 5, 7] with 1 of 2 ranks' in result.err


def test_a_call_that_is_dispatched_twice(tmp_path, analyze):
    """A mode of the dispatcher makes two operators of one call; calls of other operators inside stay."""
    trace = Rank(world=1)
    for i in range(5):
        at = 1000 * i
        trace.call('all_reduce', at, '0', 1, tensor=500, duration=90)
        trace.call('all_reduce', at + 20, '0', 1, tensor=501, duration=50)
        trace.work('all_reduce', at + 60, at + 260 + i, 11, 501)
        trace.call('broadcast', at + 400, '0', 1, tensor=502, duration=90)
        trace.call('all_reduce', at + 420, '1', 1, tensor=503, duration=10)
        trace.work('all_reduce', at + 425, at + 430, 13, 503)
        trace.work('broadcast', at + 450, at + 480, 11, 502)
    rows = Counter(answered(analyze('comm', trace.save(tmp_path))))
    assert rows == {**{('all_reduce', '0', 4, 200 + i): 1 for i in range(5)}, ('broadcast', '0', 4, 30): 5, ('all_reduce', '1', 4, 5): 5}
