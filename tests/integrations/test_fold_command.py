"""``fixnorm fold`` on the checkpoints that others' scripts write, read back by their loaders."""

from __future__ import annotations

import copy
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fixnorm
from fixnorm.commands import run
from helpers.frameworks import CLASSES

pytest.importorskip("timm")
import timm
from timm.models import load_checkpoint
from timm.utils import CheckpointSaver, ModelEmaV3

from helpers.timm_run import batch, model

IMAGES = batch(0)[0]


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        run(["fold", *map(str, words)])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def trained(*, g: float = 9.0) -> nn.Module:
    """timm's model, the scale of its head far above the cap of 2."""
    made = model().eval()
    with torch.no_grad():
        made.fc.g.fill_(g)
    return made


def plain() -> nn.Module:
    made: nn.Module = timm.create_model("test_resnet", num_classes=CLASSES).eval()
    return made


def outputs(file: Path, **options: Any) -> Tensor:
    made = plain()
    load_checkpoint(made, str(file), strict=True, **options)
    return made(IMAGES)


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, nn.Module, nn.Module]:
    """As timm's script writes it, with an average that is not the model."""
    made = trained()
    average = ModelEmaV3(made)
    with torch.no_grad():
        average.module.fc.weight.add_(0.3)
    optimizer = torch.optim.SGD(fixnorm.param_groups(made), lr=0.1, momentum=0.9)
    args = Namespace(model="test_resnet", lr=0.1)
    saver = CheckpointSaver(
        made, optimizer, args=args, model_ema=average, checkpoint_dir=str(tmp_path)
    )
    saver.save_checkpoint(0, metric=1.0)
    return tmp_path / "last.pth.tar", made, average.module


@pytest.mark.tried(
    "Leaving FixNorm",
    "timm: `--initial-checkpoint`, `validate.py`, EMA weights",
    "how to",
    "`fixnorm fold model_best.pth.tar plain.pth`",
)
def test_timms_checkpoint(
    checkpoint: tuple[Path, nn.Module, nn.Module],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, made, average = checkpoint
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "fc.g"'):
        outputs(file)
    out = tmp_path / "plain.pth"
    code, said, _ = call(capsys, file, out)
    assert code == 0
    assert "state_dict: folded fc (cut at 2)\nstate_dict_ema: folded fc (cut at 2)\n" in said
    assert "left out, as it is of the weights before: optimizer\n" in said
    torch.testing.assert_close(outputs(out, use_ema=False), made(IMAGES))
    torch.testing.assert_close(outputs(out), average(IMAGES))
    assert (made(IMAGES) - average(IMAGES)).abs().max() > 0.1
    initial = timm.create_model("test_resnet", num_classes=CLASSES, checkpoint_path=str(out))
    torch.testing.assert_close(initial.eval()(IMAGES), average(IMAGES))
    assert torch.load(file, weights_only=False)["optimizer"]  # the first can still resume
    code, _, err = call(capsys, file, tmp_path / "plain.safetensors")
    assert code == 2
    assert "one set of weights but there are state_dict and state_dict_ema: give OUT as .pt" in err


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_bare_state_dict(
    prefix: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of any wrapper; a safetensors file does not know the cap."""
    made = trained()
    state = {f"{prefix}{key}": value for key, value in made.state_dict().items()}
    file, out = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    save_file(state, file) if ending == ".safetensors" else torch.save(state, file)
    code, _, err = call(capsys, file, out)
    assert code == 2
    assert f"not say where the scale of {prefix}fc is cut: give the alpha" in err
    assert "(here: --alpha NUMBER, --head NAME)" in err
    assert not out.exists()
    code, said, _ = call(capsys, file, out, "--alpha", "1", "--head", "fc")
    assert code == 0
    assert said.startswith(f"weights: folded {prefix}fc (cut at 2)\n{out}")
    found = load_file(out) if ending == ".safetensors" else torch.load(out, weights_only=True)
    again = plain()
    again.load_state_dict({key.removeprefix(prefix): value for key, value in found.items()})
    torch.testing.assert_close(again(IMAGES), made(IMAGES))


def test_an_average_without_caps_has_those_of_the_weights_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Lightning's WeightAveraging and torchvision's references store it."""
    made = trained()
    content = {
        "model": nn.Sequential(copy.deepcopy(made)).state_dict(),  # not of the same names
        "model_ema": {f"module.{key}": value for key, value in made.state_dict().items()},
        "lr_scheduler": {},
    }
    torch.save(content, tmp_path / "in.pth")
    code, _, err = call(capsys, tmp_path / "in.pth", tmp_path / "out.pth")
    assert code == 2
    assert "in.pth, model_ema: the state does not say" in err
    content["model"] = made.state_dict()
    torch.save(content, tmp_path / "in.pth")
    assert call(capsys, tmp_path / "in.pth", tmp_path / "out.pth")[0] == 0
    torch.testing.assert_close(outputs(tmp_path / "out.pth"), made(IMAGES))


def test_nothing_was_capped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = trained()
    made.fc.alpha = 1e6
    save_file(made.state_dict(), tmp_path / "in.safetensors")
    code, said, _ = call(
        capsys, tmp_path / "in.safetensors", tmp_path / "out.pt", "--alpha", "none"
    )
    assert (code, said.splitlines()[0]) == (0, "weights: folded fc")
    torch.testing.assert_close(outputs(tmp_path / "out.pt"), made(IMAGES))


def folder_of_transformers(folder: Path) -> nn.Module:
    pytest.importorskip("transformers")
    from helpers.transformers_run import classifier

    made = classifier().eval()
    with torch.no_grad():
        made.classifier[1].g.fill_(9.0)
    made.save_pretrained(folder)
    (folder / "optimizer.pt").write_bytes(b"")
    (folder / "vocab.txt").write_text("a")
    return made


@pytest.mark.tried(
    "Leaving FixNorm",
    "transformers: `from_pretrained` of a folder saved unfolded",
    "how to",
    "`fixnorm fold checkpoint-500 plain --alpha 1`",
)
def test_a_folder_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder_of_transformers(tmp_path / "in")
    out = tmp_path / "out"
    code, said, _ = call(capsys, tmp_path / "in", out, "--alpha", "1")
    assert code == 0
    assert "left out, as it is of the weights before: optimizer.pt" in said
    assert sorted(p.name for p in out.iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    images = IMAGES[:, :, :16, :16]
    read, about = type(made).from_pretrained(out, output_loading_info=True)
    assert not about["unexpected_keys"]
    assert not about["missing_keys"]
    torch.testing.assert_close(read.eval()(images).logits, made(images).logits)
    code, _, err = call(capsys, tmp_path / "in", out, "--alpha", "1")
    assert code == 2
    assert f"fixnorm: {out} exists already: replace it with --force or give another place\n" in err
    assert call(capsys, tmp_path / "in", out, "--alpha", "1", "--force")[0] == 0
    assert call(capsys, tmp_path / "in", tmp_path / "one.safetensors", "--alpha", "1")[0] == 0
    assert (tmp_path / "one.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


class Unsafe:
    """Not a tensor, and no plain container."""


def written(folder: Path, what: str) -> Path:
    file = folder / f"{what}.pt"
    if what == "pickled":
        torch.save({"state_dict": {}, "extra": Unsafe()}, file)
    elif what == "noise":
        file.write_bytes(b"hello")
    elif what == "plain":
        torch.save(plain().state_dict(), file)
    elif what == "list":
        torch.save([1], file)
    elif what == "cut":
        file = file.with_suffix(".safetensors")
        file.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    elif what == "sharded":
        file = folder / "sharded"
        file.mkdir()
        (file / "model.safetensors.index.json").write_text("{}")
    elif what == "run":
        file = folder / "run"
        file.mkdir()
        (file / "recipe.json").write_text("{}")
    elif what == "good":
        torch.save(trained().state_dict(), file)
    return file


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        ("pickled", ["OUT"], "holds pickled objects (test_fold_command.Unsafe), which could run"),
        ("noise", ["OUT"], "is no checkpoint that torch can read (KeyError)"),
        ("plain", ["OUT"], "has nothing to fold: no layer in it has a scale g beside its weight"),
        ("list", ["OUT"], "holds a list, not a checkpoint's dict"),
        ("cut", ["OUT"], "is no safetensors file"),
        ("sharded", ["OUT"], "are split over several files: write them as one, save_pretrained("),
        ("run", ["OUT"], "model.bin; for a run of fixnorm train: fixnorm export"),
        ("missing", ["OUT"], "there is no"),
        ("good", ["IN", "--force"], "is the checkpoint itself, which can resume: give another"),
        ("good", ["FOLDER"], "OUT must end in one of .safetensors, .pt,"),
        ("good", ["OUT", "--alpha", "much"], "--alpha must be a positive number or none but got"),
        ("good", ["OUT", "--alpha", "3"], "scale of fc is cut at 2 but got alpha=3"),
        ("good", ["OUT", "--head", "stem"], "head: 'stem' has no scale g in the state; those that"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    what: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path, what)
    places = {"IN": file, "OUT": tmp_path / "out.pt", "FOLDER": tmp_path}
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(capsys, file, *(places.get(word, word) for word in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert "weights_only" not in err
    assert err.startswith("fixnorm: ")
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Example: fixnorm fold model_best.pth.tar plain.pth" in call(capsys, "--help")[1]
