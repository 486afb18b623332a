"""Nets with layer norms: what is scale-invariant there, and what convert makes of the rest."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm import models
from fixnorm.layers import is_scaled

ROOT = Path(__file__).parent.parent

VIT = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)}
CONVNEXT = {"depths": (1, 1, 1, 1), "dims": (8, 16, 16, 24)}


def vit(**options: object) -> nn.Module:
    model: nn.Module = timm.create_model("vit_tiny_patch16_224", num_classes=5, **VIT, **options)
    return model


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "vit": (vit, 16),
    "convnext": (lambda: timm.create_model("convnext_atto", num_classes=5, **CONVNEXT), 32),
    "swin": (
        lambda: timm.create_model("swin_tiny_patch4_window7_224", num_classes=5, **SWIN),
        32,
    ),
    "micronet-vit": (lambda: models.create("micronet-vit"), 32),
    "micronet-convnext": (lambda: models.create("micronet-convnext"), 32),
}
# Weights without a layer: added to activations or to attention scores.
LOOSE = r"pos_embed|.*\.relative_position_bias_table"
# Shaped as a matrix or a map, but with one axis only: nothing with a direction.
VECTORS = r"cls_token|.*\.logit_scale"


def image(side: int, count: int = 4) -> Tensor:
    return torch.randn(count, 3, side, side)


def is_layer(model: nn.Module, name: str) -> bool:
    owner = model.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, nn.Linear | nn.Conv2d)


@pytest.mark.parametrize("name", NETS)
def test_the_scale_of_every_weight_matters(name: str) -> None:
    build, side = NETS[name]
    model = build()
    audit = fixnorm.audit(model, image(side))
    (head,) = audit.names("head")
    assert head == ("head.weight" if "vit" in name else "head.fc.weight")
    assert audit.names("fixed") == audit.names("unused") == ()
    for row in audit:
        if len(row.shape) < 2 or re.fullmatch(VECTORS, row.name):
            assert row.role == "free", row
        elif row.name != head:
            assert row.role == "unnormalised", row
            assert is_layer(model, row.name) != bool(re.fullmatch(LOOSE, row.name)), row


@pytest.mark.parametrize("name", NETS)
def test_convert_gives_every_layer_a_scale_and_keeps_the_outputs(name: str) -> None:
    build, side = NETS[name]
    model = build().double().eval()
    layers = [n for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    x = image(side).double()
    before = model(x)
    report = fixnorm.convert(model, alpha=4.0, sample=image(side))
    torch.testing.assert_close(model(x), before, rtol=1e-10, atol=1e-12)

    (head,) = report.heads
    assert sorted([*report.weight_normalised, head.name]) == sorted(layers)
    assert [n for n, m in model.named_modules() if is_scaled(m)] == layers
    assert sorted(report.fixed) == sorted(f"{n}.weight" for n in layers)
    assert all(re.fullmatch(LOOSE, kept.name) for kept in report.kept)
    after = fixnorm.audit(model, image(side))
    assert sorted(after.names("fixed")) == sorted(report.fixed)
    assert after.names("head") == ()
    assert set(after.names("unnormalised")) == {kept.name for kept in report.kept}
    torch.testing.assert_close(fixnorm.fold(model)(x), before, rtol=1e-10, atol=1e-12)


def test_norm_of_queries_and_keys_leaves_the_values_their_scale() -> None:
    """q, k and v are rows of one weight, and only two thirds of it are normalised."""
    audit = fixnorm.audit(vit(qk_norm=True), image(16))
    assert audit["blocks.0.attn.qkv.weight"].role == "unnormalised"


def test_a_bias_between_a_weight_and_its_norm_ends_invariance() -> None:
    """Swin V2 has norms after its layers, but only the merging of patches has no bias."""
    model = timm.create_model("swinv2_tiny_window8_256", num_classes=5, **SWIN)
    audit = fixnorm.audit(model, image(32))
    assert audit.names("fixed") == ("layers.1.downsample.reduction.weight",)
    with pytest.warns(UserWarning, match=r"qkv\.weight and 3 more matters.*without the layer"):
        report = fixnorm.convert(model, alpha=4.0, sample=image(32))
    # Its attention reads the weight of qkv past the layer, so that no other layer can stand in.
    kept = [f"layers.{i}.blocks.{k}.attn.qkv.weight" for i in (0, 1) for k in (0, 1)]
    assert [entry.name for entry in report.kept] == kept
    assert list(fixnorm.audit(model, image(32)).names("unnormalised")) == kept


@pytest.mark.tried(
    "Models",
    "ViT, ConvNeXt, Swin (timm)",
    "works",
    "every layer becomes weight-normalised; see [beyond CNNs](beyond-cnns.md)",
)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_keeps_the_norm_and_moves_the_scales(
    optimizer: type[torch.optim.Optimizer],
) -> None:
    model = vit()
    fixnorm.convert(model, alpha=4.0, sample=image(16))
    groups = fixnorm.param_groups(model)
    fitted = optimizer(groups, lr=0.01)
    fixnorm.attach(fitted)
    fixed, rest = groups[0]["params"], groups[1]["params"]
    held = {id(p) for p in rest}
    assert id(model.pos_embed) in held
    assert id(model.cls_token) in held
    norm = torch.cat([p.detach().flatten() for p in fixed]).norm()
    scales = [m.g for m in model.modules() if is_scaled(m)]
    before = [g.item() for g in scales]
    for _ in range(3):
        fitted.zero_grad()
        nn.functional.cross_entropy(model(image(16, 8)), torch.arange(8) % 5).backward()
        fitted.step()
    assert len(scales) == 10
    assert all(g.item() != b for g, b in zip(scales, before, strict=True))
    after = torch.cat([p.detach().flatten() for p in fixed]).norm()
    assert after.item() == pytest.approx(norm.item(), rel=1e-6)


def test_adam_moves_a_scale_by_lr_a_step_and_a_plain_norm_by_far_more() -> None:
    """Why AdamW takes long to move scales: one number has one step of size lr.

    A plain weight of n numbers that all go outwards grows by lr·√n: here 0.01·√64 = 0.08.
    """
    lr = 0.01
    layer = fixnorm.WeightNormLinear(8, 8, bias=False)
    plain = nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        for module in (layer, plain):
            module.weight.fill_(1.0)
        layer.g.fill_(8.0)
    for module in (layer, plain):
        optimizer = torch.optim.Adam(module.parameters(), lr=lr)
        (-module(torch.ones(1, 8)).sum()).backward()
        optimizer.step()
    assert layer.g.item() == pytest.approx(8.0 + lr, abs=1e-5)
    assert plain.weight.norm().item() == pytest.approx(8.0 + lr * 8, abs=1e-5)


# -- the comparison --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("beyond", ROOT / "benchmarks/beyond_cnns.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["beyond"] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_stored_table(benchmark: Any) -> None:
    stored = json.loads((ROOT / "results/beyond_cnns.json").read_text())
    assert benchmark.table(stored["outcomes"]) in (ROOT / "docs/beyond-cnns.md").read_text()


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (3.0, [1, 3, 5.2, 9]),  # inside: one more, towards the better neighbour, then no further
        (9.0, [1, 3, 9, 16, 27]),  # at the edge: one beyond it, then one beside
        (300.0, [1, 3, 9, 27, 81, 240]),  # three beyond the edge at most
        (0.05, [0.037, 0.11, 0.33, 1, 3, 9]),
    ],
)
def test_the_search_leaves_the_edge(benchmark: Any, top: float, expected: list[float]) -> None:
    side = benchmark.Side(method="fixnorm", optimizer="sgd", lrs=(1, 3, 9), others=(4.0, 2.0, 0.5))

    def trained(point: Any) -> Any:
        accuracy = -abs(math.log(point.lr / top)) + 0.01 * math.log(point.lr) - point.other / 100
        return replace(point, accuracy=accuracy, largest_scale=min(point.other, 1.0), seconds=9.0)

    points = benchmark.search(side, trained)
    assert [point.lr for point in points[:-2]] == pytest.approx(expected, rel=0.03)
    best = min(expected, key=lambda lr: abs(math.log(lr / top)))
    free, last = points[-2:]
    assert (free.other, free.free, free.seconds) == (2.0, True, 0.0)  # g never exceeded 1
    assert (last.other, last.free, last.seconds) == (0.5, False, 9.0)
    assert last.lr == pytest.approx(best, rel=0.03)


# -- the comparison of scopes ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def scopes() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("matrix_scope")


@pytest.mark.parametrize("others", [(2.0, 0.5), (2.0,)])
@pytest.mark.parametrize(("lr", "radius"), [(0.02, 3.0), (0.0005, 3.0), (0.7, 30.0), (0.03, 1.0)])
def test_every_side_has_eight_trainings(
    scopes: Any, lr: float, radius: float, others: tuple[float, ...]
) -> None:
    """Wherever the best is; and the search has moved towards it."""

    def get(point: Any) -> Any:
        far = math.log(point.lr / lr) ** 2 + math.log(point.radius / radius) ** 2
        return replace(point, score=-far + (0.1 if point.other == 0.5 else 0.0))

    points = scopes.search((0.007, 0.02, 0.06), others, get)
    assert len(points) == len(set(points)) == 8
    top = scopes.best(points)
    assert top.other == others[-1]
    assert abs(math.log(top.lr / lr)) < max(abs(math.log(0.06 / lr)), abs(math.log(0.007 / lr)))
    assert top.radius == {3.0: 3.0, 30.0: 12.0, 1.0: 1.0}[radius]


def test_sides_share_start_and_batches(scopes: Any) -> None:
    from matrix_settings import Setting, batches, network
    from matrix_sides import AUTO_ADAMW, AUTO_MUON, KNOWN, NO_SEARCH, Point
    from matrix_training import optimizers

    setting = Setting(name="tiny", net="gpt", width=16, steps=2, batch=2)
    draws = [[x for x, _ in batches(setting, Path(), seed)] for seed in (1, 1, 2)]
    assert all(torch.equal(a, b) for a, b in zip(draws[0], draws[1], strict=True))
    assert not torch.equal(draws[0][0], draws[2][0])
    for side in (*KNOWN.values(), AUTO_ADAMW, AUTO_MUON):
        torch.manual_seed(1)
        model = network(setting)
        free = replace(NO_SEARCH, radius=1.0)  # nothing is drawn for its start
        point = free if side.finds_lr else Point(lr=0.01, radius=1.0, other=1.0)
        (before,) = {float(model.blocks[0].up.weight.detach().norm())}
        made = optimizers(setting, side, point, model, draws[0][0], setting.steps)
        held = [p for one in made for group in one.param_groups for p in group["params"]]
        assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
        assert float(model.blocks[0].up.weight.detach().norm()) == before
