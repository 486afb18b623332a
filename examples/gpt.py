"""A language model in a plain loop, each matrix on a sphere of its own, and no lr to search for.

    python examples/gpt.py

No weight of a transformer is scale-free, so the joint norm of the paper is not for it. With
``scope="matrix"`` the optimizer says in which direction each matrix goes, and the lr how far: an
angle, which follows from the number of steps. Muon has the hidden matrices, AdamW all else.
"""

from __future__ import annotations

import argparse as some_text
import inspect

import torch
from torch import Tensor, nn

import fixnorm  # new

WIDTH, CONTEXT, BATCH, STEPS = 32, 32, 16, 150


class GPT(nn.Module):
    """Two blocks of torch's own, on characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next character, at every position."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(h, mask=mask, is_causal=True)))
        return logits


def main() -> None:
    """Train on the source of a module that every Python has."""
    torch.manual_seed(0)
    text = inspect.getsource(some_text)
    known = sorted(set(text))
    codes = torch.tensor([known.index(c) for c in text])
    model = GPT(len(known))

    sample = codes[: 4 * CONTEXT].view(4, -1)
    print(fixnorm.convert(model, alpha=2.0, scope="matrix", radius="fan_in", sample=sample))  # new
    hidden, *others = fixnorm.param_groups(model, length="own", hidden_apart=True)  # new
    optimizers = [
        torch.optim.Muon([hidden], lr=1.0, weight_decay=0.0),
        torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.95)),
    ]
    handle = fixnorm.attach(*optimizers, lr="auto", steps=STEPS)  # new
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(o, 1.0, STEPS, pct_start=0.1, cycle_momentum=False)
        for o in optimizers
    ]

    for step in range(STEPS):
        starts = torch.randint(len(codes) - CONTEXT, (BATCH, 1))
        found = codes[starts + torch.arange(CONTEXT + 1)]
        loss = nn.functional.cross_entropy(model(found[:, :-1]).flatten(0, 1), found[:, 1:].ravel())
        model.zero_grad()
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        if step % 50 == 49:
            angles = [matrix.angle for matrix in handle.figures().matrices.values()]
            print(f"{loss.item():.2f} nats a character; the largest turn {max(angles):.4f}")
    fixnorm.fold(model)  # plain layers, for export


if __name__ == "__main__":
    main()
