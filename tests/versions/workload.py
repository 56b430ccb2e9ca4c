"""workload - runs under torch.profiler whatever the matrix of torch's releases counts; works with torch 2.0 and newer.

    workload.py rows FOLDER      with shapes, FLOPs and memory: writes FOLDER/rows.json
    workload.py stacks FOLDER    with Python stacks and modules: writes FOLDER/stacks.json

What is counted lies in the range `measured`, which follows a first round: lazy parts of torch are loaded then.
"""

import sys
import warnings

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

warnings.simplefilter('ignore')
torch.set_num_threads(1)
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
        self.mixer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.mixer(self.body(x)))


def kinds_of_inputs(x, y):
    torch.add(x, y, alpha=2.5)
    torch.cat([y, y]), torch.stack([y, y], 1)
    torch.randn(2, 3, 4, 5, 6, 7).sum((1, 2))
    y.to(torch.bfloat16), y[torch.tensor([0, 1])], torch.arange(5), y.view(-1).split([2, 4])
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding=1, stride=2)
    torch.mul(y, True), torch.clamp(y, -1e11, 3), torch.complex(y, y) * (1 + 2j)
    torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 4, 5)), torch.baddbmm(torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5))
    torch.eye(3).to_sparse().to_dense()
    torch.empty(3, 4, device='meta').t()


def collectives(x):
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather([torch.empty_like(x)], x)
    for _ in range(3):
        dist.barrier()


def compiled():
    try:
        f = torch.compile(lambda a: (a * 2 + 1).relu().sum(), backend='aot_eager')
        f(torch.ones(4, requires_grad=True)).backward()
        return f
    except RuntimeError:  # a release that cannot compile for this Python
        return None


def main(what, folder):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(12, 5, 8), torch.randn(12, 5, 4))
    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    dist.init_process_group('gloo', init_method=f'file://{folder}/store-{what}', rank=0, world_size=1)
    f = compiled()

    def round_of_all():
        kinds_of_inputs(x, y)
        for a, b in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(a), b).backward()
            optimizer.step()
        collectives(torch.ones(6))
        if f:
            f(torch.ones(4, requires_grad=True)).backward()

    round_of_all()
    asked = {'rows': {'record_shapes': True, 'with_flops': True, 'profile_memory': True},
             'stacks': {'with_stack': True, 'with_modules': True}}[what]
    with profile(activities=[ProfilerActivity.CPU], **asked) as p:
        with record_function('measured'):
            round_of_all()
    p.export_chrome_trace(f'{folder}/{what}.json')
    if what == 'rows':
        flops = sorted(f'{e.name()} {e.flops()}' for e in p.profiler.kineto_results.events() if e.flops())
        with open(f'{folder}/flops.txt', 'w') as out:
            out.writelines(line + '\n' for line in flops)
    dist.destroy_process_group()


if __name__ == '__main__':
    main(*sys.argv[1:])
