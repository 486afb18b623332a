"""Segmenters and detectors through the whole loop, on sets of a few images."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import fixnorm
from fixnorm import recipes
from fixnorm.groups import TARGET
from fixnorm.layers import is_capped, is_scaled
from fixnorm.methods import MethodName
from fixnorm.models.detectors import CLASSIFIER
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.distributed import World
from fixnorm.training.export import export
from fixnorm.training.measurements import evaluate
from fixnorm.training.setup import Passes, build
from fixnorm.training.tasks import task_of
from fixnorm.training.view import View
from fixnorm.training.weights import rebuild
from helpers.dense_runs import as_options, boxes_on_noise, detector, segmenter, striped_streets
from helpers.processes import train_by_two
from helpers.runs import Nursery, Outcome, nursery, same, steps_saved, until

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

ALONE = World(rank=0, size=1, device=torch.device("cpu"))
METHODS: tuple[MethodName, ...] = ("fixnorm", "wn-fc", "algorithm1", "weight-decay")
METRIC = {"segmentation": "miou", "detection": "ap"}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sets")
    return {
        "segmentation": striped_streets(place / "streets"),
        "detection": boxes_on_noise(place / "boxes"),
    }


DETECTOR = pytest.param(detector, marks=pytest.mark.slow, id="detection")


@pytest.fixture(params=[pytest.param(segmenter, id="segmentation"), DETECTOR])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    made: Recipe = request.param()
    return made


class Told(View):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def message(self, text: str) -> None:
        self.words.append(text)


@pytest.mark.parametrize(("lr", "warns"), [("auto", True), (0.1, False)])
def test_lr_auto_is_not_for_dense_tasks(
    sets: dict[str, Path], tmp_path: Path, lr: object, warns: bool
) -> None:
    view, recipe = Told(), segmenter(lr=lr, iterations=1, eval_every=1)
    quiet = RunOptions(tensorboard=False)
    train(recipe, data=sets["segmentation"], out=tmp_path / "run", options=quiet, view=view)
    assert (
        any(
            word.startswith("warning: lr auto: it was judged on classifiers") for word in view.words
        )
        is warns
    )


def by_method(recipe: Recipe, method: MethodName) -> Recipe:
    decay = {} if method in ("fixnorm", "wn-fc") else {"weight_decay": 1e-3}
    return changed(recipe, method=method, **decay)


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def scored(recipe: Recipe, model: torch.nn.Module, data: Path) -> float:
    """What a fresh pass over the validation images finds, in this process."""
    task = task_of(recipe)
    opened = task.open(data)
    try:
        batches = opened.val.eval_batches(batch_size=1)
        scorer = task.scorer(opened, ALONE.device)
        found = evaluate(Passes(task, ALONE), model, batches, scorer)
    finally:
        opened.close()
    return found.score.value


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(
    recipe: Recipe, method: MethodName, sets: dict[str, Path], tmp_path: Path
) -> None:
    recipe, data = by_method(recipe, method), sets[recipe.task]
    result = train(recipe, data=data, out=tmp_path / "run", options=RunOptions(tensorboard=False))
    metric = METRIC[recipe.task]
    assert result["metric"] == metric
    assert [row["step"] for row in rows(tmp_path / "run")] == ["2", "4"]
    assert float(rows(tmp_path / "run")[-1][f"val_{metric}"]) == result[metric]
    assert -1 <= result["mcbr_train"] <= 1
    assert -1 <= result["mcbr_val"] <= 1
    assert (result["largest_scale"] is None) == (
        method == "algorithm1" or (method == "weight-decay" and recipe.task == "segmentation")
    )
    assert result[metric] == pytest.approx(
        scored(recipe, rebuild(tmp_path / "run"), data), abs=1e-4
    )
    pictures = sorted((tmp_path / "run" / "pictures").iterdir())
    assert [path.name for path in pictures] == ["0.png", "1.png", "2.png"]
    with Image.open(pictures[0]) as picture:
        assert picture.width > 600  # side by side, enlarged


@pytest.mark.parametrize("method", METHODS)
def test_no_conv_is_left_whose_scale_matters(recipe: Recipe, method: MethodName, sets) -> None:
    """But for the plain heads of Algorithm 1, and what plain weight decay leaves as it is."""
    recipe = by_method(recipe, method)
    task = task_of(recipe)
    data = task.open(sets[recipe.task])
    trainee = build(recipe, data, ALONE)
    data.close()
    audited = fixnorm.audit(trainee.model, task.sample())
    loose = {
        n.removesuffix(".weight") for role in ("head", "unnormalised") for n in audited.names(role)
    }
    if method == "algorithm1":
        assert loose == set(trainee.heads)
    elif method == "weight-decay" and recipe.task == "segmentation":
        assert loose == {*trainee.heads, "context.value", "context.out"}
    else:
        assert loose == set()
    if recipe.task == "detection":
        assert trainee.heads == (CLASSIFIER,)
    else:
        assert trainee.heads == ("head", "auxiliary.2")
    capped = [n for n, m in trainee.model.named_modules() if is_capped(m)]
    assert sorted(capped) == (sorted(trainee.heads) if method == "fixnorm" else [])


@pytest.mark.slow
def test_plain_decay_of_a_detector_has_the_papers_weight_norms_and_decays_all(sets) -> None:
    recipe = by_method(detector(), "weight-decay")
    data = task_of(recipe).open(sets["detection"])
    trainee = build(recipe, data, ALONE)
    data.close()
    scaled = [n for n, m in trainee.model.named_modules() if is_scaled(m)]
    assert len(scaled) == 8 + 10  # the pyramid's, both subnets'
    assert trainee.handle is None
    groups = trainee.optimizer.param_groups
    assert all(TARGET not in group for group in groups)
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    kernels = {id(p) for p in trainee.model.parameters() if p.ndim == 4}
    assert decayed == kernels


@pytest.mark.slow
def test_convs_under_frozen_norms_are_listed_and_weight_normalised(sets) -> None:
    recipe = detector(frozen_norms=True)
    task = task_of(recipe)
    plain = task.network(2, 3)
    under = [n for n in fixnorm.audit(plain, task.sample()).names("unnormalised") if ".body." in n]
    assert len(under) == 20  # every conv of a ResNet-18
    data = task.open(sets["detection"])
    model = build(recipe, data, ALONE).model
    data.close()
    audited = fixnorm.audit(model, task.sample())
    assert audited.names("unnormalised") == audited.names("head") == ()
    assert all(is_scaled(model.get_submodule(n.removesuffix(".weight"))) for n in under)


class StopAt(View):
    """Ends the process's work at a step, as a crash would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step(self, step: int, figures: Any) -> None:
        if step == self.at:
            raise RuntimeError("stopped")


def test_a_run_that_is_resumed_twice_ends_with_the_same_bits(
    recipe: Recipe, sets: dict[str, Path], tmp_path: Path
) -> None:
    """Stopped in its first row, and in the second."""
    data, options = sets[recipe.task], RunOptions(checkpoint_steps=1, tensorboard=False)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(recipe, data=data, out=whole, options=options)
    for at in (1, 3):
        with pytest.raises(RuntimeError, match="stopped"):
            train(recipe, data=data, out=parts, options=options, view=StopAt(at + 1))
        assert steps_saved(parts)[-1] == at
    train(recipe, data=data, out=parts, options=options)
    same(parts, Outcome.of(whole))
    results = [json.loads((out / "result.json").read_text()) for out in (whole, parts)]
    assert results[0]["detail"] == results[1]["detail"] != {}


@pytest.mark.slow
def test_a_killed_run_goes_on(sets: dict[str, Path], nursery: Nursery, tmp_path: Path) -> None:
    """``kill -9`` after the first checkpoint; the same command ends with the same bits."""
    recipe = segmenter()

    def command(out: Path) -> list[str]:
        fixed = ["--data", str(sets[recipe.task]), "--checkpoint-steps", "1"]
        return ["train", recipe.name, "--out", str(out), *fixed, *as_options(recipe)]

    expected = nursery.uninterrupted(command)
    life = nursery.start(command(tmp_path / "run"))
    until(lambda: bool(steps_saved(tmp_path / "run")), life)
    life.kill()
    life = nursery.start(command(tmp_path / "run"))
    assert life.wait() == 0, life.said()
    same(tmp_path / "run", expected)


@pytest.mark.slow
def test_two_processes_score_every_image_once(sets: dict[str, Path], tmp_path: Path) -> None:
    """Three images on two processes: the score is that of one process over the same weights."""
    for recipe in (segmenter(), detector()):
        out = tmp_path / recipe.task
        train_by_two({out: recipe}, data=sets[recipe.task], place=tmp_path)
        result = json.loads((out / "result.json").read_text())
        assert result["processes"] == 2
        assert [row["step"] for row in rows(out)] == ["2", "4"]
        found = scored(recipe, rebuild(out), sets[recipe.task])
        assert result[result["metric"]] == pytest.approx(found, abs=1e-4)


@pytest.mark.slow
def test_a_segmenter_learns_stripes(sets: dict[str, Path], tmp_path: Path) -> None:
    """One colour a class: from under a third to nearly all; a trivial predictor has 1/9."""
    recipe = segmenter(iterations=40, eval_every=20, batch_size=4, lr=0.3)
    data = sets["segmentation"]
    result = train(recipe, data=data, out=tmp_path / "run", options=RunOptions(tensorboard=False))
    assert result["miou"] > 60
    assert float(rows(tmp_path / "run")[-1]["train_loss"]) < 0.8
    named = {name for name, value in result["detail"].items() if value is not None}
    assert named == {"road", "sidewalk", "building"}


@pytest.mark.slow
def test_a_detector_learns_squares(sets: dict[str, Path], tmp_path: Path) -> None:
    recipe = detector(
        iterations=80, eval_every=80, warmup_iterations=20, batch_size=6, lr=0.1, clip=1, alpha=2
    )
    data = sets["detection"]
    result = train(recipe, data=data, out=tmp_path / "run", options=RunOptions(tensorboard=False))
    assert result["ap"] > 20
    assert result["detail"]["ap50"] > 50


def test_an_export_is_the_plain_architecture(
    recipe: Recipe, sets: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, data=sets[recipe.task], out=out, options=RunOptions(tensorboard=False))
    exported = export(out)
    plain = task_of(recipe).network(19 if recipe.task == "segmentation" else 2, 3)
    from safetensors.torch import load_file

    plain.load_state_dict(load_file(exported.weights))
    assert scored(recipe, plain.eval(), sets[recipe.task]) == pytest.approx(
        scored(recipe, rebuild(out), sets[recipe.task]), abs=1e-3
    )
    assert exported.metadata["task"] == recipe.task


@pytest.mark.slow
def test_a_detector_has_no_onnx_file(sets: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(detector(), data=sets["detection"], out=out, options=RunOptions(tensorboard=False))
    with pytest.raises(ValueError, match="--onnx: a detector's boxes"):
        export(out, onnx=True)


def test_a_backbone_starts_from_a_file(sets: dict[str, Path], tmp_path: Path) -> None:
    import safetensors.torch
    import timm

    torch.manual_seed(5)
    state = timm.create_model("test_resnet", num_classes=3).state_dict()
    safetensors.torch.save_file(state, tmp_path / "backbone.safetensors")
    recipe = segmenter(backbone_weights=str(tmp_path / "backbone.safetensors"))
    data = task_of(recipe).open(sets["segmentation"])
    model = build(recipe, data, ALONE).model
    assert torch.equal(
        model.get_parameter("backbone.layer1.0.conv1.weight"), state["layer1.0.conv1.weight"]
    )
    with pytest.raises(ValueError, match="does not exist: give a file of weights"):
        build(segmenter(backbone_weights="nowhere.pth"), data, ALONE)
    data.close()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network\nsecond line")

    import timm

    monkeypatch.setattr(timm, "create_model", refuse)
    return


def test_pretrained_weights_that_cannot_be_had(no_network: None) -> None:
    from fixnorm.models.backbones import load_backbone

    with pytest.raises(
        ValueError, match=r"^the pretrained weights of resnet18 .*no network\)[^\n]*$"
    ):
        load_backbone(torch.nn.Module(), "base-oc/resnet18", "pretrained")


def test_a_folder_must_be_given() -> None:
    for recipe in (segmenter(), detector()):
        with pytest.raises(ValueError, match="needs a folder"):
            task_of(recipe).open(None)


@pytest.mark.parametrize(
    ("recipe", "package"),
    [(segmenter(), "torchmetrics"), (detector(), "faster_coco_eval")],
    ids=["segmentation", "detection"],
)
def test_a_missing_package_is_told_before_the_training(
    recipe: Recipe, package: str, sets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    there = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == package else there(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(ValueError, match=rf"needs {package}: pip install 'fixnorm\[dense\]'"):
        task_of(recipe).open(sets[recipe.task])


@pytest.mark.slow
def test_torchvisions_deeplab_trains_as_well(sets: dict[str, Path], tmp_path: Path) -> None:
    recipe = segmenter(
        model="deeplabv3/mobilenet_v3_large", width=None, iterations=2, head=None, crop=(64, 64)
    )
    data = sets["segmentation"]
    result = train(recipe, data=data, out=tmp_path / "run", options=RunOptions(tensorboard=False))
    assert result["miou"] == pytest.approx(
        scored(recipe, rebuild(tmp_path / "run"), data), abs=1e-4
    )
    assert result["largest_scale"] > 0  # of both heads


def test_loader_processes_change_nothing(
    recipe: Recipe, sets: dict[str, Path], tmp_path: Path
) -> None:
    """The training ends within an epoch, so that the last batches are never fetched."""
    recipe = changed(recipe, iterations=2)
    for workers in (0, 1):
        train(
            changed(recipe, workers=workers),
            data=sets[recipe.task],
            out=tmp_path / f"{workers}",
            options=RunOptions(tensorboard=False),
        )
    one, other = (Outcome.of(tmp_path / f"{workers}") for workers in (0, 1))
    assert one.weights == other.weights
    assert one.metrics == other.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("cityscapes-baseoc-r101", "fixnorm"),
        ("coco-retinanet-r50", "fixnorm"),
        ("coco-retinanet-r50", "weight-decay"),  # whose subnets have weight norms, too
    ],
)
def test_the_papers_recipes_take_a_step(
    name: str, method: MethodName, sets: dict[str, Path], tmp_path: Path
) -> None:
    """On small images and from random weights; the models are the paper's."""
    recipe = recipes.get(name, method)
    small = (
        {"crop": (33, 33)} if recipe.task == "segmentation" else {"short_side": 64, "max_side": 64}
    )
    recipe = changed(
        recipe,
        **small,
        backbone_weights=None,
        iterations=1,
        warmup_iterations=0,
        batch_size=2,
        eval_batch_size=1,
        workers=0,
    )
    result = train(
        recipe,
        data=sets[recipe.task],
        out=tmp_path / "run",
        options=RunOptions(tensorboard=False, pictures=0),
    )
    assert result["steps"] == 1
    assert not result["diverged"]
    assert not (tmp_path / "run" / "pictures").exists()
