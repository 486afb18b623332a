"""lr and alpha of a loop of your own, by Algorithm 4. The best training reaches 95 %.

    python examples/tune_own_loop.py

``train`` is the loop you have, as a function of lr, alpha and the number of steps. Given a folder,
``fixnorm.tune(..., out="study")``, the search goes on where it was stopped.
"""

from __future__ import annotations

import torch
from torch import nn

import fixnorm
from digits import digits

BATCH = 128


def train(lr: float, alpha: float, steps: int) -> dict[str, float]:
    """Train for so many steps; return the accuracy in percent and the largest g/√C that was seen.

    Without ``largest_scale`` the search works too, but trains alphas that change nothing.
    """
    torch.manual_seed(0)
    images, labels, val_images, val_labels = digits()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)
    )
    fixnorm.convert(model, alpha=alpha, sample=images[:8])
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=lr, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    largest = 0.0
    for _ in range(steps):
        batch = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
        largest = max(largest, handle.figures().heads["4"].g / 10**0.5)
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_images).argmax(1) == val_labels).float().mean().item()
    return {"accuracy": 100 * accuracy, "largest_scale": largest}


if __name__ == "__main__":
    found = fixnorm.tune(train, steps=120, alphas=(0.5, 1, 2, 4))
    for trial in found.record.trials:
        print(f"lr {trial.lr:.2f}  alpha {trial.alpha}  {trial.state:8}  {trial.accuracy}")
    print(f"\nlr {found.lr:g}, alpha {found.alpha:g}: accuracy {found.accuracy:.2f}%")
    print(f"{found.trials} trainings that cost {found.cost:g} of full length")
