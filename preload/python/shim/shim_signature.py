"""shim_signature - describes the arguments and the result of a stage as JSON: describe_call() and describe_result().

Both return None if there is nothing new. A stage is described at its first call, and whenever the shapes, dtypes or
types of its arguments are new, at most _SIG_DISTINCT times. Only attributes are read: no data of a tensor, nothing
that waits for a device, no code of the pipeline's own. So classes and objects are asked through `type` and `object`
themselves (a metaclass may have its own __getattribute__, a class its own __dict__), and classes are compared by identity.
An error means no description. Long or deep values are cut.

The description of a call is an object {argument: D}, named as inspect.signature names the arguments, without a
leading self or cls. The name "" has the name of the function itself, as "module:Qual.name"; "." tells how its object
can be made again (shim_rebuild). The description of a result is a D. A D is one of

    null, true, 1, 1.5, "text"               the value itself
    {"text": "its beginning", "length": 5000}   a text that was cut
    {"shape": [2, 3], "dtype": "float32", "device": "cpu", "requires_grad": false, "stride": [3, 1]}
                                             a tensor, with "type" if it is a class of its own; a shape or stride it
                                             lacks (nested, sparse) is null
    [D, ...]  {"tuple": [D, ...]}  {"set": [D, ...]}  {"dict": {"key": D, ...}}  {"items": [[D, D], ...]}
                                             a container; the last one is a dict with keys that are not all text
    {"type": "m.Name", "fields": {"field": D, ...}}     a dataclass or a namedtuple
    {"type": "m.Name", "value": "text"}      a dtype, device, member of an enumeration, function, class, or a number
                                             that JSON lacks ("nan")
    {"type": "m.Name", "shape": [2, 3], "dtype": "uint8"}  {"type": "m.Name", "size": [64, 48], "mode": "RGB"}
                                             an array; an image
    {"type": "m.Name", "layers": [[D, D], ...]}  {"type": "m.Name", "caches": [D, D]}
                                             the cache of keys and values of a decoder of transformers; layers of fixed
                                             size are listed in "rooms": [["m.Layer", 64], ...]
    {"type": "m.Name", "config": {...}}      transformers' settings of a generation
    {"type": "m.Name"}                       any other object
    {"more": 12}                             last in a container: the number left out (in a dict the key is "more...")

A value is left out, as in the command line, if its name is that of a secret (token, api_key); so is what looks like one
in a text: user and password, the signature of a URL, a key that begins as those of known services do.

With TFI_RECORD_VALUES=0 types stay and values are left out: a number, a text, a truth value and a member of an
enumeration are {"type": "int"} and the like, and so are a dict's keys; the way to make an object again is left out.
"""

import sys

_SIG_DISTINCT = 16
_SIG_STAGES = 4096
_SIG_ITEMS = 32
_SIG_DEPTH = 6
_SIG_NODES = 400        # of one description; a text counts by its length too
_SIG_CHARACTERS = 256

_SIG_PLAIN = {id(kind) for kind in (int, float, bool, str, type(None))}  # a hash of a class may be its metaclass's code
_SIG_ESCAPES = {code: '\\u%04x' % code for code in range(32)}
_SIG_ESCAPES.update({34: '\\"', 92: '\\\\'})
_SIG_FUNCTION = type(lambda: None)
_SIG_METHOD = type(type('_', (), {'method': lambda self: None})().method)
_SIG_BUILTIN = type(len)
_SIG_SLOT = type(type('_', (), {'__slots__': ('slot',)}).slot)
_SIG_NO_OBJECT = object()
_SIG_GETTER = type(type.__dict__['__dict__'])
_SIG_MEMBER = type(type(sys).__dict__['__dict__'])
_SIG_MODULE = type(sys)
_sig_mro = type.__dict__['__mro__'].__get__
_sig_members = type.__dict__['__dict__'].__get__
_sig_qualname = type.__dict__['__qualname__'].__get__
_sig_module_of = type.__dict__['__module__'].__get__
_SIG_NO_GUARD = type('_', (), {'__enter__': lambda self: None, '__exit__': lambda self, *error: None})

_sig_values = _config['record_values']

_sig_seen = {}          # stage -> keys that were described; None once there are enough
_sig_parameters = {}    # code object -> its parameters' names
_sig_state = {'pid': 0, 'torch': None, 'tensor': None, 'guard': _SIG_NO_GUARD}


def describe_call(function, args, kwargs, name=None):
    """Returns JSON of a function's arguments, or None. The stage is identified by its name and by the function."""
    try:
        stage = (name, _sig_code(function))
        seen = _sig_stage(stage)
        if seen is None:
            return None
        with _sig_state['guard']():
            key = []
            for value in args[:_SIG_ITEMS]:
                _sig_key(value, key, 0)
            if kwargs:
                key.extend(kwargs)
                _sig_key(kwargs, key, 0)
            return _sig_arguments(function, args, kwargs) if _sig_new(stage, seen, key) else None
    except Exception as error:
        if _is_handlers(error):
            raise
        return None


def describe_result(name, value):
    """Returns JSON of the result of the stage of this name, or None."""
    try:
        stage = (name,)
        seen = _sig_stage(stage)
        if seen is None:
            return None
        with _sig_state['guard']():
            key = []
            _sig_key(value, key, 0)
            return _sig_text(value, [_SIG_NODES], 0) if _sig_new(stage, seen, key) else None
    except Exception as error:
        if _is_handlers(error):
            raise
        return None


# ---- torch.compile ----

_sig_compiler = [lambda: False]


def _is_compiling():
    """True while torch.compile traces the calling code: nothing of ours may be called then. To the tracer, a
    constant."""
    return _sig_compiler[0]()


def _sig_find_compiler(module):
    """torch 2.1 and 2.2 have the function in another module."""
    if hasattr(module, 'is_compiling'):
        _sig_compiler[0] = module.is_compiling
    elif module.__name__ == 'torch.compiler':
        _when_imported('torch._dynamo.external_utils', _sig_find_compiler)


_when_imported('torch.compiler', _sig_find_compiler)


# ---- earlier descriptions ----

def _sig_stage(stage):
    """Returns the keys seen of a stage, None if no more are wanted. Finds torch once it is imported; a forked
    child starts anew."""
    state = _sig_state
    pid = sys.modules['posix'].getpid()
    if pid != state['pid']:
        state['pid'] = pid
        _sig_seen.clear()
    if state['tensor'] is None:
        torch = sys.modules.get('torch')
        own = _sig_dictionary(torch) if type(torch) is _SIG_MODULE else {}
        tensor = own.get('Tensor')
        guard = getattr(own.get('_C'), 'DisableTorchFunction', None)
        if isinstance(tensor, type) and guard is not None:
            state.update(torch=torch, tensor=tensor, guard=guard)
    seen = _sig_seen.get(stage, ())
    return set() if seen == () and len(_sig_seen) < _SIG_STAGES else seen or None


def _sig_new(stage, seen, key):
    key = tuple(key)
    if key in seen:
        return False
    seen.add(key)
    _sig_seen[stage] = seen if len(seen) < _SIG_DISTINCT else None
    return True


def _sig_key(value, key, depth):
    """Appends the parts that distinguish a call: shapes, dtypes, types and lengths, not the values of numbers and
    texts."""
    kind = type(value)
    if id(kind) in _SIG_PLAIN or depth > _SIG_DEPTH or len(key) > _SIG_NODES:
        key.append(id(kind))
    elif _sig_is_tensor(kind):
        tensor = _sig_state['tensor']
        key.append(_sig_shape(value))
        key.append(tensor.dtype.__get__(value))
    elif issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        key.append(_sig_qualname(kind))
        key.append(base.__len__(value))
        for item in base.__getitem__(value, slice(_SIG_ITEMS)):
            _sig_key(item, key, depth + 1)
    elif issubclass(kind, dict):
        key.append(dict.__len__(value))
        for item in _sig_first(dict.values(value)):
            _sig_key(item, key, depth + 1)
    else:
        key.append(_sig_qualname(kind))
        for item in _sig_fields(value, kind).values():
            _sig_key(item, key, depth + 1)


def _sig_first(values):
    found = []
    for value in values:
        found.append(value)
        if len(found) == _SIG_ITEMS:
            break
    return found


# ---- arguments ----

def _sig_code(function):
    """Returns a key for a function that does not keep the function itself alive."""
    if type(function) is _SIG_METHOD:
        function = function.__func__
    return function.__code__ if type(function) is _SIG_FUNCTION else _sig_qualname(type(function))


def _sig_names(code):
    """Returns (positional names, name of *args or None) of a code object."""
    names = _sig_parameters.get(code)
    if names is None:
        count = code.co_argcount
        star = code.co_varnames[count + code.co_kwonlyargcount] if code.co_flags & 4 else None
        names = (code.co_varnames[:count], star)
        if len(_sig_parameters) < _SIG_STAGES:
            _sig_parameters[code] = names
    return names


def _sig_arguments(function, args, kwargs):
    bound = _SIG_NO_OBJECT
    for _ in range(8):  # follows bound methods and functools.wraps, like inspect.signature
        if type(function) is _SIG_METHOD:
            function, bound = function.__func__, function.__self__
        elif type(function) is _SIG_FUNCTION and '__wrapped__' in function.__dict__:
            function = function.__dict__['__wrapped__']
        else:
            break
    names, star = _sig_names(function.__code__) if type(function) is _SIG_FUNCTION else ((), 'args')
    if bound is not _SIG_NO_OBJECT:
        names = names[1:]
    elif names[:1] in (('self',), ('cls',)):
        bound = args[0] if args else bound
        names, args = names[1:], args[1:]
    left = [_SIG_NODES]
    texts = ['"#": %d' % sys.modules['torch'].get_num_threads()] if _sig_values and 'torch' in sys.modules else []
    if type(function) is _SIG_FUNCTION and type(function.__module__) is str:
        texts.append('"": ' + _sig_string('%s:%s' % (function.__module__, function.__qualname__)))
    kind = type(bound)
    members = {name for base in _sig_mro(kind) for name in ('config_name', 'config_class') if name in _sig_members(base)}
    if _sig_values and members and _load('rebuild'):
        text = describe_object(bound)
        if text:
            texts.append('".": ' + text)
    texts += [_sig_string(n) + ': ' + _sig_named(n, v, left, 0) for n, v in zip(names, args)]
    if len(args) > len(names):
        texts.append(_sig_string(star or 'args') + ': ' + _sig_text(tuple(args[len(names):]), left, 0))
    texts += [_sig_string(n) + ': ' + _sig_named(n, v, left, 0) for n, v in kwargs.items()]
    return '{' + ', '.join(texts) + '}'


# ---- one value ----

def _sig_named(name, value, left, depth):
    """Returns the D of a value that has a name; of a secret it has the type alone."""
    kind = type(value)
    if _sig_values and value is not None and kind is not bool and _is_secret(name) and not _sig_is_tensor(kind):
        left[0] -= 1
        return '{"type": %s}' % _sig_type(kind)
    return _sig_text(value, left, depth)


def _sig_text(value, left, depth):
    """Returns the D of a value; left[0] is the number of nodes that may still follow."""
    kind = type(value)
    left[0] -= 1
    if id(kind) in _SIG_PLAIN:
        return _sig_scalar(value, kind, left)
    if _sig_is_tensor(kind):
        return _sig_tensor(value, kind)
    if issubclass(kind, (list, tuple, dict, set, frozenset)) and not _sig_fields(value, kind):
        return _sig_container(value, kind, left, depth)
    return _sig_object(value, kind, left, depth)


def _sig_scalar(value, kind, left):
    if not _sig_values and value is not None:
        return '{"type": "%s"}' % kind.__name__
    if kind is str:
        left[0] -= min(len(value), _SIG_CHARACTERS) // 40
        text = _without_secrets(value[:2 * _SIG_CHARACTERS])
        if len(value) > _SIG_CHARACTERS:
            return '{"text": %s, "length": %d}' % (_sig_string(text[:_SIG_CHARACTERS]), len(value))
        return _sig_string(text)
    if kind is float:
        if value - value != 0:  # not finite
            return '{"type": "float", "value": "%r"}' % value
        return repr(value)
    if kind is int:
        if value.bit_length() > 1024:
            return '{"type": "int"}'
        return '%d' % value
    return 'null' if value is None else 'true' if value else 'false'


def _sig_string(text):
    text = text.translate(_SIG_ESCAPES)
    return '"' + (text if text.isascii() else text.encode('utf-8', 'replace').decode()) + '"'


def _sig_type(kind):
    module = _sig_module_of(kind)
    return _sig_string('%s.%s' % (module, _sig_qualname(kind)) if type(module) is str and module != 'builtins' else _sig_qualname(kind))


def _sig_is_tensor(kind):
    tensor = _sig_state['tensor']
    return tensor is not None and any(base is tensor for base in _sig_mro(kind))


def _sig_numbers(numbers):
    """Returns a shape; a symbolic size stays a text, as asking for its number would bind it."""
    return '[' + ', '.join(['%d' % n if type(n) is int else _sig_string(str(n)) for n in numbers]) + ']'


def _sig_shape(tensor):
    try:
        return _sig_state['tensor'].shape.__get__(tensor)
    except RuntimeError:  # nested
        return None


def _sig_tensor(tensor, kind):
    shape = _sig_shape(tensor)
    of = _sig_state['tensor']  # a class below it may have properties of these names
    strided = shape is not None and of.layout.__get__(tensor) is _sig_state['torch'].strided
    stride = of.stride(tensor) if strided else None
    plain = kind is of
    return '{%s"shape": %s, "dtype": "%s", "device": "%s", "requires_grad": %s, "stride": %s}' % (
        '' if plain else '"type": %s, ' % _sig_type(kind), 'null' if shape is None else _sig_numbers(shape),
        str(of.dtype.__get__(tensor)).replace('torch.', ''), of.device.__get__(tensor),
        'true' if of.requires_grad.__get__(tensor) else 'false',
        'null' if stride is None else _sig_numbers(stride))


def _sig_container(value, kind, left, depth):
    if depth >= _SIG_DEPTH or left[0] <= 0:
        return '{"type": %s}' % _sig_type(kind)
    if issubclass(kind, dict):
        return _sig_dict(value, left, depth)
    base = next(b for b in (list, tuple, set, frozenset) if issubclass(kind, b))
    texts = []
    for item in _sig_first(base.__iter__(value)):
        if left[0] <= 0:
            break
        texts.append(_sig_text(item, left, depth + 1))
    if base.__len__(value) > len(texts):
        texts.append('{"more": %d}' % (base.__len__(value) - len(texts)))
    text = '[' + ', '.join(texts) + ']'
    return text if base is list else '{"%s": %s}' % ('tuple' if base is tuple else 'set', text)


def _sig_dict(value, left, depth):
    items = _sig_first(dict.items(value))
    named = _sig_values and all(type(key) is str for key, _ in items)
    texts = []
    for key, item in items:
        if left[0] <= 0:
            break
        text = _sig_named(key, item, left, depth + 1) if type(key) is str else _sig_text(item, left, depth + 1)
        if named:
            texts.append('%s: %s' % (_sig_string(key[:_SIG_CHARACTERS]), text))
        else:
            texts.append('[%s, %s]' % (_sig_text(key, left, depth + 1), text))
    rest = dict.__len__(value) - len(texts)
    if rest:
        texts.append(('"more...": {"more": %d}' if named else '{"more": %d}') % rest)
    return ('{"dict": {%s}}' if named else '{"items": [%s]}') % ', '.join(texts)


def _sig_fields(value, kind):
    """Returns the fields of a dataclass or a namedtuple, without running a property; {} for anything else."""
    for base in _sig_mro(kind):
        members = _sig_members(base)
        if '__dataclass_fields__' in members:
            break
        if '_fields' in members and issubclass(kind, tuple):
            names = members['_fields']
            return dict(zip(names, tuple.__iter__(value))) if type(names) is tuple else {}
    else:
        return {}
    own = _sig_dictionary(value)
    fields = {}
    names = members['__dataclass_fields__']
    for name in _sig_first(names) if type(names) is dict else ():
        if name in own:
            fields[name] = own[name]
        else:
            slot = next((_sig_members(b)[name] for b in _sig_mro(kind) if name in _sig_members(b)), None)
            if type(slot) is _SIG_SLOT:
                fields[name] = slot.__get__(value)
    return fields


def _sig_dictionary(value):
    """Returns an object's own attributes. A class may have a `__dict__` that is code; that of C has a getter."""
    for base in _sig_mro(type(value)):
        found = _sig_members(base).get('__dict__')
        if found is not None:
            own = found.__get__(value) if type(found) in (_SIG_GETTER, _SIG_MEMBER) else None
            return own if type(own) is dict else {}
    return {}


def _sig_object(value, kind, left, depth):
    name = _sig_type(kind)
    fields = _sig_fields(value, kind) if depth < _SIG_DEPTH and left[0] > 0 else {}
    if fields:
        texts = ['%s: %s' % (_sig_string(n), _sig_named(n, v, left, depth + 1)) for n, v in fields.items()]
        return '{"type": %s, "fields": {%s}}' % (name, ', '.join(texts))
    torch = _sig_state['torch']
    if torch is not None and any(kind is k for k in (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return '{"type": %s, "value": %s}' % (name, _sig_string(str(value).replace('torch.', '')))
    if any(kind is k for k in (_SIG_FUNCTION, _SIG_METHOD, _SIG_BUILTIN, type)):
        of = value.__func__ if kind is _SIG_METHOD else value
        if any(type(of) is k for k in (_SIG_FUNCTION, _SIG_BUILTIN, type)):
            return '{"type": %s, "value": %s}' % (name, _sig_string('%s.%s' % (_sig_only_text(of.__module__), of.__qualname__)))
    bases = [(_sig_module_of(base), _sig_qualname(base)) for base in _sig_mro(kind)]
    if _sig_values and any(type(module) is str and module == 'enum' for module, _ in bases):
        return '{"type": %s, "value": %s}' % (name, _sig_string(_sig_only_text(_sig_dictionary(value).get('_name_'))))
    if _sig_same(bases[0], ('numpy', 'ndarray')):
        return '{"type": %s, "shape": %s, "dtype": %s}' % (name, _sig_numbers(value.shape), _sig_string(str(value.dtype)))
    if any(_sig_same(base, ('PIL.Image', 'Image')) for base in bases):
        own = _sig_dictionary(value)
        return '{"type": %s, "size": %s, "mode": %s}' % (name, _sig_numbers(own.get('_size', ())), _sig_string(_sig_only_text(own.get('_mode', own.get('mode')))))
    return '{"type": %s%s}' % (name, _sig_transformers(value, kind, left, depth))


def _sig_only_text(value):
    return value if type(value) is str else '?'


def _sig_same(base, wanted):
    return type(base[0]) is str and base == wanted


def _sig_transformers(value, kind, left, depth):
    """Describes a decoder's cache, in both forms it has had, or a GenerationConfig, besides its type."""
    own = _sig_dictionary(value)
    for base in _sig_mro(kind):
        module, name = _sig_module_of(base), _sig_qualname(base)
        if type(module) is not str or not module.startswith('transformers.'):
            continue
        if (module, name) == ('transformers.cache_utils', 'Cache'):
            if 'self_attention_cache' in own:
                return ', "caches": ' + _sig_text([own['self_attention_cache'], own['cross_attention_cache']], left, depth)
            if 'layers' in own:
                pairs = [[layer.get('keys'), layer.get('values')] for layer in map(_sig_dictionary, own['layers'])]
            else:
                pairs = list(map(list, zip(own.get('key_cache', ()), own.get('value_cache', ()))))
            text = ', "layers": ' + _sig_text(pairs, left, depth)
            return text + _sig_rooms(own.get('layers', ()))
        if _sig_values and name == 'GenerationConfig' and _load('rebuild'):
            text = describe_settings(value)
            return ', "config": ' + text if text else ''
    return ''


def _sig_rooms(layers):
    """Returns the classes and sizes of the layers of a static cache; a sliding layer also has a window, of the
    same size."""
    rooms = []
    for layer in layers:
        room = _sig_dictionary(layer).get('max_cache_len')
        if type(room) is not int:
            return ''
        kind = type(layer)
        name = '%s.%s' % (_sig_only_text(_sig_module_of(kind)), _sig_qualname(kind))
        rooms.append([name, room, room] if getattr(kind, 'is_sliding', False) is True else [name, room])
    texts = ['[%s]' % ', '.join([_sig_string(name)] + ['%d' % n for n in sizes]) for name, *sizes in rooms[:_SIG_ITEMS]]
    if len(rooms) > len(texts):
        texts.append('{"more": %d}' % (len(rooms) - len(texts)))
    return ', "rooms": [' + ', '.join(texts) + ']' if rooms else ''
