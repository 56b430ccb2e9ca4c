"""diffusion - diffusers pipelines, tiny and with random weights: DiT, Stable Diffusion 3, Flux and Wan.

    python diffusion.py [dit] [sd3] [flux] [wan]      (default: all four)

sd3 also repaints its picture by the image-to-image pipeline, which has the same parts. Each pipeline prints a checksum
of its picture or video. This script runs torch.profiler around all of them if PROFILE names a file for its trace, or
TABLE a file for its printed table. DEVICE is the models' device. Under torchrun every rank makes its own pictures, and
the ranks add up their checksums.
"""

import os
import sys

import numpy
import torch
from diffusers import (AutoencoderKL, AutoencoderKLWan, DDIMScheduler, DiTPipeline, DiTTransformer2DModel,
                       FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel, SD3Transformer2DModel,
                       StableDiffusion3Img2ImgPipeline, StableDiffusion3Pipeline, WanPipeline, WanTransformer3DModel)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, PreTrainedTokenizerFast, T5Config,
                          T5EncoderModel)

import at_rest
import journal

STEPS = 3
WORDS = 'a red fox runs over the snow at night while stars fall'.split()


def tokenizer(length):
    vocabulary = {w: i for i, w in enumerate(['<pad>', '<unk>', '</s>', *WORDS])}
    base = Tokenizer(models.WordLevel(vocabulary, unk_token='<unk>'))
    base.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=base, pad_token='<pad>', unk_token='<unk>', eos_token='</s>',
                                   model_max_length=length)


def clip(kind=CLIPTextModel):
    return kind(CLIPTextConfig(vocab_size=64, hidden_size=32, intermediate_size=37, num_hidden_layers=2, projection_dim=32,
                               num_attention_heads=4, max_position_embeddings=32, bos_token_id=0, eos_token_id=2,
                               pad_token_id=0)).eval()


def t5():
    return T5EncoderModel(T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)).eval()


def vae(channels):
    return AutoencoderKL(sample_size=32, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=2,
                         down_block_types=('DownEncoderBlock2D',) * 2, up_block_types=('UpDecoderBlock2D',) * 2,
                         latent_channels=channels, shift_factor=0.06, scaling_factor=1.5, use_quant_conv=False,
                         use_post_quant_conv=False).eval()


def dit():
    transformer = DiTTransformer2DModel(sample_size=8, num_layers=2, patch_size=4, attention_head_dim=8,
                                        num_attention_heads=2, in_channels=4, out_channels=8, num_embeds_ada_norm=1000)
    pipe = DiTPipeline(transformer=transformer.eval(), vae=vae(4), scheduler=DDIMScheduler())
    return pipe, lambda seed: pipe([1], num_inference_steps=STEPS, generator=seed, output_type='np').images


def sd3():
    transformer = SD3Transformer2DModel(sample_size=8, patch_size=1, in_channels=4, num_layers=2, attention_head_dim=8,
                                        num_attention_heads=4, caption_projection_dim=32, joint_attention_dim=64,
                                        pooled_projection_dim=64, out_channels=4)
    pipe = StableDiffusion3Pipeline(
        transformer=transformer.eval(), scheduler=FlowMatchEulerDiscreteScheduler(), vae=vae(4),
        text_encoder=clip(CLIPTextModelWithProjection), tokenizer=tokenizer(16),
        text_encoder_2=clip(CLIPTextModelWithProjection), tokenizer_2=tokenizer(16), text_encoder_3=None, tokenizer_3=None)
    again = StableDiffusion3Img2ImgPipeline(**pipe.components)
    again.set_progress_bar_config(disable=True)

    def call(seed):
        first = pipe(' '.join(WORDS), height=16, width=16, num_inference_steps=STEPS, guidance_scale=5.0, generator=seed,
                     output_type='pt').images
        with journal.entry(type(again).__name__):
            return again('night', image=first, height=16, width=16, num_inference_steps=STEPS, strength=0.67,
                         generator=seed, output_type='np').images
    return pipe, call


def flux():
    transformer = FluxTransformer2DModel(patch_size=1, in_channels=16, num_layers=1, num_single_layers=1,
                                         attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
                                         pooled_projection_dim=32, axes_dims_rope=[4, 4, 8])
    pipe = FluxPipeline(transformer=transformer.eval(), scheduler=FlowMatchEulerDiscreteScheduler(), vae=vae(4),
                        text_encoder=clip(), tokenizer=tokenizer(16), text_encoder_2=t5(), tokenizer_2=tokenizer(16))
    return pipe, lambda seed: pipe(' '.join(WORDS), height=16, width=16, num_inference_steps=STEPS, max_sequence_length=16,
                                   generator=seed, output_type='pil').images


def wan():
    transformer = WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=16,
                                        out_channels=16, text_dim=32, freq_dim=256, ffn_dim=32, num_layers=2,
                                        cross_attn_norm=True, qk_norm='rms_norm_across_heads', rope_max_seq_len=32)
    decoder = AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
                               temperal_downsample=[False, True, True])
    pipe = WanPipeline(transformer=transformer.eval(), scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
                       vae=decoder.eval(), text_encoder=t5(), tokenizer=tokenizer(16))
    return pipe, lambda seed: pipe(' '.join(WORDS), negative_prompt='night', height=16, width=16, num_frames=5,
                                   num_inference_steps=STEPS, max_sequence_length=16, generator=seed,
                                   output_type='np').frames


def watch(pipe):
    """Journals the calls that the pipeline itself can see: the torch modules' forward calls, and the decoder's."""
    for name, part in pipe.components.items():
        if isinstance(part, torch.nn.Module):
            if name == 'vae':
                journal.watch(part.decoder, 'vae.decoder')
            else:
                journal.watch(part, name)


def run(name):
    torch.manual_seed(7)
    pipe, call = {'dit': dit, 'sd3': sd3, 'flux': flux, 'wan': wan}[name]()
    pipe.set_progress_bar_config(disable=True)
    pipe.to(os.environ.get('DEVICE', 'cpu'))
    watch(pipe)
    with journal.entry(type(pipe).__name__):
        out = call(torch.Generator().manual_seed(int(os.environ.get('RANK', '0'))))
    pixels = torch.as_tensor(numpy.stack([numpy.asarray(picture) for picture in out])).double()
    total = pixels.nan_to_num().sum()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(total)
    print(f'{name} {list(pixels.shape)} {total.item():.6f}', flush=True)


def main():
    torch.set_num_threads(1)
    if 'RANK' in os.environ:
        torch.distributed.init_process_group('gloo')
    names = sys.argv[1:] or ['dit', 'sd3', 'flux', 'wan']
    path = journal.path_of('PROFILE')
    if path:
        with torch.profiler.profile(record_shapes=True, profile_memory=True) as profile:
            for name in names:
                run(name)
        profile.export_chrome_trace(path)
        journal.table(profile)
    else:
        for name in names:
            run(name)
    if 'RANK' in os.environ:
        torch.distributed.destroy_process_group()
        at_rest.wait_for_threads()


if __name__ == '__main__':
    main()
