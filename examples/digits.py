"""FixNorm in an ordinary training script: a small ResNet on the 1,797 embedded digit images.

    python examples/digits.py

The three lines that make it FixNorm are marked. It trains for some seconds on two CPU cores, and
reaches 97 % on held-out images.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fixnorm
from fixnorm.models import create

CLASSES = 10


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (N, 1, 8, 8) and labels; every fifth example is held out."""
    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1)
    labels = torch.from_numpy(data.target).long()
    held_out = torch.arange(len(labels)) % 5 == 0
    images = (images - images[~held_out].mean()) / images[~held_out].std()
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def main() -> None:
    """Train, and print accuracy and the figures of the method after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.8)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    train_x, train_y, val_x, val_y = digits()
    model = create("digits-resnet", num_classes=CLASSES)

    print(fixnorm.convert(model, alpha=options.alpha))  # 1
    groups = fixnorm.param_groups(model)  # 2
    optimizer = torch.optim.SGD(groups, lr=options.lr, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)  # 3

    batch = 128
    steps = options.epochs * (len(train_x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.lr, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    print("\nepoch   loss  accuracy     ‖W‖       g     cap  implied decay")
    start = time.perf_counter()
    for epoch in range(options.epochs):
        model.train()
        losses = []
        order = torch.randperm(len(train_x))
        for first in range(0, len(order) - batch + 1, batch):
            indices = order[first : first + batch]
            optimizer.zero_grad()
            logits = model(train_x[indices])
            loss = nn.functional.cross_entropy(logits, train_y[indices], label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            accuracy = (model(val_x).argmax(1) == val_y).float().mean().item()
        figures = handle.figures()
        group, head = figures.groups[0], figures.heads["fc"]
        print(
            f"{epoch + 1:5}  {sum(losses) / len(losses):5.3f}   {accuracy:7.2%}"
            f"  {group.target:6.3f}  {head.g:6.3f}  {head.cap:6.3f}  {group.implied_decay:13.2e}"
        )
    seconds = time.perf_counter() - start
    print(f"\nvalidation accuracy {accuracy:.2%} after {seconds:.1f} s, without weight decay")


if __name__ == "__main__":
    main()
