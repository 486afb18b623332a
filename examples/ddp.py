"""Two processes under DistributedDataParallel, on the CPU. They reach 95 % on held-out digits.

    torchrun --nproc-per-node 2 examples/ddp.py

Order: ``convert``, then DDP, then ``param_groups`` and ``attach``. Every process computes the same
factor from the same weights: FixNorm sends nothing over the wire.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fixnorm
from digits import digits
from fixnorm.models import create

EPOCHS, BATCH, LR = 4, 64, 0.8  # batch: of each process


def main() -> None:
    """Train on this process's share of the images."""
    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same start, and the same order of images, everywhere
    torch.set_num_threads(1)
    images, labels, val_images, val_labels = digits()

    model = create("digits-resnet", num_classes=10)
    fixnorm.convert(model, alpha=1.0)  # 1
    wrapped = DistributedDataParallel(model)  # 2
    groups = fixnorm.param_groups(wrapped)  # 3
    optimizer = torch.optim.SGD(groups, lr=LR, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)  # 4

    for _ in range(EPOCHS):
        for both in torch.randperm(len(images)).split(world * BATCH)[:-1]:
            batch = both[rank::world]
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(images[batch]), labels[batch]).backward()
            optimizer.step()
    # Before the evaluation: gloo's threads crash a process that ends while they let go of tensors.
    weights = nn.utils.parameters_to_vector(p for group in groups[:1] for p in group["params"])
    everywhere = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everywhere, weights.detach())
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_images).argmax(1) == val_labels).float().mean().item()
    if rank == 0:
        assert all(torch.equal(weights, other) for other in everywhere)
        group = handle.figures().groups[0]
        print(f"‖W‖ {weights.norm():.4f}, target {group.target:.4f}, the same in all processes")
        print(f"accuracy {accuracy:.2%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
