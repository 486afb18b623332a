"""How far one step of lr 1 turns each layer: ‖∇L‖/‖W‖, layer by layer, while a recipe trains.

    python benchmarks/layer_turns.py coco-small --data DIR --steps 40

The rule of the sphere (``lr="auto"``) takes all layers as one vector: ‖∇L‖/‖W‖ of the whole. Where
a layer of small norm has most of the gradient it turns much farther than that says. Prints the mean
over the steps (root mean square): of all layers as one, over the layers, and of the layers that
turn most; and the norm of all gradients, which a recipe's clipping hides from the optimizer.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm import recipes
from fixnorm.groups import TARGET, fixed_weights
from fixnorm.training import RunOptions, changed, loop
from fixnorm.training.setup import Trainee


class Turns:
    """Squares of ‖W‖ and ‖∇L‖ of every fixed weight, summed over the steps."""

    def __init__(self, trainee: Trainee) -> None:
        self.names = {id(p): name for name, p in trainee.model.named_parameters()}
        groups = trainee.optimizer.param_groups
        self.weights = [w for g in groups if TARGET in g for w in fixed_weights(g)]
        self.turns = torch.zeros(len(self.weights), dtype=torch.float64)
        self.joint, self.steps = 0.0, 0
        trainee.optimizer.register_step_pre_hook(self.before_step)

    @torch.no_grad()
    def before_step(self, *_: object) -> None:
        gradients, weights = _squares(w.grad for w in self.weights), _squares(self.weights)
        self.turns += gradients / weights
        self.joint += float(gradients.sum() / weights.sum())
        self.steps += 1

    def __str__(self) -> str:
        turns = (self.turns / self.steps).sqrt()
        over_layers = float(turns.square().mean().sqrt())
        joint = (self.joint / self.steps) ** 0.5
        lines = [
            f"{self.steps} steps, {len(turns)} layers, turn of a step of lr 1:",
            f"  all layers as one vector   {joint:.4f}",
            f"  mean over the layers       {over_layers:.4f}  ({over_layers / joint:.1f} times)",
        ]
        for i in turns.argsort(descending=True)[:6].tolist():
            weight = self.weights[i]
            norm = float(weight.detach().norm())
            lines.append(f"  {self.names[id(weight)]:48} {float(turns[i]):.4f}  norm {norm:.2f}")
        return "\n".join(lines)


def _squares(tensors: Iterable[Tensor | None]) -> Tensor:
    zero = torch.zeros((), dtype=torch.float64)
    return torch.stack([zero if t is None else t.double().square().sum() for t in tensors])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    fields = dict(pair.split("=", 1) for pair in given.set)
    recipe = changed(recipes.get(given.recipe, "fixnorm"), **fields)
    seen: list[float] = []

    class Watched(loop.Run):
        """A training that stops after so many steps."""

        turns: Turns | None = None

        def step(self, batch: Any) -> None:
            self.turns = self.turns or Turns(self.trainee)
            super().step(batch)
            if self.state.step == given.steps:
                print(self.turns)
                raise SystemExit

    clip = nn.utils.clip_grad_norm_

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        norm = clip(*args, **kwargs)
        seen.append(float(norm))
        return norm

    nn.utils.clip_grad_norm_ = noted
    loop.Run = Watched  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        try:
            options = RunOptions(tensorboard=False)
            loop.train(recipe, data=given.data, out=Path(folder) / "run", options=options)
        finally:
            if seen:
                shown = ", ".join(f"{norm:.1f}" for norm in seen[:: max(len(seen) // 8, 1)])
                print(f"  norm of all gradients before clipping: {shown}")


if __name__ == "__main__":
    main()
