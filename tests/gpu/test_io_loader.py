"""test_io_loader - DataLoaders of torch on the simulated GPU: which file the device waits for, and which batch was late.

The workers read 48 files of 20 kB; one of them has 300 MB instead, so that its read takes longer than all others together,
and a batch is late. The device model computes the times of kernels; the idle time between them is real.
"""

import json
import os
import re
import subprocess
from types import SimpleNamespace

import pytest

from conftest import BUILD, built, short_form

GPU = BUILD / 'simgpu'
SMALL, LARGE, FILES, SLOW, WORKERS, BATCH = 20_000, 300 << 20, 48, 29, 4, 4

PIPELINE = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

folder, workers, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = sorted(os.listdir(folder))


class Files(Dataset):
    def __len__(self):
        return len(files)

    def __getitem__(self, index):
        begun = time.monotonic_ns()
        with open(os.path.join(folder, files[index]), 'rb', buffering=0) as f:
            data = f.read()
        return torch.tensor([len(data), index, begun, time.monotonic_ns()])


x = torch.arange(1000, dtype=torch.float32).to('cuda')
total, reads, gaps, since = 0, [], [], time.monotonic_ns()
with torch.cuda.nvtx.range('train'):
    for data in DataLoader(Files(), batch_size=batch, num_workers=workers):
        total += int(data[:, 0].sum())
        reads += data[:, 1:].tolist()
        gaps.append([since, time.monotonic_ns()])
        y = x * 2
        torch.cuda.synchronize()
        since = time.monotonic_ns()
print(json.dumps([total, reads, gaps]))
"""


@pytest.fixture
def loader(run, python, lib, tmp_path, tfanalyze):
    """loader(workers, **env) -> the directory of the run, and ask(*words), which gives an answer of `io`."""
    folder = tmp_path / 'files'
    folder.mkdir()
    for i in range(FILES):
        (folder / f'{i:02}.bin').write_bytes(bytes([i]) * SMALL)
    os.truncate(folder / f'{SLOW}.bin', LARGE)
    (tmp_path / 'pipeline.py').write_text(PIPELINE)

    def loader(workers, script=(), **env):
        libraries = [built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
        env = {'LD_LIBRARY_PATH': GPU, 'KINETO_LOG_LEVEL': 5, 'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io', **env}
        result = run([python, '-W', 'ignore', 'pipeline.py', folder, *map(str, script or (workers, BATCH))], env,
                     preload=':'.join(map(str, [lib, *libraries])))
        assert result.rc == 0, result.err[-3000:]
        total, reads, gaps = [None] * 3 if script else json.loads(result.out)
        assert script or total == (FILES - 1) * SMALL + LARGE
        assert [line for line in result.err.splitlines() if line.startswith('tfinject: ')] == []

        def said(command, *words):
            said = subprocess.run([tfanalyze, command, *words, result.dir], capture_output=True, text=True)
            assert said.returncode == 0, said.stderr
            assert all('simulated' in line for line in said.stderr.splitlines() if 'outside the selected stages' not in line)
            return said.stdout

        def ask(*words):
            return json.loads(said('io', '--format', 'json', *words))
        return SimpleNamespace(ask=ask, said=said, folder=folder, reads=reads, gaps=gaps)
    return loader


def slow_is_slowest(run):
    """True if the device waited longer for the slow file than for all others, by the pipeline's clocks: a busy machine may hold
    the read of another file up for longer."""
    waited = [0] * FILES
    for index, begun, ended in run.reads:
        waited[index] = sum(max(0, min(ended, until) - max(begun, since)) for since, until in run.gaps)
    return waited[SLOW] > 2 * (sum(waited) - waited[SLOW])


def of_folder(found, folder):
    return {row['path']: row for row in found['rows'] if (row['path'] or '').startswith(f'{folder}/')}


@pytest.mark.slow
@short_form(1, 'env', [{}, {'ENABLE_PROFILER_NAMES': 'train'}], ids=['everything', 'one stage'])
def test_workers(loader, env):
    """Each file is read once with all its bytes, by the worker whose turn it is; the slow one comes first where it delays the device
    most. A selection of stages does not hide what the workers read."""
    run = loader(WORKERS, **env)
    found = run.ask('--group-by', 'file')
    files = of_folder(found, run.folder)
    slow = f'{run.folder}/{SLOW}.bin'
    assert {path: row['bytes'] for path, row in files.items()} == {
        f'{run.folder}/{i:02}.bin': LARGE if i == SLOW else SMALL for i in range(FILES)}
    idle = [row['idle_us'] for row in found['rows'] if row['idle_us'] is not None]
    assert idle == sorted(idle, reverse=True) and files[slow]['idle_us'] <= found['totals']['idle_us']
    assert files[slow]['idle_us'] <= files[slow]['unoverlapped_us'] <= files[slow]['total_us']
    is_slowest = slow_is_slowest(run)
    if is_slowest:
        assert found['rows'][0]['path'] == slow
        assert files[slow]['idle_us'] > sum(row['idle_us'] for path, row in files.items() if path != slow)

    workers = [row for row in run.ask('--group-by', 'worker')['rows'] if row['worker'] is not None]
    assert not is_slowest or workers[0]['worker'] == SLOW // BATCH % WORKERS
    read = {row['worker']: row['bytes'] for row in workers}
    for worker in range(WORKERS):
        mine = [i for i in range(FILES) if i // BATCH % WORKERS == worker]
        wanted = sum(LARGE if i == SLOW else SMALL for i in mine)
        assert wanted <= read[worker] <= wanted + 100_000  # a worker also reads files of the system

    staged = of_folder(run.ask('--group-by', 'file', '--stage', 'train'), run.folder)
    assert set(staged) == set(files)
    assert not is_slowest or staged[slow]['idle_us'] == max(row['idle_us'] for row in staged.values())
    row, = run.ask('--layout', 'summary')['rows']
    assert row['rank'] == 0 and row['processes'] == WORKERS + 1
    assert row['idle_us'] == pytest.approx(found['totals']['idle_us']) and row['app_io_us'] > files[slow]['idle_us']
    assert 0 < row['unoverlapped_io_us'] <= row['io_us']


@pytest.mark.slow
def test_without_workers(loader):
    """Without workers the process itself reads, and the device waits for each of its reads."""
    run = loader(0)
    found = run.ask('--group-by', 'file')
    files = of_folder(found, run.folder)
    slow = f'{run.folder}/{SLOW}.bin'
    assert files[slow]['bytes'] == LARGE and (found['rows'][0]['path'] == slow or not slow_is_slowest(run))
    assert 0 < files[slow]['idle_us'] <= files[slow]['total_us']
    assert all(row['worker'] is None for row in run.ask('--group-by', 'worker')['rows'])


# ---- late batches ----

# Each mode is one epoch or two of a loader. Its journal has the times of the main process, and those of the items come with the
# data from the process that read them.
MODES = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

FOLDER, JOURNAL, WORKERS, BATCH = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
FILES = sorted(os.listdir(FOLDER))
OPTIONS = {'plain': {}, 'persistent': {'persistent_workers': True}, 'stream': {}, 'own': {'num_workers': 0},
           'stream here': {'num_workers': 0}, 'pinned': {'pin_memory': True}, 'ahead': {'prefetch_factor': 5},
           'any order': {'in_order': False}, 'spawn': {'multiprocessing_context': 'spawn'},
           'forkserver': {'multiprocessing_context': 'forkserver'}}


def read(index):
    begun = time.monotonic_ns()
    fd = os.open(os.path.join(FOLDER, FILES[index]), os.O_RDONLY)
    size = len(os.read(fd, os.fstat(fd).st_size))
    os.close(fd)
    ended = time.monotonic_ns()
    info = get_worker_info()
    return torch.tensor([index, size, os.getpid(), info.id if info else -1, begun, ended])


class Files(Dataset):
    def __len__(self):
        return len(FILES)

    def __getitem__(self, index):
        return read(index)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id, len(FILES), info.num_workers) if info else range(len(FILES)):
            yield read(i)


def epoch(mode, loader, journal):
    batches = iter(loader)
    for number in range(len(FILES)):
        asked = time.monotonic_ns()
        data = next(batches, None)
        if data is None:
            return
        got = time.monotonic_ns()
        torch.arange(1000, dtype=torch.float32).to('cuda') * 2
        torch.cuda.synchronize()
        journal.write(json.dumps({'mode': mode, 'place': number, 'asked': asked, 'got': got, 'pinned': data.is_pinned(),
                                  'items': data.tolist()}) + '\\n')


if __name__ == '__main__':
    with open(JOURNAL, 'w') as journal:
        for mode in sys.argv[5].split(','):
            loader = DataLoader(Stream() if 'stream' in mode else Files(),
                                **{'batch_size': BATCH, 'num_workers': WORKERS, **OPTIONS[mode]})
            with torch.cuda.nvtx.range(mode):
                for _ in range(2 if mode == 'persistent' else 1):
                    epoch(mode, loader, journal)
            del loader
"""
TEAM = 2
CLOCKS = 20  # microseconds by which the clocks of the trace and of the pipeline may differ


@pytest.fixture
def modes(loader, tmp_path):
    """modes(names, **env) -> the run, with the lines of the journal, the difference of the trace's times and CLOCK_MONOTONIC, and
    when the waits for batches began by the latter."""
    def modes(names, **env):
        (tmp_path / 'pipeline.py').write_text(MODES)
        journal = tmp_path / 'journal'
        found = loader(TEAM, script=[journal, TEAM, BATCH, ','.join(names)], **env)
        found.lines = [json.loads(line) for line in journal.read_text().splitlines()]
        dumped = found.said('dump')
        time, value = re.search(r' clock (\S+) \S+ clock="monotonic" \S+ value=(\d+)', dumped).groups()
        found.clock = float(time) - int(value) / 1e3
        found.waits = [float(time) - found.clock for time in re.findall(r' range_begin (\S+) \S+ name="enumerate\(DataLoader\)#', dumped)]
        return found
    return modes


def numbers(lines):
    """Batch numbers of an epoch: from 0 in the order of the loader. Without a given order it is that of the files."""
    return [line['items'][0][0] // BATCH if line['mode'] == 'any order' else line['place'] for line in lines]


def matched(lines, rows, clock):
    """Pairs each line of the journal with its row or None. A row belongs to the line of its process and number; of two epochs
    in the same workers, to the one that was asked for when the row says."""
    keys = [(line['items'][0][2], number) for line, number in zip(lines, numbers(lines))]
    found = {}
    for row in rows:
        mine = [i for i, key in enumerate(keys) if key == (row['pid'], row['batch'])]
        nearest = min(mine, key=lambda i: abs(lines[i]['asked'] / 1e3 - (row['asked_us'] - clock)))
        assert found.setdefault(nearest, row) is row
    return [(line, found.get(i)) for i, line in enumerate(lines)]


def explained(run, mode):
    """Compares the late batches of a mode with the journal. One whose last file was read after the wait for it began must be
    there; for one that was still put together then the pipeline cannot tell."""
    lines = [line for line in run.lines if line['mode'] == mode]
    assert sum(len(line['items']) for line in lines) == FILES * (2 if mode == 'persistent' else 1), mode
    found = run.ask('--layout', 'batches', '--stage', mode, '--top', '1000')
    pairs = matched(lines, found['rows'], run.clock)
    assert len([row for _, row in pairs if row]) == len(found['rows']) == found['totals']['late_batches']
    assert found['totals']['waits'] >= len(lines)
    for line, row in pairs:
        begun, ended, worker = line['items'][0][4] / 1e3, line['items'][-1][5] / 1e3, line['items'][0][3]
        waited, = (wait for wait in run.waits if line['asked'] / 1e3 - CLOCKS <= wait <= line['got'] / 1e3)
        if not row:
            assert ended < waited + CLOCKS, (mode, line)
            continue
        at = {key: row[f'{key}_us'] - run.clock for key in ('requested', 'begun', 'arrived', 'asked')}
        assert row['worker'] == (None if worker < 0 else worker)
        until = at['asked'] + row['wait_us']
        assert abs(at['asked'] - waited) < CLOCKS and at['asked'] < at['arrived'] <= until <= line['got'] / 1e3 + CLOCKS
        assert at['requested'] <= at['begun'] <= begun + CLOCKS and ended - CLOCKS <= at['arrived']
        assert 0 <= row['idle_us'] <= row['wait_us']
        reads = {os.path.basename(read['path']): (read['calls'], read['bytes']) for read in row['reads']
                 if read['path'] and read['path'].startswith(f'{run.folder}/')}
        assert reads == {f'{item[0]:02}.bin': (1, item[1]) for item in line['items']}, (mode, line)
    return found, pairs


def check_slow(found, pairs, run, mode):
    """The batch with the slow file has the idle time of that read, and the list begins with the most idle time. On a busy
    machine another batch may wait even longer."""
    idle = [row['idle_us'] for row in found['rows']]
    assert idle == sorted(idle, reverse=True)
    for line, row in pairs:
        item = next((item for item in line['items'] if item[0] == SLOW), None)
        if item and row:
            begun, ended, asked = item[4] / 1e3, item[5] / 1e3, row['asked_us'] - run.clock
            slow, = (read for read in row['reads'] if read['path'] == f'{run.folder}/{SLOW}.bin')
            assert 0 < slow['total_us'] <= ended - begun, mode
            assert row['idle_us'] > 0.9 * (begun + slow['total_us'] - max(begun, asked)), mode  # the read ends at the earliest then
    assert any(row and any(item[0] == SLOW for item in line['items']) for line, row in pairs), mode


@pytest.mark.slow
@short_form(2, 'names', [['plain', 'persistent', 'stream', 'own', 'stream here'], ['pinned', 'ahead', 'any order'],
                                   ['spawn'], ['forkserver']], ids=','.join)
def test_late_batches(modes, names):
    """In each mode of a loader the late batches are those of the journal: process, number, times, and which files were read."""
    run = modes(names)
    for mode in names:
        found, pairs = explained(run, mode)
        check_slow(found, pairs, run, mode)
        lines = [line for line, _ in pairs]
        assert all(line['pinned'] == (mode == 'pinned') for line in lines)
        assert {line['items'][0][3] for line in lines} == ({-1} if mode in ('own', 'stream here') else set(range(TEAM)))


@pytest.mark.soak
def test_late_batches_of_one_stage(modes):
    """The batches of a selected stage are explained like those of a run in which everything is recorded."""
    run = modes(['plain', 'ahead'], ENABLE_PROFILER_NAMES='ahead')
    found, pairs = explained(run, 'ahead')
    check_slow(found, pairs, run, 'ahead')
