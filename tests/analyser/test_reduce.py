"""test_reduce - summaries (.tfs): they answer what the traces answer, merge in every order, and may be damaged or hostile."""

import itertools
import random
import struct
import zlib

import pytest

import comm_traces
import test_device_samples
import test_straggler_causes as fleet
from conftest import clean_environment, execute

MAGIC, HEAD = b'TFISUM1\n', struct.Struct('<III')


def blocks(data):
    """The unpacked blocks of a file of summaries, by the description of the format."""
    assert data[:8] == MAGIC
    at, found = 8, []
    while (length := struct.unpack_from('<I', data, at)[0]):
        packed, whole, crc = HEAD.unpack_from(data, at)
        block = zlib.decompress(data[at + HEAD.size:at + HEAD.size + packed])
        assert (len(block), zlib.crc32(block)) == (whole, crc)
        found.append(block)
        at += HEAD.size + length
    assert struct.unpack_from('<II', data, at) == (0, len(found)) and at + 8 == len(data)
    return found


def packed(found):
    """The file with these blocks."""
    bodies = [(zlib.compress(b), b) for b in found]
    return MAGIC + b''.join(HEAD.pack(len(z), len(b), zlib.crc32(b)) + z for z, b in bodies) + struct.pack('<II', 0, len(found))


@pytest.fixture
def reduce(analyze, tmp_path):
    """reduce(name, *inputs) -> the path of the file of summaries."""
    def reduce(name, *inputs, rc=0):
        analyze('reduce', *inputs, '-o', tmp_path / name, rc=rc, format=None)
        return tmp_path / name
    return reduce


def same_answers(analyze, traces, summaries, rc=0):
    """Rows, totals and messages of both questions are the same."""
    for command in ('comm', 'stragglers'):
        one, two = analyze(command, *traces, rc=rc), analyze(command, *summaries, rc=rc)
        assert (one['rows'], one['totals']) == (two['rows'], two['totals']), command
        def inputs(answer):
            return sorted(map(str, answer['inputs']))
        assert inputs(one) == inputs(two)
        assert analyze(command, *traces, rc=rc, format=None).out == analyze(command, *summaries, rc=rc, format=None).out


# ---- the same answers ----

def test_a_job(analyze, reduce, tmp_path):
    paths, _ = comm_traces.job(tmp_path, sequences=True)
    same_answers(analyze, paths, [reduce('job.tfs', *paths)])
    same_answers(analyze, paths, [reduce(f'{i}.tfs', path) for i, path in enumerate(paths)])


def test_real_traces(analyze, reduce, shared_traces):
    same_answers(analyze, [shared_traces / 'dlrm8'], [reduce('dlrm.tfs', shared_traces / 'dlrm8')])


@pytest.mark.slow
def test_causes(analyze, reduce, tmp_path):
    """The causes of 64 ranks with a fault of each kind."""
    paths = fleet.Fleet(3, {'slow_gpu': 17, 'late_host': 5, 'slow_link': (9, 17)}).write(tmp_path / 'job')
    summary = reduce('job.tfs', *paths)
    same_answers(analyze, paths, [summary])
    assert len(analyze('stragglers', summary)['totals']['causes']) == 3
    chosen = analyze('stragglers', '--rank', '0-39', summary)
    assert {c['cause'] for c in chosen['totals']['causes']} == {'slow_gpu', 'slow_link'}


def test_losses_stay(analyze, reduce, tmp_path):
    """A trace that is cut is still said to be, and the status is 3."""
    paths, _ = comm_traces.job(tmp_path)
    text = paths[1].read_text()
    paths[1].write_text(text[:len(text) * 2 // 3])
    summary = reduce('job.tfs', *paths, rc=3)
    same_answers(analyze, paths, [summary], rc=3)
    for command in ('comm', 'reduce'):
        said = [analyze(command, *inputs, *(['-o', tmp_path / 'again.tfs'] if command == 'reduce' else []), rc=3, format=None).err
                for inputs in (paths, [summary])]
        assert said[0].replace(str(paths[1]), '') == said[1].replace(str(summary), '') and 'cut' in said[0]


# ---- merging ----

def test_every_order_and_grouping(reduce, tmp_path):
    """The bytes do not depend on what is united first, on threads, or on how often a process comes."""
    paths, _ = comm_traces.job(tmp_path, world=4)
    whole = reduce('whole.tfs', *paths).read_bytes()
    assert len(blocks(whole)) == 4
    one = [reduce(f'{i}.tfs', path) for i, path in enumerate(paths)]
    for number, order in enumerate(itertools.permutations(one)):
        if number % 5 == 0:
            left = reduce('left.tfs', *order[:2])
            assert reduce('right.tfs', left, *order[2:]).read_bytes() == whole
    assert reduce('jobs.tfs', '-j', '3', *paths[::-1]).read_bytes() == whole
    assert reduce('mixed.tfs', one[2], paths[0], paths[1], one[3]).read_bytes() == whole
    assert reduce('twice.tfs', tmp_path / 'whole.tfs', one[1]).read_bytes() == whole


# ---- what it does not answer ----

def test_other_questions(analyze, reduce, tmp_path):
    paths, _ = comm_traces.job(tmp_path)
    summary = reduce('job.tfs', *paths)
    for arguments in (['stages'], ['timeline'], ['advise'], ['comm', '--step', '1'], ['comm,stages'], ['diff', summary]):
        said = analyze(*arguments, summary, rc=1, format=None).err
        assert 'needs events, which a summary does not have' in said, arguments
    analyze('reduce', '--step', '1', *paths, rc=2, format=None)
    mixed = analyze('timeline', summary, *paths, rc=3)
    assert mixed['rows'] == analyze('timeline', *paths)['rows']


# ---- damaged and hostile files ----

def test_cut_files(analyze, reduce, tmp_path):
    """The processes in front of the cut count."""
    paths, _ = comm_traces.job(tmp_path)
    whole = reduce('job.tfs', *paths).read_bytes()
    cut = tmp_path / 'cut.tfs'
    found = set()
    for length in [8, 9, 20, *range(30, len(whole), len(whole) // 12), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        result = analyze('comm', cut, rc=any, format=None)
        assert result.rc in (1, 3) and 'behind the summaries of' in result.err
        found.add(result.rc)
    assert found == {1, 3}


def ask(program, path, tmp_path):
    for command in (['comm'], ['stragglers', '--format', 'json'], ['reduce', '-o', tmp_path / 'out.tfs']):
        result = execute([program, *command, path], clean_environment(), tmp_path)
        assert result.rc in (0, 1, 3) and 'Sanitizer' not in result.err and 'runtime error' not in result.err, (command, result.err[-3000:])


@pytest.mark.slow
def test_hostile_blocks(tfanalyze_asan, reduce, tmp_path):
    """Blocks with any bytes changed, and a right checksum."""
    rng = random.Random(5)
    paths, _ = comm_traces.job(tmp_path, world=2, count=6)
    found = blocks(reduce('job.tfs', *paths).read_bytes())
    path = tmp_path / 'bad.tfs'
    for _ in range(40):
        bad = [bytearray(b) for b in found]
        for _ in range(rng.choice((1, 3, 30))):
            block = rng.choice(bad)
            block[rng.randrange(len(block))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        path.write_bytes(packed([bytes(b) for b in bad]))
        ask(tfanalyze_asan, path, tmp_path)
    for length in range(0, len(found[0]), max(1, len(found[0]) // 15)):
        path.write_bytes(packed([found[0][:length] or b'\0']))
        ask(tfanalyze_asan, path, tmp_path)


def test_sizes_are_checked(analyze, tmp_path):
    """A block that says it is huge is refused before it is unpacked."""
    path = tmp_path / 'huge.tfs'
    body = zlib.compress(b'\0' * 1000)
    for whole in (1 << 31, 33 << 20, 0, 999, 1001):
        path.write_bytes(MAGIC + HEAD.pack(len(body), whole, zlib.crc32(b'\0' * 1000)) + body + struct.pack('<II', 0, 1))
        assert 'is damaged' in analyze('comm', path, rc=1, format=None).err
    path.write_bytes(packed([b'\0' * 1000]))
    assert 'of another version' in analyze('comm', path, rc=1, format=None).err


# ---- samples of devices ----

def test_samples_of_devices(analyze, reduce, tmp_path):
    """Traces of ours: the clocks beside late ranks are in the summary too."""
    rng = random.Random(7)
    ranks = test_device_samples.job()
    for r in ranks:
        for time in rng.sample(range(600 * test_device_samples.MS), 60):
            r.sample(time, **test_device_samples.random_values(rng))
    paths = [r.save(tmp_path) for r in ranks]
    summary = reduce('job.tfs', *paths)
    same_answers(analyze, paths, [summary])
    assert analyze('stragglers', summary)['rows'][0]['samples'] > 3
