"""Small nets with layer norms in the place of batch norms, on timm's classes.

No weight of theirs is scale-invariant by itself: `docs/beyond-cnns.md`.
"""

from collections.abc import Callable

from torch import nn

from fixnorm.models.input_size import set_input_size
from fixnorm.models.options import Options
from fixnorm.models.registries import need_timm


def _vit(options: Options) -> nn.Module:
    """Patches of 8×8, three blocks of width 48, mean over patches instead of a class token."""
    vit: nn.Module = need_timm().models.vision_transformer.VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=48,
        depth=3,
        num_heads=4,
        class_token=False,
        global_pool="avg",
        dynamic_img_size=True,
        dynamic_img_pad=True,
        num_classes=options.num_classes or 10,
        in_chans=options.in_chans or 3,
        drop_rate=options.drop,
        drop_path_rate=options.drop_path,
    )
    return _sized(vit, options)


def _convnext(options: Options) -> nn.Module:
    """One block a stage; kernels of 3×3, as the maps are 8×8 and smaller."""
    convnext: nn.Module = need_timm().models.convnext.ConvNeXt(
        depths=(1, 1, 1, 1),
        dims=(24, 48, 64, 64),
        kernel_sizes=3,
        ls_init_value=0.1,  # timm's 1e-6 is meant for deep nets and long trainings
        num_classes=options.num_classes or 10,
        in_chans=options.in_chans or 3,
        drop_rate=options.drop,
        drop_path_rate=options.drop_path,
    )
    return _sized(convnext, options)


def _sized(model: nn.Module, options: Options) -> nn.Module:
    set_input_size(model, (options.in_chans or 3, 32, 32))
    return model


NETS: dict[str, Callable[[Options], nn.Module]] = {
    "micronet-vit": _vit,
    "micronet-convnext": _convnext,
}
