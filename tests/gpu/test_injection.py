"""test_injection - CUDA_INJECTION64_PATH names the library: the driver loads it in cuInit, and binds no symbol to it.

The simulated driver behaves like the vendor's: it opens the file once, before any initialisation, and calls
InitializeInjection. The library then sees only the device, through CUPTI, and stages, through NVTX.
"""

import shutil
from collections import Counter

import pytest

import scripted
import simlog
from conftest import BUILD, built
from scripted import only

WORK = {'kernel': 'kernel', 'copy': 'gpu_memcpy', 'set': 'gpu_memset'}


@pytest.fixture
def pipeline(run, tmp_path):
    """pipeline(injected library or None, preload, env): the pipeline of test_gpu_pipeline, with its stages by NVTX."""
    def pipeline(library, preload=False, **env):
        log = tmp_path / f'log{len(list(tmp_path.glob("log*")))}'
        directory = tmp_path / f'run-{log.name}'
        more = {'CUDA_INJECTION64_PATH': library} if library else {}
        result = run([built(BUILD / 'victims_gpu' / 'pipeline_stages'), 'nvtx'], {
            'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_LOG': log, 'TFI_OUTPUT_DIR': directory, **more, **env}, preload=preload)
        assert result.rc == 0 and '"ok"' in result.out, (result.out, result.err)
        result.truth = simlog.read(log, result.out)
        result.trace = only(scripted.traces(directory)) if directory.exists() else None
        return result
    return pipeline


def works(trace):
    return Counter((WORK[r.kind], r.values['correlation'], r.values['stream'], r.values['duration'])
                   for r in trace.records if r.kind in WORK)


def logged(truth, stages=None):
    return Counter((w.category, w.correlation, w.stream, w.duration) for w in truth.works
                   if stages is None or set(w.stages) & stages)


def test_alone(pipeline, lib):
    """Injection alone records all device work and all stages, but no host calls, because it has no wrappers."""
    got = pipeline(lib)
    assert works(got.trace) == logged(got.truth) and sum(works(got.trace).values()) > 30
    assert Counter(scripted.stages(got.trace)) == Counter(s.stage for s in got.truth.stages)
    assert scripted.calls(got.trace) == [] and got.trace.complete


def test_stages_have_their_work(pipeline, lib, analyze):
    """CUPTI's call records give each piece of work its stages."""
    got = pipeline(lib)
    expected = Counter()
    for w in got.truth.works:
        expected.update({stage: w.duration for stage in w.stages or ['(none)']})
    assert {r['stage']: round(r['device_us'] * 1000) for r in analyze('stages', got.dir)['rows']} == expected


def test_a_stage_wakes_it(pipeline, lib):
    """With a list of names cuInit does not wake the library: CUPTI starts at the first listed stage."""
    names = {'ENABLE_PROFILER_NAMES': 'text_encode,upscale'}
    got = pipeline(lib, **names)
    assert works(got.trace) == logged(got.truth, {'text_encode', 'upscale'})
    assert sum(works(got.trace).values()) == 8 == sum(works(pipeline(None, preload=True, **names).trace).values())


@pytest.mark.parametrize('way', ['same', 'link', 'copy'])
def test_preloaded_as_well(pipeline, lib, tmp_path, way):
    """Only one library records if it is preloaded as well, whatever name the driver gets; nothing appears twice."""
    other = {'same': lib, 'link': tmp_path / 'libtfinject.so', 'copy': tmp_path / 'libtfinject-2.so'}[way]
    if way == 'link':
        other.symlink_to(lib)
    if way == 'copy':
        shutil.copy(lib, other)
    plain, got = pipeline(None, preload=True), pipeline(other, preload=True)
    assert works(got.trace) == logged(got.truth) and works(plain.trace) == logged(plain.truth)
    assert sum(works(got.trace).values()) == sum(works(plain.trace).values())  # calls that poll move the correlation ids
    names = [Counter(c.name for c in scripted.calls(trace) if 'Query' not in c.name) for trace in (got.trace, plain.trace)]
    assert names[0] == names[1] and names[0]
    assert Counter(scripted.stages(got.trace)) == Counter(scripted.stages(plain.trace))


# ---- torch ----

PIPELINE = """
import torch
x = torch.arange(1000, dtype=torch.float32).to('cuda')
import wave
with torch.autograd.profiler.record_function('denoise'):
    y = x + 1
with torch.cuda.nvtx.range('decode'):
    z = (x * 2).cpu()
torch.cuda.synchronize()
print(float(y.sum()), float(z.sum()))
"""


def test_torch(run, lib, python, tmp_path):
    """NVTX stages are recorded at once; record_function stages and operators from the next import on."""
    (tmp_path / 'script').write_text('* 10us\n')
    env = {'LD_LIBRARY_PATH': BUILD / 'simgpu', 'LD_PRELOAD': f'{BUILD}/simgpu/libcudart.so.13:{BUILD}/simgpu/libcupti.so.13',
           'SIMGPU_LOG': tmp_path / 'log', 'CUDA_INJECTION64_PATH': lib}
    result = run([python, '-c', PIPELINE], env, preload=False)
    assert result.rc == 0 and result.out.count(' ') == 1, (result.out, result.err)
    trace = only(scripted.traces(result.dir))
    assert works(trace) == logged(simlog.read(tmp_path / 'log')) and len(works(trace)) >= 4
    assert scripted.stages(trace) == ['denoise', 'decode']
    assert 'aten::add' in [scripted.text(trace, r.values['name']) for r in trace.records if r.kind == 'op']
