"""The paper's models, and small nets of inverted residuals or layer norms, on timm's builders."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from fixnorm.models.options import Options, set_input_size
from fixnorm.models.registries import need_timm

Builder = Callable[[Options], nn.Module]

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


def _built(
    build: Callable[..., nn.Module], options: Options, *, size: int, classes: int, **own: Any
) -> nn.Module:
    in_chans = options.in_chans or 3
    model = build(
        num_classes=options.num_classes or classes,
        in_chans=in_chans,
        drop_rate=options.drop,
        drop_path_rate=options.drop_path,
        **own,
    )
    set_input_size(model, (in_chans, size, size))
    return model


def _named(timm_name: str, *, size: int, star: bool = False) -> Builder:
    def build(options: Options) -> nn.Module:
        extra = {"act_layer": nn.SiLU, "block_args": {"attn_layer": "se"}} if star else {}
        create = partial(need_timm().create_model, timm_name)
        return _built(create, options, size=size, classes=1000, **extra)

    return build


def _inverted(
    blocks: Sequence[str],
    *,
    star: bool,
    stem: int,
    head: int,
    size: int = 32,
    classes: int = 10,
    multiplier: float = 1.0,
    divisor: int = 8,
) -> Builder:
    """A net of inverted residuals; `star` adds SE (a quarter of the block's input) and SiLU."""

    def build(options: Options) -> nn.Module:
        effnet = need_timm().models.efficientnet  # MobileNetV2 is a case of its EfficientNet
        scale = partial(effnet.round_channels, multiplier=multiplier, divisor=divisor)
        return _built(
            effnet.EfficientNet,
            options,
            size=size,
            classes=classes,
            block_args=effnet.decode_arch_def([[f"{b}_se0.25" if star else b] for b in blocks]),
            num_features=scale(head),
            stem_size=stem,
            round_chs_fn=scale,
            act_layer=nn.SiLU if star else nn.ReLU6,
        )

    return build


_wider = partial(_inverted, _MOBILENETV2, star=True, stem=32, head=1280, size=224, classes=1000)
_tiny = partial(_inverted, _TINY, stem=16, head=320)
_micro = partial(_inverted, _MICRO, stem=8, head=128)


# Layer norms in the place of batch norms: no weight of these is scale-invariant by itself
# (docs/beyond-cnns.md).


def _vit(options: Options) -> nn.Module:
    """Patches of 8×8, three blocks of width 48, mean over patches instead of a class token."""
    return _built(
        need_timm().models.vision_transformer.VisionTransformer,
        options,
        size=32,
        classes=10,
        img_size=32,
        patch_size=8,
        embed_dim=48,
        depth=3,
        num_heads=4,
        class_token=False,
        global_pool="avg",
        dynamic_img_size=True,
        dynamic_img_pad=True,
    )


def _convnext(options: Options) -> nn.Module:
    """One block a stage; kernels of 3×3, as the maps are 8×8 and smaller."""
    return _built(
        need_timm().models.convnext.ConvNeXt,
        options,
        size=32,
        classes=10,
        depths=(1, 1, 1, 1),
        dims=(24, 48, 64, 64),
        kernel_sizes=3,
        ls_init_value=0.1,  # timm's 1e-6 is meant for deep nets and long trainings
    )


PAPER: dict[str, Builder] = {
    "resnet50": _named("resnet50", size=224),
    "resnet50d": _named("resnet50d", size=224),
    "resnet50d-star": _named("resnet50d", size=224, star=True),
    "mobilenetv2": _named("mobilenetv2_100", size=224),
    "mobilenetv2-x1.12-star": _wider(multiplier=1.12, divisor=4),
    "mobilenetv2-x1.54-star": _wider(multiplier=1.54, divisor=8),
    "efficientnet-b0": _named("efficientnet_b0", size=224),
    "efficientnet-b1": _named("efficientnet_b1", size=240),
}

TINY: dict[str, Builder] = {
    "tinynet-mobilenetv2": _tiny(star=False),
    "tinynet-se": _tiny(star=True),
    "micronet-mobilenetv2": _micro(star=False),
    "micronet-se": _micro(star=True),
    "micronet-vit": _vit,
    "micronet-convnext": _convnext,
}
