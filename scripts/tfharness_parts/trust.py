"""trust - what a trace may make the harness do: import, call and make only what is the reader's own.

A signature comes from a trace, and a trace may be hostile. It can therefore name only the user's own code (modules under
the current directory) and library classes that are made from numbers and names. --trust lifts the limit; --target names
the stage without the trace.
"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
OWN = HERE + os.sep, HERE[:-len('_parts')] + '.py' + os.sep  # the harness: this folder, and tfharness.py beside it
LIBRARIES = ('diffusers', 'transformers')
METHODS = frozenset(('__call__', 'decode', 'encode', 'forward', 'generate', 'postprocess', 'postprocess_video', 'preprocess',
                     'preprocess_video', 'step'))
MADE = frozenset(('ConfigMixin', 'DiffusionPipeline', 'PreTrainedModel', 'PreTrainedTokenizerFast'))
LOADS_CODE = frozenset(('trust_remote_code', 'custom_generate', 'custom_pipeline', 'code_revision'))


class Problem(ValueError):
    """An error that names the fault and the remedy, for the user."""


def plain(text):
    """Returns the text with its control characters escaped, which could move a terminal's cursor."""
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text):
    print(f'[Harness] {plain(text)}', flush=True)


def lies_here(path):
    """True for a file or directory under the current one, unless it is the harness or an installer has put it there."""
    here, path = os.path.realpath(os.getcwd()), os.path.realpath(path)
    inside = here != os.sep and path.startswith(here + os.sep) and not (path + os.sep).startswith(OWN)
    return inside and not {'site-packages', 'dist-packages'} & set(path[len(here):].split(os.sep))


def places_of(name, within):
    """Returns the files and directories that an import of the module would run, and its search path; imports nothing."""
    module = sys.modules.get(name)
    if module is not None:
        file, inside = getattr(module, '__file__', None), list(getattr(module, '__path__', ()))
    else:
        spec = importlib.util.find_spec(name) if within is None else importlib.machinery.PathFinder.find_spec(name, within)
        file = spec.origin if spec is not None and spec.has_location else None
        inside = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [file] if file else inside, inside


def is_here(module):
    """True if a module and its packages are under the current directory; imports none of them."""
    parts, within = module.split('.'), None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # at the end, so that installed modules win
    if parts[0] == '__main__' or not all(part.isidentifier() for part in parts):
        return False
    for i in range(len(parts)):
        try:
            run, within = places_of('.'.join(parts[:i + 1]), within)
        except (ImportError, ValueError, AttributeError):
            return False
        if not run or not all(lies_here(path) for path in run):
            return False
    return True


def top(module):
    return str(module).partition('.')[0]


def bases_of(kind):
    return {base.__name__ for base in kind.__mro__ if top(base.__module__) in LIBRARIES} if inspect.isclass(kind) else set()


def walk(found, names):
    """Returns an attribute of an attribute; None if it is missing or is a module."""
    for name in names:
        found = None if name.startswith('__') else getattr(found, name, None)
        if found is None or inspect.ismodule(found):
            return None
    return found


def members(described):
    """Yields each key and value of the objects in a signature."""
    if isinstance(described, dict):
        yield from described.items()
    for inner in described.values() if isinstance(described, dict) else described if isinstance(described, list) else ():
        yield from members(inner)


def types_in(described):
    return {value for key, value in members(described) if key in ('type', 'class') and isinstance(value, str)}


def loads_code(described):
    """Returns the first setting that makes a library fetch code or weights, or None."""
    for key, value in members(described):
        is_kernel = (key == 'attention' or 'implementation' in key or 'kernel' in key) and '/' in str(value)
        if value not in (None, False) and (key in LOADS_CODE or 'use_pretrained' in key or is_kernel):
            return key
    return None


def distrust(what):
    raise Problem(plain(f'{what}; a trace can only run code under the current directory: give --trust if the trace is your '
                        'own, or name the stage by --target module:obj'))


def check_object(d):
    """Raises Problem unless the object's class is the user's own or one of a library."""
    text = str(d.get('class', ''))
    module, _, name = text.rpartition(':')
    if 'left_out' not in d and not is_here(module):
        if top(module) not in LIBRARIES or 'modular_pipelines' in module:
            distrust(f'the stage is a method of {text!r}')
        kind = walk(import_module(module), name.split('.'))
        if not MADE & bases_of(kind) or top(kind.__module__) not in LIBRARIES:
            distrust(f'the stage is a method of {text!r}')
    for part in (d.get('components') or {}).values():
        if part:
            check_object(part)


def check_target(text):
    """Raises Problem unless the target is the user's own code."""
    module, _, name = str(text).rpartition(':')
    if any(part.startswith('__') and part != '__call__' for part in name.split('.')) or not (lies_here(module) if module.endswith('.py') else is_here(module)):
        distrust(f'the stage is {text!r}')


def check_found(found, text):
    """Checks the found object in the same way, because a module can contain functions of other modules."""
    code = inspect.unwrap(getattr(found, '__func__', found)) if callable(found) else found
    if inspect.isroutine(code) or inspect.isclass(code) or hasattr(code, 'func'):
        module = getattr(code, '__module__', None) or ''
        own = sys.modules.get(module)
        if not is_here(module) and not lies_here(getattr(own, '__file__', None) or os.sep):
            distrust(f'the stage is {text!r}, an alias of {getattr(code, "__qualname__", "")!r} of {module or "no module"!r}')


def import_module(module):
    """Imports a module by its name, or by the path of its file."""
    try:
        if not module.endswith('.py'):
            return importlib.import_module(module)
        spec = importlib.util.spec_from_file_location(os.path.basename(module)[:-3], module)
        found = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, found)
        spec.loader.exec_module(found)
        return found
    except (ImportError, OSError, ValueError) as e:
        raise Problem(plain(f'{module} cannot be imported ({e}); run this where the pipeline runs, or set PYTHONPATH')) from e
