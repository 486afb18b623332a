"""The private names of other libraries: all there, and used in two files alone."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm import internals
from helpers.frameworks import need_ray

SOURCE = Path(fixnorm.__file__).parent
PLACES = ("internals.py", "internals_of_others.py")


def at(path: str) -> Callable[[], Any]:
    """The object at ``module:attribute.attribute``."""

    def found() -> Any:
        module, _, names = path.partition(":")
        value = importlib.import_module(module)
        for name in names.split("."):
            value = getattr(value, name)
        return value

    return found


def lightning_connector() -> Any:
    kind = importlib.import_module("lightning.pytorch").Trainer
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = kind(accelerator="cpu", enable_model_summary=False, **quiet)
    return trainer._logger_connector.should_update_logs


def retinanet_loss() -> str:
    build = importlib.import_module("torchvision.models.detection.retinanet")
    return build.RetinaNetRegressionHead(8, 1)._loss_type


def dispatch_mode_flag() -> Any:
    if torch.__version__ < (2, 12):  # nothing asks for it there, and an override does no harm
        return None
    return at("torch.utils._python_dispatch:TorchDispatchMode._should_skip_dynamo")()


class Private(NamedTuple):
    """One name: whose, what for, and a look that fails where it is gone."""

    library: str
    name: str
    used_for: str
    look: Callable[[], Any]


TABLE = [
    Private(
        "torch", "_foreach_norm", "norms of many weights in one kernel", at("torch:_foreach_norm")
    ),
    Private("torch", "_foreach_mul_", "the rescale in one kernel", at("torch:_foreach_mul_")),
    Private("torch", "_foreach_mul", "factors of many spheres", at("torch:_foreach_mul")),
    Private("torch", "_foreach_reciprocal", "the same", at("torch:_foreach_reciprocal")),
    Private(
        "torch",
        "_patch_step_function",
        "attach to an optimizer that skips Optimizer.__init__",
        at("torch.optim:Optimizer._patch_step_function"),
    ),
    Private(
        "torch",
        "_new_shared",
        "batches that loader processes hand over without a copy",
        lambda: internals.new_shared(2, 3).is_shared() or 1 / 0,
    ),
    Private("torch", "_version", "whether a step wrote to a weight", at("torch:Tensor._version")),
    Private(
        "torch",
        "_NormBase",
        "batch and instance norms, also those of other libraries",
        at("torch.nn.modules.batchnorm:_NormBase"),
    ),
    Private(
        "torch",
        "TorchDispatchMode",
        "which weights evaluation reads",
        at("torch.utils._python_dispatch:TorchDispatchMode"),
    ),
    Private(
        "torch",
        "_should_skip_dynamo",
        "a dispatch mode that does not import the compiler",
        dispatch_mode_flag,
    ),
    Private(
        "torch",
        "_schema",
        "whether an operation returns a view",
        lambda: torch.ops.aten.view.default._schema.returns[0].alias_info,
    ),
    Private(
        "torch", "_pytree", "tensors in nested containers", at("torch.utils._pytree:tree_leaves")
    ),
    Private(
        "torch",
        "_orig_mod",
        "the model under torch.compile",
        lambda: torch.compile(nn.Linear(2, 2))._orig_mod,
    ),
    Private(
        "torch",
        "_checkpoint_wrapped_module",
        "names under activation checkpointing",
        lambda: checkpointed()._checkpoint_wrapped_module,
    ),
    Private(
        "torch",
        "_metadata",
        "the caps in a state dict",
        lambda: nn.Linear(2, 2).state_dict()._metadata[""],
    ),
    Private(
        "torch",
        "_modules",
        "the attribute that keeps a model from being copied",
        lambda: [vars(nn.Module())[name] for name in internals.MODULE_PARTS],
    ),
    Private(
        "torch",
        "_conv_forward",
        "a convolution with a scaled weight",
        at("torch.nn:Conv2d._conv_forward"),
    ),
    Private(
        "torch",
        "_output_padding",
        "a transposed convolution with a scaled weight",
        at("torch.nn:ConvTranspose2d._output_padding"),
    ),
    Private(
        "torch",
        "_save_to_state_dict",
        "overridden: the cap goes into the state dict's metadata",
        at("torch.nn:Module._save_to_state_dict"),
    ),
    Private(
        "torch",
        "_load_from_state_dict",
        "overridden: a plain layer's state gives g",
        at("torch.nn:Module._load_from_state_dict"),
    ),
    Private(
        "torch",
        "_get_default_store",
        "which of many processes says what went wrong",
        at("torch.distributed.distributed_c10d:_get_default_store"),
    ),
    Private(
        "torch",
        "_convolution",
        "multiply-adds of convolutions",
        at("torch.ops:aten._convolution"),
    ),
    Private(
        "ray",
        "ENABLE_RAY_CLUSTER",
        "a Ray that listens to this machine alone",
        at("ray._private.ray_constants:ENABLE_RAY_CLUSTER"),
    ),
    Private(
        "optuna",
        "_trial_id",
        "telling a trial that another process asked for",
        lambda: importlib.import_module("optuna").create_study().ask()._trial_id,
    ),
    Private("lightning", "_logger_connector", "logging when the trainer does", lightning_connector),
    Private("torchvision", "_loss_type", "RetinaNet's smooth L1 loss", retinanet_loss),
]
OVERRIDDEN = {"_save_to_state_dict", "_load_from_state_dict"}
OTHERS = {"ray", "optuna", "lightning"}


def checkpointed() -> Any:
    wrappers = importlib.import_module(
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
    )
    return wrappers.checkpoint_wrapper(nn.Linear(2, 2))


@pytest.mark.parametrize("private", TABLE, ids=lambda private: f"{private.library} {private.name}")
def test_the_name_is_still_there(private: Private) -> None:
    if private.library == "ray":
        need_ray()
    elif private.library not in ("torch", "python"):
        pytest.importorskip(private.library)
    try:
        private.look()
    except (ImportError, AttributeError, KeyError, AssertionError) as error:
        own = "" if private.library == "python" else f" {version(private.library)}"
        pytest.fail(
            f"{private.library}{own} has no {private.name} any more, used for: {private.used_for}. "
            f"Mend {PLACES[private.library in OTHERS]} ({type(error).__name__}: {error})"
        )


def test_a_name_that_is_gone_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "_foreach_norm")
    told = rf"torch {re.escape(version('torch'))} has no _foreach_norm any more, used for: norms of"
    with pytest.raises(pytest.fail.Exception, match=told):
        test_the_name_is_still_there(TABLE[0])


def test_the_table_has_every_private_name_of_the_files() -> None:
    known = {private.name for private in TABLE}
    trees = [ast.parse((SOURCE / name).read_text()) for name in PLACES]
    used = {name for tree in trees for name, _ in foreign_names(tree, own=set())}
    used -= {"_python_dispatch", "_private"}
    assert used <= known
    assert used >= known - OVERRIDDEN - {
        *("_orig_mod", "_checkpoint_wrapped_module", "_metadata", "_modules", "_schema"),  # texts
        *("TorchDispatchMode", "_should_skip_dynamo", "ENABLE_RAY_CLUSTER"),
    }


def test_no_other_file_uses_a_private_name_of_a_library() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    own = {name for tree in trees.values() for name in defined(tree)}
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path, tree in trees.items()
        if path.name not in PLACES
        for name, line in foreign_names(tree, own=own)
    ]
    assert not found, f"private names of other libraries belong into {' or '.join(PLACES)}"


def defined(tree: ast.AST) -> Iterator[str]:
    """Names that are functions, classes, attributes or fields of this package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


PUBLIC = {"_exit", "_replace", "_asdict", "_fields"}  # documented, of os and of named tuples


def foreign_names(tree: ast.AST, *, own: set[str]) -> Iterator[tuple[str, int]]:
    """Private attributes and imports that the package does not define itself."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("fixnorm"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        for name in names:
            private = name.startswith("_") and not name.startswith("__")
            if private and name not in own | PUBLIC:
                yield name, node.lineno
