"""test_fuzz - the readers under libFuzzer with ASan and UBSan: traces of PyTorch and dftracer, dumps of the flight recorder, Nsight Compute's CSV, summaries, .tfr and .live.

`make test` gives the analyser with sanitizers the corpora alone. `make soak` builds the fuzzers and gives each reader 200,000
inputs, that of .tfr 60,000; with SOAK_ALL it gives a million and 400,000. The seeds follow from SOAK_SEED, so a failure is
repeatable. The corpus of PyTorch traces is committed; libFuzzer adds to a copy of it. tests/fuzz_corpus.py makes the corpus
of .tfr traces.
"""

import gzip
import json
import pickle
import re
import resource
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import comm_traces
import fuzz_corpus
import test_ncu
import test_reduce
import tfr
from conftest import BUILD, ROOT, SOAK_ALL, SOAK_SEED, built, clean_environment, execute

CORPUS = ROOT / 'tests' / 'fuzz' / 'corpus'
# A small shell starts the fuzzer: libFuzzer limits its peak of memory, and the peak of a process is never below that of the
# process that started it, which is this one.
SMALL = ['sh', '-c', '"$@"; exit $?', 'sh']
MEMORY = Path('/dev/shm') if Path('/dev/shm').is_dir() else None  # for files that are written and read a million times


def fuzz(target, directory, corpus, runs, *options, seed=1, **env):
    """Runs a target. `corpus` is a directory that the target may add to, or a list of files to run once each."""
    found = directory / f'found{seed}'
    found.mkdir()
    with tempfile.TemporaryDirectory(dir=MEMORY) as files:
        command = [*SMALL, built(BUILD / 'fuzz' / target), *([] if isinstance(corpus, list) else [f'-runs={runs}']), f'-seed={seed}',
                   '-timeout=10', '-rss_limit_mb=2048', f'-artifact_prefix={found}/', *options,
                   *(corpus if isinstance(corpus, list) else [corpus])]
        result = execute(command, {**clean_environment(), 'TMPDIR': files, **env}, directory, 14000)
    left = [(p.name, p.read_bytes()[:2000]) for p in found.iterdir()]
    assert result.rc == 0 and not left, f'{left}\n{result.err[-5000:]}'
    done = re.search(r'^Done (\d+) runs', result.err, re.M)
    assert isinstance(corpus, list) or (done and int(done.group(1)) >= runs), result.err[-2000:]
    return result


def corpus_of(tmp_path, seeds):
    corpus = tmp_path / 'corpus'
    corpus.mkdir()
    for i, data in enumerate(seeds):
        (corpus / f'{i}').write_bytes(data)
    return corpus


def dftracer_seeds():
    """Small traces of dftracer: old, newer, newest, damaged, packed."""
    old = b'[\n {"id":"0","name":"read","cat":"POSIX","pid":"1","tid":"2","ts":"1698080323775554","dur":"141","ph":"X","args":{"hostname":"h",' \
          b'"fname":"/f","ret":"4","count":"8"}}\n'
    newer = b'[\n{"id":1,"name":"HH","cat":"dftracer","pid":1,"tid":2,"ph":"M","args":{"name":"h","value":5692}}\n' \
            b'{"id":2,"name":"start","cat":"dftracer","pid":1,"tid":2,"ts":1727387307981693,"dur":0,"ph":"X","args":{"hhash":5692,"cmd_hash":7}}\n' \
            b'{"id":3,"name":"fread","cat":"STDIO","pid":1,"tid":2,"ts":1727387307985825,"dur":10,"ph":"X","args":{"hhash":5692,"ret":3,"fhash":9,"size":2}}\n' \
            b'{"id":4,"name":"FH","cat":"dftracer","pid":1,"tid":2,"ph":"M","args":{"name":"/late","value":9}}\n' \
            b'{"id":5,"name":"step","cat":"app","pid":1,"tid":2,"ts":1727387307985825,"dur":10,"ph":"X","args":{}}\n]\n'
    newest = b'{"name":"CM","cat":"dftracer","type":1,"pid":1,"tid":2,"ph":4,"args":{"hhash":"6a","name":"time_metric","value":"NS"}}\n' \
             b'{"name":"write","cat":"POSIX","type":3,"ts":1795386200000000000,"ph":3,"pid":1,"tid":2,"args":{"dft_cnt":3,"dur_min":1,"dur_max":5,' \
             b'"dur_sum":9,"ret_sum":16,"ret_min":1,"ret_max":9}}\n' \
             b'{"id":6,"name":"end","cat":"dftracer","type":1,"pid":1,"tid":2,"ts":1795386200000000009,"dur":0,"ph":1,"args":{"cfg":{"time_metric":"MS"}}}'
    yield from (old, newer, newest, newer[:200] + b'\n' + newer[300:], gzip.compress(newer[:150]) + gzip.compress(newer[150:]), b'[\n]\n')


def flight_seeds():
    """Dumps of the flight recorder as pickles of every protocol and as JSON, and opcodes that few pickles have."""
    entries = [{'record_id': i, 'pg_id': 0, 'process_group': ('0', 'default_pg'), 'collective_seq_id': i, 'p2p_seq_id': 0, 'op_id': i,
                'profiling_name': f'gloo:{op}', 'time_created_ns': 10 ** 18 + i, 'input_sizes': [[3, 4], []], 'input_dtypes': ['Float'],
                'output_sizes': [[12]], 'state': 'scheduled', 'time_discovered_completed_ns': None, 'retired': i < 3, 'is_p2p': op == 'send',
                'frames': [{'name': 'f', 'filename': '/x.py', 'line': 7}]} for i, op in enumerate(('all_reduce', 'broadcast', 'send', 'all_gather'), 1)]
    dump = {'version': '2.10', 'pg_config': {'0': {'name': '0', 'desc': 'default_pg', 'ranks': '[0, 1]'}}, 'entries': entries,
            'pg_status': {'0': {'last_enqueued_collective': 4, 'last_started_collective': -1}}, 'x': (1, (2, 3), -5, 2 ** 40, 1.5, True, False, '\xfc' * 300)}
    yield from (pickle.dumps(dump, protocol) for protocol in range(2, 6))
    yield json.dumps({'comm_lib_version': '', **dump}).encode()
    yield b'\x80\x02}q\0X\x07\0\0\0entries](}(K\1K\2u}K\3NsM\1\2J\xff\xff\xff\xff\x8a\1\x80G?\xf0\0\0\0\0\0\0)\x85\x86\x88\x87q\1h\1j\1\0\0\0r\2\0\0\0tasu.'


def ncu_seeds():
    """Both shapes of Nsight Compute's CSV in each form of test_ncu, and damaged ones."""
    yield from (text.encode() for text in test_ncu.FORMS.values())
    whole = test_ncu.FORMS['details']
    yield from (whole[:700].encode(), whole.replace('"', '').encode(), b'"Kernel Name","Metric Name","Metric Value"\n"k","Duration","1,5 (2; 3)"\n',
                b'"Metric Name","Metric Value","Kernel Name"\n"Duration","1.5"\n"Duration","1.5","k"\n')


def tfs_seeds(tmp_path):
    """Files of summaries, and blocks as the fuzzer takes them, unpacked."""
    paths, _ = comm_traces.job(tmp_path, world=2, count=6)
    file = tmp_path / 'job.tfs'
    assert execute([BUILD / 'tfanalyze', 'reduce', *paths, '-o', file]).rc == 0
    yield file.read_bytes()
    yield from test_reduce.blocks(file.read_bytes())


def test_corpus_is_small():
    """The committed corpus stays small, each file and all together."""
    sizes = [p.stat().st_size for p in CORPUS.iterdir()]
    assert len(sizes) >= 10 and max(sizes) <= 8192 and sum(sizes) <= 200000, sorted(sizes)[-5:]


def test_seeds_are_traces(tmp_path, tfanalyze):
    """The seeds reach the decoders: tfanalyze reads each, and `--split` turns an input into files again."""
    for name, data in fuzz_corpus.seeds().items():
        for part, end in zip(fuzz_corpus.split(data), ('.tfr', '.tfr.live')):
            if part:
                (tmp_path / f'{name}{end}').write_bytes(part)
        found = sorted(tmp_path.glob(f'{name}.tfr*'))[0]
        result = execute([tfanalyze, 'info', found])
        assert result.rc in (0, 3) and 'nothing' not in result.err.split('\n')[0], (name, result.err)


def test_a_header_of_many_keys(tmp_path, tfanalyze):
    """A header with 600,000 keys takes under 2 s (8 s when each key was compared with 4,096 others)."""
    w = tfr.Writer()
    w.block(tfr.HEADER, b''.join(b'%x\0\0' % i for i in range(600000)), flags=tfr.DEFLATED)
    w.footer()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = execute([tfanalyze, 'info', w.save(tmp_path / 'rank0.h.1.tfr')])
    assert result.rc == 0, result.err
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2


def replayed(tmp_path, tfanalyze_asan, name, data, end, commands=()):
    """The commands that read most of an input end without a fault: with an answer, or a line that says why there is none."""
    path = tmp_path / f'{name}{end}'
    path.write_bytes(data)
    for command in commands or (['dump'], ['report', '--output', tmp_path / 'report'], ['export', 'chrome', '--output', tmp_path / 'out.json']):
        result = execute([tfanalyze_asan, *command, path], clean_environment())
        assert result.rc in (0, 1, 3) and 'Sanitizer' not in result.err and 'runtime error' not in result.err, (name, command, result.err)


def test_corpora(tmp_path, tfanalyze_asan):
    """The committed traces and the seeds of the other readers, among them all inputs that once showed a fault."""
    for path in CORPUS.iterdir():
        replayed(tmp_path, tfanalyze_asan, path.stem, path.read_bytes(), '.json.gz' if path.suffix == '.gz' else '.json')
    for number, data in enumerate(dftracer_seeds()):
        replayed(tmp_path, tfanalyze_asan, number, data, '.pfw')
    for number, data in enumerate(ncu_seeds()):
        replayed(tmp_path, tfanalyze_asan, f'ncu{number}', data, '.csv', (['ncu', 'report'],))
    for name, data in fuzz_corpus.seeds().items():
        for part, end in zip(fuzz_corpus.split(data), ('.tfr', '.tfr.live')):
            if part:
                replayed(tmp_path, tfanalyze_asan, name, part, end)


# ---- libFuzzer ----

MANY = 1000000 if SOAK_ALL else 200000


def fuzzes(test):
    return pytest.mark.soak(pytest.mark.timeout(14400)(test))


@fuzzes
def test_fuzz_kineto(tmp_path):
    shutil.copytree(CORPUS, tmp_path / 'corpus')
    fuzz('kineto', tmp_path, tmp_path / 'corpus', MANY, '-max_len=4096', seed=SOAK_SEED + 1)


@fuzzes
def test_fuzz_dftracer(tmp_path):
    fuzz('dftracer', tmp_path, corpus_of(tmp_path, dftracer_seeds()), MANY, '-max_len=4096', seed=SOAK_SEED + 1)


@fuzzes
def test_fuzz_flight(tmp_path):
    fuzz('flight', tmp_path, corpus_of(tmp_path, flight_seeds()), MANY, '-max_len=8192', seed=SOAK_SEED + 1)


@fuzzes
def test_fuzz_ncu(tmp_path):
    fuzz('ncu', tmp_path, corpus_of(tmp_path, ncu_seeds()), MANY, '-max_len=4096', seed=SOAK_SEED + 1)


@fuzzes
def test_fuzz_tfs(tmp_path):
    fuzz('tfs', tmp_path, corpus_of(tmp_path, tfs_seeds(tmp_path)), MANY, '-max_len=8192', seed=SOAK_SEED + 1)


@fuzzes
def test_fuzz_tfr(tmp_path):
    """Damage under valid checksums reaches the .tfr decoders and every command; several processes, each with its own seed."""
    processes, runs = (4, 100000) if SOAK_ALL else (2, 30000)

    def one(seed):
        (tmp_path / f'corpus{seed}').mkdir()
        fuzz_corpus.write(tmp_path / f'corpus{seed}')
        fuzz('tfr', tmp_path, tmp_path / f'corpus{seed}', runs, '-max_len=16384', '-entropic=0', '-close_fd_mask=3', seed=seed)
    with ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(one, 11 + SOAK_SEED + i) for i in range(processes)]:
            done.result()


@fuzzes
def test_seeds_and_earlier_faults(tmp_path):
    """Every seed, and every trace that once showed a fault, goes through all commands."""
    fuzz_corpus.write(tmp_path)
    result = fuzz('tfr', tmp_path, sorted(p for p in tmp_path.iterdir() if p.is_file()), 0, FUZZ_ALL='1')
    assert result.err.count('Executed ') >= 40
