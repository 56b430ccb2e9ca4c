"""test_nvtx - NVTX and tfinject.h as sources of stages: every callback, its return value, its record, real pipelines.

The tests read records with `tfanalyze dump`. An expected record gives only the columns that matter.
"""

import json
import re
import struct
from collections import Counter
from functools import partial

import pytest

from conftest import BUILD, ROOT, clean_environment, execute, without_start, without_unmatched

STAGE, NESTED, UNTRACKED, NVTX, API = 2, 1, 4, 0x100, 0x200
TRACES = '*.tfr'


@pytest.fixture
def nvtx(run, victim):
    """nvtx(case, env={}) runs that case of nvtx_cases."""
    def nvtx(case, env=None, **options):
        result = run([victim('nvtx_cases'), case], env=env, **options)
        assert result.rc == 0 and without_unmatched(result.err) == '', result.err
        return result
    return nvtx


@pytest.fixture
def records(analyze):
    """records(directory, kind, ...) -> the records of these kinds, in the order of each thread, as dicts of columns."""
    def records(directory, *kinds, rc=0):
        rows = analyze('dump', directory, rc=rc)['rows']
        start = next(r['values']['value'] / 1000 - r['time_us'] for r in rows
                     if r['kind'] == 'clock' and r['values']['clock'] == 'realtime')
        return [{**r['values'], 'kind': r['kind'], 'realtime_us': start + (r['time_us'] or 0)}
                for r in rows if r['kind'] in kinds]
    return records


def column(rows, name):
    return [row[name] for row in rows]


def named(rows, name, kind=None):
    found = [row for row in rows if row['name'] == name and kind in (None, row['kind'])]
    assert len(found) == 1, (name, found)
    return found[0]


def flags(row):
    return int(row['flags'], 0) if isinstance(row['flags'], str) else row['flags']


def traces(directory):
    return sorted(directory.glob(TRACES))


# ---- every function ----

RETURNED = '''
    Initialize 0 MarkEx 0 MarkA 0 MarkW 0 RangeStart 1 RangeEnd 0 RangeEnd 0 RangeEnd 0
    RangePushEx 0 RangePushA 1 RangePushW 2 RangePop 2 RangePop 1 RangePop 0 RangePop -1
    NameCategoryA 0 NameCategoryW 0 NameOsThreadA 0 NameOsThreadW 0
    DomainCreate 1 DomainRegisterString 1 DomainMarkEx 0
    DomainRangePushEx 0 DomainRangePushEx 0 DomainRangePushEx 1 DomainRangePushEx 0
    DomainRangePop 1 DomainRangePop 0 DomainRangePop 0 RangePop 0 DomainRangeStartEx 1 DomainRangeEnd 0
    DomainNameCategoryA 0 DomainNameCategoryW 0 DomainResourceCreate 1 DomainResourceDestroy 0 DomainResourceCreate 1
    DomainDestroy 0 DomainDestroy 0'''


@pytest.fixture
def calls(run, victim, records):
    """The output of nvtx_calls, and a function that returns its records."""
    result = run([victim('nvtx_calls')])
    assert result.rc == 0 and result.err == ''
    return result, partial(records, result.dir)


def test_every_function_returns_what_it_should_and_keeps_errno(calls):
    assert calls[0].out.split() == RETURNED.split()


def test_every_callback_of_the_header_is_called_by_that_victim():
    """A new version of NVTX with more callbacks fails this test."""
    include = re.search(r'^NVTX_INC = (.*)$', (BUILD / 'headers.mk').read_text(), re.M).group(1)
    types = (ROOT / include / 'nvtx3/nvtxDetail/nvtxTypes.h').read_text()
    source = (ROOT / 'tests/victims/nvtx_calls.c').read_text()
    names = re.findall(r'NVTX_CBID_CORE2?_(\w+)\s*=\s*\d+,', types)
    names = [n for n in names if n != 'INVALID']
    assert len(names) == 30
    missing = [n for n in names if f'nvtx{n}(' not in source and f'DO({n},' not in source]
    assert not missing


def test_marks(calls):
    rows = calls[1]('mark')
    assert [(r['name'], r['domain'], flags(r)) for r in rows] == [
        ('mark ex', None, NVTX), ('mark a', None, NVTX), ('mark w ä€😀', None, NVTX), ('registered a', 'domain a', NVTX)]


def test_push_and_pop(calls):
    rows = calls[1]('range_begin', 'range_end')
    nested = [(r['kind'], r['name'], r['domain'], r['depth']) for r in rows if flags(r) & NESTED]
    begin, end = 'range_begin', 'range_end'
    assert nested == [
        (begin, 'push ex', None, 0), (begin, 'push a', None, 1), (begin, 'push w', None, 2),
        (end, 'push w', None, 2), (end, 'push a', None, 1), (end, 'push ex', None, 0),
        (begin, 'registered a', 'domain a', 0), (begin, 'unicode', 'domain w', 0), (begin, 'plain', 'domain a', 1),
        (begin, 'registered w ä', None, 0),
        (end, 'plain', 'domain a', 1), (end, 'unicode', 'domain w', 0), (end, 'registered a', 'domain a', 0),
        (end, 'registered w ä', None, 0)]
    assert {flags(r) for r in rows} == {NVTX | STAGE, NVTX | STAGE | NESTED}


def test_start_and_end(calls):
    rows = [r for r in calls[1]('range_begin', 'range_end') if not flags(r) & NESTED]
    assert [(r['kind'], r['name'], r['domain']) for r in rows] == [
        *(('range_begin', f'start {x}', None) for x in ('ex', 'a', 'w')),
        *(('range_end', f'start {x}', None) for x in ('ex', 'a', 'w')),
        ('range_begin', 'plain', 'domain w'), ('range_end', 'plain', 'domain w')]
    assert len(set(column(rows, 'id'))) == 4


@pytest.mark.parametrize('name, kind', [('mark ex', 'mark'), ('start ex', 'range_begin'), ('push ex', 'range_begin')])
def test_attributes_of_an_event(calls, name, kind):
    row = named(calls[1](kind), name)
    assert (row['category'], number(row['color']), row['payload_type'], bits(row)) == (5, 0xff102030, 2, -9 & 2**64 - 1)


def test_names_of_categories_and_threads(calls):
    assert {(r['domain'], r['category'], r['name']) for r in calls[1]('category')} == {
        (None, 5, 'category a'), (None, 6, 'category w'), ('domain a', 5, 'category of a'),
        ('domain w', 5, 'category of w')}
    rows = calls[1]('thread', 'thread_name')
    own = rows[0]['tid']
    assert [(r['tid'], r['name']) for r in rows[1:]] == [(own, 'thread a'), (4711, 'thread w'), (4712, 'thread resource')]


def test_without_the_library_nothing_changes(run, victim, tmp_path):
    result = run([victim('nvtx_calls')], preload=False)
    assert result.rc == 0 and not (tmp_path / 'run').exists()
    assert 'RangePushA -2' in result.out and 'errno' not in result.out


def test_cpp_api(run, victim, records):
    result = run([victim('nvtx_cpp')])
    assert result.rc == 0
    rows = records(result.dir, 'range_begin')
    assert [(r['name'], r['domain'], r['depth']) for r in rows if flags(r) & NESTED] == [
        ('cpp outer', None, 0), ('cpp inner', None, 1), ('function', None, 2),
        ('cpp registered', 'cpp domain', 0), ('function_in_domain', 'cpp domain', 1)]
    inner, registered = named(rows, 'cpp inner'), named(rows, 'cpp registered')
    assert (number(inner['color']), inner['payload_type'], bits(inner)) == (0xff010203, 3, as_bits('d', 2.5))
    assert (registered['category'], registered['payload_type'], bits(registered)) == (11, 5, -3 & 2**64 - 1)
    ends = records(result.dir, 'range_end')
    assert Counter(column(rows, 'name')) == Counter(column(ends, 'name'))
    assert sorted(r['name'] for r in records(result.dir, 'mark')) == ['cpp mark', 'cpp mark in domain']
    assert column(records(result.dir, 'category'), 'name') == ['cpp category']


# ---- waking ----

@pytest.mark.parametrize('case, out', [('names', ''), ('library_only', '-2 -2 0\n'), ('pop_only', '-2\n')])
def test_does_not_wake_a_process(nvtx, tmp_path, case, out):
    assert nvtx(case).out == out
    assert not (tmp_path / 'run').exists()


def test_names_given_while_asleep(nvtx, records):
    result = nvtx('names_first')
    rows = records(result.dir, 'category', 'thread_name', 'range_begin')
    assert {(r['domain'], r['category'], r['name']) for r in rows if r['kind'] == 'category'} == {
        ('mine', 3, 'early category'), (None, 4, 'early default category')}
    assert {(r['tid'], r['name']) for r in rows if r['kind'] == 'thread_name'} == {(4713, 'early thread')}
    assert named(rows, 'first')


@pytest.mark.parametrize('names', [None, '', '*', 'stage', 'other'])
def test_stages_are_timed_whatever_is_selected(nvtx, records, names):
    result = nvtx('library', env={'ENABLE_PROFILER_NAMES': names})
    assert named(records(result.dir, 'range_end'), 'stage')


# ---- domains ----

def stages_of(rows):
    return {r['name'] for r in rows if flags(r) & STAGE}


def test_domains_of_libraries_are_marks(nvtx, records, analyze):
    result = nvtx('library')
    assert re.fullmatch(r'-2 -2 0\n0 0 [1-9]\d*\n', result.out)
    rows = records(result.dir, 'range_begin')
    assert stages_of(rows) == {'stage', 'of the program'}
    assert {r['name']: r['domain'] for r in rows if not flags(r) & STAGE} == {
        'ncclAllReduce': 'NCCL', 'gemm': 'cublas', 'cask': 'CaskEnhanced_x'}
    mark = named(records(result.dir, 'mark'), 'ncclAllReduce')
    assert mark['payload_type'] == 0xDFBD0009 and bits(mark) == 0
    assert {r['stage'] for r in analyze('stages', result.dir)['rows']} == {'stage', 'of the program'}


@pytest.mark.parametrize('domains, stages', [
    ('nccl', {'stage', 'of the program', 'ncclAllReduce'}),
    ('+cu*', {'stage', 'of the program', 'gemm'}),
    ('-ncclish', {'stage'}),
    ('-*', {'stage'}),
    ('+*', {'stage', 'of the program', 'ncclAllReduce', 'gemm', 'cask'}),
    ('+*, -NCCL*', {'stage', 'gemm', 'cask'}),
])
def test_domains_as_the_user_wants_them(nvtx, records, domains, stages):
    result = nvtx('library', env={'TFI_NVTX_DOMAINS': domains})
    assert stages_of(records(result.dir, 'range_begin')) == stages


def test_table_of_domains_covers_known_names():
    """The table covers names that NVIDIA's libraries really use; the matching itself is tested above."""
    from fnmatch import fnmatch
    patterns = re.findall(r'DOMAIN\("([^"]+)"', (ROOT / 'include/domains.def').read_text())
    for name in ('NCCL', 'cuFile', 'CCCL', 'cuBLAS', 'cuBLASLt', 'cuDNN', 'CUSPARSE', 'cusolverDn', 'cusolverMg', 'NVSHMEM',
                 'CUSPARSELT', 'CaskEnhanced_Runtime'):
        assert any(fnmatch(name.lower(), p.lower()) for p in patterns), name


# ---- unusual ranges ----

def test_ranges_across_threads(nvtx, records):
    result = nvtx('across')
    begins, ends = records(result.dir, 'range_begin'), records(result.dir, 'range_end')
    assert sorted(column(begins, 'name')) == ['across', 'never ended', 'overlapping']
    assert sorted(column(ends, 'name')) == ['across', 'overlapping']
    for end in ends:
        begin = named(begins, end['name'])
        assert begin['id'] == end['id'] and end['thread'] == 1


def test_ends_without_beginning(nvtx, records, analyze):
    result = nvtx('unmatched')
    assert result.out == '0 -1 -1\n'
    ends = records(result.dir, 'range_end')
    assert [r['name'] for r in ends if not flags(r) & UNTRACKED] == ['one']
    lost = json.dumps(analyze('info', result.dir)['rows'])
    assert 'UNMATCHED' in lost.upper() or 'without a beginning' in lost


def test_deep_nesting(nvtx, records):
    result = nvtx('deep')
    assert result.out == '0 wrong\n'
    assert column(records(result.dir, 'range_begin'), 'depth') == list(range(10000))
    assert column(records(result.dir, 'range_end'), 'name') == [f'level {i}' for i in range(9999, -1, -1)]


def test_handles_after_fork(nvtx, records):
    result = nvtx('forked')
    assert len(traces(result.dir)) == 2
    for trace in traces(result.dir):
        for kind in ('range_begin', 'range_end'):
            assert [(r['name'], r['domain']) for r in records(trace, kind)] == [('registered before fork', 'before fork')]
        assert column(records(trace, 'category'), 'name') == ['category before fork']


def test_threads_that_make_the_same_handles_at_once(nvtx, records):
    result = nvtx('race')
    assert Counter(column(records(result.dir, 'range_end'), 'name')) == Counter({f'shared {i}': 8 for i in range(1000)})
    assert {(r['domain'], r['name']) for r in records(result.dir, 'category')} == {('shared', 'shared category')}


# ---- the content of an event ----

def as_bits(form, value):
    return int.from_bytes(struct.pack('<' + form, value), 'little')


def number(value):
    return int(value, 0) if isinstance(value, str) else value


def bits(row):
    """The payload's 64 bits, for every form in which the value is shown."""
    value = row['payload']
    if value is None:
        return 0
    if isinstance(value, float):
        return as_bits('f' if row['payload_type'] == 6 else 'd', value)
    return number(value) & 2**64 - 1


def test_payloads(nvtx, records):
    rows = records(nvtx('payloads').dir, 'mark')
    assert [(r['name'], r['payload_type'], bits(r)) for r in rows] == [
        ('uint64', 1, 2**64 - 2), ('int64', 2, 2**63 + 1), ('double', 3, as_bits('d', -1.5)), ('uint32', 4, 2**32 - 2),
        ('int32', 5, -7 & 2**64 - 1), ('float', 6, as_bits('f', 0.25)), ('none', 0, 0), ('extended', 0xDFBD0009, 0)]


def test_attributes_out_of_the_ordinary(nvtx, records):
    rows = records(nvtx('attributes').dir, 'mark', rc=3)
    assert [r['name'] or '' for r in rows[:9]] == ['', 'color without type', 'larger', '', '', '', '', '', '']
    assert [number(r['color']) for r in rows] == [0] * len(rows)
    assert column(rows, 'category') == [8] + [0] * (len(rows) - 1)
    lost_name, lost_domain, wide = rows[9:]
    assert 'lost' in str(lost_name['name']) and 'lost' in str(lost_domain['domain'])
    assert wide['name'] == 'b\ufffd\ufffdd'


def test_handles_are_bounded(nvtx, records):
    result = nvtx('handles')
    assert result.out == '1 1\n'
    first, last = records(result.dir, 'mark', rc=3)
    assert first['name'] == 'same' and 'lost' in str(last['name'])


def test_long_names(nvtx, records):
    names = column(records(nvtx('lengths').dir, 'mark'), 'name')
    assert names == ['n' * 65536, 'n' * 60000, '€' * 682]


# ---- NVTX_INJECTION64_PATH ----

def test_nvtx_path_is_set_only_if_unset(run, lib, tmp_path):
    show = ['bash', '-c', 'echo "$NVTX_INJECTION64_PATH"']
    assert run(show).out.strip() == str(lib)
    link = tmp_path / 'link.so'
    link.symlink_to(lib)
    assert run(show, preload=link).out.strip() == str(lib)
    assert run(show, env={'NVTX_INJECTION64_PATH': '/other/tool.so'}).out.strip() == '/other/tool.so'


def test_another_tool_keeps_nvtx(run, victim, tmp_path):
    """Another tool keeps NVTX: NVTX calls go to that tool, the program's own API goes to us."""
    source = tmp_path / 'tool.c'
    source.write_text('#include <stdio.h>\n'
                      'int InitializeInjectionNvtx2(const void *(*get)(unsigned)) { (void)get; puts("tool"); return 1; }\n')
    tool = tmp_path / 'tool.so'
    compiled = execute(['gcc', '-shared', '-fPIC', '-o', tool, source], clean_environment())
    assert compiled.rc == 0, compiled.err
    for path, said in ((tool, 'tool\n'), ('/no/such/tool.so', '')):
        result = run([victim('nvtx_cases'), 'unmatched'], env={'NVTX_INJECTION64_PATH': path})
        assert (result.rc, result.out, result.err) == (0, f'{said}-2 -2 -2\n', '')
        assert not (tmp_path / 'run').exists()
    assert run([victim('api_calls')], env={'NVTX_INJECTION64_PATH': tool}).rc == 0
    assert len(traces(tmp_path / 'run')) == 1


def test_without_preload_through_nvtx_alone(run, victim, lib, records):
    """NVTX itself loads the library, for processes whose launcher changed LD_PRELOAD."""
    result = run([victim('nvtx_cases'), 'across'], preload=False, env={'NVTX_INJECTION64_PATH': lib})
    assert result.rc == 0 and len(records(result.dir, 'range_begin')) == 3


def test_ranges_from_a_constructor_before_ours(run, tmp_path, lib, records):
    """A library's constructor may open ranges before our constructor, if the environment already has the path."""
    include = re.search(r'^NVTX_INC = (.*)$', (BUILD / 'headers.mk').read_text(), re.M).group(1)
    (tmp_path / 'early.c').write_text(
        '#include <nvtx3/nvToolsExt.h>\n'
        '__attribute__((constructor)) static void early(void) {\n'
        '    nvtxEventAttributes_t a = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,\n'
        '                               .messageType = NVTX_MESSAGE_TYPE_ASCII, .message.ascii = "in domain"};\n'
        '    nvtxDomainHandle_t d = nvtxDomainCreateA("mine");\n'
        '    nvtxDomainRangePushEx(d, &a);\n    nvtxRangePushA("early");\n    nvtxRangePop();\n    nvtxDomainRangePop(d);\n'
        '}\nint early_value;\n')
    (tmp_path / 'main.c').write_text('extern int early_value;\nint main(void) { return early_value; }\n')
    steps = [['gcc', '-shared', '-fPIC', f'-I{ROOT / include}', '-o', 'libearly.so', 'early.c', '-ldl'],
             ['gcc', '-o', 'main', 'main.c', '-L.', '-learly', '-Wl,-rpath,$ORIGIN']]
    for step in steps:
        compiled = execute(step, clean_environment(), tmp_path)
        assert compiled.rc == 0, compiled.err
    result = run([tmp_path / 'main'], env={'NVTX_INJECTION64_PATH': lib, 'TFI_NVTX_DOMAINS': '-mine'})
    assert result.rc == 0 and result.err == ''
    rows = records(result.dir, 'range_end')
    assert 'early' in stages_of(rows) and 'in domain' not in stages_of(rows)


# ---- tfinject.h ----

def test_api(run, victim, records):
    result = run([victim('api_calls')])
    assert result.out == 'push 0 1 pop 1 0 -1 start 1 evaluated 4 errno 77\n'
    rows = records(result.dir, 'range_begin', 'mark')
    assert [(r['kind'], r['name'] or '', flags(r)) for r in rows] == [
        ('range_begin', 'api outer', API | STAGE | NESTED), ('range_begin', 'api inner', API | STAGE | NESTED),
        ('mark', 'api mark', API), ('range_begin', 'api across', API | STAGE), ('range_begin', '', API | STAGE)]
    assert len(records(result.dir, 'range_end')) == 4


def test_api_costs_nothing_without_the_library(run, victim, tmp_path):
    result = run([victim('api_calls')], preload=False)
    assert (result.rc, result.out) == (0, 'push -2 -2 pop -2 -2 -2 start 0 evaluated 0 errno 77\n')
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('compiler', ['gcc', 'clang', 'g++', 'clang++'])
@pytest.mark.parametrize('options', [[], ['-no-pie', '-fno-pie'], ['-O2', '-flto'], ['-static']],
                         ids=['pie', 'no-pie', 'lto', 'static'])
def test_api_header_in_every_kind_of_program(run, tmp_path, lib, compiler, options):
    """Weak symbols are found in position-dependent programs too, and their absence in static ones is harmless."""
    cpp = compiler.endswith('++')
    source = tmp_path / ('p.cpp' if cpp else 'p.c')
    scope = '{ tfi::range r("scope"); }' if cpp else 'tfi_range_push("scope"); tfi_range_pop();'
    source.write_text('#include <stdio.h>\n#include <tfinject.h>\nint main(void) {\n'
                      f'    tfi_mark("mark"); {scope}\n    printf("%d\\n", tfi_range_push("last"));\n    return 0;\n}}\n')
    warnings = ['-Wall', '-Wextra', '-Wshadow', '-Wpedantic', '-Werror', '-std=c++11' if cpp else '-std=c99']
    lto = ['-fuse-ld=bfd'] if '-flto' in options and compiler == 'gcc' else []
    if '-flto' in options and 'clang' in compiler:
        options = ['-O2']  # clang's linker plugin is a package of its own
    compiled = execute([compiler, *warnings, *options, *lto, f'-I{ROOT}/include', '-o', tmp_path / 'p', source],
                       clean_environment())
    assert compiled.rc == 0, compiled.err
    assert run([tmp_path / 'p'], preload=False).out == '-2\n'
    assert run([tmp_path / 'p']).out == ('-2\n' if options == ['-static'] else '0\n')


# ---- a PyTorch pipeline ----

SLACK_US = 2  # the reader's interpolation between two clock readings


def stages_logged(path):
    return json.loads(path.read_text())


def ranges_by_begin(rows):
    """(begin, end) records of each NVTX range, joined by id; torch has ranges of its own."""
    ends = {r['id']: r for r in rows if r['kind'] == 'range_end'}
    return [(r, ends[r['id']]) for r in rows if r['kind'] == 'range_begin' and int(r['flags'], 0) & 0x100]


def test_stages_equal_the_scripts_log(run, python, records, analyze, tmp_path):
    """Names, nesting and counts by rank equal the script's log; each time lies between the script's clock readings."""
    result = run([python, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2',
                  ROOT / 'tests/pipelines/nvtx_pipeline.py', tmp_path])
    assert result.rc == 0, result.err[-3000:]
    assert len(traces(result.dir)) == 2
    counted = {(r['rank'], r['stage']): r['calls'] for r in without_start(analyze('stages', result.dir)['rows'])}
    expected = Counter()
    for rank in (0, 1):
        logged = stages_logged(tmp_path / f'{rank}.json')
        expected.update((rank, s['name']) for s in logged)
        trace, = result.dir.glob(f'rank{rank}.*.tfr')
        compare(logged, records(trace, 'range_begin', 'range_end'))
        assert [r['name'] for r in records(trace, 'mark')] == [f'done {rank}', 'done in domain']
    assert {k: n for k, n in counted.items() if not k[1].startswith('gloo:')} == dict(expected)


def compare(logged, rows):
    ranges = ranges_by_begin(rows)
    assert len(ranges) == len(logged)
    threads = [[pair for pair in ranges if pair[1]['thread'] == serial] for serial in (1, 2)]
    for number_of_thread, own in enumerate(threads):
        own.sort(key=lambda pair: pair[1]['realtime_us'])
        mine = [s for s in logged if s['thread'] == number_of_thread]
        assert [(b['name'], b['domain'] or '', b['depth']) for b, _ in own] == [(s['name'], s['domain'], s['depth']) for s in mine]
        for (begin, end), stage in zip(own, mine):
            between(stage['begin'], begin['realtime_us'], stage)
            between(stage['end'], end['realtime_us'], stage)


def between(readings, us, stage):
    assert readings[0] / 1000 - SLACK_US <= us <= readings[1] / 1000 + SLACK_US, (stage, us)
