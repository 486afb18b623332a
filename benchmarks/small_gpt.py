"""A language model of characters, as small as it can be told: GPT-2's block and start."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a layer norm and added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this block."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return out


class SmallGPT(nn.Module):
    """GPT-2's start: 0.02 at width 64, and less by √(2·depth) where it joins the stream.

    Wider ones start with 0.16/√width.
    """

    def __init__(
        self, characters: int, *, width: int, context: int, tied: bool, depth: int = 4
    ) -> None:
        super().__init__()
        std = 0.16 / math.sqrt(width)
        self.tokens = nn.Embedding(characters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, width // 16) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                joins = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=std / math.sqrt(2 * depth) if joins else std)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next character, at every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(
            self.norm(self.blocks(self.tokens(tokens) + self.positions(places)))
        )
        return logits
