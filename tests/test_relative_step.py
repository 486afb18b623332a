"""Scope ``matrix``: what it takes as a matrix, what it refuses, and that it never moves in vain."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from timm.optim import Muon as timm_muon
from torch import Tensor, nn

import fixnorm
from fixnorm import reference
from fixnorm.averages import measure_average, project_average_
from fixnorm.relative_step import turn_
from helpers.small_nets import PatchNet, ResNet, learnable_batches, true_norm

MATRICES = ["patches", "qkv", "proj", "up", "down", "fc"]


def converted(**options: Any) -> PatchNet:
    torch.manual_seed(0)
    model = PatchNet()
    fixnorm.convert(model, alpha=1.0, scope="matrix", sample=images(), **options)
    return model


def images() -> Tensor:
    return learnable_batches(1)[0][0]


def adamw(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.AdamW(fixnorm.param_groups(model), lr=lr)


def train(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 3) -> None:
    for x, y in learnable_batches(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()


class Language(nn.Module):
    """Embeddings of tokens and places, one layer, a head."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 6), nn.Embedding(5, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(h + torch.tanh(self.mix(h)))


TOKENS = torch.arange(20).reshape(4, 5) % 11


# -- which weights -------------------------------------------------------------------------------


def test_matrices_have_spheres_and_all_else_is_the_optimizers() -> None:
    model = converted()
    matrices, rest = fixnorm.param_groups(model)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in matrices["params"]] == [f"{name}.weight" for name in MATRICES]
    others = {names[id(p)] for p in rest["params"]}
    assert {"places", "fc.g", "norm.weight", "qkv.bias"} <= others
    assert len(others) + len(MATRICES) == len(names)


def test_no_layer_but_the_head_is_changed() -> None:
    plain = PatchNet()
    before = plain(images())
    kinds = {name: type(module) for name, module in plain.named_modules()}
    report = fixnorm.convert(plain, alpha=1.0, scope="matrix", sample=images())
    changed = {n for n, module in plain.named_modules() if type(module) is not kinds[n]}
    assert changed == {"fc"}
    assert report.weight_normalised == ()
    torch.testing.assert_close(plain(images()), before)
    assert "each by itself" in str(report)
    assert type(fixnorm.fold(plain).fc) is nn.Linear


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_are_no_matrices(tied: bool) -> None:
    model = Language(tied=tied)
    alpha = None if tied else 1.0
    report = fixnorm.convert(model, alpha=alpha, scope="matrix", sample=TOKENS)
    assert report.fixed == (("mix.weight",) if tied else ("mix.weight", "head.weight"))
    reasons = {kept.name: kept.reason for kept in report.kept}
    assert reasons.keys() == {"tokens.weight", "places.weight"}
    assert ("head.weight, tied to Embedding: no cap" in reasons["tokens.weight"]) == tied
    assert isinstance(model.head, fixnorm.FixNormLinear) != tied
    assert fixnorm.fold(model) is model


def test_an_untied_head_needs_its_cap() -> None:
    with pytest.raises(ValueError, match="needs a cap"):
        fixnorm.convert(Language(tied=False), scope="matrix", sample=TOKENS)


def test_a_head_that_is_named_must_not_be_tied() -> None:
    with pytest.raises(ValueError, match=r"tied to tokens \(Embedding\)"):
        fixnorm.convert(Language(tied=True), alpha=1.0, scope="matrix", head="head", sample=TOKENS)


def test_a_plain_head_may_be_decayed() -> None:
    model = ResNet()
    fixnorm.convert(model, method="algorithm1", scope="matrix")
    matrices, decayed, _ = fixnorm.param_groups(model, weight_decay=0.1)
    assert model.fc.weight is decayed["params"][0]
    assert decayed["weight_decay"] == 0.1
    assert len(matrices["params"]) == 3


def test_the_audit_says_which_scope_fits() -> None:
    assert fixnorm.audit(ResNet()).scope == "global"
    found = fixnorm.audit(PatchNet(), images())
    assert found.scope == found.to_dict()["scope"] == "matrix"
    assert "scope: matrix, as no weight is scale-free" in str(found)


# -- the radius ----------------------------------------------------------------------------------


def test_the_radius_is_that_of_the_start_or_what_a_rule_says() -> None:
    for radius, factor in ((None, 1.0), (3.0, 3.0)):
        plain = PatchNet()
        model = copy.deepcopy(plain)
        fixnorm.convert(model, alpha=1.0, scope="matrix", radius=radius, sample=images())
        optimizer = adamw(model)
        fixnorm.attach(optimizer)
        expected = [true_norm([plain.get_submodule(n).weight]) * factor for n in MATRICES]
        assert optimizer.param_groups[0]["fixnorm_radii"] == pytest.approx(expected, rel=1e-6)
    model = converted(radius="fan_in")
    optimizer = adamw(model)
    fixnorm.attach(optimizer)
    outputs = [math.sqrt(p.shape[0]) for p in optimizer.param_groups[0]["params"]]
    assert optimizer.param_groups[0]["fixnorm_radii"] == pytest.approx(outputs, rel=1e-6)
    assert model.fc.g.item() == pytest.approx(math.sqrt(5))


def test_fan_in_of_a_transposed_layer() -> None:
    """transformers' Conv1D has its weight as (in, out)."""

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nf = 3
            self.weight = nn.Parameter(torch.randn(12, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x @ self.weight)

    model = nn.Sequential(Conv1D(), nn.Linear(3, 2))
    fixnorm.convert(model, alpha=1.0, scope="matrix", radius="fan_in", sample=torch.randn(4, 12))
    assert true_norm([model[0].weight]) == pytest.approx(math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize("radius", [0.0, -1.0, math.inf, math.nan, True, "fan_out"])
def test_what_is_no_radius_is_refused(radius: Any) -> None:
    with pytest.raises(ValueError, match="radius must be a positive number"):
        converted(radius=radius)


# -- bad input -----------------------------------------------------------------------------------


def test_scopes_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="scope must be 'global', 'layer' or 'matrix'"):
        fixnorm.convert(ResNet(), alpha=1.0, scope="rows")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"radius=3.0 is for scope='matrix'"):
        fixnorm.convert(ResNet(), alpha=1.0, radius=3.0)
    with pytest.raises(ValueError, match="converted with scope='matrix' but"):
        fixnorm.param_groups(converted(), scope="layer")
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    with pytest.raises(ValueError, match=r"fixnorm.convert\(model, alpha=..., scope='matrix'\)"):
        fixnorm.param_groups(model, scope="matrix")


def test_param_groups_takes_the_scope_of_convert() -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0, scope="layer")
    assert len(fixnorm.param_groups(model)) == 5
    assert len(fixnorm.param_groups(model, scope="global")) == 2


def test_what_is_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="length must be 'angle' or 'own' but got 'long'"):
        fixnorm.param_groups(converted(), length="long")  # type: ignore[arg-type]
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    with pytest.raises(
        ValueError, match="length='own' is for scope='matrix' but got scope='global'"
    ):
        fixnorm.param_groups(model, length="own")


def test_a_matrix_of_zeros_has_no_radius() -> None:
    model = PatchNet()
    nn.init.zeros_(model.proj.weight)
    with pytest.raises(ValueError, match=r"proj.weight is all zeros .* leave it out with exclude"):
        fixnorm.convert(model, alpha=1.0, scope="matrix", sample=images())
    fixnorm.convert(model, alpha=1.0, scope="matrix", sample=images(), exclude="proj")
    optimizer = adamw(model)
    fixnorm.attach(optimizer)
    train(model, optimizer)
    assert model.proj.weight.any()
    zeroed = converted()
    nn.init.zeros_(zeroed.up.weight)
    with pytest.raises(ValueError, match=r"the norm of up.weight is 0.0"):
        fixnorm.attach(adamw(zeroed))


def test_attach_refuses_what_has_no_angle() -> None:
    model = converted()
    optimizer = adamw(model)
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(ValueError, match="AdamW has no lr, which would be the angle"):
        fixnorm.attach(optimizer)
    optimizer = adamw(model)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ValueError, match=r"weight decay 0.1 on the group of patches.weight"):
        fixnorm.attach(optimizer)
    optimizer = adamw(model)
    optimizer.param_groups[0]["fixnorm_radii"] = [1.0]
    with pytest.raises(ValueError, match="6 matrices has 1 radii"):
        fixnorm.attach(optimizer)


def test_hidden_matrices_are_muons() -> None:
    """Two optimizers, or timm's Muon, which has an AdamW for what is not its own."""
    groups = fixnorm.param_groups(model := converted(), length="own", hidden_apart=True)
    names = [[n for n, p in model.named_parameters() if _holds(g, p)] for g in groups]
    assert names[0] == [f"{name}.weight" for name in ("qkv", "proj", "up", "down")]
    assert names[1] == ["patches.weight", "fc.weight"]
    assert [g.get("fixnorm_length") for g in groups] == ["angle", "own", None]
    assert [g.get("use_fallback") for g in groups] == [None, True, True]
    muon = torch.optim.Muon(groups[:1], lr=0.05, weight_decay=0.0)
    handle = fixnorm.attach(muon, adam := torch.optim.AdamW(groups[1:], lr=0.05))
    train(model, muon, adam)
    assert handle.figures().matrices["up.weight"].angle == pytest.approx(0.05, rel=0.1)
    model = converted()
    both = timm_muon(fixnorm.param_groups(model, hidden_apart=True), lr=0.05)
    fixnorm.attach(both)
    train(model, both)
    kinds = [set(both.state[g["params"][0]]) for g in both.param_groups]
    assert ["exp_avg_sq" in kind for kind in kinds] == [False, True, True]


def test_a_model_without_hidden_matrices() -> None:
    torch.manual_seed(0)
    fixnorm.convert(model := ResNet(), alpha=1.0, scope="matrix", sample=images())
    with pytest.raises(ValueError, match="no linear layer other than its head"):
        fixnorm.param_groups(model, hidden_apart=True)
    fixnorm.convert(model := ResNet(), alpha=1.0, sample=images())
    with pytest.raises(ValueError, match=r"hidden_apart is for scope='matrix' but got .*'global'"):
        fixnorm.param_groups(model, hidden_apart=True)


def _holds(group: dict[str, Any], parameter: nn.Parameter) -> bool:
    return any(p is parameter for p in group["params"])


def test_an_optimizer_that_lacks_matrices_is_refused() -> None:
    model = converted()
    matrices, rest = fixnorm.param_groups(model)
    first = matrices | {"params": matrices["params"][:2]}
    with pytest.raises(ValueError, match=r"does not hold proj.weight and 3 more"):
        fixnorm.attach(torch.optim.AdamW([first, rest], lr=0.05))


# -- the step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_turn_by_hand(dtype: torch.dtype) -> None:
    """From (3, 0, 0) with a step of any length to the side: R·(1, lr, 0)/√(1 + lr²)."""
    weight = torch.tensor([[3.0, 0.0, 0.0]], dtype=dtype)
    before = weight.clone()
    turned = turn_(
        [weight.add_(torch.tensor([[0.0, 0.125, 0.0]]))], [before], torch.tensor([3.0]), 0.75
    )
    expected = torch.tensor([[2.4, 1.8, 0.0]], dtype=dtype)
    torch.testing.assert_close(weight, expected)
    torch.testing.assert_close(turned.angles(), torch.tensor([math.atan(0.75)]))
    assert turned.steps.item() == pytest.approx(0.125)


def test_a_step_along_the_weight_turns_nothing() -> None:
    weight = torch.tensor([[3.0, 4.0]])
    turned = turn_([weight.mul_(1.5)], [torch.tensor([[3.0, 4.0]])], torch.tensor([5.0]), 0.1)
    torch.testing.assert_close(weight, torch.tensor([[3.0, 4.0]]))
    assert turned.angles().item() == pytest.approx(0, abs=1e-3)


def test_the_angle_of_the_figures_is_the_angle() -> None:
    model = converted()
    optimizer = adamw(model, lr=0.3)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer, steps=1)
    before = [p.detach().double() for p in optimizer.param_groups[0]["params"]]
    train(model, optimizer, steps=1)
    figures = handle.figures().matrices
    assert list(figures) == [f"{name}.weight" for name in MATRICES]
    for old, p, found in zip(
        before, optimizer.param_groups[0]["params"], figures.values(), strict=True
    ):
        cosine = (old * p).sum() / old.norm() / p.double().norm()
        assert found.angle == pytest.approx(torch.acos(cosine).item(), rel=1e-4)
        assert 0.2 < found.angle < 0.4
        assert found.radius == pytest.approx(true_norm([p]), rel=1e-6)


@pytest.mark.parametrize("why", ["no gradient", "frozen", "zero gradient", "lr 0", "lr 0 tensor"])
def test_no_step_is_no_move(why: str) -> None:
    model = converted()
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1, momentum=0.0)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer, steps=2)
    with torch.no_grad():
        model.qkv.weight.mul_(1.0001)  # off its sphere by a little: still not to be touched
    before = model.qkv.weight.detach().clone()
    other = model.up.weight.detach().clone()
    optimizer.zero_grad()
    x, y = learnable_batches(1)[0]
    if why == "frozen":
        model.qkv.weight.requires_grad_(False)
    nn.functional.cross_entropy(model(x), y).backward()
    if why == "no gradient":
        model.qkv.weight.grad = None
    elif why == "zero gradient":
        nn.init.zeros_(model.qkv.weight.grad)
    elif why.startswith("lr 0"):
        lr = torch.zeros(()) if why.endswith("tensor") else 0.0
        for group in optimizer.param_groups:
            group["lr"] = lr
    optimizer.step()
    assert torch.equal(model.qkv.weight, before)
    assert torch.equal(model.up.weight, other) == why.startswith("lr 0")
    found = handle.figures().matrices
    assert all(math.isfinite(f.angle) for f in found.values())


def test_a_fused_step_that_a_scaler_skips_moves_nothing() -> None:
    model = converted()
    optimizer = torch.optim.AdamW(fixnorm.param_groups(model), lr=0.1, fused=True)
    fixnorm.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    x, y = learnable_batches(1)[0]
    before = [p.detach().clone() for p in model.parameters()]
    scaler.scale(nn.functional.cross_entropy(model(x), y) * math.inf).backward()
    scaler.step(optimizer)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_half_precision_is_rounded_once() -> None:
    torch.manual_seed(0)
    before = torch.randn(64, 64).bfloat16()
    weight = before + 0.1 * torch.randn(64, 64).bfloat16()
    radius = true_norm([before])
    d = weight.double() - before.double()
    expected = before.double() + 0.1 * radius * d / d.norm()
    expected = (expected * radius / expected.norm()).bfloat16()
    turn_([weight], [before], torch.tensor([radius]), 0.1)
    assert (weight == expected).float().mean() > 0.99


def test_half_precision_keeps_its_radius() -> None:
    model = converted(radius="fan_in").to(torch.bfloat16)
    optimizer = adamw(model)
    fixnorm.attach(optimizer)
    radii = optimizer.param_groups[0]["fixnorm_radii"]
    for x, y in learnable_batches(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
        optimizer.step()
    norms = [true_norm([p]) for p in optimizer.param_groups[0]["params"]]
    assert norms == pytest.approx(radii, rel=5e-3)


def test_two_optimizers_share_the_matrices() -> None:
    """Muon for what is a matrix, AdamW for convolutions, the head and the rest."""
    model = converted()
    matrices, rest = fixnorm.param_groups(model)
    hidden = [p for p in matrices["params"] if p.ndim == 2 and p is not model.fc.weight]
    others = [p for p in matrices["params"] if p.ndim != 2 or p is model.fc.weight]
    muon = torch.optim.Muon([matrices | {"params": hidden}], lr=0.05)
    adam = torch.optim.AdamW([matrices | {"params": others}, rest], lr=0.02)
    handle = fixnorm.attach(muon, adam)
    radii = [true_norm([p]) for p in hidden + others]
    train(model, muon, adam)
    assert [true_norm([p]) for p in hidden + others] == pytest.approx(radii, rel=1e-6)
    figures = handle.figures().matrices
    assert len(figures) == len(MATRICES)
    assert figures["qkv.weight"].angle == pytest.approx(0.05, rel=0.05)
    assert figures["fc.weight"].angle == pytest.approx(0.02, rel=0.05)


TORCH = [
    *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop"),
    *("Rprop", "ASGD", "Adafactor"),
]


@pytest.mark.tried(
    "Optimizers", "scope `matrix` with every optimizer of torch", "works", "12, Muon"
)
@pytest.mark.parametrize("name", TORCH)
def test_every_optimizer_turns_by_its_lr(name: str) -> None:
    model = converted()
    optimizer = getattr(torch.optim, name)(fixnorm.param_groups(model), lr=0.01)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer, steps=2)
    for figures in handle.figures().matrices.values():
        assert figures.angle == pytest.approx(0.01, rel=0.05)
    radii = optimizer.param_groups[0]["fixnorm_radii"]
    assert [true_norm([p]) for p in optimizer.param_groups[0]["params"]] == pytest.approx(radii)


class Climbing(torch.optim.SGD):
    """Sharpness-aware: up by the gradient, then a step by the gradient found there."""

    def first_step(self) -> None:
        self.up = [0.1 * p.grad for group in self.param_groups for p in group["params"]]
        self._add(self.up)

    def second_step(self) -> None:
        self._add([-up for up in self.up])
        super().step()

    @torch.no_grad()
    def _add(self, moves: list[Tensor]) -> None:
        for p, move in zip((p for g in self.param_groups for p in g["params"]), moves, strict=True):
            p.add_(move)


def test_a_step_in_two_parts_turns_once() -> None:
    model = converted()
    optimizer = Climbing(fixnorm.param_groups(model), lr=0.05)
    handle = fixnorm.attach(optimizer)
    before = model.up.weight.detach().clone()
    for x, y in learnable_batches(1):
        for part in (optimizer.first_step, optimizer.second_step):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            part()
    cosine = nn.functional.cosine_similarity(before.flatten(), model.up.weight.flatten(), dim=0)
    assert torch.acos(cosine).item() == pytest.approx(0.05, rel=0.1)
    assert handle.figures().matrices["up.weight"].angle == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("length", ["angle", "own"])
def test_the_slow_twin_agrees_with_adamw(length: Any) -> None:
    """A step of AdamW by hand: unhooked on a copy, then the equation, in float64."""
    model = converted().double()
    optimizer = torch.optim.AdamW(fixnorm.param_groups(model, length=length), lr=0.05)
    handle = fixnorm.attach(optimizer)
    for x, y in learnable_batches(5):
        twin = copy.deepcopy(model)
        alone = torch.optim.AdamW(twin.parameters(), lr=0.05, weight_decay=0.0)
        alone.load_state_dict(_reordered(optimizer, model, alone))
        for each, stepping in ((model, optimizer), (twin, alone)):
            stepping.zero_grad()
            nn.functional.cross_entropy(each(x.double()), y).backward()
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        optimizer.step()
        alone.step()
        for name, radius in zip(MATRICES, optimizer.param_groups[0]["fixnorm_radii"], strict=True):
            name = f"{name}.weight"
            points = (before[name], twin.get_parameter(name).detach(), torch.tensor(radius))
            expected = (
                reference.own_step(*points)
                if length == "own"
                else reference.relative_step(*points, 0.05)
            )
            torch.testing.assert_close(model.get_parameter(name).detach(), expected)
            cosine = nn.functional.cosine_similarity(
                before[name].flatten(), expected.flatten(), dim=0
            )
            angle = handle.figures().matrices[name].angle
            assert angle == pytest.approx(torch.acos(cosine).item(), rel=1e-4)
    angles = [matrix.angle for matrix in handle.figures().matrices.values()]
    assert all((angle < 0.045) == (length == "own") for angle in angles)


def _reordered(
    optimizer: torch.optim.Optimizer, model: nn.Module, alone: torch.optim.Optimizer
) -> dict[str, Any]:
    """The state of the one, in the order of the other's single group."""
    states = [copy.deepcopy(optimizer.state.get(p, {})) for p in model.parameters()]
    state = {i: own for i, own in enumerate(states) if own}
    return {"state": state, "param_groups": alone.state_dict()["param_groups"]}


# -- saving, joining, averaging ------------------------------------------------------------------


def test_a_resumed_training_is_the_same_to_the_bit(tmp_path: Any) -> None:
    model = converted()
    optimizer = adamw(model)
    fixnorm.attach(optimizer)
    train(model, optimizer)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "state.pt")
    radii = optimizer.param_groups[0]["fixnorm_radii"]
    train(model, optimizer)
    states = torch.load(tmp_path / "state.pt", weights_only=True)
    again = converted(radius=2.0)
    resumed = adamw(again)
    fixnorm.attach(resumed)
    again.load_state_dict(states[0])
    resumed.load_state_dict(states[1])
    assert resumed.param_groups[0]["fixnorm_radii"] == radii
    train(again, resumed)
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_state_without_radii_is_refused() -> None:
    model = converted()
    optimizer = adamw(model)
    state = copy.deepcopy(optimizer.state_dict())
    fixnorm.attach(optimizer)
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match=r"\['fixnorm_radii'\] to the norms the weights should"):
        train(model, optimizer)


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_unfrozen_joins(ours: bool) -> None:
    model = converted()
    model.up.requires_grad_(False)
    optimizer = adamw(model)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer)
    model.up.requires_grad_(True)
    groups: list[dict[str, Any]] = [{"params": list(model.up.parameters()), "weight_decay": 0.0}]
    if ours:
        groups = fixnorm.param_groups(model, beside=optimizer)
    for group in groups:
        optimizer.add_param_group(group)
    norm, before = true_norm([model.up.weight]), model.up.weight.detach().clone()
    train(model, optimizer)
    assert true_norm([model.up.weight]) == pytest.approx(norm, rel=1e-6)
    assert not torch.equal(model.up.weight, before)
    assert handle.figures().matrices["up.weight"].angle == pytest.approx(0.05, rel=0.05)


def test_an_lr_that_is_no_angle_is_warned_of() -> None:
    model = converted()
    optimizer = adamw(model, lr=1.4)
    fixnorm.attach(optimizer)
    with pytest.warns(UserWarning, match=r"lr 1.4 is the angle, in radians") as told:
        train(model, optimizer)
    assert len(told) == 1


def test_a_removed_hook_leaves_the_steps_to_the_optimizer() -> None:
    model = converted()
    optimizer = adamw(model)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer)
    handle.remove()
    norm = true_norm([model.up.weight])
    train(model, optimizer)
    assert true_norm([model.up.weight]) != pytest.approx(norm, rel=1e-4)


def test_the_watch_tells_of_a_changed_matrix() -> None:
    model = converted()
    optimizer = adamw(model)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle.figures()
    with torch.no_grad():
        model.up.weight.mul_(1.1)
    with pytest.warns(UserWarning, match="fixed weights had 1.1 times their norm before a step"):
        handle.figures()


def test_averages_come_back_to_each_sphere() -> None:
    model = converted()
    optimizer = adamw(model, lr=0.3)
    fixnorm.attach(optimizer)
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(3):
        train(model, optimizer)
        average.update_parameters(model)
    ratios = [found.ratio for found in measure_average(average, optimizer)]
    assert len(ratios) == len(MATRICES)
    assert all(ratio < 0.999 for ratio in ratios)
    project_average_(average, optimizer)
    assert [f.ratio for f in measure_average(average, optimizer)] == pytest.approx([1.0] * 6)
