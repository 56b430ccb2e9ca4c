"""targets - finds or makes the object of a stage, and the function that runs the stage once."""

import asyncio
import inspect
import math
import os
import sys

from tfharness_parts.inputs import SEED, Inputs
from tfharness_parts.trust import (METHODS, Problem, check_found, check_object, check_target, distrust, import_module, is_here,
                                   loads_code, plain, say, types_in)


def find_target(text, trust=True):
    """Returns the object named `module:Qual.name` or `path/to/file.py:Qual.name`; `make().part` is a part of what make()
    returns. Without trust the name is from a trace, and nothing is called."""
    if not text:
        raise Problem('the trace does not name the object of the stage; name it by --target module:obj, or edit build()')
    module, _, name = text.rpartition(':')
    if not module or not name:
        raise Problem(f'--target {text}: the form is module:obj or file.py:obj')
    if not trust:
        check_target(text)
    where = 0 if trust else len(sys.path)
    sys.path.insert(where, os.getcwd())
    if module.endswith('.py'):
        sys.path.insert(where, os.path.dirname(os.path.abspath(module)))
    found = import_module(module)
    owner = None
    for part in name.split('.'):
        called = trust and part.endswith('()')
        part = part[:-2] if called else part
        owner, found = found, getattr(found, part, None)
        if found is None:
            raise Problem(plain(f'{text}: {getattr(owner, "__name__", owner)} has no {part}; name an existing object by --target'))
        found = found() if called else found
        if not trust and inspect.ismodule(found):
            distrust(f'the stage is {text!r}, which leads into another module')
    if not trust:
        check_found(found, text)
    if inspect.isfunction(found) and inspect.isclass(owner) and not isinstance(owner.__dict__.get(part), staticmethod):
        return getattr(only_object_of(owner, text), part)
    return found


def only_object_of(kind, text):
    """Returns the object of a class that is a variable of the class's module, if there is exactly one."""
    found = {id(value): (name, value) for name, value in vars(sys.modules.get(kind.__module__)).items() if isinstance(value, kind)}
    if len(found) == 1:
        (name, value), = found.values()
        say(f'The object of {text} is {kind.__module__}:{name}')
        return value
    several = '; it has ' + ', '.join(f'{kind.__module__}:{name}' for name, _ in found.values()) if found else ''
    raise Problem(plain(f'{text} is a method and needs its object: name the object by --target module:obj, or edit build(){several}'))


def object_from(d, device=None):
    """Makes an object of diffusers or transformers from its configuration. Its weights are random, from the fixed seed."""
    import torch
    if 'left_out' in d:
        raise Problem(f'the trace lacks a part of the stage, {d["class"]}: {d["left_out"]}; name the stage by --target')
    kind, config = find_target(d['class']), d.get('config', {})
    if 'components' in d:
        parts = {name: object_from(part, device) if part else None for name, part in d['components'].items()}
        return kind(**parts, **config)
    if 'tokenizer' in d:
        from tokenizers import Tokenizer
        return kind(tokenizer_object=Tokenizer.from_str(d['tokenizer']), **config)
    torch.manual_seed(SEED)
    settings = getattr(kind, 'config_class', None)
    if settings:
        config = settings.from_dict(config)
        if 'attention' in d:
            config._attn_implementation = d['attention']
    made = kind(config) if settings else kind.from_config(config)
    if 'dtype' in d:
        made = made.to(device=Inputs(device).usable(d['device'], d['class']))
        if str(made.dtype) != f'torch.{d["dtype"]}':  # diffusers warns about each conversion
            made = made.to(dtype=getattr(torch, d['dtype']))
        made.train(d['training'])
    if 'steps' in d:
        shifted = getattr(made.config, 'use_dynamic_shifting', False)
        made.set_timesteps(d['steps'], **({'mu': 1.0} if shifted else {}))
    if 'begin' in d:
        made.set_begin_index(0)  # the harness runs the first step
    if 'index' in d:
        made._step_index = 0  # scale_model_input sets it before the step
    return made


def target_of(signature, device=None, trust=False):
    """Returns the stage: a function by its name, or a method of an object that can be made again."""
    described, target = signature.get('object'), signature.get('target')
    say(f'The trace says that the stage is {target!r}' + (f' of {described.get("class")!r}' if described else ''))
    say('The trace names these types: ' + (', '.join(sorted(types_in(signature))) or 'none'))
    chosen = loads_code([signature.get('input_signatures'), described])
    if chosen and not trust:
        distrust(f'the input or setting {chosen!r} makes a library load code or weights')
    if not described or not target:
        return find_target(target, trust)
    if not trust:
        check_object(described)
        if target.rpartition('.')[2] not in METHODS and not is_here(str(described['class']).rpartition(':')[0]):
            distrust(f'the stage is {target!r}')
    made, name = object_from(described, device), target.rpartition('.')[2]
    return made if name == '__call__' else method_of(made, target)


def method_of(made, target):
    """Returns the object's method named `module:Qual.name`: the one of this class, even if a subclass overrides it."""
    owner, _, name = target.rpartition('.')
    for kind in type(made).__mro__:
        if f'{kind.__module__}:{kind.__qualname__}' == owner and inspect.isfunction(kind.__dict__.get(name)):
            return kind.__dict__[name].__get__(made)
    return getattr(made, name)


def parameters_of(function):
    """Returns the parameters of a call by name; {} if the object is not callable or has no signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def needed(function, inputs):
    """Returns the inputs that a function takes."""
    parameters = parameters_of(function)
    takes_all = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    return {k: v for k, v in inputs.items() if takes_all or k in parameters}


def set_timesteps(stage, inputs):
    """Sets two timesteps, of which the first one is run."""
    wanted = {'shift': inputs.get('sigma_shift', 8.0)} if 'sigma_shift' in inputs or hasattr(stage, 'dit') else {}
    stage.scheduler.set_timesteps(2, **needed(stage.scheduler.set_timesteps, wanted))
    return stage.scheduler.timesteps


def dit_step(stage, inputs):
    """Runs one denoising step of a stage with a dit and a scheduler, as TeleFuser's stages do."""
    import torch
    steps = set_timesteps(stage, inputs)
    timestep = steps[0:1].to(dtype=stage.torch_dtype, device=stage.device)
    latents, reference, state = inputs.get('latents'), inputs.get('ref_latent'), None
    model_input = latents if reference is None else torch.cat([latents, reference], dim=1)
    if hasattr(stage.dit, 'sparse_attention_state'):
        state = stage.dit.create_sparse_state(numeral_timestep=1, layer_idx=0)
    with torch.autocast(device_type=stage.device_type, dtype=stage.torch_dtype):
        noise = stage.predict_noise_with_cfg(
            latents=model_input.to(stage.torch_dtype), timestep=timestep, prompt_emb_posi=inputs.get('prompt_emb_posi'),
            prompt_emb_nega=inputs.get('prompt_emb_nega'), clip_feature=inputs.get('clip_feature'),
            cfg_scale=inputs.get('cfg_scale', 5.0), sparse_state=state)
        return latents if noise is None else stage.scheduler.step(noise, steps[0], latents)


def lacks_for_dit_step(stage, signature):
    """Returns what dit_step() would miss; None if it has all."""
    if not hasattr(stage, 'predict_noise_with_cfg'):
        return 'predict_noise_with_cfg()'
    return 'latents' if signature and 'latents' not in signature.get('input_signatures', {}) else None


def scheduler_step(scheduler):
    """Returns a function that runs the scheduler's step at the first timestep, because a scheduler refuses any other."""
    if getattr(scheduler, 'num_inference_steps', None) is None:
        scheduler.set_timesteps(2)
    first = scheduler.timesteps[0]
    start = None if getattr(scheduler, '_step_index', None) is None else 0
    if hasattr(scheduler, 'is_scale_input_called'):
        scheduler.is_scale_input_called = True  # as the pipeline does; otherwise the scheduler warns

    def step(inputs):
        if hasattr(scheduler, '_step_index'):  # counts the steps, and would reach the last one
            scheduler._step_index = start
        return call(scheduler.step, {**inputs, 'timestep': first})
    return step


def pipeline_step(stage, inputs):
    """Calls a diffusers pipeline with one step. With a strength, as many steps are set as leave one."""
    strength = inputs.get('strength') or getattr(parameters_of(stage).get('strength'), 'default', None)
    count = math.ceil(1 / strength) if isinstance(strength, (int, float)) and 0 < strength <= 1 else 1
    first = {name: inputs[name][:count] for name in ('timesteps', 'sigmas') if inputs.get(name) is not None}
    return call(stage, {**inputs, **first, 'num_inference_steps': count})


def recorded_method(target, signature):
    """Returns the method that was the stage, of an object of its class; the object itself if it has no such method."""
    text = signature.get('target') or ''
    owner, _, name = text.rpartition('.')
    of_class = not inspect.isroutine(target) and not inspect.isclass(target) and any(
        f'{kind.__module__}:{kind.__qualname__}' == owner or kind.__qualname__ == owner.rpartition(':')[2] for kind in type(target).__mro__)
    return method_of(target, text) if of_class and name != '__call__' and hasattr(target, name) else target


def step_of(target, tell=say, signature=None):
    """Returns a function that runs the stage once with a dict of its inputs: by its own process() or call, as TeleFuser does.
    Only a stage with a dit and a scheduler runs a single step, which TeleFuser has for it."""
    if signature and not (hasattr(target, 'scheduler') and hasattr(target, 'dit')):
        target = recorded_method(target, signature)
    if inspect.isclass(target) or not (callable(target) or any(hasattr(target, n) for n in ('process', 'scheduler', 'set_timesteps'))):
        raise Problem(f'{target!r} cannot be called; name a function, or an object with process() or __call__')
    if hasattr(target, 'scheduler') and hasattr(target, 'dit'):
        lacks = lacks_for_dit_step(target, signature)
        if not (lacks and hasattr(target, 'process')):
            tell('Created DiT single-step function')
            return lambda inputs: dit_step(target, inputs)
        tell(f'A single step would need {lacks}, so all of process() runs')
    if hasattr(target, 'scheduler') and not hasattr(target, 'process') and 'num_inference_steps' in parameters_of(target):
        tell('Created pipeline single-step function')
        return lambda inputs: pipeline_step(target, inputs)
    owner = target if hasattr(target, 'set_timesteps') else getattr(target, '__self__', None)
    if hasattr(owner, 'set_timesteps') and getattr(target, '__name__', 'step') == 'step':
        tell('Created scheduler single-step function')
        return scheduler_step(owner)
    if hasattr(target, 'process') and not inspect.isroutine(target):
        tell('Using stage.process() as single-step function')
        return lambda inputs: call(target.process, inputs)
    return lambda inputs: call(target, inputs)


def check_takes(target, inputs):
    """A function that takes none of the inputs is no stage; perhaps it makes one."""
    if inspect.isfunction(target) and inputs and not needed(target, inputs) and not any(
            p.kind == p.VAR_POSITIONAL for p in parameters_of(target).values()):
        name = target.__name__
        raise Problem(f'{name} takes none of the inputs {list(inputs)}; if it returns the pipeline, name the stage as {name}().stage')


def call(function, inputs):
    """Calls a function with its arguments by name, and runs a coroutine or generator to its end."""
    given, positional, parameters = dict(inputs), [], parameters_of(function).values()
    star = next((p for p in parameters if p.kind == p.VAR_POSITIONAL and p.name in given), None)
    for p in parameters:
        if p.name in given and (p.kind == p.POSITIONAL_ONLY or (star and p.kind == p.POSITIONAL_OR_KEYWORD)):
            positional.append(given.pop(p.name))
    if star:
        positional += given.pop(star.name)
    result = function(*positional, **given)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    if inspect.isasyncgen(result):
        return asyncio.run(last_of(result))
    if inspect.isgenerator(result):
        for result in result:
            pass
    return result


async def last_of(generator):
    item = None
    async for item in generator:
        pass
    return item
