"""cachedit_alone - a package cache_dit with only the installed one's profiler, because the whole one imports slowly."""

import re
import shutil


def environment(python, directory):
    """Makes the package in a directory, and returns the environment in which Python finds it first."""
    whole, package = next(python.parent.parent.glob('lib/python*/site-packages/cache_dit')), directory / 'alone' / 'cache_dit'
    shutil.copytree(whole / 'platforms', package / 'platforms')
    (package / '_utils').mkdir()
    for name in ('envs.py', 'logger.py', 'profiler.py'):
        shutil.copy(whole / name, package)
    for folder in (package, package / '_utils'):
        (folder / '__init__.py').touch()
    function = re.search(r'^def create_profiler_from_args.*?(?=^\S|\Z)', (whole / '_utils' / 'utils.py').read_text(), re.M | re.S)
    (package / '_utils' / 'utils.py').write_text(function.group())
    return {'PYTHONPATH': str(package.parent)}
