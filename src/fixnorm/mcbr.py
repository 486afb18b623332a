"""Mean Cross-Boundary Risk: how far the features lean towards the boundaries of their class.

For a feature x of class k and a classifier weight W with C rows (section 2 of the paper):

    MCBR(x, k, W) = 1/(C−1) · Σ_{j≠k} cos(x, W_j − W_k)

Written out, the sum over a batch needs a B×C×d tensor of differences. It does not have to be:

    cos(x, W_j − W_k) = (x̂·W_j − x̂·W_k) / ‖W_j − W_k‖        x̂ = x/‖x‖
    ‖W_j − W_k‖²      = ‖W_j‖² + ‖W_k‖² − 2·W_j·W_k

The samples of one class share every denominator, so their x̂ are summed first, M_k = Σ x̂, and two
matrix products over the U classes present in the batch remain: M·Wᵀ and W_U·Wᵀ. Both are float64:
the differences cancel, and float32 would lose what is left of nearly equal class vectors.
"""

import math
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["MeanCrossBoundaryRisk", "mean_cross_boundary_risk"]

# Float64 elements of one temporary, 16 MB: enough for a matrix product to run at full speed.
_BLOCK = 2**21

# Terms of one running sum in a matrix product.
_DEPTH = 1024

# Two class vectors are equal when ‖W_j − W_k‖² is at most this share of ‖W_j‖² + ‖W_k‖²: the
# float64 rounding of that difference is some 1e-16 of the sum, so below it only noise is left.
_EQUAL = 1e-14


def mean_cross_boundary_risk(features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of MCBR(x, k, W) = 1/(C−1) · Σ_{j≠k} cos(x, W_j − W_k) over a batch.

    It lies between −1 (every feature points straight away from all other classes) and 1, and does
    not depend on the length of a feature or on the scale of the whole weight, so the ``weight`` of
    a ``FixNormLinear`` needs no multiplication by g/‖W‖. No gradient flows through it.

    Args:
        features: (B, d), what the classifier multiplies with its weight; any floating dtype.
        labels: (B,), integer classes from 0 to C−1, on any device. They are read on the host once,
            which is the only synchronisation.
        weight: (C, d), the classifier's weight, on the features' device.

    Returns:
        A 0-d float64 tensor on the features' device. A device without float64 (mps) has it
        computed on the CPU and gets it back as float32.

    Degenerate inputs have a defined answer:

    - a zero feature has no direction: it counts as a sample whose risk is 0;
    - equal class vectors (‖W_j − W_k‖² ≤ 1e-14·(‖W_j‖² + ‖W_k‖²)) have no boundary: their cosine
      is 0 and still counts among the C−1;
    - one class (C = 1) has no other class: 0;
    - a NaN or infinity in features, or in weight, gives NaN;
    - an empty batch has no mean: ``ValueError``.

    Memory beside the inputs: one min(B, C)×d float64 matrix and a few temporaries of at most
    2²¹ float64 elements (16 MB; of one row, where d is larger than that). For 21,841 classes,
    d = 2048 and B = 1024 that is 16 MB and 80 MB, instead of 180 MB for each B×C matrix, 360 MB for
    the weight in float64 and 180 GB for the differences in float32.

    Rounding: a cosine is off by about 1e-16·(‖W_j‖² + ‖W_k‖²)/‖W_j − W_k‖².

    Examples:
        >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # the boundary's normal: (−1, 1)/√2
        >>> features = torch.tensor([[2.0, 0.0]])
        >>> mean_cross_boundary_risk(features, torch.tensor([0]), weight)  # −1/√2
        tensor(-0.7071, dtype=torch.float64)
    """
    _check(features, labels, weight)
    if len(features) == 0:
        raise ValueError(
            "the mean over an empty batch is not defined but features has 0 rows: skip the batch, "
            "or use MeanCrossBoundaryRisk, whose update() ignores it"
        )
    mean = _mean(_total_risk(features, labels, weight), len(features))
    if _float64_device(features.device) == features.device:
        return mean
    return mean.to(features.device, torch.float32)


class MeanCrossBoundaryRisk:
    """Accumulate ``mean_cross_boundary_risk`` over batches and processes.

        risk = MeanCrossBoundaryRisk()
        for features, labels in batches:
            risk.update(features, labels, head.weight)
        print(risk.compute())

    Every sample counts once, whatever the batch sizes; each batch is held against the weight it
    was given. The state is a float64 total and an int64 count.

    Args:
        device: where the state lives; by default where the first batch's features are (the CPU for
            mps). Name it where a process may see no batch at all and the backend, like nccl,
            reduces only tensors of its own device.
    """

    total: Tensor
    count: Tensor

    def __init__(self, *, device: torch.device | str | None = None) -> None:
        self._given_device = None if device is None else torch.device(device)
        self.reset()

    def reset(self) -> None:
        """Forget every sample, as before the first update."""
        self._device = self._given_device
        self.total = torch.zeros((), dtype=torch.float64, device=self._device or "cpu")
        self.count = torch.zeros((), dtype=torch.int64, device=self._device or "cpu")

    def update(self, features: Tensor, labels: Tensor, weight: Tensor) -> None:
        """Add a batch: features (B, d), labels (B,), weight (C, d); B = 0 adds nothing."""
        _check(features, labels, weight)
        if len(features) == 0:
            return
        self._add(_total_risk(features, labels, weight), len(features))

    def merge(self, other: "MeanCrossBoundaryRisk") -> None:
        """Add the samples that another metric has seen."""
        if not isinstance(other, MeanCrossBoundaryRisk):
            raise TypeError(
                f"only a MeanCrossBoundaryRisk can be merged but got {type(other).__name__}: "
                "pass the metric itself, not what its compute() returned"
            )
        self._add(other.total, other.count)

    @torch.no_grad()
    def compute(self, *, group: dist.ProcessGroup | None = None, sync: bool = True) -> Tensor:
        """Return the mean over all samples seen, a 0-d float64 tensor; NaN before the first one.

        Where ``torch.distributed`` is initialised the mean is over the samples of every process of
        ``group`` (all of them by default), each of which must make this call; ``sync=False`` keeps
        to this process. The state stays as it is, so a second call returns the same.
        """
        if not (sync and dist.is_available() and dist.is_initialized()):
            return _mean(self.total, self.count)
        # One message for both: float64 holds every count up to 2^53.
        state = torch.stack([self.total, self.count.to(torch.float64)])
        dist.all_reduce(state, group=group)
        return _mean(state[0], state[1])

    @torch.no_grad()
    def _add(self, total: Tensor, count: Tensor | int) -> None:
        if self._device is None:
            self._device = total.device
            self.total, self.count = self.total.to(self._device), self.count.to(self._device)
        if isinstance(count, Tensor):
            count = count.to(self._device)
        # Not in place: a state born in torch.inference_mode() may not be written to outside it.
        self.total = self.total + total.to(self._device)
        self.count = self.count + count


def _mean(total: Tensor, count: Tensor | int) -> Tensor:
    return total / count


@torch.no_grad()
def _total_risk(
    features_BD: Tensor, labels_B: Tensor, weight_CD: Tensor, *, block: int = _BLOCK
) -> Tensor:
    """Σ over the batch of MCBR(x, k, W), in tiles whose temporaries hold ``block`` elements."""
    C, d = weight_CD.shape
    # One copy to the host serves the range check and gives the shape of M.
    present, inverse_B, counts_U = torch.unique(
        labels_B.cpu().to(torch.int64), return_inverse=True, return_counts=True
    )
    _check_range(int(present[0]), int(present[-1]), C)

    device = _float64_device(features_BD.device)
    features_BD, weight_CD = features_BD.to(device), weight_CD.to(device)
    classes_U, counts_U = present.to(device), counts_U.to(device, torch.float64)
    inverse_B = inverse_B.to(device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    if C == 1:
        return total

    # step·d and step·step, the sizes of every temporary below, stay within the block.
    step = max(1, min(block // max(d, 1), math.isqrt(block)))

    M_UD = torch.zeros(len(present), d, dtype=torch.float64, device=device)
    for batch in _slices(len(features_BD), step):
        M_UD.index_add_(0, inverse_B[batch], _unit_rows(features_BD[batch]))

    for rows in _slices(len(present), step):
        M, n_k = M_UD[rows], counts_U[rows, None]
        W_k = weight_CD[classes_U[rows]].to(torch.float64)
        M_W_k, sq_k = _row_dots(M, W_k), _row_dots(W_k, W_k)
        for columns in _slices(C, step):
            W_j = weight_CD[columns].to(torch.float64)
            scale = sq_k + _row_dots(W_j, W_j).T
            distance_sq = torch.sub(scale, _products(W_k, W_j), alpha=2)
            # NaN ≤ ε and ∞ ≤ max are false: a broken weight does not pass for equal vectors.
            epsilon = scale.mul_(_EQUAL).clamp_(max=torch.finfo(torch.float64).max)
            no_boundary = distance_sq <= epsilon  # j = k among them
            cosines = _products(M, W_j).sub_(M_W_k).div_(distance_sq.sqrt_())
            # Rounding alone can take n_k unit vectors beyond n_k; the mean stays in [−1, 1].
            cosines.clamp_(-n_k, n_k)
            total += cosines.masked_fill_(no_boundary, 0.0).sum()
    return total / (C - 1)


def _unit_rows(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
    return x / norms.masked_fill(norms == 0, 1.0)


def _row_dots(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=1, keepdim=True)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """a·bᵀ in pieces of d: one long running sum would round by √d·1e-16 and outgrow _EQUAL."""
    out = a.new_zeros(len(a), len(b))
    for depth in _slices(a.shape[1], _DEPTH):
        out += a[:, depth] @ b[:, depth].T  # addmm_ would go on with the running sum of out
    return out


def _slices(n: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _float64_device(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device


def _check(features: Tensor, labels: Tensor, weight: Tensor) -> None:
    """Refuse what cannot be features (B, d), labels (B,) and weight (C, d)."""
    for name, value in (("features", features), ("labels", labels), ("weight", weight)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name} must be a tensor but got {type(value).__name__}: "
                "convert it with torch.as_tensor"
            )
    for name, value in (("features", features), ("weight", weight)):
        if not value.is_floating_point():
            raise TypeError(
                f"{name} must have a floating dtype but got {value.dtype}: "
                "convert it with .float(), and mind the order features, labels, weight"
            )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(
            f"labels must be integer class indices but got {labels.dtype}: convert them with "
            ".long(), or soft labels with .argmax(dim=1)"
        )
    if features.ndim != 2:
        raise ValueError(
            f"features must have shape (B, d) but got {tuple(features.shape)}: "
            "pass what the classifier multiplies, pooled and flattened"
        )
    if labels.ndim != 1:
        raise ValueError(
            f"labels must have shape (B,) but got {tuple(labels.shape)}: "
            "flatten them, or reduce one-hot labels with .argmax(dim=1)"
        )
    if weight.ndim != 2 or weight.shape[0] == 0:
        raise ValueError(
            f"weight must have shape (C, d) with C ≥ 1 but got {tuple(weight.shape)}: "
            "pass the weight of the linear classifier, one row per class"
        )
    if features.shape[1] != weight.shape[1]:
        raise ValueError(
            "features and weight must have the same d but got features "
            f"{tuple(features.shape)} and weight {tuple(weight.shape)}: "
            "pass the input of the layer that holds this weight"
        )
    if len(features) != len(labels):
        raise ValueError(
            f"every feature needs one label but got {len(features)} features and "
            f"{len(labels)} labels: pass both from the same batch"
        )
    if features.device != weight.device:
        raise ValueError(
            f"features and weight must be on one device but are on {features.device} and "
            f"{weight.device}: move one with .to()"
        )


def _check_range(lowest: int, highest: int, C: int) -> None:
    if lowest < 0 or highest >= C:
        raise ValueError(
            f"labels must lie in [0, {C - 1}], the rows of weight, but got "
            f"{lowest if lowest < 0 else highest}: drop ignored samples before the call, "
            "or pass the weight of the head these labels belong to"
        )
