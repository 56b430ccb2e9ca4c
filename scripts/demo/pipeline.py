"""pipeline.py - a small text-to-image pipeline as people write them: it marks its stages and knows no profiler.

Two ranks split the batch and sum the noise of each step with all_reduce. It runs on a CPU; the numbers are random,
only the shape of the work is real.
"""

import os

import nvtx
import torch
import torch.distributed as dist
from torch import nn

STEPS, WIDTH, TOKENS = 4, 256, 64


def text_encoder():
    return nn.Sequential(nn.Embedding(1000, WIDTH), *(nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True) for _ in range(2)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, latents, text):
        return self.mlp(latents + self.attention(latents, text, text, need_weights=False)[0])


@nvtx.annotate('vae_decode', color='green', domain='demo')
def decode(latents):
    image = latents.transpose(1, 2).reshape(-1, 4, 64, 64)
    return torch.tanh(nn.functional.interpolate(image, scale_factor=4))


def main():
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)

    with torch.cuda.nvtx.range('load'):
        encoder, denoiser = text_encoder().eval(), Denoiser().eval()

    with torch.inference_mode():
        torch.cuda.nvtx.range_push('text_encode')
        text = encoder(torch.randint(0, 1000, (1, TOKENS)))
        torch.cuda.nvtx.range_pop()

        latents = torch.randn(1, TOKENS, WIDTH)
        with torch.cuda.nvtx.range('denoise'):
            for step in range(STEPS):
                with nvtx.annotate('step', payload=step):
                    noise = denoiser(latents, text)
                    with nvtx.annotate('exchange', color='red'):
                        dist.all_reduce(noise)
                    latents = latents - noise / (STEPS * dist.get_world_size())

        image = decode(latents)
    torch.cuda.nvtx.mark('first image')
    print(f'rank {rank} of {dist.get_world_size()} (local {os.environ["LOCAL_RANK"]}): image {tuple(image.shape)}', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
