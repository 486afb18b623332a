"""The exported file against the run's model, and what a user can get wrong."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
import typer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from timm.models import load_checkpoint
from torch import Tensor, nn
from typer.testing import CliRunner

import fixnorm
from fixnorm.commands.export import export as export_command
from fixnorm.layers import is_capped, is_scaled
from fixnorm.models import create, find_head
from fixnorm.training import export as export_module
from fixnorm.training.export import Exported, export
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import recipe_from_dict
from fixnorm.training.weights import open_run, rebuild

METHODS = ("weight-decay", "algorithm1", "wn-fc", "fixnorm")


def recipe_of(model: str, method: str, **fields: Any) -> Recipe:
    values = {"data": "imagefolder", "image_size": 32, "lr": 1.0, "epochs": 1, "warmup_epochs": 0}
    values |= {"alpha": 0.5 if method == "fixnorm" else None}
    return recipe_from_dict({"name": "r", "model": model, "method": method} | values | fields)


def trained(recipe: Recipe, *, classes: int = 10, channels: int = 3, head: Any = None) -> nn.Module:
    """A converted model that is as far from its start as a training brings it."""
    model = create(recipe.model, num_classes=classes, in_chans=channels)
    size = recipe.image_size
    if recipe.method != "weight-decay":
        fixnorm.convert(
            model,
            alpha=recipe.alpha,
            method=recipe.method,
            head=head,
            sample=torch.randn(4, channels, size, size),
        )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".g"):
                parameter.mul_(3.0)  # not ‖W‖; the head's is above its cap, 0.5·√10 = 1.58
            else:
                parameter.add_(0.1 * parameter.std().nan_to_num(0.0) * torch.randn_like(parameter))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # running statistics of the weights as they are now
    model.train()(torch.randn(8, channels, size, size))
    return model.eval()


def write_run(
    path: Path,
    recipe: Recipe,
    model: nn.Module,
    *,
    classes: int = 10,
    channels: int = 3,
    **metadata: str,
) -> Path:
    path.mkdir()
    (path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    state = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    metadata |= {"format": "pt", "classes": str(classes), "channels": str(channels)}
    metadata |= {"alpha": str(recipe.alpha), "method": recipe.method}
    save_file(state, path / "weights.safetensors", metadata)
    (path / "result.json").write_text("{}")
    return path


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


@torch.no_grad()
def outputs(model: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = model.eval()(images)
    return logits


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of the smallest model."""
    recipe = recipe_of("resnet8-s2", "fixnorm")
    return write_run(tmp_path / "run", recipe, trained(recipe))


# The rebuilt and the folded model


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["resnet8-s2", "tinynet-se"])
def test_rebuilt_and_exported_models_compute_what_the_run_s_does(
    name: str, method: str, tmp_path: Path
) -> None:
    recipe = recipe_of(name, method)
    model = trained(recipe)
    path = write_run(tmp_path / "run", recipe, model)
    images = torch.randn(5, 3, 32, 32)
    expected = outputs(model, images)

    rebuilt = rebuild(path)
    assert not rebuilt.training
    assert torch.equal(outputs(rebuilt, images), expected)
    assert {n: type(m) for n, m in rebuilt.named_modules()} == {
        n: type(m) for n, m in model.named_modules()
    }

    exported = export(path)
    assert exported == Exported(path / "model.safetensors", None, exported.metadata, 0.0)
    plain = create(name, num_classes=10)
    plain.load_state_dict(load_file(exported.weights))
    torch.testing.assert_close(outputs(plain, images), expected, rtol=0, atol=1e-5)


def test_only_the_head_is_capped(tmp_path: Path) -> None:
    recipe = recipe_of("tinynet-se", "fixnorm", alpha=0.5)
    rebuilt = rebuild(write_run(tmp_path / "run", recipe, trained(recipe)))
    head = find_head(rebuilt)
    assert is_capped(head)
    assert head.alpha == 0.5
    assert [m for m in rebuilt.modules() if is_capped(m)] == [head]
    assert sum(is_scaled(m) for m in rebuilt.modules()) == 1 + 2 * 8  # two layers an SE block


def test_the_exported_head_has_the_norm_of_the_cap(run: Path) -> None:
    weight = load_file(export(run).weights)["fc.weight"]
    assert weight.norm().item() == pytest.approx(0.5 * 10**0.5)  # α√C


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm/resnetv2_18", "torchvision/squeezenet1_1"])
def test_a_conv_head(name: str, tmp_path: Path) -> None:
    recipe = recipe_of(name, "fixnorm", image_size=64)
    plain = create(name, num_classes=10)
    head = next(n for n, m in plain.named_modules() if m is find_head(plain))
    assert isinstance(find_head(plain), nn.Conv2d)
    model = trained(recipe, head=head)
    images = torch.randn(2, 3, 64, 64)
    expected = outputs(model, images)

    exported = export(write_run(tmp_path / "run", recipe, model))
    plain.load_state_dict(load_file(exported.weights))
    torch.testing.assert_close(outputs(plain, images), expected, rtol=0, atol=1e-5)


class Twice(nn.Module):
    """One layer under two names, with weights that are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3)
        self.second = self.first
        self.fc = nn.Linear(3, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.second(self.first(images)).relu().mean((2, 3)))
        return logits


def test_a_channels_last_layer_with_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixnorm.training.tasks.classification.create", lambda *_, **__: Twice())
    model = Twice()
    fixnorm.convert(model, alpha=0.5, sample=torch.randn(4, 3, 32, 32))
    with torch.no_grad():
        model.first.g.mul_(3.0)
    images = torch.randn(2, 3, 32, 32)
    expected = outputs(model, images)
    recipe = recipe_of("twice", "fixnorm")
    exported = export(write_run(tmp_path / "run", recipe, model))
    plain = Twice()
    plain.load_state_dict(load_file(exported.weights))
    torch.testing.assert_close(outputs(plain, images), expected, rtol=0, atol=1e-5)


class TwoHeads(nn.Module):
    """The logits are the sum of two layers'."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 10)
        self.second = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.first(images.mean((2, 3))) + self.second(images.amax((2, 3)))
        return logits


def test_two_heads_are_both_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixnorm.training.tasks.classification.create", lambda *_, **__: TwoHeads())
    model = TwoHeads()
    report = fixnorm.convert(model, alpha=0.5, sample=torch.randn(4, 3, 32, 32))
    heads = json.dumps([head.name for head in report.heads])
    assert heads == '["first", "second"]'
    with torch.no_grad():
        model.first.g.mul_(3.0)
        model.second.g.mul_(3.0)
    images = torch.randn(2, 3, 32, 32)
    expected = outputs(model, images)
    recipe = recipe_of("two-heads", "fixnorm")
    rebuilt = rebuild(write_run(tmp_path / "run", recipe, model, heads=heads))
    assert torch.equal(outputs(rebuilt, images), expected)


# timm


@pytest.mark.parametrize(("classes", "channels"), [(10, 3), (4, 1)])
def test_timm_loads_it(classes: int, channels: int, tmp_path: Path) -> None:
    recipe = recipe_of("timm/resnet10t", "fixnorm", image_size=64)
    model = trained(recipe, classes=classes, channels=channels)
    run = write_run(tmp_path / "run", recipe, model, classes=classes, channels=channels)
    exported = export(run, out=tmp_path / "resnet10t.safetensors")
    assert exported.metadata["timm"] == "resnet10t"

    images = torch.randn(3, channels, 64, 64)
    expected = outputs(model, images)
    shape = {"num_classes": classes, "in_chans": channels}
    created = timm.create_model("resnet10t", **shape, checkpoint_path=str(exported.weights))
    torch.testing.assert_close(outputs(created, images), expected, rtol=0, atol=1e-5)
    loaded = timm.create_model("resnet10t", **shape)
    load_checkpoint(loaded, str(exported.weights))
    torch.testing.assert_close(outputs(loaded, images), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "timm_name"),
    [
        ("resnet50", "resnet50"),
        ("resnet50d", "resnet50d"),
        ("mobilenetv2", "mobilenetv2_100"),
        ("efficientnet-b0", "efficientnet_b0"),
        ("efficientnet-b1", "efficientnet_b1"),
    ],
)
def test_the_paper_s_models_carry_timm_s_name(name: str, timm_name: str, tmp_path: Path) -> None:
    recipe = recipe_of(name, "weight-decay", image_size=32)
    model = create(name, num_classes=7).eval()
    exported = export(write_run(tmp_path / "run", recipe, model, classes=7))
    assert exported.metadata["timm"] == timm_name
    loaded = timm.create_model(timm_name, num_classes=7, checkpoint_path=str(exported.weights))
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(outputs(loaded, images), outputs(model, images), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_fixnorm_training_of_the_paper_s_resnet50d(tmp_path: Path) -> None:
    recipe = recipe_of("resnet50d", "fixnorm", image_size=64)
    model = trained(recipe, classes=20)
    exported = export(write_run(tmp_path / "run", recipe, model, classes=20))
    loaded = timm.create_model("resnet50d", num_classes=20, checkpoint_path=str(exported.weights))
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(outputs(loaded, images), outputs(model, images), rtol=0, atol=1e-5)


def test_a_model_that_timm_cannot_name_says_so(tmp_path: Path) -> None:
    recipe = recipe_of("tinynet-se", "fixnorm")
    exported = export(write_run(tmp_path / "run", recipe, trained(recipe)))
    assert "timm" not in exported.metadata


# ONNX


@pytest.mark.parametrize(
    ("name", "method", "size"),
    [
        ("resnet8-s2", "fixnorm", 32),
        pytest.param("tinynet-se", "fixnorm", 32, marks=pytest.mark.slow),
        pytest.param("timm/resnetv2_18", "wn-fc", 64, marks=pytest.mark.slow),
    ],
)
def test_onnx_computes_what_the_run_s_model_does(
    name: str, method: str, size: int, tmp_path: Path
) -> None:
    recipe = recipe_of(name, method, image_size=size, mean=(0.1, 0.2, 0.3))
    model = trained(recipe)
    exported = export(write_run(tmp_path / "run", recipe, model), onnx=True)
    assert exported.onnx == tmp_path / "run" / "model.onnx"
    assert exported.weights.is_file()

    session = onnxruntime.InferenceSession(exported.onnx, providers=["CPUExecutionProvider"])
    for batch in (1, 5):
        images = torch.randn(batch, 3, size, size)
        (logits,) = session.run(None, {"images": images.numpy()})
        np.testing.assert_allclose(logits, outputs(model, images), rtol=0, atol=1e-5)
    assert session.get_inputs()[0].shape == ["batch", 3, size, size]
    assert [output.name for output in session.get_outputs()] == ["logits"]
    assert session.get_modelmeta().custom_metadata_map == exported.metadata
    onnx.checker.check_model(exported.onnx, full_check=True)
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "recipe.json", "result.json", "weights.safetensors", "model.safetensors", "model.onnx"
    }  # fmt: skip


class Branches(nn.Module):
    """A model whose path depends on the values it sees, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(images.mean((2, 3)))
        return logits if logits.sum() > 0 else -logits


@pytest.mark.slow
def test_a_model_that_torch_cannot_export_to_onnx(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = Branches().eval()
    monkeypatch.setattr("fixnorm.training.weights.FinishedRun.model", lambda _: stand_in)
    with pytest.raises(ValueError, match="torch cannot export resnet8-s2 to ONNX") as caught:
        export(run, onnx=True)
    assert "\n" not in str(caught.value)
    assert "export without --onnx" in str(caught.value)
    assert not (run / "model.safetensors").exists()


def test_a_model_too_large_for_one_onnx_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "ONNX_LIMIT", 100_000)
    with pytest.raises(
        ValueError, match=r"resnet8-s2 has 0\.0 GB of weights and an ONNX file holds"
    ):
        export(run, onnx=True)


def test_missing_onnx_packages_say_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    with pytest.raises(ValueError, match=r"--onnx needs onnxscript: pip install 'fixnorm\[onnx\]'"):
        export(run, onnx=True)
    assert not (run / "model.safetensors").exists()


# Metadata


@pytest.mark.parametrize(
    ("eval_crop", "crop_pct", "interpolation"),
    [
        ("none", 1.0, "bilinear"),
        ("resnet", 0.875, "bilinear"),
        ("efficientnet", 0.5, "bicubic"),  # 32 / (32 + 32)
    ],
)
def test_the_file_says_how_images_are_prepared(
    eval_crop: str, crop_pct: float, interpolation: str, tmp_path: Path
) -> None:
    recipe = recipe_of("resnet8-s2", "wn-fc", mean=(0.25,), std=(0.2, 0.3, 0.4))
    recipe = recipe.model_copy(update={"eval_crop": eval_crop})
    run = write_run(tmp_path / "run", recipe, create("resnet8-s2", num_classes=2), classes=2)
    (run / "classes.json").write_text('["Katze", "Hündin"]')
    metadata = metadata_of(export(run).weights)
    assert metadata == {
        "format": "pt",
        "task": "classification",
        "model": "resnet8-s2",
        "recipe": "r",
        "method": "wn-fc",
        "fixnorm_version": fixnorm.__version__,
        "num_classes": "2",
        "input_size": "[3, 32, 32]",
        "mean": "[0.25, 0.25, 0.25]",
        "std": "[0.2, 0.3, 0.4]",
        "eval_crop": eval_crop,
        "crop_pct": json.dumps(crop_pct),
        "interpolation": interpolation,
        "label_names": json.dumps(["Katze", "Hündin"]),
    }
    assert open_run(run).class_names == ("Katze", "Hündin")


# Places


def test_nothing_is_replaced_unless_asked(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "m.safetensors"
    assert export(run, out=out).weights == out
    out.write_text("mine")
    with pytest.raises(ValueError, match=r"m\.safetensors exists already: replace it with --force"):
        export(run, out=out)
    assert out.read_text() == "mine"
    export(run, out=out, force=True)
    assert "fc.weight" in load_file(out)


def test_an_onnx_file_that_exists_stops_both(run: Path) -> None:
    (run / "model.onnx").write_text("mine")
    with pytest.raises(ValueError, match=r"model\.onnx exists already"):
        export(run, onnx=True)
    assert not (run / "model.safetensors").exists()
    assert (run / "model.onnx").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("m.pt", r"--out must end in \.safetensors but got .*m\.pt"),
        ("m.onnx", r"--onnx writes the \.onnx beside it"),
        ("run/weights.safetensors", "is the run's own weights: give another file"),
        ("run/../run/weights.safetensors", "is the run's own weights"),
        ("folder.safetensors", "is a folder: give a file as --out"),
    ],
)
def test_places_that_are_refused(out: str, message: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    before = (run / "weights.safetensors").read_bytes()
    with pytest.raises(ValueError, match=message):
        export(run, out=tmp_path / out, force=True)
    assert (run / "weights.safetensors").read_bytes() == before


def test_a_write_that_fails_leaves_the_old_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = export(run).weights
    before = out.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        export(run, force=True)
    assert out.read_bytes() == before
    assert not [p for p in run.iterdir() if p.name.endswith(".part")]


def test_outputs_that_differ_are_not_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled_wrongly(model: nn.Module) -> nn.Module:
        fixnorm.fold(model)
        with torch.no_grad():
            find_head(model).weight.mul_(1.001)
        return model

    monkeypatch.setattr(export_module, "fold", scaled_wrongly)
    with pytest.raises(
        ValueError, match=r"differs from the run's model by \d.* nothing was written"
    ):
        export(run)
    assert not (run / "model.safetensors").exists()


class Cancels(nn.Module):
    """Adds 1,000 and takes it away: float32 keeps the logits to 1000 · 2⁻²⁴ = 6e-5 only."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(images.mean((2, 3))) + 1000.0
        return logits - 1000.0


@pytest.mark.slow
@pytest.mark.parametrize(("wrong_by", "written"), [(0.0, True), (1e-3, False)])
def test_onnx_may_differ_by_rounding_and_no_more(
    wrong_by: float, written: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Cancels().eval()
    monkeypatch.setattr("fixnorm.training.weights.FinishedRun.model", lambda _: model)

    def another_runtime(_: bytes, images: Tensor) -> Tensor:
        return outputs(copy.deepcopy(model).double(), images.double()) + wrong_by

    monkeypatch.setattr(export_module, "_run", another_runtime)
    if written:
        assert 1e-5 < export(run, onnx=True).difference < 6e-5
    else:
        with pytest.raises(ValueError, match=r"the ONNX file differs .* nothing was written"):
            export(run, onnx=True)
    assert (run / "model.onnx").exists() == written
    assert (run / "model.safetensors").exists() == written


# Runs that cannot be read


def _no_folder(run: Path) -> None:
    shutil.rmtree(run)


def _no_recipe(run: Path) -> None:
    (run / "recipe.json").unlink()


def _is_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("")


def _unfinished(run: Path) -> None:
    (run / "weights.safetensors").unlink()


def _bad_json(run: Path) -> None:
    (run / "recipe.json").write_text('{"name":')


def _list_recipe(run: Path) -> None:
    (run / "recipe.json").write_text("[]")


def _newer_recipe(run: Path) -> None:
    values = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps(values | {"learning_rate": 1}))


def _truncated(run: Path) -> None:
    content = (run / "weights.safetensors").read_bytes()
    (run / "weights.safetensors").write_bytes(content[:-10])


def _text(run: Path) -> None:
    (run / "weights.safetensors").write_text("not tensors")


def _changed(
    change: Callable[[dict[str, Tensor], dict[str, str]], object],
) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        path = run / "weights.safetensors"
        state, metadata = load_file(path), metadata_of(path)
        change(state, metadata)
        save_file(state, path, metadata)

    return spoil


def _class_names(text: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / "classes.json").write_text(text)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_no_folder, r"run does not exist: give the --out folder of fixnorm train$"),
        (_is_a_file, r"run is not a run, it has no recipe\.json"),
        (_no_recipe, r"run is not a run, it has no recipe\.json: give the --out folder"),
        (_unfinished, r"run is not finished, it has no weights\.safetensors: give the same fixn"),
        (_bad_json, r"recipe\.json is not a recipe: it is no whole JSON \(EOF"),
        (_list_recipe, r"recipe\.json is not a recipe: it: .* object but it is \[\]; train again"),
        (_newer_recipe, r"recipe\.json is not a recipe of this version: .*'learning_rate'"),
        (
            _truncated,
            r"weights\.safetensors is damaged \(.*\): give the same fixnorm train command",
        ),
        (_text, r"weights\.safetensors is damaged"),
        (
            _changed(lambda _, meta: meta.pop("classes")),
            "its metadata is wrong: classes is missing",
        ),
        (
            _changed(lambda _, meta: meta.update(channels="0")),
            "channels: .* pattern .* but it is '0'",
        ),
        (
            _changed(lambda _, meta: meta.update(classes="11")),
            r"does not fit resnet8-s2 of recipe\.json: size mismatch for fc\.weight",
        ),
        (_changed(lambda state, _: state.pop("fc.bias")), r'Missing key\(s\) .*"fc\.bias"; train'),
        (
            _changed(lambda state, _: state.update({"nothing.g": torch.ones(1)})),
            r'Unexpected key\(s\) in state_dict: "nothing\.g"; train again',
        ),
        (
            _changed(lambda state, _: state.update({"stem.1.g": torch.ones(1)})),  # a batch norm
            r'Unexpected key\(s\) in state_dict: "stem\.1\.g"',
        ),
        (
            _changed(lambda state, _: state.pop("fc.g")),
            r"method fixnorm, but no scale fc\.g of the head; train again",
        ),
        (
            _changed(lambda state, _: state["fc.bias"].fill_(float("nan"))),
            r"has values in fc\.bias that are not finite, the training diverged",
        ),
        (
            _class_names('["a"]'),
            r"classes\.json is not a list of 10 class names: it: .*at least 10.* but it is",
        ),
        (
            _class_names('{"a": 0}'),
            r"classes\.json is not a list of 10 class names: .*valid arr",
        ),
    ],
)
def test_a_run_that_cannot_be_exported(
    spoil: Callable[[Path], None], message: str, run: Path
) -> None:
    spoil(run)
    with pytest.raises(ValueError, match=message) as caught:
        export(run)
    assert str(run) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (run / "model.safetensors").exists()


# The command


def invoke(*arguments: object) -> tuple[BaseException | None, str]:
    app = typer.Typer()
    app.command()(export_command)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exception, result.stdout


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    recipe = recipe_of("timm/resnet10t", "weight-decay")
    path = write_run(tmp_path / "run", recipe, create("timm/resnet10t", num_classes=10))
    out = tmp_path / "m.safetensors"
    error, text = invoke(path, "--out", out)
    assert error is None
    lines = text.splitlines()
    assert lines[0] == f"{out}  {out.stat().st_size / 1e6:.1f} MB"
    assert lines[1] == "outputs differ from the run's model by at most 0.0e+00"
    shape = "num_classes=10, in_chans=3"
    assert lines[2] == f"timm.create_model('resnet10t', {shape}, checkpoint_path={str(out)!r})"
    loaded: nn.Module = eval(lines[2], {"timm": timm})
    assert torch.equal(loaded.get_parameter("fc.weight"), load_file(out)["fc.weight"])


@pytest.mark.slow
def test_the_command_writes_onnx_and_asks_for_force(run: Path) -> None:
    error, text = invoke(run, "--onnx")
    assert error is None
    assert [line.split()[0] for line in text.splitlines()[:2]] == [
        str(run / "model.safetensors"), str(run / "model.onnx")
    ]  # fmt: skip
    error, _ = invoke(run)
    assert isinstance(error, ValueError)
    assert "exists already" in str(error)
    assert invoke(run, "--force")[0] is None
