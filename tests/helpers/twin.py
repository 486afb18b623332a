"""A training written out, slowly: what the loop is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fixnorm.models import create
from fixnorm.training import Recipe
from helpers.small_runs import digits


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The target is (1 − ε) on the label and ε/C on every class."""
    log_p = logits - logits.exp().sum(1, keepdim=True).log()
    of_label = log_p[torch.arange(len(labels)), labels]
    return -((1 - smoothing) * of_label + smoothing * log_p.mean(1)).mean()


class Twin:
    """Weight-decay training written out: no optimizer, no scheduler, no library's loss."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.data = recipe, digits(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create(recipe.model, num_classes=10, in_chans=1)
        self.velocity = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        self.average: dict[str, Tensor] = {}
        self.losses: list[float] = []
        self.lrs: list[float] = []
        self.train()

    def train(self) -> None:
        recipe = self.recipe
        steps = 2 * recipe.epochs
        warmup = round(2 * recipe.warmup_epochs)
        for t in range(steps):
            progress = (t - warmup) / (steps - warmup)
            eta = (t + 1) / warmup if t < warmup else (1 + math.cos(math.pi * progress)) / 2
            batches = self.data.train.batches(epoch=t // 2, batch_size=recipe.batch_size)
            images, labels = list(batches)[t % 2]
            self.step(t, recipe.lr * eta, images, labels)

    def step(self, t: int, lr: float, images: Tensor, labels: Tensor) -> None:
        recipe = self.recipe
        named = dict(self.model.named_parameters())
        self.lrs.append(lr)
        total = {n: torch.zeros_like(p) for n, p in named.items()}
        for part in torch.arange(len(labels)).chunk(recipe.accumulate):
            loss = smoothed_cross_entropy(
                self.model(images[part]), labels[part], recipe.label_smoothing
            )
            gradients = torch.autograd.grad(loss, list(named.values()))
            for n, gradient in zip(named, gradients, strict=True):
                total[n] += gradient * len(part) / len(labels)
        self.losses.append(loss.item())
        if recipe.clip is not None:
            norm = math.sqrt(sum(g.double().square().sum().item() for g in total.values()))
            total = {n: g * min(1.0, recipe.clip / norm) for n, g in total.items()}
        with torch.no_grad():
            for n, p in named.items():
                decay = recipe.weight_decay if p.ndim > 1 else 0.0
                gradient = total[n] + decay * p
                self.velocity[n] = recipe.momentum * self.velocity[n] + gradient
                p -= lr * (gradient + recipe.momentum * self.velocity[n])  # Nesterov
            if recipe.ema is not None:
                self.mix(recipe.ema if t > 1 else 0.0)  # the first steps are not worth keeping

    def mix(self, decay: float) -> None:
        for n, now in self.model.state_dict().items():
            old = self.average.get(n, now)
            mixed = decay * old + (1 - decay) * now if now.is_floating_point() else now
            self.average[n] = mixed.clone()

    def evaluated(self) -> nn.Module:
        if self.average:
            self.model.load_state_dict(self.average)
        return self.model.eval()
