"""A model whose head must be named: a ReLU follows its classifier, as in SqueezeNet.

    python examples/named_head.py

The output is not linear in such a layer, so that measurement alone cannot tell it from any other
layer whose scale matters. ``convert`` says so and lists the candidates; name one. With it the model
reaches 95 % on held-out digits.
"""

from __future__ import annotations

import torch
from torch import nn

import fixnorm
from digits import digits

EPOCHS, BATCH, LR = 10, 64, 0.1


def network() -> nn.Sequential:
    """Two convolutions with norms, then a 1×1 convolution to ten maps, ReLU, and their means."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        nn.Conv2d(32, 10, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def main() -> None:
    """Show what ``convert`` says, name the head, train."""
    torch.manual_seed(0)
    images, labels, val_images, val_labels = digits()
    model = network()
    try:
        fixnorm.convert(model, alpha=4.0, sample=images[:8])
    except ValueError as error:
        print(f"without a name: {error}\n")
    print(fixnorm.convert(model, alpha=4.0, sample=images[:8], head="2"))

    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=LR, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH)[:-1]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_images).argmax(1) == val_labels).float().mean().item()
    head = handle.figures().heads["2"]
    print(f"\naccuracy {accuracy:.2%}, g {head.g:.2f} under a cap of {head.cap:.2f}")


if __name__ == "__main__":
    main()
