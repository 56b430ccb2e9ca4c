"""test_signature - shim_signature.py's descriptions of arguments and results: names, kinds, limits, repetition."""

import dataclasses
import enum
import json
from collections import namedtuple

import pytest

from conftest import ROOT

Point = namedtuple('Point', 'x y')


class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass
class Batch:
    size: int
    items: list


class Guarded:
    """An object none of whose code may run."""

    def __getattr__(self, name):
        raise AssertionError(name)

    @property
    def shape(self):
        raise AssertionError('shape')


@pytest.fixture
def shim():
    """describe_call and describe_result, as JSON, in the shim's namespace without its other parts; no function and no threads."""
    namespace = {'_config': {'record_values': 1}, '_when_imported': lambda name, function: None, '_is_handlers': lambda error: False,
                 '_is_secret': lambda name: False, '_without_secrets': lambda text: text}
    source = (ROOT / 'preload/python/shim/shim_signature.py').read_text()
    exec(compile(source, 'shim_signature.py', 'exec'), namespace)

    def call(function, *args, name=None, **kwargs):
        text = namespace['describe_call'](function, args, kwargs, name)
        described = text and json.loads(text)
        if described:
            described.pop('', None)
            described.pop('#', None)
        return described

    def result(name, value):
        text = namespace['describe_result'](name, value)
        return text and json.loads(text)
    call.result = result
    call.text = lambda value: namespace['describe_result'](repr(id(value)), value)
    return call


def test_names_are_those_of_the_parameters(shim):
    class Stage:
        def run(self, words, /, scale=1.0, *rest, seed=None, **options):
            pass
    expected = {'words': 'a', 'scale': 2, 'rest': {'tuple': [3, 4]}, 'seed': 5, 'extra': True}
    assert shim(Stage.run, Stage(), 'a', 2, 3, 4, seed=5, extra=True) == expected
    assert shim(Stage().run, 'a', 2, 3, 4, seed=5, extra=True, name='bound') == expected


@pytest.mark.parametrize('value, described', [
    (None, None), (True, True), (7, 7), (1.5, 1.5), ('"\n\x00é', '"\n\x00é'), ('\udc80', '?'),
    (float('nan'), {'type': 'float', 'value': 'nan'}), (float('-inf'), {'type': 'float', 'value': '-inf'}),
    ([1, (2, {3})], [1, {'tuple': [2, {'set': [3]}]}]), ({'a': {'b': 1}}, {'dict': {'a': {'dict': {'b': 1}}}}),
    ({1: 'x', 'y': 2}, {'items': [[1, 'x'], ['y', 2]]}), (Point(1, 2), {'type': f'{__name__}.Point', 'fields': {'x': 1, 'y': 2}}),
    (Batch(1, [2]), {'type': f'{__name__}.Batch', 'fields': {'size': 1, 'items': [2]}}),
    (Mode.FAST, {'type': f'{__name__}.Mode', 'value': 'FAST'}), (Batch, {'type': 'type', 'value': f'{__name__}.Batch'}),
    (len, {'type': 'builtin_function_or_method', 'value': 'builtins.len'}), (object(), {'type': 'object'}),
    (Guarded(), {'type': f'{__name__}.Guarded'}), ('x' * 300, {'text': 'x' * 256, 'length': 300}),
    (list(range(40)), [*range(32), {'more': 8}])], ids=lambda _: '')  # ids by number: some texts have addresses
def test_values(shim, value, described):
    assert shim.result('stage', value) == described


def test_caches_of_decoders(shim):
    """A cache's description has its contents by layer, and the room of layers of fixed size."""
    def cache(**layers):
        made = type('Cache', (), {'__module__': 'transformers.cache_utils'})()
        made.layers = [type(name, (), {'is_sliding': 'Sliding' in name})() for name in layers]
        for layer, fields in zip(made.layers, layers.values()):
            vars(layer).update({'keys': None, 'values': 7, **fields})
        return made
    kind = {'type': 'transformers.cache_utils.Cache'}
    assert shim.result('grows', cache(Layer={})) == {**kind, 'layers': [[None, 7]]}
    assert shim.result('empty', cache()) == {**kind, 'layers': []}
    assert shim.result('fixed', cache(Layer={'max_cache_len': 9}, Sliding={'max_cache_len': 4})) == {
        **kind, 'layers': [[None, 7]] * 2, 'rooms': [[f'{__name__}.Layer', 9], [f'{__name__}.Sliding', 4, 4]]}


def test_size_is_bounded(shim):
    wide = [[['text' * 50] * 50] * 50] * 50
    deep = []
    deep.append(deep)
    text = shim.text(wide)
    assert 1000 < len(text) < 40000 and json.loads(text)
    assert json.loads(shim.text(deep)) == [[[[[[{'type': 'list'}]]]]]]
    assert shim.result('huge', 1 << 100000) == {'type': 'int'}


def test_said_once_until_types_or_lengths_change(shim):
    def stage(value):
        pass
    assert shim(stage, 1) == {'value': 1} and shim(stage, 2) is None
    assert shim(stage, 'now a text') and shim(stage, [1]) and shim(stage, [1, 2]) and shim(stage, [3, 4]) is None
    assert shim(stage, 1) is None and shim(stage, 1, name='other') == {'value': 1}
    assert [shim.result('counted', [0] * n) is not None for n in range(20)] == [True] * 16 + [False] * 4


RAN = []


class Reporting(type):
    """A metaclass whose every method reports that it ran."""

    def __getattribute__(cls, name):
        RAN.append(name)
        return super().__getattribute__(name)

    def __eq__(cls, other):
        RAN.append('==')
        return True

    def __hash__(cls):
        RAN.append('hash')
        return 1

    def __instancecheck__(cls, other):
        RAN.append('isinstance')
        return True

    def __subclasscheck__(cls, other):
        RAN.append('issubclass')
        return True


def reports(name):
    def method(self, *args):
        RAN.append(name)
        raise AttributeError(name)
    return method


HOSTILE = ['__getattribute__', '__getattr__', '__repr__', '__str__', '__len__', '__iter__', '__eq__', '__hash__', '__bool__', '__index__', '__format__',
           '__float__', '__get__', '__call__', '__contains__', '__getitem__', '__next__', '__enter__', '__exit__', '__reduce__', 'keys', 'items', 'values']
LOUD = {name: reports(name) for name in HOSTILE}
PROPERTIES = {name: property(reports(name)) for name in ('shape', 'dtype', 'device', 'layout', 'size', 'mode', '__class__', '__dict__', 'config', '_fields')}


def hostile_values():
    Quiet = type('Quiet', (), {})
    for bases in (), (list,), (dict,), (tuple,), (set,), (str,), (int,), (float,):
        yield type('Loud', bases, {**LOUD, **PROPERTIES})()
        yield Reporting('Of', bases, {})()
    yield Reporting('Class', (), {})
    for module in (type('Text', (), LOUD)(), 5):
        yield type('Placed', (), {'__module__': module})()
    field = dataclasses.make_dataclass('Field', ['a'])(type('Loud', (), LOUD)())
    kept = Quiet()
    kept.config_name = type('Loud', (), LOUD)()
    yield from ([field], {1: field}, {type('Key', (), {**LOUD, '__hash__': object.__hash__})(): 1}, kept, Point(1, type('Loud', (), LOUD)()), len, hostile_values)
    plain = lambda: None  # noqa: E731
    plain.__module__ = type('Loud', (), LOUD)()
    yield plain


def test_no_code_of_the_program_runs(shim):
    """Objects and classes with every special method, and metaclasses with their own."""
    kept = []
    values = list(hostile_values())
    for value, one in [(value, one) for value in values for one in (value, [value], {'key': value})]:
        kept.append(one)  # shim.text tells values apart by their addresses
        RAN.clear()
        text = shim.text(one)
        shim(lambda x: None, one, name=str(id(one)))
        assert not RAN, (RAN, type.__repr__(type(value)))
        assert text and json.loads(text) is not None, type.__repr__(type(value))
