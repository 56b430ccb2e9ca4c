"""profiled - a pipeline that runs torch.profiler itself, by a schedule, inside its own stages.

PROFILE names the file of its trace; STACKS=1 asks the profiler for stacks. It prints names and counts of the profiled
operators.
"""

import os

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import at_rest
import journal

torch._lazy_modules.discard('_inductor')  # otherwise torch.profiler imports it, which takes two seconds

STEPS = 6


def block(weights, x):
    with record_function('block'), journal.entry('block'):
        return torch.relu(torch.nn.functional.layer_norm(x @ weights, [16]))


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    weights = torch.randn(16, 16, requires_grad=True)
    older = [torch.empty(1000) for _ in range(4)]
    path = journal.path_of('PROFILE')

    def ready(session):
        if path:
            session.export_chrome_trace(path)
        rows = sorted((row.key, row.count) for row in session.key_averages() if not row.key.startswith('['))
        print('profiled', rows)

    with record_function('run'), journal.entry('run'):
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
                     on_trace_ready=ready, record_shapes=True, profile_memory=True,
                     with_stack=os.environ.get('STACKS') == '1') as session:
            total = 0.0
            for step in range(STEPS):
                with record_function('step'), journal.entry('step'):
                    loss = block(weights, torch.full((4, 16), float(step + 1))).pow(2).mean()
                    loss.backward()
                    if older:
                        older.pop()
                total += loss.item()
                session.step()
    print(f'checksum {total:.6f} {weights.grad.double().sum().item():.6f}')
    at_rest.wait_for_threads()


if __name__ == '__main__':
    main()
