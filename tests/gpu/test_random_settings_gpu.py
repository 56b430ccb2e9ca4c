"""test_random_settings_gpu - programs on the simulated GPU behave as without the library, whatever the variables say."""

import re

import pytest

import random_settings
from conftest import BUILD, built, short_form
from random_settings import SEEDS

PROGRAMS = [
    ('driver',), ('graphs', 'ways'), ('graphs', 'many', '20'), ('mixture', '3', '300'), ('mixture', '4', '200', 'alone'), ('events', 'work=5', 'stage', 'work=5'),
    ('pipeline_stages', 'tfi'), ('pipeline_stages', 'nvtx'), ('stage_edges',), ('lookup',), ('nccl_open',), ('cupti_mixed', '5', '1'), ('runtime_static',),
    *(('weather', mode, '3') for mode in ('work', 'reset', 'destroyed', 'threads', 'forked', 'capture', 'errors')), ('../simgpu12/runtime12',)]


def tidy(out):
    """The output without clocks, ids and measurements, in an order that does not depend on threads."""
    return sorted(re.sub(r'\d{3,}|(?<="tid": )\d+', '#', line) for line in out.splitlines() if not re.search('kibibytes|microseconds', line))


@short_form(2, 'seed', SEEDS)
@pytest.mark.slow
@pytest.mark.sampled(20)
def test_programs_on_the_simulated_gpu(run, analyze, tmp_path, seed):
    name, *arguments = random_settings.chosen(seed, PROGRAMS)
    env = {'LD_LIBRARY_PATH': BUILD / ('simgpu12' if '12' in name else 'simgpu'), 'CUDA_HOME': '/nowhere'}
    command = [built(BUILD / 'victims_gpu' / name), *arguments]
    random_settings.check(run, analyze, seed, tmp_path, command, env, tidy=tidy)
