"""test_harness_inputs - the inputs that tfharness makes from a signature: tensors, containers, caches, objects of libraries."""

import pytest

from conftest import ROOT
from forked import PIPELINES

pytest_plugins = ['asking_harness']
DTYPES = ['float64', 'float32', 'float16', 'bfloat16', 'float8_e4m3fn', 'float8_e5m2', 'float8_e4m3fnuz', 'float8_e8m0fnu',
          'float4_e2m1fn_x2', 'complex64', 'complex128', 'complex32', 'int64', 'int32', 'int16', 'int8', 'uint8', 'uint16', 'uint32',
          'uint64', 'bool', 'qint8', 'quint8']


def test_dtypes(ask):
    """Every dtype has its shape; integers are small and not negative, so usable as indices; booleans are both."""
    answers = ask(f'''
for name in {DTYPES}:
    t, notes = make(T([40, 3], name))
    v = t if t.dtype in (torch.float32, torch.int64) else t.dequantize() if t.is_quantized else t.to(torch.int64) if not (
        t.is_floating_point() or t.is_complex()) else t.to(torch.complex64) if t.is_complex() else None
    low, high = (None, None) if v is None or v.is_complex() else (v.min().item(), v.max().item())
    answers.append([name, str(t.dtype), list(t.shape), notes, low, high, v is not None and v.is_complex() and bool(v.imag.any())])
''')
    assert [a[0] for a in answers] == DTYPES
    for name, dtype, shape, notes, low, high, is_complex in answers:
        assert dtype == f'torch.{name}' and shape == [40, 3] and notes == []
        if name in ('int64', 'int32', 'int16', 'int8', 'uint16', 'uint32', 'uint64'):
            assert (low, high) == (0, 9)
        if name == 'uint8':
            assert 0 <= low < 30 and 226 < high <= 255
        if name == 'bool':
            assert (low, high) == (0, 1)
        if name == 'float32':
            assert low < -1 and 1 < high < 6
        assert is_complex == name.startswith('complex')


def test_strides_grads_and_classes(ask):
    answers = ask('''
for d in (T([2, 3], stride=[1, 2]), T([4, 3], stride=[0, 1]), T([2, 3], stride=[3, 1]), T([2, 2], stride=[10, 5]), T([], stride=[]),
          T([0, 3], stride=[3, 1]), T([3], grad=True), T([3], 'int64', grad=True), T([2, 3], stride=[1, 2], grad=True),
          T([2], grad=True, type='torch.nn.parameter.Parameter'), T([2], type='m.Sub'), T(['s0', 3])):
    t, notes = make(d)
    answers.append([list(t.shape), list(t.stride()), t.requires_grad, t.is_leaf, type(t).__name__, notes])
a, b = make(T([5]))[0], make(T([5]))[0]
answers.append(bool((a == b).all()))
for stride in (None, [1, 40]):
    mask = tfharness.Inputs().value(T([40, 40], 'int64', stride=stride), 'encoder_attention_mask')
    answers.append(mask.unique().tolist())
''')
    assert answers[0] == [[2, 3], [1, 2], False, True, 'Tensor', []]
    assert [a[1] for a in answers[:6]] == [[1, 2], [0, 1], [3, 1], [10, 5], [], [3, 1]]
    assert [a[2] for a in answers[6:10]] == [True, False, True, True] and all(a[3] for a in answers[:12])
    assert answers[9][4] == 'Parameter' and answers[8][1] == [1, 2]
    assert answers[10][5] == ['x: the value was a m.Sub; it is a plain tensor here']
    assert answers[11][0] == [1, 3] and 'that are not numbers become 1' in answers[11][5][0]
    assert answers[12] is True  # the same seed
    assert answers[13:] == [[0, 1]] * 2


def test_nested_values(ask):
    answers = ask('''
D = {'dict': {'a': [T([2]), {'tuple': [1, 'x', None, True, 2.5]}], 'more...': {'more': 3}}}
v, notes = make(D)
answers.append([list(v), list(v['a'][0].shape), repr(v['a'][1]), notes])
answers.append([len(make([T([3]), {'more': 4}])[0]), sorted(make({'set': [1, 2, {'type': 'm.X'}]})[0], key=str) == [1, 2, None]])
answers.append([make({'text': 'abc', 'length': 8})[0], repr(make({'items': [[1, 'a'], [{'tuple': [2]}, 'b'], {'more': 2}]})[0])])
answers.append([repr(make({'type': 'float', 'value': 'nan'})[0]), repr(make({'type': 'torch.dtype', 'value': 'float16'})[0]),
                repr(make({'type': 'torch.device', 'value': 'cpu'})[0]), make({'type': 'function', 'value': 'values.double'})[0](2) == 4 and make({'type': 'function', 'value': 'json.dumps'})[0] is None,
                make({'type': 'type', 'value': 'values.Kind'})[0].__name__, make({'type': 'values.Kind', 'value': 'SLOW'})[0].value])
point, notes = make({'type': 'values.Point', 'fields': {'x': 1, 'y': T([2])}})
answers.append([type(point).__name__, point.x, list(point.y.shape), notes])
pair, _ = make({'type': 'values.Pair', 'fields': {'left': 1, 'right': 2}})
answers.append([repr(pair)])
odd, notes = make({'type': 'gone.Point', 'fields': {'x': 1}})
answers.append([odd.x, notes])
answers.append([*make({'type': 'm.Thing'})])
array, _ = make({'array': {'type': 'numpy.ndarray', 'shape': [2, 3], 'dtype': 'uint8'}})
answers.append([list(array.shape), str(array.dtype)])
answers.append([*make({'tensor': {'type': 'm.N', 'shape': None, 'dtype': 'float32', 'device': 'cpu'}})])
''', values='''
import collections, dataclasses, enum
def double(x):
    return 2 * x
class Kind(enum.Enum):
    FAST = 1
    SLOW = 2
@dataclasses.dataclass
class Point:
    x: int
    y: object
Pair = collections.namedtuple('Pair', 'left right')
''')
    assert answers[0] == [['a'], [2], "(1, 'x', None, True, 2.5)", []]
    assert answers[1] == [5, True]
    assert answers[2] == ['abcabcab', "{1: 'a', (2,): 'b'}"]
    assert answers[3] == ['nan', 'torch.float16', "device(type='cpu')", True, 'Kind', 2]
    assert answers[4] == ['Point', 1, [2], []] and answers[5] == ['Pair(left=1, right=2)']
    assert answers[6][0] == 1 and 'a gone.Point cannot be made from its fields alone' in answers[6][1][0]
    assert answers[7] == [None, ['x: a m.Thing cannot be made from a signature; the value is None']]
    assert answers[8] == [[2, 3], 'uint8']
    assert answers[9] == [None, ['x: a m.N without a shape cannot be made; the value is None']]


@pytest.mark.xdist_group('diffusers')
def test_caches_and_settings_of_transformers(ask):
    """A cache of 40 layers is made from 32 descriptions; one that needs more than its contents is not made."""
    answers = ask('''
PAIR = [T([1, 2, 5, 4]), T([1, 2, 5, 4])]
cache, notes = make({'type': 'transformers.cache_utils.DynamicCache', 'layers': [PAIR] * 32 + [{'more': 8}]})
answers.append([len(cache.layers), cache.get_seq_length(), list(cache.layers[39].keys.shape), notes])
answers.append([*make({'type': 'transformers.cache_utils.StaticCache', 'layers': [PAIR]})])
STATIC = {'type': 'transformers.cache_utils.StaticCache'}
ROOM = ['transformers.cache_utils.StaticLayer', 5]
for pair, rooms in ((PAIR, [ROOM]), ([None, None], [ROOM, ['transformers.cache_utils.StaticSlidingWindowLayer', 3, 3]])):
    cache, notes = make(dict(STATIC, layers=[pair] * len(rooms), rooms=rooms))
    answers.append([type(cache).__name__, [layer.max_cache_len for layer in cache.layers], int(cache.get_seq_length()), notes])
def agreed(target='m:f', **inputs):
    made = tfharness.Inputs().all_of({'target': target, 'input_signatures': inputs})
    return made['cache_position'].tolist() if 'cache_position' in made else made['attention_mask'].min().item()
DYNAMIC = {'type': 'transformers.cache_utils.DynamicCache', 'layers': [PAIR]}
PLACES, MASK = T([2], 'int64'), T([1, 64], 'int64')
answers.append([agreed(cache_position=PLACES, past_key_values=c) for c in (
    None, DYNAMIC, dict(STATIC, layers=[PAIR], rooms=[ROOM]), dict(STATIC, layers=[[None, None]], rooms=[ROOM]))])
answers.append([agreed(attention_mask=MASK, past_key_values=None), agreed('m:C.generate', attention_mask=MASK), agreed(attention_mask=MASK),
                agreed(attention_mask=T([2, 64], 'int64'), past_key_values=None)])
config, notes = make({'type': 'transformers.generation.configuration_utils.GenerationConfig', 'config': {'max_new_tokens': 9}})
answers.append([config.max_new_tokens, notes])
answers.append([*make({'type': 'gone.GenerationConfig', 'config': {}})])
''', imports=PIPELINES)
    assert answers[0] == [40, 5, [1, 2, 5, 4], []]
    assert answers[1][0] is None and answers[1][1][0].startswith('x: a transformers.cache_utils.StaticCache cannot be made (')
    assert answers[2:4] == [['StaticCache', [5], 5, []], ['StaticCache', [5, 3], 0, []]]
    assert answers[4] == [[0, 1], [5, 6], [3, 4], [0, 1]]
    assert answers[5] == [1, 1, 0, 0]
    assert answers[6] == [9, []] and answers[7][0] is None and len(answers[7][1]) == 1


@pytest.mark.xdist_group('diffusers')
def test_objects_made_again(ask):
    """Objects are made again with a model's attention, its own or its parts', and with a scheduler's step.

    A stage is a method of the class that defines it, and diffusers has no reason to warn."""
    answers = ask(f'''
import builtins, io, logging
from diffusers import EulerDiscreteScheduler, UNet1DModel
from transformers import CLIPConfig, CLIPModel, GPT2Config, GPT2LMHeadModel, WhisperConfig, WhisperForConditionalGeneration
shim = {{}}
exec(open({str(ROOT / "preload/python/shim/shim_rebuild.py")!r}).read(), shim)
def again(value, target):
    described = json.loads(shim["describe_object"](value))
    return described, tfharness.target_of({{"object": described, "target": target}})
PARTS = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
config = CLIPConfig(text_config=dict(PARTS, vocab_size=9), vision_config=dict(PARTS, image_size=4, patch_size=2), projection_dim=4)
config._attn_implementation = {{"": "sdpa", "vision_config": "eager"}}
described, forward = again(CLIPModel(config), "m:C.forward")
made = forward.__self__.config
answers.append([described["attention"], made._attn_implementation, made.vision_config._attn_implementation, made.text_config._attn_implementation])
for chosen in ({{}}, {{"attn_implementation": "eager"}}):
    _, forward = again(GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, **chosen)), "m:C.forward")
    answers.append(forward.__self__.config._attn_implementation)
small = dict(d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=4, decoder_ffn_dim=4)
whisper = WhisperForConditionalGeneration(WhisperConfig(vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=1, decoder_start_token_id=2, **small))
for target in ("transformers.generation.utils:GenerationMixin.generate", "transformers.models.whisper:Other.generate"):
    answers.append(again(whisper, target)[1].__qualname__)
scheduler = EulerDiscreteScheduler()
scheduler.set_timesteps(3)
answers.append(again(scheduler, "m:C.step")[1].__self__.step_index)
for t in scheduler.timesteps[:2]:
    scheduler.scale_model_input(torch.zeros(1), t)
    scheduler.step(torch.zeros(1), t, torch.zeros(1))
answers.append(again(scheduler, "m:C.step")[1].__self__.step_index)
said = io.StringIO()
logging.getLogger("diffusers").addHandler(logging.StreamHandler(said))
unet = UNet1DModel(block_out_channels=(8, 8), down_block_types=("DownBlock1D",) * 2, up_block_types=("UpBlock1D",) * 2, norm_num_groups=2)
answers.append([str(again(unet, "m:C.forward")[1].__self__.dtype), said.getvalue()])
answers.append(str(again(unet.to(torch.float64), "m:C.forward")[1].__self__.dtype))
''', imports=PIPELINES)
    assert answers[0] == [{'': 'sdpa', 'text_config': 'sdpa', 'vision_config': 'eager'}, 'sdpa', 'eager', 'sdpa']
    assert answers[1:3] == ['sdpa', 'eager']
    assert answers[3:5] == ['GenerationMixin.generate', 'WhisperGenerationMixin.generate']
    assert answers[5:7] == [None, 0]
    assert answers[7:] == [['torch.float32', ''], 'torch.float64']


def test_missing_devices(ask):
    answers = ask('''
t, notes = make(T([2], device='xpu:3'))
answers.append([str(t.device), notes])
t, notes = make(T([2], device='cpu'), device='meta')
answers.append([str(t.device), notes])
try:
    make(T([2], 'float7'))
except tfharness.Problem as e:
    answers.append(str(e))
''')
    assert answers[0] == ['cpu', ['x: this machine has no xpu:3; the tensor is on the cpu']]
    assert answers[1] == ['meta', []]
    assert answers[2].startswith('x: torch ') and 'has no dtype float7' in answers[2]
