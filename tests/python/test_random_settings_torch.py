"""test_random_settings_torch - programs of torch behave as without the library, whatever the variables say."""

import pytest

import random_settings
from conftest import ROOT, short_form
from random_settings import SEEDS

PIPELINES = ROOT / 'tests' / 'pipelines'
SMALL = '''
import asyncio, json, os, threading
import torch
from torch.profiler import record_function
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.manual_seed(3)
class Digits(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.full((4,), float(i))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(loader):
    total = 0
    for step, batch in enumerate(loader):
        with record_function(f'ProfilerStep#{step}'):
            with record_function('forward'):
                loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    return round(total, 3)
async def served(n):
    with record_function('served'):
        await asyncio.sleep(0)
        return json.dumps([n, torch.ones(n).sum().item()])
async def serve():
    return await asyncio.gather(*map(served, range(5)))
def main():
    print(train(DataLoader(Digits(), batch_size=2, num_workers=2)), train(DataLoader(Digits(), batch_size=4)))
    others = [threading.Thread(target=lambda: torch.ones(9).cumsum(0)) for _ in range(4)]
    [t.start() for t in others], [t.join() for t in others]
    print(asyncio.run(serve()))
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError as error:
        print(error)
if __name__ == '__main__':
    main()
    raise SystemExit(6)
'''
PROGRAMS = [('small',)] * 6 + [('diffusion', 'dit'), ('generate',), ('torchfx_chain',)]


@short_form(1, 'seed', SEEDS)
@pytest.mark.slow
@pytest.mark.sampled(12)
def test_programs_of_torch(run, python, analyze, tmp_path, seed):
    name, *arguments = random_settings.chosen(seed, PROGRAMS)
    script = tmp_path / 'small.py' if name == 'small' else PIPELINES / f'{name}.py'
    if name == 'small':
        script.write_text(SMALL)
    random_settings.check(run, analyze, seed, tmp_path, [python, script, *arguments], {'PYTHONPATH': PIPELINES})
