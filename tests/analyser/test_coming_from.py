"""test_coming_from - the page `coming-from`: every command, option and variable on its right side works.

A command runs on traces made here that have something to answer; an option of tfrun runs a program that opens a stage, and
a variable is set for it, which the library would refuse with a warning.
"""

import re
import shlex
import shutil
import sys

import pytest

import fuzz_corpus
import test_ncu
from conftest import ROOT, clean_environment, execute
from growth_shapes import event, kineto, launch
from optrace import Mixed

PAGE = ROOT / 'analysis' / 'help' / 'coming-from.txt'
TOOLS = ['TELEFUSER', 'CACHE-DIT', 'TORCH.PROFILER', 'DFTRACER', 'MERGE_TRACE (PYUTILS)', 'TORCHFX', 'HTA', 'NSYS']
STAGE = 'import ctypes; t = ctypes.CDLL(None); t.tfi_range_push.argtypes = [ctypes.c_char_p]; [(t.tfi_range_push(n), t.tfi_range_pop()) for n in (b"ProfilerStep#0", b"s0")]'


def rows():
    """[(tool, their word, ours)]: the right side follows two blanks or more, or stands below with an indent of 8."""
    tool, left, found = None, None, []
    for line in PAGE.read_text().splitlines():
        whole, two = re.fullmatch(r'    (\S.*?) {2,}(\S.*)', line), re.fullmatch(r' {8}(\S.*)', line)
        if re.fullmatch(r'[A-Z][A-Z .()_-]+', line):
            tool = line
        elif whole or two:
            found.append((tool, whole.group(1) if whole else left, (whole or two).group(2 if whole else 1)))
            left = None
        elif line.startswith('    '):
            assert left is None, f'{left} has no right side'
            left = line.strip()
    return found


def test_every_tool_has_rows():
    assert list(dict.fromkeys(tool for tool, *_ in rows())) == TOOLS
    assert len(rows()) > 90 and all(ours.split()[0] in ('tfanalyze', 'tfrun') or '=' in ours for *_, ours in rows())


@pytest.fixture(scope='module')
def inputs(tmp_path_factory):
    """{a word of the page: its path}"""
    d = tmp_path_factory.mktemp('inputs')
    for run in ('RUN', 'RUN2'):
        Mixed(rank=0, world=1, seed=len(run)).devices().write(d / run)
    (d / 'ET.tfr').write_bytes(fuzz_corpus.executions(d))
    events = [event('user_annotation', f'ProfilerStep#{i}', 1000 * i, 900) for i in (1, 2)] + [event('user_annotation', 's0', 1000, 400)]
    for i in range(4):
        events += [event('cpu_op', 'aten::mm', 1010 + 50 * i, 40), *(e for k in range(4) for e in launch(4 * i + k, 1012 + 50 * i + 8 * k, ('a', 'b', 'ncclDevKernel_AllReduce')[k % 3]))]
    events += [event('gpu_user_annotation', 's0', 1000, 400, 7, 0), event('gpu_memcpy', 'Memcpy HtoD', 1800, 5, 7, 0, correlation=90, stream=7, device=0, bytes=64)]
    kineto(d, events, name='TRACE.json')
    counted = [e for i in range(3) for e in (*list(launch(i, 10 + 20 * i))[:1], event('cuda_profiler_range', 'k', 100 + 9 * i, 5, 0, 0, **{'a.sum': i}))]
    kineto(d, counted, name='COUNTERS.json')
    (d / 'NCU.csv').write_text(test_ncu.FORMS['details'])
    (d / 'PFW.pfw').write_text(PFW)
    return {p.name.split('.')[0]: p for p in d.iterdir()}


PFW = '''[
{"id":"0","name":"read","cat":"POSIX","pid":"1","tid":"2","ts":"1698080323775554","dur":"141","ph":"X","args":{"hostname":"h","fname":"/f","ret":"4","count":"8"}}
{"id":"1","name":"step","cat":"app","pid":"1","tid":"2","ts":"1698080323775500","dur":"541","ph":"X","args":{"hostname":"h"}}
]
'''


@pytest.mark.parametrize('ours', sorted({ours for *_, ours in rows() if ours.startswith('tfanalyze')}))
def test_commands_answer(tfanalyze, inputs, tmp_path, ours):
    """Whole answers, of something: a JSON answer has rows, any other output is not empty."""
    paths = {**inputs, 'OUT': tmp_path / 'out', 'BUDGET': tmp_path / 'budget'}
    if 'BUDGET' in ours:
        assert execute([tfanalyze, 'launches', inputs['RUN'], '--write-budget', paths['BUDGET']], clean_environment()).rc == 0
    words = shlex.split(ours)[1:]
    if 'report RUN' in ours or 'tensorboard' in ours:
        shutil.copytree(inputs['RUN'], tmp_path / 'RUN')
        paths['RUN'] = tmp_path / 'RUN'
    if 'export et' in ours:
        paths['RUN'] = inputs['ET']  # with TFI_TENSOR_ADDRESSES=1
    stage = {'s0': 'denoise' if 'RUN' in words else 's0'}
    words = [str(paths.get(word, stage.get(word, word))) for word in words]
    result = execute([tfanalyze, *words], clean_environment(), tmp_path)
    assert result.rc == 0, (ours, result.err)
    assert result.out or (tmp_path / 'out').exists() or 'tensorboard' in ours, ours


@pytest.fixture(scope='module')
def valued():
    return sorted({ours for *_, ours in rows() if not ours.startswith('tfanalyze')})


@pytest.mark.slow
def test_options_and_variables_are_taken(valued, tmp_path):
    """No warning of the library, no usage error of tfrun; a stage is recorded wherever something is."""
    for i, ours in enumerate(valued):
        words = shlex.split(ours)
        run = tmp_path / str(i)
        environment = {**clean_environment(), 'TFI_OUTPUT_DIR': str(run)}
        if words[0] != 'tfrun':
            name, _, value = ours.partition('=')
            environment[name] = str(run) if name == 'TFI_OUTPUT_DIR' else value
            words = ['tfrun']
        words = [str(run) if word in ('d', 'x') and '--output' in words else word for word in words]
        result = execute([ROOT / 'scripts' / 'tfrun', *words[1:], '--', sys.executable, '-c', STAGE], environment, tmp_path)
        assert result.rc == 0 and 'tfinject:' not in result.err, (ours, result.err)
        assert list(run.glob('*.tfr')) or re.search('capture|trigger|schedule|NAMES', ours), (ours, result.err)
