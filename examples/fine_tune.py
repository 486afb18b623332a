"""Fine-tuning from pretrained weights. It reaches 90 % on five digits the weights have not seen.

    python examples/fine_tune.py

The "pretrained" weights are made here, by training a plain network on the digits 0 to 4 with weight
decay. Their state dict has no ``g``; loaded into a converted network, each layer starts from
g = ‖W‖ and computes what the plain one did. Convert before or after loading: both work.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fixnorm
from digits import digits
from fixnorm.models import create

BATCH = 64


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, e: int) -> None:
    """Train for ``e`` epochs."""
    model.train()
    for _ in range(e):
        for batch in torch.randperm(len(x)).split(BATCH)[:-1]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()


def main() -> None:
    """Pretrain on 0 to 4, then learn 5 to 9 from fifty images of each."""
    torch.manual_seed(0)
    images, labels, val_images, val_labels = digits()
    old = labels < 5
    pretrained = create("digits-resnet", num_classes=5)
    sgd = torch.optim.SGD(pretrained.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    fit(pretrained, sgd, images[old], labels[old], e=3)
    weights = {k: v for k, v in pretrained.state_dict().items() if not k.startswith("fc.")}

    model = create("digits-resnet", num_classes=5)  # its head is new, all else is loaded
    fixnorm.convert(model, alpha=1.0)
    print(model.load_state_dict(weights, strict=False))
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.2, momentum=0.9, nesterov=True)
    handle = fixnorm.attach(optimizer)  # the norm that is kept is that of the loaded weights
    few = torch.cat([torch.nonzero(labels == digit)[:50, 0] for digit in range(5, 10)])
    fit(model, optimizer, images[few], labels[few] - 5, e=10)

    model.eval()
    new = val_labels >= 5
    with torch.no_grad():
        right = model(val_images[new]).argmax(1) == val_labels[new] - 5
    print(f"‖W‖ stayed at {handle.figures().groups[0].target:.3f}")
    print(f"accuracy {right.float().mean().item():.2%} on the digits 5 to 9")


if __name__ == "__main__":
    main()
