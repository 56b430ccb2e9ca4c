"""test_soak - the long versions of tests that `make test` runs in a short form; `make soak` runs these."""

import pytest

from conftest import BUILD, ROOT, SOAK_ALL, built, clean_environment, execute
from test_kineto_bad import damaged_anywhere
from test_unit import VARIANTS


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_thousand_kills(tmp_path):
    env = dict(clean_environment(), KILLS='1000', CK_FORK='no', TFI_TEST_DIR=str(ROOT / 'tests'))
    result = execute([built(BUILD / 'unit' / 'kill')], env, tmp_path, timeout=1100)
    assert result.rc == 0, result.out + result.err


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('variant', VARIANTS)
def test_ten_thousand_flips(tmp_path, variant):
    """10,000 flips of bytes; the first fifth are those of test_unit's analysis_damage."""
    env = dict(clean_environment(), FLIPS='2500', CK_FORK='yes', TFI_TEST_DIR=str(ROOT / 'tests'))
    result = execute([built(VARIANTS[variant] / 'analysis_damage')], env, tmp_path, timeout=1100)
    assert result.rc == 0, result.out + result.err


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('mode', ['cancel', 'fork_busy', 'forks', 'threads', 'spawns', 'close_all'])
def test_weather_again_and_again(run, victim, tmp_path, mode):
    """40 runs against races, or 100 with SOAK_ALL: output and exit status are always the same, and no live file is left."""
    bare = run([victim('weather'), mode], {'WEATHER_LOG': tmp_path / 'bare'}, preload=False)
    for i in range(100 if SOAK_ALL else 40):
        result = run([victim('weather'), mode], {'WEATHER_LOG': tmp_path / 'log', 'TFI_OUTPUT_DIR': tmp_path / f'run{i}'},
                     preload='test')
        assert (result.rc, result.err) == (0, '')
        assert sorted(result.out.splitlines()) == sorted(bare.out.splitlines())
        assert mode == 'forks' or not list(result.dir.glob('*.live'))  # two children of 'forks' end by a raw system call


@pytest.mark.soak
@pytest.mark.sampled(4)
@pytest.mark.timeout(3000)
@pytest.mark.parametrize('seed', range(100, 110))
def test_damaged_kineto_traces(tfanalyze_asan, tmp_path, seed):
    """test_damaged_anywhere of test_kineto_bad over many more files, packed ones too."""
    for i in range(20):
        damaged_anywhere(tfanalyze_asan, tmp_path, seed * 100 + i, packed=i % 2 == 1)
