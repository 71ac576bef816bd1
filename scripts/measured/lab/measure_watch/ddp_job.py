"""Trains data-parallel with PyTorch over gloo, without knowledge of railwright, and records its own times.

    python3 ddp_job.py FOLDER RANK ADDRESS STEPS WIDTH BATCH,BATCH

The same number of steps runs first without reducing gradients. The additional time of a full step is its exposed
communication.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed

folder, rank, address, steps, width, batches = sys.argv[1:]
os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": "29500"}
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", rank=int(rank), world_size=2)
inner = torch.nn.Linear(int(width), int(width))
model = torch.nn.Sequential(torch.nn.Linear(64, int(width)), torch.nn.ReLU(), inner, torch.nn.Linear(int(width), 8))
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimiser = torch.optim.SGD(parallel.parameters(), lr=0.01)
data = torch.randn(int(batches.split(",")[int(rank)]), 64)
target = torch.randn(len(data), 8)


def step() -> tuple[float, float, float]:
    """Run a step. Returns the times of its start, of the loss and of its end."""
    begun = time.monotonic()
    loss = torch.nn.functional.mse_loss(parallel(data), target)
    forward = time.monotonic()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    return begun, forward, time.monotonic()


with parallel.no_sync():
    alone = [step() for _ in range(int(steps) // 4)]
torch.distributed.barrier()
told = [step() for _ in range(int(steps))]
Path(folder, f"{rank}.json").write_text(json.dumps(told), encoding="ascii")
Path(folder, f"{rank}-alone.json").write_text(json.dumps(alone), encoding="ascii")
