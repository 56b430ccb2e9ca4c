"""test_memory_page - `memory --layout html`: its numbers against torch's and against the records, its bounds, and its safety.

The page is parsed with Python's HTML parser. The numbers in it are compared with what torch's MemoryProfileTimeline draws
of the same rows, and with sums that this file makes.
"""

import gzip
import json
import random
import re
from html.parser import HTMLParser

import pytest

from test_memory_answers import Run, blocks_of
from test_memory_rows import ROWS, TORCH, ask, write
from tfr import MONOTONIC, REALTIME, Writer, rec

CATEGORIES = ['PARAMETER', 'OPTIMIZER_STATE', 'INPUT', 'TEMPORARY', 'ACTIVATION', 'GRADIENT', 'AUTOGRAD_DETAIL', 'Unknown']
VOID = {'meta'}
MOST_POINTS, MOST_PICTURES = 2400, 32


class Page(HTMLParser):
    """Elements, headings, tables (rows of texts and of exact bytes) and data blocks of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.attributes, self.headings, self.tables, self.data, self.texts = [], set(), set(), [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == 'table':
            self.tables.append([])
        if tag == 'tr':
            self.tables[-1].append([])
        if tag in ('td', 'th'):
            self.tables[-1][-1].append(int(dict(attrs)['title'].split()[0]) if 'title' in dict(attrs) else '')
        if tag == 'script':
            assert attrs == [('type', 'application/json')]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ''
        if inside in ('td', 'th') and isinstance(self.tables[-1][-1][-1], str):
            self.tables[-1][-1][-1] += data
        if inside == 'h2':
            self.headings.append(data)
        if inside == 'script':
            self.data.append(json.loads(data))
        elif inside != 'style':
            self.texts.append(data)

    def table(self, number=0):
        """name -> [at the peak, largest, at the end], in bytes."""
        return {row[0]: [c for c in row[1:] if isinstance(c, int)] for row in self.tables[number][1:]}


@pytest.fixture
def page(analyze):
    def page(*arguments, rc=0):
        text = analyze('memory', '--layout', 'html', *arguments, rc=rc, format=None).out
        found = Page(text)
        assert not re.search(r'https?:|url\(|@import', text)
        assert found.elements <= {'html', 'head', 'meta', 'title', 'style', 'body', 'h1', 'h2', 'p', 'svg', 'path', 'text', 'table',
                                  'tr', 'td', 'th', 'span', 'script'}
        assert not {a for a in found.attributes if a.startswith('on') or a in ('src', 'href', 'style')}
        return found
    return page


def moments_of(rows):
    """time -> sizes of the categories after the rows of that time."""
    first, sizes, moments = min(r[0] for r in rows if r[0] >= 0), [0] * 8, {}
    for time, _, size, category in rows:
        sizes[category] += size
        moments[max(time, first) - first if time >= 0 else -1] = list(sizes)
    return moments


def check_table(found, moments):
    sizes, table = list(moments.values()), found.table()
    peak = max(sizes, key=sum)
    assert list(table) == CATEGORIES[::-1] + ['total']
    for i, name in enumerate(CATEGORIES):
        assert table[name] == [peak[i], max(s[i] for s in sizes), sizes[-1][i]], name
    assert table['total'] == [sum(peak), sum(peak), sum(sizes[-1])]
    assert peak in found.data[0]['bytes']


def test_a_real_timeline(page, shared_traces):
    """7,721 moments: the drawn ones are true, and the tables come from all of them."""
    rows = json.loads(gzip.decompress((shared_traces / ROWS).read_bytes()))
    moments = moments_of(rows)
    found = page(shared_traces / ROWS)
    drawn, = found.data
    assert 1000 < len(drawn['time_us']) == len(drawn['bytes']) <= MOST_POINTS < len(moments)
    before = moments.pop(-1)
    assert drawn['bytes'][0] == before
    for time, sizes in list(zip(drawn['time_us'], drawn['bytes']))[1:]:
        assert moments[round(time * 1000)] == sizes
    assert drawn['bytes'][-1] == list(moments.values())[-1] and drawn['time_us'] == sorted(drawn['time_us'])
    check_table(found, {-1: before, **moments})


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
    found = page(path)
    drawn, compared = found.data[0], 0
    for time, ours in list(zip(drawn['time_us'], drawn['bytes']))[1:]:
        at = round(time * 1000) + first
        if last_of[int(at / 1000)] == at:
            assert torchs[int(at / 1000)] == [0, *ours]
            compared += 1
    assert compared > 1000
    table = found.table()
    assert [table[c][2] for c in CATEGORIES] == sizes[-1][1:] and table['total'][2] == sum(sizes[-1])
    assert table['total'][0] >= max(map(sum, sizes))


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
    check_table(found, moments)
    drawn = [sum(b) for b in found.data[0]['bytes']]
    assert len(drawn) <= MOST_POINTS and max(drawn) > 1 << 32 and min(drawn) == 0


def test_few_moments(page, tmp_path):
    """Of few moments all are drawn, also with negative sizes and times that go back, as damaged rows have them."""
    rows = [[-1, 1, 100, 0], [50, 2, 7, 4], [60, 4, -500, 4], [55, 2, 1, 7], [70, 2, 3, 3]]
    drawn, = page(write(tmp_path / 'x.raw.json', rows)).data
    assert drawn == {'time_us': [0, 0, .01, .01, .02],
                     'bytes': [[100, 0, 0, 0, 0, 0, 0, 0], [100, 0, 0, 0, 7, 0, 0, 0], [100, 0, 0, 0, -493, 0, 0, 0],
                               [100, 0, 0, 0, -493, 0, 0, 1], [100, 0, 0, 3, -493, 0, 0, 1]]}


def test_blocks(page, tmp_path):
    """A trace of ours: a picture for each device, with the totals that the allocator reported."""
    run = Run(2)
    directory = run.save(tmp_path)
    start = min(b['time'] for b in run.events + [{'time': e['begin']} for e in run.events if e['what'] == 'end'])
    found, blocks = page(directory), blocks_of(run)
    devices = list(dict.fromkeys(b['device'] for b in blocks))
    names = {-1: 'of the host', 0: 'of device 0', 1: 'of device 1'}
    assert found.headings == [f'rank 3 pid 77 allocator c10 {names[d]}' for d in devices]
    for number, device in enumerate(devices):
        mine = [b for b in blocks if b['device'] == device]
        assert found.data[number] == {'time_us': [(b['time'] - start) / 1000 for b in mine], 'bytes': [[b['allocated']] for b in mine]}
        most = max(b['allocated'] for b in mine)
        assert found.table(number) == {'in use': [most, most, mine[-1]['allocated']]}
    assert page('--device', '1', directory).data == [found.data[devices.index(1)]]
    assert page('--top', '1', directory).headings == found.headings[:1]


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
    text = analyze('memory', '--layout', 'html', tmp_path / '<b>.tfr', format=None).out
    assert 'onerror=alert(1)&gt;' in text and not re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]|<img|<b>|</script><script>', text)
    found = page(tmp_path / '<b>.tfr')
    assert len(found.headings) == len(found.data) == MOST_PICTURES
    assert any(t.startswith('8 more are left out') for t in found.texts)
    assert HOSTILE[:30] in found.headings[0]


def test_without_an_answer(analyze, page, tmp_path):
    path = write(tmp_path / 'x.raw.json', [[5, 2, 16, 3]])
    for form in ('json', 'csv'):
        assert 'has no --format' in analyze('memory', '--layout', 'html', '--format', form, path, rc=2, format=None).err
    assert 'nothing matches' in analyze('memory', '--layout', 'html', '--from', '1e9', path, rc=1, format=None).err
    assert not (tmp_path / 'm.html').exists()
    analyze('memory', '--layout', 'html', '--output', tmp_path / 'm.html', path, format=None)
    assert Page((tmp_path / 'm.html').read_text()).table()['TEMPORARY'] == [16, 16, 16]
    assert page(write(tmp_path / 'y.raw.json.gz', [])).data == []
