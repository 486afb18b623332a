"""What the scopes are compared on: small nets with layer or group norms, on images and on text.

The text is the source of Python's standard library, which every machine has: whole files are kept
for validation.
"""

from __future__ import annotations

import hashlib
import math
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

import auto_lr_images
from auto_lr_settings import Setting as ImageSetting
from auto_lr_settings import Source
from fixnorm import models
from small_gpt import SmallGPT

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A net, what it is trained on, and how long."""

    name: str
    net: str
    """Of :mod:`fixnorm.models`; ``-gn`` after it puts group norms in the place of batch norms;
    ``gpt`` and ``gpt-tied`` are :class:`small_gpt.SmallGPT`."""
    epochs: int = 4
    source: Source = "cifar10"
    classes: int = 10
    per_class: int = 500
    width: int = 64
    depth: int = 4
    files: Literal["judged", "other"] = "judged"
    """Of a language model: which of the two texts."""
    steps: int = 250
    batch: int = 64

    @property
    def is_text(self) -> bool:
        """Whether it is a language model, judged by its loss."""
        return self.net.startswith("gpt")

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.net == "gpt-tied"

    @property
    def images(self) -> ImageSetting:
        """What ``auto_lr_images`` makes batches of."""
        return ImageSetting(
            name=self.name,
            net=self.net,
            source=self.source,
            per_class=self.per_class,
            classes=self.classes,
            epochs=self.epochs,
            batch=self.batch,
        )


JUDGED = (
    Setting(name="convnext", net="micronet-convnext"),
    Setting(name="vit", net="micronet-vit"),
    Setting(name="gpt", net="gpt", batch=16),
    Setting(name="gpt-tied", net="gpt-tied", batch=16),
    Setting(name="resnet-gn", net="resnet8-w8-gn"),
)
LONG = tuple(
    (replace(short, name=f"{short.name}-long", epochs=16, steps=1000), short)
    for short in JUDGED
    if short.name in ("vit", "gpt")
)
"""Four times the steps, beside the usual length."""
CHOOSING = (
    *(
        Setting(
            name=f"{steps}-characters",
            net="gpt",
            width=32,
            depth=2,
            files="other",
            batch=16,
            steps=steps,
        )
        for steps in (100, 400, 1600)
    ),
    *(
        Setting(
            name=f"{net}-tiny-{epochs}",
            net=f"micronet-{net}",
            source="tiny-imagenet-32",
            classes=50,
            per_class=100,
            epochs=epochs,
        )
        for net, epochs in (("vit", 3), ("vit", 12), ("convnext", 3))
    ),
)
"""Other texts and images than those of the judgement, and other lengths: what the constants of a
rule are chosen on."""
WIDTHS = tuple(
    Setting(name=f"gpt-w{width}", net="gpt", width=width, batch=16) for width in (32, 64, 128)
)
"""For the transfer of what was tuned at the first of them."""
CONTEXT = 64
_FILES = (
    "argparse ast asyncio/base_events bdb calendar codecs collections/__init__ configparser csv "
    "dataclasses datetime decimal difflib dis doctest enum fractions ftplib functools gettext glob "
    "gzip heapq hmac imaplib inspect ipaddress locale logging/__init__ mailbox mimetypes"
)
_VALIDATION = "pathlib pdb pickle platform random shutil smtplib statistics"
_OTHER_FILES = (
    "optparse os pickletools plistlib poplib posixpath pprint profile pstats pydoc queue "
    "re/__init__ sched selectors shelve shlex site socket socketserver ssl string subprocess"
)
_OTHER_VALIDATION = "tarfile tempfile textwrap threading timeit tokenize trace"
CHARACTERS = 97
"""Printable ASCII, the new line, and one for all else."""


@dataclass(frozen=True, slots=True)
class Text:
    """Characters as numbers."""

    train: Tensor
    val: Tensor
    digest: str
    """Tells the text of one version of Python from another's."""


@cache
def text(files: Literal["judged", "other"] = "judged") -> Text:
    """What language models are trained on, and validated with."""
    names = (_FILES, _VALIDATION) if files == "judged" else (_OTHER_FILES, _OTHER_VALIDATION)
    train, val = map(_encoded, names)
    digest = hashlib.sha256(bytes(torch.cat([train, val]).tolist())).hexdigest()[:12]
    return Text(train, val, digest)


def _encoded(names: str) -> Tensor:
    found = [Path(sysconfig.get_paths()["stdlib"], f"{name}.py") for name in names.split()]
    files = [path if path.exists() else path.with_suffix("") / "__init__.py" for path in found]
    text = "\n".join(file.read_text() for file in files)
    codes = [ord(c) - 32 if " " <= c <= "~" else 95 if c == "\n" else 96 for c in text]
    return torch.tensor(codes)


def network(setting: Setting) -> nn.Module:
    """A fresh net, from torch's generator as it stands."""
    if setting.is_text:
        return SmallGPT(
            CHARACTERS,
            width=setting.width,
            depth=setting.depth,
            context=CONTEXT,
            tied=setting.tied,
        )
    net = models.create(setting.net.removesuffix("-gn"), num_classes=setting.classes, in_chans=3)
    if setting.net.endswith("-gn"):
        for module in list(net.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, nn.GroupNorm(4, child.num_features))
    return net.to(memory_format=torch.channels_last)


def steps_of(setting: Setting, data: Path) -> int:
    """T."""
    if setting.is_text:
        return setting.steps
    return auto_lr_images.steps_of(setting.images, auto_lr_images.images_of(setting.images, data))


def batches(setting: Setting, data: Path, seed: int) -> Iterator[Batch]:
    """The same for every side: all follows from the seed."""
    if not setting.is_text:
        images = auto_lr_images.images_of(setting.images, data)
        yield from auto_lr_images.batches(setting.images, images, seed)
        return
    characters, generator = text(setting.files).train, torch.Generator().manual_seed(seed)
    for _ in range(setting.steps):
        starts = torch.randint(len(characters) - CONTEXT, (setting.batch, 1), generator=generator)
        found = characters[starts + torch.arange(CONTEXT + 1)]
        yield found[:, :-1], found[:, 1:]


def loss_of(setting: Setting, outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy; of images with a smoothed label, as everywhere here."""
    if setting.is_text:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


@torch.no_grad()
def score_of(setting: Setting, model: nn.Module, data: Path) -> float:
    """Percent of 10,000 validation images, or the loss in nats a character with its sign turned."""
    model.eval()
    if setting.is_text:
        seen = text(setting.files).val[: 1000 * CONTEXT + 1]
        x, y = seen[:-1].view(-1, CONTEXT), seen[1:].view(-1, CONTEXT)
        losses = [
            float(loss_of(setting, model(a), b)) * len(a)
            for a, b in zip(x.split(250), y.split(250), strict=True)
        ]
        return -math.fsum(losses) / len(x)
    images = auto_lr_images.images_of(setting.images, data)
    right = sum(
        int((model(x.contiguous(memory_format=torch.channels_last)).argmax(1) == y).sum())
        for x, y in zip(images.val.split(1000), images.val_labels.split(1000), strict=True)
    )
    return 100 * right / len(images.val)
