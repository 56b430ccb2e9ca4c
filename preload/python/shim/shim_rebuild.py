"""shim_rebuild - describes how to make an object of diffusers or transformers again, with other weights.

describe_object() describes an object, describe_settings() the settings that are given to one. A script that runs one
stage alone needs the object whose method the stage is. Objects of these libraries are made from a configuration,
which is small; the weights are not kept. The description is an object of

    "class": "module:Qual.name"
    "config": {...}               the configuration that the class is made from
    "attention": "eager"          of a model of transformers; by part: {"": "sdpa", "vision_config": "eager"}
    "dtype", "device", "training" of a torch module
    "steps": 28, "begin": 0       of a scheduler: its number of steps, and the one at which its pipeline let it begin
    "index": 3                    of a scheduler that knew its step before the call
    "components": {"vae": {...}, "image_encoder": null, ...}     of a pipeline: its parts, each described like this
    "tokenizer": "..."            of a fast tokenizer: its own JSON
    "grad": false                 whether torch recorded gradients then; in the outermost one only
    "left_out": "why"             instead of the description, if that would be too long or the object is of another kind

Called once for each description of a call, so that its cost does not count; only the libraries' own code is run.
"""

import sys

_REBUILD_BYTES = 24576  # of one part; the whole has to fit into one text of the trace


def describe_object(value):
    """JSON of the description, or None for an object of another kind."""
    try:
        found = _rebuild_of(value, 0)
        if found is None or 'left_out' in found:
            return None
        found['grad'] = sys.modules['torch'].is_grad_enabled()
        text = sys.modules['json'].dumps(found)
        return text if len(text) < 2 * _REBUILD_BYTES else None
    except Exception:
        return None


def describe_settings(value):
    """JSON of a GenerationConfig's settings, None if it is too long."""
    text = sys.modules['json'].dumps(_rebuild_plain(value.to_dict()))
    return text if len(text) < _REBUILD_BYTES else None


def _rebuild_of(value, depth):
    if value is None:
        return None
    kind = type(value)
    names = {base.__name__ for base in kind.__mro__}
    found = {'class': '%s:%s' % (kind.__module__, kind.__qualname__)}
    if 'DiffusionPipeline' in names and depth == 0:
        parts = value.components
        found['components'] = {name: _rebuild_of(part, 1) for name, part in parts.items()}
        found['config'] = _rebuild_plain({k: v for k, v in value.config.items() if k not in parts and k[:1] != '_'})
    elif 'PreTrainedModel' in names:
        found['config'] = _rebuild_plain(value.config.to_dict())
        _rebuild_attention(found, value.config)
    elif 'ConfigMixin' in names:
        found['config'] = _rebuild_plain(dict(value.config))
    elif 'PreTrainedTokenizerFast' in names:
        _rebuild_tokenizer(found, value)
    else:
        return {'left_out': 'a %s is not made from a configuration' % kind.__qualname__} if depth else None
    if 'Module' in names and 'config' in found:
        found.update(dtype=str(value.dtype).replace('torch.', ''), device=str(value.device), training=value.training)
    if 'SchedulerMixin' in names and getattr(value, 'num_inference_steps', None):
        found['steps'] = int(value.num_inference_steps)
        if getattr(value, 'begin_index', None) is not None:
            found['begin'] = int(value.begin_index)
        if getattr(value, 'step_index', None) is not None:
            found['index'] = int(value.step_index)
    return found


def _rebuild_attention(found, config):
    """Adds the attention that was chosen when the model was made, which its configuration leaves out."""
    parts = {'': config, **{name: getattr(config, name, None) for name in getattr(config, 'sub_configs', ())}}
    chosen = {name: getattr(part, '_attn_implementation', None) for name, part in parts.items()}
    if chosen['']:
        same = all(one in (chosen[''], None) for one in chosen.values())
        found['attention'] = chosen[''] if same else {name: one for name, one in chosen.items() if one}


def _rebuild_tokenizer(found, value):
    text = value.backend_tokenizer.to_str()
    if len(text) > _REBUILD_BYTES:
        found['left_out'] = 'a vocabulary of %d bytes' % len(text)
    else:
        found['tokenizer'] = text
        found['config'] = _rebuild_plain({'model_max_length': value.model_max_length, **value.special_tokens_map})


def _rebuild_plain(config):
    """Returns the configuration without values that JSON lacks."""
    dumps = sys.modules['json'].dumps
    plain = {}
    for name, item in config.items():
        try:
            dumps(item, allow_nan=False)
        except (TypeError, ValueError):
            item = getattr(item, 'tolist', lambda: None)()
        if item is not None or config[name] is None:
            plain[name] = item
    return plain
