"""test_device_samples - clocks beside late ranks, in info and in the Chrome export: against values computed from made traces."""

import json
import random

import pytest

import tfr
from tfr import NESTED, STAGE, Writer, rec

SM, MEMORY, POWER, TEMPERATURE, BUSY, REASONS = 1, 2, 4, 8, 16, 32
ALL = 63
WORK, FLOAT, MS = 1, 6, 1_000_000
WORDS = ['gpu_idle', 'applications_clocks_setting', 'sw_power_cap', 'hw_slowdown', 'sync_boost', 'sw_thermal_slowdown',
         'hw_thermal_slowdown', 'hw_power_brake_slowdown', 'display_clock_setting', *(f'bit_{i}' for i in range(9, 64))]
HEALTH = ['samples', 'sm_clock_mhz', 'sm_clock_min_mhz', 'power_w', 'temperature_c', 'throttle']


class Rank:
    """A trace of one rank over gloo; times are nanoseconds from its start, the same on all ranks."""

    def __init__(self, rank, world=2):
        self.w, self.rank, self.world, self.threads, self.samples = Writer(rank=rank, world=world, pid=100 + rank), rank, world, {1: [], 2: []}, []
        self.ranges, self.made = 0, 0

    def all_reduce(self, at, end):
        """A call at that time, whose work begins at once and lasts to `end`."""
        self.made += 1
        same = {'tensor': 500 + self.made, 'peer': -1}
        self.threads[1].append(rec('framework_collective', name=self.w.string('c10d::allreduce_'), time=at - 5, duration=1, type=FLOAT,
                                   group=self.w.string('0'), tensors=1, rank=self.rank, ranks=self.world, thread=1, out=8, **same, **{'in': 8}))
        self.threads[2].append(rec('framework_collective', name=self.w.string('gloo:all_reduce'), time=at, duration=end - at, type=-1,
                                   rank=-1, flags=WORK, thread=2, out=-1, **same, **{'in': -1}))

    def step(self, number, start, end):
        self.ranges += 1
        begin = rec('range_begin', name=self.w.string(f'ProfilerStep#{number}'), time=start, id=self.ranges, flags=NESTED | STAGE)
        self.threads[1] += [begin, tfr.end_of(begin, end, 1)]

    def sample(self, time, device=0, **values):
        self.samples.append(rec('device_sample', device=device, time=time, duration=1000, **values))

    def device(self, number):
        self.threads[1].append(rec('device', device=number, uuid_low=number + 1, name=self.w.string(f'made {number}'), simulated=1))

    def save(self, directory):
        self.w.chunk(tfr.clocks(0, 0, 10 ** 18) + tfr.clocks(10 ** 10, 10 ** 10, 10 ** 18 + 10 ** 10), thread=1)
        for thread, records in self.threads.items():
            self.w.chunk(records, thread=thread, tid=1000 + thread)
        if self.samples:
            self.w.chunk(self.samples)
        self.w.footer()
        return self.w.save(directory / f'rank{self.rank}.h.{100 + self.rank}.tfr')


def job(steps=4, length=100 * MS, late=10 * MS, numbered=True):
    """Two ranks with one all_reduce in each step; rank 1 comes late to all of them."""
    ranks = [Rank(0), Rank(1)]
    for r in ranks:
        for k in range(steps):
            at = (k + 1) * length
            r.all_reduce(at + length // 2 + r.rank * late, at + length // 2 + late + MS)
            if numbered:
                r.step(k, at, at + length - 1)
    return ranks


def words(bits):
    return [WORDS[i] for i in range(64) if bits >> i & 1]


def expected(samples):
    """The values beside a rank, from the records of the samples that count."""
    def of(bit, name):
        return [s.values[name] for s in samples if s.values['known'] & bit]
    clocks, power, heat, reasons = of(SM, 'sm_mhz'), of(POWER, 'power_mw'), of(TEMPERATURE, 'temperature'), of(REASONS, 'reasons')
    ever = 0
    for r in reasons:
        ever |= r
    return {'samples': len(samples), 'sm_clock_mhz': pytest.approx(sum(clocks) / len(clocks)) if clocks else None,
            'sm_clock_min_mhz': min(clocks, default=None), 'power_w': pytest.approx(sum(power) / len(power) / 1000) if power else None,
            'temperature_c': max(heat, default=None), 'throttle': words(ever) if reasons else None}


def beside(answer):
    """{step: the values beside rank 1}."""
    assert {row['rank'] for row in answer['rows']} == {1}
    return {row['step']: {key: row[key] for key in HEALTH} for row in answer['rows']}


def random_values(rng):
    known = rng.choice([ALL, ALL, ALL - SM, ALL - POWER, ALL - TEMPERATURE - REASONS, 0])
    values = {SM: ('sm_mhz', rng.randrange(300, 2000)), POWER: ('power_mw', rng.randrange(10 ** 6)),
              TEMPERATURE: ('temperature', rng.randrange(-20, 100)), REASONS: ('reasons', rng.choice([0, 4, 0x60, 1 << rng.randrange(64)]))}
    return {'known': known, **{name: value for bit, (name, value) in values.items() if known & bit}}


def test_the_samples_of_a_step(analyze, tmp_path):
    """Each step has the mean, the least or the most of the known values of its own samples; unknown ones are null."""
    rng = random.Random(7)
    ranks = job()
    for r in ranks:
        for time in rng.sample(range(600 * MS), 60):
            r.sample(time, device=rng.choice([0, 0, 5]), **random_values(rng))
    answer = analyze('stragglers', *[r.save(tmp_path) for r in ranks])
    assert list(answer['rows'][0])[-len(HEALTH):] == HEALTH
    for step, values in beside(answer).items():
        start = (step + 1) * 100 * MS
        assert values == expected([s for s in ranks[1].samples if start <= s.values['time'] < start + 100 * MS - 1])
        assert values['samples'] > 3


def test_steps_shorter_than_the_interval(analyze, tmp_path):
    """A step without a sample has its neighbours', unless these are farther than a second."""
    ranks = job(steps=6, length=500 * MS)
    times = [600 * MS, 3400 * MS]  # in steps 0 and 5; steps 1 and 2 are near the first one, 3 and 4 near the last one
    for i, time in enumerate(times):
        ranks[1].sample(time, sm_mhz=1000 + i, known=SM)
    found = beside(analyze('stragglers', *[r.save(tmp_path) for r in ranks]))
    for step, values in found.items():
        start, end = (step + 1) * 500 * MS, (step + 2) * 500 * MS - 1
        own = [s for s in ranks[1].samples if start <= s.values['time'] < end]
        near = [s for s in ranks[1].samples if start - 1000 * MS <= s.values['time'] <= end + 1000 * MS]
        assert values == expected(own or near), step
    assert {step: values['samples'] for step, values in found.items()} == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


def test_no_sample_is_near(analyze, tmp_path):
    ranks = job(steps=2)
    ranks[1].sample(5000 * MS, sm_mhz=1000, known=SM)
    assert beside(analyze('stragglers', *[r.save(tmp_path) for r in ranks])) == {0: expected([]), 1: expected([])}


def test_without_steps(analyze, tmp_path):
    """The samples from the rank's first collective to its last one count: not the idle clocks before them."""
    ranks = job(numbered=False)
    for r in ranks:
        for time in range(10 * MS, 900 * MS, 7 * MS):
            r.sample(time, sm_mhz=345 if time < 100 * MS else 1700 + r.rank, known=SM | REASONS, reasons=4 * r.rank)
    [values] = beside(analyze('stragglers', *[r.save(tmp_path) for r in ranks])).values()
    assert values == expected([s for s in ranks[1].samples if 150 * MS + 10 * MS - 5 <= s.values['time'] <= 461 * MS])
    assert (values['sm_clock_min_mhz'], values['throttle']) == (1701, ['sw_power_cap'])


def test_text(analyze, tmp_path):
    """Without any sample the text is as short as ever; with samples it says `none` where no reason held."""
    ranks = job(steps=2)
    paths = [r.save(tmp_path) for r in ranks]
    bare = analyze('stragglers', *paths, format=None).out
    assert bare.splitlines()[0].split() == ['rank', 'step', 'stage', 'score', 'collectives', 'late']
    assert all(row[key] is None for row in analyze('stragglers', *paths)['rows'] for key in HEALTH[1:])
    ranks = job(steps=2)
    ranks[1].sample(150 * MS, sm_mhz=1980, power_mw=650_500, temperature=61, known=ALL)
    ranks[1].sample(250 * MS, sm_mhz=600, power_mw=700_000, temperature=90, known=ALL, reasons=0x44)
    text = analyze('stragglers', *[r.save(tmp_path) for r in ranks], format=None).out
    rows = {line.split()[1]: line for line in text.splitlines()[1:3]}
    assert rows['0'].split()[-6:] == ['1', '1980', '1980', '650.5', '61', 'none']
    assert rows['1'].endswith('sw_power_cap, hw_thermal_slowdown')
    csv = analyze('stragglers', *[r.w.save(tmp_path / f'rank{r.rank}.h.{100 + r.rank}.tfr') for r in ranks], format='csv').out
    assert csv.splitlines()[0].endswith(','.join(HEALTH)) and 'sw_power_cap;hw_thermal_slowdown' in csv


def test_info_counts_the_samples_of_each_device(analyze, tmp_path):
    r = Rank(0)
    for number, count in ((0, 3), (7, 5)):
        r.device(number)
        for i in range(count):
            r.sample(i * MS, device=number)
    r.sample(9 * MS, device=99)
    [row] = analyze('info', r.save(tmp_path))['rows']
    assert {d['device']: d['samples'] for d in row['devices']} == {0: 3, 7: 5}
    assert row['events']['device_sample'] == 9 and row['complete']


@pytest.fixture
def trace(tmp_path):
    r = Rank(0)
    r.step(0, MS, 90 * MS)
    r.sample(10 * MS, sm_mhz=1980, memory_mhz=2619, power_mw=650_500, temperature=-3, busy=97, memory_busy=44, known=ALL)
    r.sample(20 * MS, sm_mhz=600, power_mw=1, known=SM | REASONS, reasons=0x44)
    r.sample(30 * MS, device=3, temperature=50, known=TEMPERATURE)
    return r.save(tmp_path)


def test_counters_in_the_chrome_export(exported):
    """Known values are counters of their device; unknown ones are left out; reasons are 0 or 1."""
    base = exported['baseTimeNanoseconds']
    counters = [(round(e['ts'] * 1000) + base - 10 ** 18, e['name'], e['args']) for e in exported['traceEvents'] if e['ph'] == 'C']
    assert counters == [
        (10 * MS, 'GPU 0: clocks', {'SM MHz': 1980, 'memory MHz': 2619}), (10 * MS, 'GPU 0: power', {'W': 650.5}),
        (10 * MS, 'GPU 0: temperature', {'C': -3}), (10 * MS, 'GPU 0: utilisation', {'GPU %': 97, 'memory %': 44}),
        (10 * MS, 'GPU 0: throttle reasons', {'sw_power_cap': 0, 'hw_thermal_slowdown': 0}), (20 * MS, 'GPU 0: clocks', {'SM MHz': 600}),
        (20 * MS, 'GPU 0: throttle reasons', {'sw_power_cap': 1, 'hw_thermal_slowdown': 1}), (30 * MS, 'GPU 3: temperature', {'C': 50})]


def test_an_export_of_a_part_has_no_counters(analyze, trace):
    """Samples belong to no stage, no step and no device's work; a window of time has those inside it."""
    def counters(*options):
        out = json.loads(analyze('export', 'chrome', *options, trace, format=None).out)
        return [e['name'] for e in out['traceEvents'] if e['ph'] == 'C']
    assert counters('--stage', 'Profiler*') == []
    assert counters('--from', '0.025') == ['GPU 3: temperature']


def test_an_export_can_be_read_again(analyze, trace, tmp_path):
    (tmp_path / 'again.json').write_text(analyze('export', 'chrome', trace, format=None).out)
    [row] = analyze('info', tmp_path / 'again.json')['rows']
    assert row['complete'] and row['events'] == {'metadata': 3, 'user_annotation': 1, 'device_sample': 8}


def test_enemy_values(analyze, tmp_path):
    """The largest numbers, times before the start and out of order: an answer all the same, with words for every bit."""
    ranks = job(steps=2)
    most = {'reasons': 2 ** 64 - 1, 'known': 2 ** 32 - 1, 'flags': 2 ** 32 - 1, 'sm_mhz': 2 ** 32 - 1, 'power_mw': 2 ** 32 - 1,
            'temperature': -2 ** 31, 'busy': 2 ** 32 - 1, 'memory_busy': 2 ** 32 - 1, 'memory_mhz': 2 ** 32 - 1}
    for time in (2 ** 64 - 1, 2 ** 63, 150 * MS, 120 * MS, 0, 2 ** 63 - 1):
        ranks[1].sample(time, device=2 ** 32 - 1, **most)
    paths = [r.save(tmp_path) for r in ranks]
    answer = beside(analyze('stragglers', *paths))
    assert answer[0] == expected([s for s in ranks[1].samples if 100 * MS <= s.values['time'] < 200 * MS - 1])
    assert answer[0]['throttle'] == WORDS and answer[0]['sm_clock_mhz'] == 2 ** 32 - 1
    assert '\x1b' not in analyze('stragglers', *paths, format=None).out
    assert json.loads(analyze('export', 'chrome', *paths, format=None).out)
    assert analyze('info', *paths)['totals']['lost'] == 0
