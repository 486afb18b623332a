"""The paper's models and the small inverted-residual nets, on timm's builders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import nn

from fixnorm.models.input_size import set_input_size
from fixnorm.models.options import Options
from fixnorm.models.registries import need_timm

# timm's block strings: kind, repeats, kernel, stride, expansion, output channels
_MOBILENETV2 = (
    "ds_r1_k3_s1_c16",
    "ir_r2_k3_s2_e6_c24",
    "ir_r3_k3_s2_e6_c32",
    "ir_r4_k3_s2_e6_c64",
    "ir_r3_k3_s1_e6_c96",
    "ir_r3_k3_s2_e6_c160",
    "ir_r1_k3_s1_e6_c320",
)
# The stem halves the image as well: 32×32 images end as 4×4 maps.
_TINY = (
    "ds_r1_k3_s1_c16",
    "ir_r2_k3_s1_e6_c24",
    "ir_r2_k3_s2_e6_c32",
    "ir_r2_k3_s2_e6_c64",
    "ir_r1_k3_s1_e6_c96",
)
# For grids and searches: ten times as fast.
_MICRO = (
    "ds_r1_k3_s1_c8",
    "ir_r1_k3_s2_e4_c16",
    "ir_r2_k3_s2_e4_c24",
    "ir_r1_k3_s1_e4_c32",
)


@dataclass(frozen=True, kw_only=True)
class _Inverted:
    """A net of inverted residuals; `star` adds SE (a quarter of the block's input) and SiLU."""

    blocks: Sequence[str]
    star: bool
    multiplier: float = 1.0
    divisor: int = 8
    stem: int
    head: int
    size: int
    num_classes: int

    def build(self, options: Options) -> nn.Module:
        """Build it with timm's EfficientNet class, which MobileNetV2 is a case of."""
        effnet = need_timm().models.efficientnet
        scale = partial(effnet.round_channels, multiplier=self.multiplier, divisor=self.divisor)
        in_chans = options.in_chans or 3
        model: nn.Module = effnet.EfficientNet(
            effnet.decode_arch_def([[f"{b}_se0.25" if self.star else b] for b in self.blocks]),
            num_features=scale(self.head),
            stem_size=self.stem,
            round_chs_fn=scale,
            act_layer=nn.SiLU if self.star else nn.ReLU6,
            num_classes=options.num_classes or self.num_classes,
            in_chans=in_chans,
            drop_rate=options.drop,
            drop_path_rate=options.drop_path,
        )
        set_input_size(model, (in_chans, self.size, self.size))
        return model


def _wider_mobilenetv2(multiplier: float, *, divisor: int) -> Callable[[Options], nn.Module]:
    return _Inverted(
        blocks=_MOBILENETV2,
        star=True,
        multiplier=multiplier,
        divisor=divisor,
        stem=32,
        head=1280,
        size=224,
        num_classes=1000,
    ).build


def _tiny(*, star: bool) -> Callable[[Options], nn.Module]:
    return _Inverted(blocks=_TINY, star=star, stem=16, head=320, size=32, num_classes=10).build


def _micro(*, star: bool) -> Callable[[Options], nn.Module]:
    return _Inverted(blocks=_MICRO, star=star, stem=8, head=128, size=32, num_classes=10).build


def _named(timm_name: str, *, size: int, star: bool = False) -> Callable[[Options], nn.Module]:
    def build(options: Options) -> nn.Module:
        timm = need_timm()
        in_chans = options.in_chans or 3
        extra = {"act_layer": nn.SiLU, "block_args": {"attn_layer": "se"}} if star else {}
        model: nn.Module = timm.create_model(
            timm_name,
            num_classes=options.num_classes or 1000,
            in_chans=in_chans,
            drop_rate=options.drop,
            drop_path_rate=options.drop_path,
            **extra,
        )
        set_input_size(model, (in_chans, size, size))
        return model

    return build


PAPER: dict[str, Callable[[Options], nn.Module]] = {
    "resnet50": _named("resnet50", size=224),
    "resnet50d": _named("resnet50d", size=224),
    "resnet50d-star": _named("resnet50d", size=224, star=True),
    "mobilenetv2": _named("mobilenetv2_100", size=224),
    "mobilenetv2-x1.12-star": _wider_mobilenetv2(1.12, divisor=4),
    "mobilenetv2-x1.54-star": _wider_mobilenetv2(1.54, divisor=8),
    "efficientnet-b0": _named("efficientnet_b0", size=224),
    "efficientnet-b1": _named("efficientnet_b1", size=240),
}

TINY: dict[str, Callable[[Options], nn.Module]] = {
    "tinynet-mobilenetv2": _tiny(star=False),
    "tinynet-se": _tiny(star=True),
    "micronet-mobilenetv2": _micro(star=False),
    "micronet-se": _micro(star=True),
}
