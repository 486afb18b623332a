"""Two processes that share the weights (FSDP2), on the CPU. They reach 95 % on held-out digits.

    torchrun --nproc-per-node 2 examples/fsdp2.py

Order: ``convert``, then ``fully_shard``, then ``param_groups`` and ``attach``: sharding replaces
the parameters. A norm is the sum of what each process holds, one all-reduce of a few numbers.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import fixnorm
from digits import digits
from fixnorm.models import create

EPOCHS, BATCH, LR = 4, 64, 0.8  # batch: of each process


def main() -> None:
    """Train on this process's share of the images and of the weights."""
    mesh = init_device_mesh("cpu", (2,))  # "cuda" on GPUs
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same start, and the same order of images, everywhere
    torch.set_num_threads(1)
    images, labels, val_images, val_labels = digits()

    model = create("digits-resnet", num_classes=10)
    fixnorm.convert(model, alpha=1.0)  # 1
    fully_shard(model, mesh=mesh)  # 2
    groups = fixnorm.param_groups(model)  # 3
    optimizer = torch.optim.SGD(groups, lr=LR, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)  # 4

    for _ in range(EPOCHS):
        for both in torch.randperm(len(images)).split(world * BATCH)[:-1]:
            batch = both[rank::world]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_images).argmax(1) == val_labels).float().mean().item()
    held = sum(p.to_local().numel() for p in groups[0]["params"])
    figures = handle.figures()  # asks all processes: outside the next line's if
    print(f"process {rank} holds {held:,} of {sum(p.numel() for p in groups[0]['params']):,}")
    dist.barrier()
    if rank == 0:
        print(f"‖W‖ before its last rescale {figures.groups[0].norm:.3f}, accuracy {accuracy:.2%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
