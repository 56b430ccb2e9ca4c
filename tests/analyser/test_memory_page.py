"""test_memory_page - `memory --layout html`: its numbers against torch's and against the records, its bounds, and its safety.

The data of the page are compared with what torch's MemoryProfileTimeline draws of the same rows, and with sums that this
file makes.
"""

import gzip
import json
import random

import pytest

from test_memory_answers import Run, blocks_of
from test_memory_rows import ROWS, TORCH, ask, write
from test_page import check_policy, data_of
from tfr import MONOTONIC, REALTIME, Writer, rec

MOST_POINTS, MOST_PICTURES = 2400, 32


@pytest.fixture
def page(analyze):
    """The data of the page: its pictures, and how many it leaves out."""
    def page(*arguments, rc=0):
        text = analyze('memory', '--layout', 'html', *arguments, rc=rc, format=None).out
        check_policy(text)
        data = data_of(text)
        memory, = data['runs']
        assert data['kind'] == 'memory'
        return memory
    return page


def drawn_of(memory):
    """[(time, sizes of the categories)] of the only picture."""
    picture, = memory['pictures']
    return list(zip(picture['time_us'], map(list, zip(*picture['bytes']))))


def moments_of(rows):
    """time -> sizes of the categories after the rows of that time."""
    first, sizes, moments = min(r[0] for r in rows if r[0] >= 0), [0] * 8, {}
    for time, _, size, category in rows:
        sizes[category] += size
        moments[max(time, first) - first if time >= 0 else -1] = list(sizes)
    return moments


def check_figures(memory, moments):
    """The figures are those of all moments, drawn or not."""
    sizes, (picture,) = list(moments.values()), memory['pictures']
    peak = max(sizes, key=sum)
    assert picture['at_peak'] == peak and picture['peak_bytes'] == sum(peak) and picture['last'] == sizes[-1]
    assert picture['largest'] == [max(of) for of in zip(*sizes)] and peak in [drawn for _, drawn in drawn_of(memory)]


def test_a_real_timeline(page, shared_traces):
    """7,721 moments: the drawn ones are true, and the tables come from all of them."""
    rows = json.loads(gzip.decompress((shared_traces / ROWS).read_bytes()))
    moments = moments_of(rows)
    found = page(shared_traces / ROWS)
    drawn = drawn_of(found)
    assert 1000 < len(drawn) <= MOST_POINTS < len(moments)
    before = moments.pop(-1)
    assert drawn[0][1] == before
    for time, sizes in drawn[1:]:
        assert moments[round(time * 1000)] == sizes
    times = [time for time, _ in drawn]
    assert drawn[-1][1] == list(moments.values())[-1] and times == sorted(times)
    check_figures(found, {-1: before, **moments})


@pytest.mark.slow
@pytest.mark.torch
def test_the_totals_of_torchs_page(page, forked, shared_traces, tmp_path):
    """torch's html draws the points of _coalesce_timeline: each drawn moment that ends its microsecond is one of them."""
    path = shared_traces / ROWS
    times, sizes = ask(forked, TORCH, path, tmp_path / 'again.json')
    rows = json.loads(gzip.decompress(path.read_bytes()))
    first = min(r[0] for r in rows if r[0] > 0)
    last_of, torchs = {}, dict(zip(times[1:], sizes[1:]))
    for row in rows:
        last_of[int(row[0] / 1000)] = row[0]
    found, compared = page(path), 0
    for time, ours in drawn_of(found)[1:]:
        at = round(time * 1000) + first
        if last_of[int(at / 1000)] == at:
            assert torchs[int(at / 1000)] == [0, *ours]
            compared += 1
    assert compared > 1000
    picture, = found['pictures']
    assert picture['last'] == sizes[-1][1:] and picture['peak_bytes'] >= max(map(sum, sizes))


def test_many_moments(page, tmp_path):
    """A peak and a dip of one moment each among 150,000 are drawn, and the page stays small."""
    choose, time, rows = random.Random(3), 1_700_000_000_000_000_000, [[-1, 1, 1 << 30, 0]]
    for i in range(75_000):
        time += choose.randrange(1, 5000)
        size, category = choose.randrange(1, 1 << 20), choose.randrange(8)
        size += (1 << 32) * (i == 40_000)
        rows += [[time, 2, size, category], [time + 1 if i != 60_000 else time, 4, -size, category]]
        time += 1
    rows += [[time + 2, 4, -(1 << 30), 0], [time + 3, 2, 1 << 30, 0]]
    path = write(tmp_path / 'x.raw.json.gz', rows)
    moments, found = moments_of(rows), page(path)
    assert len(moments) > 100_000
    check_figures(found, moments)
    drawn = [sum(sizes) for _, sizes in drawn_of(found)]
    assert len(drawn) <= MOST_POINTS and max(drawn) > 1 << 32 and min(drawn) == 0


def test_few_moments(page, tmp_path):
    """Of few moments all are drawn, also with negative sizes and times that go back, as damaged rows have them."""
    rows = [[-1, 1, 100, 0], [50, 2, 7, 4], [60, 4, -500, 4], [55, 2, 1, 7], [70, 2, 3, 3]]
    assert drawn_of(page(write(tmp_path / 'x.raw.json', rows))) == [
        (0, [100, 0, 0, 0, 0, 0, 0, 0]), (0, [100, 0, 0, 0, 7, 0, 0, 0]), (.01, [100, 0, 0, 0, -493, 0, 0, 0]),
        (.01, [100, 0, 0, 0, -493, 0, 0, 1]), (.02, [100, 0, 0, 3, -493, 0, 0, 1])]


def test_blocks(page, tmp_path):
    """A trace of ours: a picture for each device, with the totals that the allocator reported."""
    run = Run(2)
    directory = run.save(tmp_path)
    start = min(b['time'] for b in run.events + [{'time': e['begin']} for e in run.events if e['what'] == 'end'])
    found, blocks = page(directory)['pictures'], blocks_of(run)
    devices = list(dict.fromkeys(b['device'] for b in blocks))
    assert [(p['rank'], p['pid'], p['allocator'], -1 if p['host'] else p['device']) for p in found] == [(3, 77, 'c10', d) for d in devices]
    for picture, device in zip(found, devices):
        mine = [b for b in blocks if b['device'] == device]
        assert picture['time_us'] == [(b['time'] - start) / 1000 for b in mine]
        assert picture['bytes'] == [[b['allocated'] for b in mine]]
        most = max(b['allocated'] for b in mine)
        assert picture['at_peak'] == picture['largest'] == [most] and picture['last'] == [mine[-1]['allocated']]
    assert page('--device', '1', directory)['pictures'] == [found[devices.index(1)]]
    assert page('--top', '1', directory) == {'pictures': found[:1], 'left_out': len(found) - 1}


HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(1)>"\'&\x1b[2J\u202e'


def test_hostile_names(analyze, page, tmp_path):
    w = Writer(rank=0, pid=5, clock='monotonic')
    records = [r for at in (0, 10 ** 9) for r in (
        rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at))]
    for i in range(40):
        records.append(rec('memory', allocator=w.string(f'{HOSTILE} {i}'), time=1000 + i, address=4096 * (i + 1), bytes=8,
                           device=0, allocated=8, reserved=9))
    w.chunk(records, thread=1, tid=5)
    w.footer()
    w.save(tmp_path / '<b>.tfr')
    found = page(tmp_path / '<b>.tfr')
    assert len(found['pictures']) == MOST_PICTURES and found['left_out'] == 8
    assert found['pictures'][0]['allocator'].startswith(HOSTILE[:30]) and found['pictures'][0]['path'].endswith('<b>.tfr')


def test_without_an_answer(analyze, page, tmp_path):
    path = write(tmp_path / 'x.raw.json', [[5, 2, 16, 3]])
    for form in ('json', 'csv'):
        assert 'has no --format' in analyze('memory', '--layout', 'html', '--format', form, path, rc=2, format=None).err
    assert 'nothing matches' in analyze('memory', '--layout', 'html', '--from', '1e9', path, rc=1, format=None).err
    assert not (tmp_path / 'm.html').exists()
    analyze('memory', '--layout', 'html', '--output', tmp_path / 'm.html', path, format=None)
    picture, = data_of((tmp_path / 'm.html').read_text())['runs'][0]['pictures']
    assert picture['at_peak'] == picture['largest'] == picture['last'] == [0, 0, 0, 16, 0, 0, 0, 0]
    assert page(write(tmp_path / 'y.raw.json.gz', []))['pictures'] == []
