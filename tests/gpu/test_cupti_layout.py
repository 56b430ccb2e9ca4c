"""test_cupti_layout - cupti_layout.def against CUPTI's own headers: places of fields and sizes of records.

The headers come from the toolkit, from torch and Triton, and from the newest release, which scripts/bootstrap fetches.
`make soak` gets a sample of all releases from PyPI. The header's comment beside a kind names the structure of its records.
"""

import re
import subprocess
import zipfile

import pytest

from conftest import BUILD, ROOT

LAYOUT = (ROOT / 'preload/cupti/layout.def').read_text()
FIELDS = re.findall(r'^AT\((\w+), (\w+), (\w+), (\d+), ([\w\[\]]+)\)', LAYOUT, re.M)
SIZES = re.findall(r'^SIZE\(TFI_CUPTI_(\w+), (\d+), (\d+)\)', LAYOUT, re.M)
RECORDS = {'kernel': 'CONCURRENT_KERNEL', 'memcpy': 'MEMCPY', 'memcpy2': 'MEMCPY2', 'memset': 'MEMSET', 'sync': 'SYNCHRONIZATION',
           'external': 'EXTERNAL_CORRELATION', 'overhead': 'OVERHEAD', 'api': 'RUNTIME', 'graph': 'GRAPH_TRACE'}
ELSEWHERE = ROOT / 'build/nvidia/elsewhere'  # releases other than the build's
RELEASES = {'nvidia-cuda-cupti-cu12': ['12.0.146', '12.1.105', '12.2.142', '12.3.101', '12.4.127', '12.5.82', '12.6.80', '12.8.90', '12.9.79'],
            'nvidia-cuda-cupti': ['13.0.48', '13.0.85', '13.1.115', '13.2.86', '13.3.75', '13.4.92', '13.5.25']}


def text(include, name):
    return (include / name).read_text(errors='replace')


def number(include):
    """The number that cuptiGetVersion returns in the release with these headers."""
    return int(re.search(r'#define CUPTI_API_VERSION (\d+)', text(include, 'cupti_version.h'))[1])


def at_hand():
    """{version number: include directory} of the installed releases."""
    made = BUILD / 'headers.mk'
    of_toolkit = re.search(r'^CUPTI_INC = (.*)', made.read_text(), re.M)[1] if made.exists() else 'missing'
    places = [ROOT / of_toolkit, *(ROOT / 'build/venv').glob('lib/python*/site-packages/nvidia/cu13/include'),
              *(ROOT / 'build/venv').glob('lib/python*/site-packages/triton/backends/nvidia/include'),
              *sorted(ELSEWHERE.glob('nvidia-cuda-cupti*/nvidia/*/include'))]
    return {number(p): p for p in places if (p / 'cupti_activity.h').exists()}


def structures(include):
    """{kind: the structure of its records}"""
    kinds = re.findall(r'/\*\*((?:(?!\*/).)*?)\*/\s*CUPTI_ACTIVITY_KIND_(\w+)\s*=\s*\d+', text(include, 'cupti_activity.h'), re.S)
    return {kind: re.findall(r'CUpti_Activity\w+', comment)[0] for comment, kind in kinds if 'CUpti_Activity' in comment}


def bytes_of(kind, version):
    """A record's size by the table, whose rows are in the order of versions."""
    return [int(size) for k, since, size in SIZES if k == kind and int(since) <= version][-1]


def check(include, directory):
    """Compiles the table's claims for this release against its headers."""
    version, of = number(include), structures(include)
    old = ''.join(p.read_text(errors='replace') for p in include.glob('cupti_activity*.h'))
    claims = [f'sizeof({of[kind]}) == {bytes_of(kind, version)}' for kind in sorted({kind for kind, *_ in SIZES})]
    for structure, record, field, offset, type in FIELDS:
        for s in {of[RECORDS[record]], structure if f'}} {structure};' in old else of[RECORDS[record]]}:
            claims += [f'offsetof({s}, {field}) == {offset}', f'sizeof((({s} *)0)->{field}) == sizeof({type})']
    # The records need nothing of the callback headers, which require CUDA headers of the same release.
    source = ['#define __CUPTI_CALLBACKS_H__', '#include <stddef.h>', '#include <stdint.h>', 'typedef uint32_t CUpti_CallbackId;',
              'typedef void *CUpti_SubscriberHandle;', '#include <cupti_activity.h>',
              *(f'_Static_assert({claim}, "{version}");' for claim in claims)]
    (directory / 'layout.c').write_text('\n'.join(source) + '\n')
    cuda = re.search(r'^CUDA_INC = (.*)', (BUILD / 'headers.mk').read_text(), re.M)[1]
    done = subprocess.run(['gcc', '-std=gnu11', '-w', '-fsyntax-only', f'-isystem{include}', f'-isystem{ROOT / cuda}', directory / 'layout.c'],
                          capture_output=True, text=True)
    wrong = re.findall(r'error: .*|_Static_assert\(.*', done.stderr)
    assert done.returncode == 0, (version, wrong[:10])
    return len(claims)


def check_ids(include):
    """The simulated CUPTI's callback id limits are this release's, and none of our calls has another call's number."""
    version, ids = number(include), {}
    for domain in ('runtime', 'driver'):
        ids[domain] = dict(re.findall(r'CUPTI_(?:RUNTIME|DRIVER)_TRACE_CBID_(\w+)\s*=\s*(\d+)', text(include, f'cupti_{domain}_cbid.h')))
    simulated = re.findall(r'\{\d+, (\d+), \{(\d+), (\d+)\}\}', (ROOT / 'tests/simgpu/cupti_config.c').read_text())
    same = [limits for n, *limits in simulated if (int(n) == version if version < 100 else int(n) // 100 == version // 100)]
    assert [ids['runtime']['SIZE'], ids['driver']['SIZE']] in same
    calls = re.findall(r'^CALL\((\w+), (\d+), \w+, \w+, "(\w+)"\)', (ROOT / 'preload/cupti/calls.def').read_text(), re.M)
    assert len(calls) > 200
    for domain, n, name in calls:
        assert ids[domain.lower()].get(name, n) == n, (version, name)
        others = {k for k, v in ids[domain.lower()].items() if v == n and k != 'SIZE'}
        assert not others or name in others or all(re.match(r'cuda\d+|reserved|cu64', k) for k in others), (version, name, others)


def test_headers_at_hand(tmp_path):
    found = at_hand()
    assert {26, 130500} <= set(found) and len(found) >= 4, f'{sorted(found)}: `scripts/bootstrap test` fetches the missing headers'
    for include in found.values():
        assert check(include, tmp_path) > 150
        check_ids(include)


def test_a_wrong_size_and_a_wrong_place_are_found(tmp_path, monkeypatch):
    include = at_hand()[26]
    monkeypatch.setitem(globals(), 'SIZES', [(k, since, '88' if (k, since) == ('MEMCPY', '26') else size) for k, since, size in SIZES])
    with pytest.raises(AssertionError, match='CUpti_ActivityMemcpy6'):
        check(include, tmp_path)
    monkeypatch.undo()
    monkeypatch.setitem(globals(), 'FIELDS', [(*f[:3], '152' if f[1:3] == ('kernel', 'graphId') else f[3], f[4]) for f in FIELDS])
    with pytest.raises(AssertionError, match='graphId'):
        check(include, tmp_path)


@pytest.mark.soak
@pytest.mark.sampled(8)
@pytest.mark.parametrize('package, release', [(p, r) for p in RELEASES for r in RELEASES[p]])
def test_headers_of_every_release(tmp_path, python, package, release):
    target = ELSEWHERE / f'{package}=={release}'
    if not list(target.glob('nvidia/*/include/cupti_activity.h')):
        subprocess.run([python, '-m', 'pip', 'download', '-q', '--disable-pip-version-check', '--no-deps', '-d', tmp_path, f'{package}=={release}'],
                       check=True, timeout=300)
        with zipfile.ZipFile(next(tmp_path.glob('*.whl'))) as wheel:
            wheel.extractall(target, [n for n in wheel.namelist() if '/include/' in n])
    include, = target.glob('nvidia/*/include')
    assert check(include, tmp_path) > 150
    check_ids(include)
