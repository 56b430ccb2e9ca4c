"""test_straggler_causes - `stragglers` tells a slow device, a late host and a slow link apart: in jobs of 64 simulated
ranks, whose plan is the truth.

`Fleet` runs the job: each rank copies, computes, and meets the ranks of its host, and those with its place on all hosts;
then each sends to the next host. All that takes time has 2 % of noise. The clocks of hosts are up to 2 ms apart.
"""

import json
import random

import pytest

import comm_traces
from conftest import short_form

HOSTS, EACH, STEPS = 8, 8, 10
RANKS = range(HOSTS * EACH)
US, MS = 1000, 1_000_000
KINDS = ['slow_gpu', 'late_host', 'slow_link', 'slow_host_link', 'late_process']


def host_of(rank):
    return rank // EACH


class Fleet:
    """One run. A fault is a word of KINDS with the rank, the host or the pair of ranks that has it."""

    def __init__(self, seed, faults, steps=STEPS, late=5 * MS):
        self.random, self.faults, self.late = random.Random(seed), faults, late
        self.clock = [self.random.randrange(-2 * MS, 2 * MS) for _ in range(HOSTS)]
        self.events = {rank: [] for rank in RANKS}
        self.now = {rank: 1_000_000_000 for rank in RANKS}
        self.number = {rank: 0 for rank in RANKS}
        self.sent = {}
        for step in range(steps):
            self.step(step)

    def has(self, kind, who):
        return self.faults.get(kind) == who

    def noisy(self, time):
        return max(1, round(time * self.random.gauss(1, 0.02)))

    def add(self, rank, category, name, start, end, tid, **args):
        shift = self.clock[host_of(rank)]
        self.events[rank].append(comm_traces.event(category, name, start + shift, end + shift, tid, 500 + rank if tid == 1 else rank, **args))

    def work(self, rank, category, name, time, **args):
        start = self.now[rank] + self.noisy(20 * US)
        self.now[rank] = start + self.noisy(time)
        self.add(rank, category, name, start, self.now[rank], 7, stream=7, device=rank, **args)

    def compute(self, rank, kernels):
        slower = 1.1 if self.has('slow_gpu', rank) else 1
        for i in range(kernels):
            self.work(rank, 'kernel', f'gemm_{i % 3}', slower * (600 + 200 * (i % 3)) * US)

    def meet(self, ranks, name, kernel, group, time, **more):
        """The ranks meet; the transfer takes as long as the slowest link of their ring says."""
        pair = self.faults.get('slow_link', ())
        time = self.noisy(time * (2 if pair and set(pair) <= set(ranks) else 1))
        came = {rank: self.now[rank] + self.noisy(20 * US) for rank in ranks}
        over = max(came.values()) + time
        for rank in ranks:
            end = over + self.noisy(2 * US)
            size = 2 if more else len(ranks)
            say = comm_traces.description(name, (1 << 22, 1 << 22), 'Float', size, group, ranks)
            say.update({key: value for key, value in more.items()})
            say['Collective name'] = name if not more or rank == more['Src Rank'] else 'recv'
            shift = self.clock[host_of(rank)]
            self.events[rank] += comm_traces.collective(say, self.number[rank], came[rank] + shift, end + shift, rank, 20, kernel)
            self.number[rank] += 1
            self.now[rank] = end

    def step(self, number):
        begin = dict(self.now)
        for rank in RANKS:
            if self.has('late_host', host_of(rank)) or self.has('late_process', rank):
                self.now[rank] += self.noisy(self.late)
            slower = 2 if self.has('slow_host_link', host_of(rank)) else 1
            for _ in range(2):
                self.work(rank, 'gpu_memcpy', 'Memcpy HtoD (Pinned -> Device)', slower * 300 * US, bytes=8 << 20)
            self.compute(rank, 6)
        for host in range(HOSTS):
            self.meet([EACH * host + i for i in range(EACH)], 'allreduce', 'AllReduce', f'tp{host}', 800 * US)
        for rank in RANKS:
            self.compute(rank, 6)
        for place in range(EACH):
            self.meet([EACH * host + place for host in range(HOSTS)], '_allgather_base', 'AllGather', f'dp{place}', 3 * MS)
        for first in (0, 1):
            for host in range(first, HOSTS, 2):
                for place in range(EACH):
                    pair = [EACH * host + place, EACH * (host + 1) % len(RANKS) + place]
                    self.meet(pair, 'send', 'SendRecv', f'pp{place}', 1 * MS, **{'Src Rank': pair[0], 'Dst Rank': pair[1]})
        for rank in RANKS:
            self.add(rank, 'user_annotation', f'ProfilerStep#{number}', begin[rank] - 100 * US, self.now[rank] - 100 * US, 1)

    def write(self, directory):
        directory.mkdir(exist_ok=True)
        return [comm_traces.write(directory / f'{rank}.json', rank, len(RANKS), self.events[rank], host_name=f'host{host_of(rank)}')
                for rank in RANKS]


def plan(seed, kinds):
    """Where the faults of these kinds are, in the draw with this number."""
    draw = random.Random(1000 + seed)
    gpu, late, from_host, place, copies = draw.choice(RANKS), draw.randrange(HOSTS), draw.randrange(HOSTS), draw.randrange(EACH), draw.randrange(HOSTS)
    link = (EACH * from_host + place, EACH * (from_host + 1) % len(RANKS) + place)
    where = {'slow_gpu': gpu, 'late_host': late, 'slow_link': link, 'slow_host_link': copies, 'late_process': gpu}
    return {kind: where[kind] for kind in kinds}


def expected(faults):
    """{(cause, ranks)}"""
    ranks = {'slow_gpu': lambda r: [r], 'late_process': lambda r: [r], 'slow_link': sorted,
             'late_host': lambda h: list(range(EACH * h, EACH * h + EACH)), 'slow_host_link': lambda h: list(range(EACH * h, EACH * h + EACH))}
    return {(kind, tuple(ranks[kind](where))) for kind, where in faults.items()}


def named(answer):
    return {(c['cause'], tuple(c['ranks'])) for c in answer['totals']['causes']}


CLEAN, ALL = (), ('slow_gpu', 'late_host', 'slow_link')
DRAWS = [(seed, kinds) for seed in range(60) for kinds in (ALL, CLEAN, ('slow_gpu',), ('late_host',), ('slow_link',))]


@pytest.mark.slow
@short_form(5, 'seed, kinds', [pytest.param(seed, kinds, id=f'{seed}-{"+".join(kinds) or "clean"}') for seed, kinds in DRAWS])
def test_each_fault_is_named_as_what_it_is(analyze, tmp_path, seed, kinds):
    faults = plan(seed, kinds)
    answer = analyze('stragglers', *Fleet(seed, faults).write(tmp_path / 'job'))
    assert named(answer) == expected(faults)
    assert answer['totals']['not_judged'] == []
    for cause in answer['totals']['causes']:
        assert cause['hosts'] == [f'host{host}' for host in sorted({host_of(rank) for rank in cause['ranks']})]
        if cause['cause'] == 'slow_gpu':
            assert cause['slower_pct'] == pytest.approx(10, abs=1.5) and cause['late_us'] is None
        elif cause['cause'] == 'slow_link':
            assert cause['slower_pct'] == pytest.approx(100, abs=8)
        else:
            assert cause['late_us'] == pytest.approx(5000, rel=0.03) and cause['slower_pct'] is None


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['slow_host_link', 'late_process'])
def test_the_other_faults(analyze, tmp_path, kind):
    faults = plan(1, [kind])
    assert named(analyze('stragglers', *Fleet(1, faults).write(tmp_path / 'job'))) == expected(faults)


class HalfBad(Fleet):
    """Every other rank has a slow device, and every other host is late."""

    def has(self, kind, who):
        return who % 2 == 1 and kind in ('slow_gpu', 'late_host')


@pytest.mark.slow
def test_half_of_the_ranks_may_be_bad(analyze, tmp_path):
    """Exactly half of the devices are slow, and half of the hosts late: the other half is the norm."""
    found = named(analyze('stragglers', *HalfBad(2, {}).write(tmp_path / 'job')))
    assert found == ({('slow_gpu', (rank,)) for rank in RANKS if rank % 2}
                     | {('late_host', tuple(range(EACH * host, EACH * host + EACH))) for host in range(1, HOSTS, 2)})


# ---- places ----

@pytest.fixture(scope='module')
def job(tmp_path_factory):
    """A job with all faults, its plan and its paths."""
    directory = tmp_path_factory.mktemp('fleet') / 'job'
    faults = {'slow_gpu': 17, 'late_host': 5, 'slow_link': (9, 17)}
    return faults, Fleet(3, faults).write(directory)


@pytest.mark.slow
def test_the_topology_names_the_places(analyze, tmp_path, job):
    faults, paths = job
    places = tmp_path / 'places.csv'
    places.write_text('rank,host,rack\n# of the plan\n\n' + ''.join(
        f'{rank},node{host_of(rank)},rack{host_of(rank) // 2}\n' if rank % 2 else f'{rank}\tnode{host_of(rank)} rack{host_of(rank) // 2}\r\n' for rank in RANKS))
    answer = analyze('stragglers', '--topology', places, *paths)
    assert named(answer) == expected(faults)
    assert {c['cause']: (c['hosts'], c['racks']) for c in answer['totals']['causes']} == {
        'slow_gpu': (['node2'], ['rack1']), 'late_host': (['node5'], ['rack2']), 'slow_link': (['node1', 'node2'], ['rack0', 'rack1'])}
    text = analyze('stragglers', '--topology', places, *paths, format=None).out
    assert 'slow_gpu: rank 17 on node2 in rack1: kernels take ' in text
    assert 'late_host: ranks 40, 41, 42, 43, 44, 45, 46, 47 on node5 in rack2: ' in text and 'slow_link: ranks 9, 17 on node1, node2 in rack0, rack1: ' in text


@pytest.mark.slow
def test_order_of_inputs_and_threads_change_no_cause(analyze, job):
    _, paths = job
    answers = [analyze('stragglers', '-j', jobs, *order)['totals'] for jobs, order in (('1', paths), ('4', paths[::-1]))]
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_without_hosts_links_are_not_judged(analyze, tmp_path, job):
    """A late host is then eight late processes, and a link has none to compare it with."""
    faults, paths = job
    there = []
    for path in paths:
        trace = json.loads(path.read_text())
        del trace['host_name']
        there.append(tmp_path / path.name)
        there[-1].write_text(json.dumps(trace))
    answer = analyze('stragglers', *there)
    assert named(answer) == {('slow_gpu', (17,))} | {('late_process', (rank,)) for rank in range(40, 48)}
    assert [(n['what'], n['why'], n['how']) for n in answer['totals']['not_judged']] == [
        ('slow_link', 'the hosts of ranks are unknown', 'name them with --topology FILE')]


@pytest.mark.parametrize('text, said', [
    ('0,a\n1\n', 'line 2 is no place'), ('0,a\nx,b\n', 'line 2 is no place'), ('0,a,r,more\n', 'line 1 is no place'),
    ('-1,a\n', 'line 1 is no place'), ('99999999999,a\n', 'line 1 is no place'), ('1,a\n0,a\n1,b\n', 'names rank 1 twice'),
    ('0,a\0b\n', 'zero byte'), (None, 'cannot be read as places of ranks')])
def test_bad_topologies(analyze, tmp_path, text, said):
    if text is not None:
        (tmp_path / 'places').write_text(text)
    path = comm_traces.write(tmp_path / '0.json', 0, 1, [comm_traces.event('kernel', 'k', 0, 5, 7, 0)])
    assert said in analyze('stragglers', '--topology', tmp_path / 'places', path, rc=2, format=None).err


# ---- what is not judged ----

@pytest.mark.slow
def test_few_steps_or_ranks_name_nobody(analyze, tmp_path):
    faults = {'slow_gpu': 17, 'late_host': 5, 'slow_link': (9, 17)}
    whole = {'slow_gpu', 'late_host', 'slow_link', 'slow_host_link'}
    short = Fleet(4, faults, steps=3).write(tmp_path / 'job')
    for paths, why in ((short, 'the traces have fewer than 4 steps with collectives'), (short[:3], 'fewer than 4 ranks are compared')):
        totals = analyze('stragglers', *paths, rc=None)['totals']
        assert totals['causes'] == [] and {(n['what'], n['why']) for n in totals['not_judged']} == {(what, why) for what in whole}


def test_one_real_step_names_nobody(analyze, shared_traces):
    """Eight ranks of DLRM, of which the traces have one step: nobody can tell chance from a cause."""
    totals = analyze('stragglers', shared_traces / 'dlrm8', rc=None)['totals']
    assert totals['causes'] == [] and len(totals['not_judged']) == 4
