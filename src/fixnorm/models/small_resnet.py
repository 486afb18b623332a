"""CIFAR ResNets (He et al. 2016, section 4.2) and their D variants (He et al. 2019).

Depth 6n+2: a 3×3 stem, three stages of n basic blocks (widths w, 2w, 4w; stages two and three halve
the image), global average pooling and a linear head. Any input size works.
"""

import re
from collections.abc import Callable

from torch import Tensor, nn

from fixnorm.models.options import Options, set_input_size

# Not every 6n+2: 50 is the paper's ResNet50.
DEPTHS = (8, 14, 20, 32, 44, 56)
NAMES = (*(f"resnet{depth}{d}" for d in ("", "d") for depth in DEPTHS), "digits-resnet")

_NAME = re.compile(r"resnet(?P<depth>\d+)(?P<d>d?)(-w(?P<width>[1-9]\d*))?(?P<s2>-s2)?")


def builder(name: str) -> Callable[[Options], nn.Module] | None:
    """Return the builder of a name such as `resnet8d-w32-s2`, or `None` if it is not one."""
    if name == "digits-resnet":
        return lambda options: _build(options, blocks=1, width=16, grey=True, size=8)
    match = _NAME.fullmatch(name)
    if match is None or int(match["depth"]) not in DEPTHS:
        return None
    blocks, width = (int(match["depth"]) - 2) // 6, int(match["width"] or 16)
    deep, stride = bool(match["d"]), 2 if match["s2"] else 1
    if deep and width % 2:
        raise ValueError(f"{name!r}: the D stem is half as wide first, so the width must be even")
    return lambda options: _build(options, blocks=blocks, width=width, deep=deep, stride=stride)


def relatives(name: str) -> list[str]:
    """Return the names of the family with the suffix of a name that is not one of it."""
    suffix = re.search(r"(-w[1-9]\d*)?(-s2)?$", name)
    return [f"{known}{suffix[0]}" for known in NAMES[:-1]] if suffix and suffix[0] else []


def _build(
    options: Options,
    *,
    blocks: int,
    width: int,
    deep: bool = False,
    stride: int = 1,
    grey: bool = False,
    size: int = 32,
) -> nn.Module:
    model = SmallResNet(
        blocks=blocks,
        width=width,
        deep=deep,
        stem_stride=stride,
        in_chans=options.in_chans or (1 if grey else 3),
        num_classes=options.num_classes or 10,
        drop_path=options.drop_path,
        drop=options.drop,
    )
    set_input_size(model, (model.in_chans, size, size))
    return model


class DropPath(nn.Module):
    """Stochastic depth: a sample's branch is 0 with probability p, else 1/(1-p) times itself."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop the branch of each sample on its own, in train mode only."""
        if not self.training or self.p == 0.0:
            return x
        keep = 1.0 - self.p
        return x * x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(keep).div_(keep)

    def extra_repr(self) -> str:
        return f"p={self.p:.3g}"


def _conv3x3(in_chans: int, out_chans: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_chans, out_chans, 3, stride=stride, padding=1, bias=False)


def _stem(in_chans: int, width: int, *, stride: int, deep: bool) -> nn.Sequential:
    widths = (width // 2, width // 2, width) if deep else (width,)
    layers: list[nn.Module] = []
    for out_chans in widths:
        layers += [_conv3x3(in_chans, out_chans, stride=stride), nn.BatchNorm2d(out_chans)]
        layers += [nn.ReLU(inplace=True)]
        in_chans, stride = out_chans, 1
    return nn.Sequential(*layers)


def _shortcut(in_chans: int, out_chans: int, *, stride: int, deep: bool) -> nn.Module:
    if stride == 1 and in_chans == out_chans:
        return nn.Identity()
    layers: list[nn.Module] = []
    if deep and stride > 1:
        # ceil_mode: odd sizes must halve as the 3×3 conv of the branch halves them
        layers += [nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)]
        stride = 1
    layers += [nn.Conv2d(in_chans, out_chans, 1, stride=stride, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(out_chans))


class Block(nn.Module):
    """ReLU(shortcut(x) + BN(conv(ReLU(BN(conv(x))))))."""

    def __init__(
        self, in_chans: int, out_chans: int, *, stride: int, deep: bool, drop_path: float
    ) -> None:
        super().__init__()
        self.conv1 = _conv3x3(in_chans, out_chans, stride=stride)
        self.bn1 = nn.BatchNorm2d(out_chans)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = _conv3x3(out_chans, out_chans)
        self.bn2 = nn.BatchNorm2d(out_chans)
        self.drop_path = DropPath(drop_path)
        self.shortcut = _shortcut(in_chans, out_chans, stride=stride, deep=deep)
        self.act2 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.act1(self.bn1(self.conv1(x)))
        branch = self.drop_path(self.bn2(self.conv2(branch)))
        y: Tensor = self.act2(branch + self.shortcut(x))
        return y


class SmallResNet(nn.Module):
    """A CIFAR ResNet with timm's method names."""

    def __init__(
        self,
        *,
        blocks: int,
        width: int,
        deep: bool = False,
        stem_stride: int = 1,
        in_chans: int = 3,
        num_classes: int = 10,
        drop_path: float = 0.0,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_chans, self.num_classes, self.num_features = in_chans, num_classes, 4 * width
        self.stem = _stem(in_chans, width, stride=stem_stride, deep=deep)

        # The rate grows linearly from 0 at the first block to drop_path at the last.
        rates = [drop_path * i / (3 * blocks - 1) for i in range(3 * blocks)]
        stages: list[nn.Module] = []
        chans = width
        for stage in range(3):
            layers: list[nn.Module] = []
            for i in range(blocks):
                stride = 2 if stage > 0 and i == 0 else 1
                out_chans = width * 2**stage
                rate = rates[stage * blocks + i]
                layers += [Block(chans, out_chans, stride=stride, deep=deep, drop_path=rate)]
                chans = out_chans
            stages += [nn.Sequential(*layers)]
        self.stages = nn.Sequential(*stages)

        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(chans, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last stage's map, (B, 4w, H, W)."""
        y: Tensor = self.stages(self.stem(x))
        return y

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool the map; return the head's input (B, 4w) if `pre_logits`, else the logits."""
        x = self.drop(self.pool(x).flatten(1))
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))
