"""__init__ - the Python package of the wheel: where the files of tfinject lie. To import it changes nothing in the process."""

import os

__all__ = ['library', 'alloc_library', 'program']
_HERE = os.path.dirname(os.path.abspath(__file__))


def _there(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f'{path} is missing: install the wheel again')
    return path


def library():
    """Returns the path of libtfinject.so, for LD_PRELOAD."""
    return _there(os.path.join(_HERE, 'libtfinject.so'))


def alloc_library():
    """Returns the path of libtfinject-alloc.so, which stands before libtfinject.so in LD_PRELOAD and records blocks of malloc."""
    return _there(os.path.join(_HERE, 'libtfinject-alloc.so'))


def program(name):
    """Returns the path of `tfrun` or `tfanalyze`: where pip says that it installed it, or, as with pip --target, in the folder
    bin beside the packages."""
    from importlib import metadata

    try:
        files = metadata.files('tfinject') or []
    except metadata.PackageNotFoundError:
        files = []
    installed = [str(file.locate()) for file in files if file.name == name]
    beside = os.path.join(os.path.dirname(_HERE), 'bin', name)
    return next((os.path.abspath(path) for path in installed if os.path.isfile(path)), None) or _there(beside)
