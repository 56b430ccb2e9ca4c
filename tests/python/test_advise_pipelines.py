"""test_advise_pipelines - `tfanalyze advise` on pipelines that are recorded here, with a fault planted and mended."""

import json

import pytest

from conftest import clean_environment, execute

PROGRAM = """
import sys, torch
torch.set_num_threads(1)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        if sys.argv[1] == 'slow':
            sum(k * k for k in range(60_000))
        return made[i]

made = torch.randn(48, 1024)
model, total = torch.nn.Linear(1024, 1024), 0
for batch in torch.utils.data.DataLoader(Samples(), batch_size=8):
    with torch.inference_mode():
        for _ in range(100):
            total += model(batch).sum().item()
print(total)
"""


@pytest.mark.slow
def test_a_slow_dataset(tfanalyze, lib, python, tmp_path):
    """A dataset that computes each sample makes the loader the first finding; with samples that are there it is silent."""
    (tmp_path / 'program.py').write_text(PROGRAM)
    found = {}
    for form in ('slow', 'fast'):
        result = execute([python, tmp_path / 'program.py', form], clean_environment() | {
            'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / form)}, tmp_path, 120)
        assert result.rc == 0, result.err
        answer = execute([tfanalyze, 'budget,advise', tmp_path / form, '--format', 'json'], clean_environment(), tmp_path, 60)
        assert answer.rc == 0, answer.err
        found[form] = json.loads(answer.out)
    budget, advice = found['slow']
    loader = {row['leaf']: row['us'] for row in budget['rows']}['waiting/data loader']
    assert (advice['rows'][0]['id'], advice['rows'][0]['headroom_us']) == ('data-loader', loader)
    assert not [row for row in found['fast'][1]['rows'] if row['id'] == 'data-loader']
    assert 'devices' in {row['what'] for row in advice['totals']['not_judged']}
