import doctest
import math
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fixnorm import mcbr
from fixnorm.mcbr import MeanCrossBoundaryRisk, mean_cross_boundary_risk
from helpers.runs import ranks, shared_nursery

Batch = tuple[Tensor, Tensor, Tensor]

# The triangle of the hand-checked cases: W_0 at the origin, W_1 and W_2 on the axes.
TRIANGLE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


def naive(features: Tensor, labels: Tensor, weight: Tensor) -> float:
    """The paper's formula as it is written, one sample and one class at a time."""
    features, weight = features.double(), weight.double()
    risks = []
    for x, k in zip(features, labels.tolist(), strict=True):
        cosines = [
            torch.dot(x, W_j - weight[k]) / (x.norm() * (W_j - weight[k]).norm())
            for j, W_j in enumerate(weight)
            if j != k
        ]
        risks.append(torch.stack(cosines).mean())
    return float(torch.stack(risks).mean())


def random_batch(B: int, C: int, d: int, *, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(B, d, generator=generator, dtype=torch.float64)
    weight = torch.randn(C, d, generator=generator, dtype=torch.float64)
    return features, torch.randint(C, (B,), generator=generator), weight


class TestValue:
    @pytest.mark.parametrize(
        ("label", "expected"),
        [
            (0, (0.6 + 0.8) / 2),  # (3,4)/5 · (1,0) and · (0,1)
            (1, (-0.6 + math.sqrt(2) / 10) / 2),  # · (−1,0) and · (−1,1)/√2 = 1/(5√2)
            (2, (-0.8 - math.sqrt(2) / 10) / 2),  # · (0,−1) and · (1,−1)/√2 = −1/(5√2)
        ],
    )
    def test_triangle(self, label: int, expected: float) -> None:
        risk = mean_cross_boundary_risk(torch.tensor([[3.0, 4.0]]), torch.tensor([label]), TRIANGLE)
        assert risk.item() == pytest.approx(expected, abs=1e-15)

    def test_batch_is_the_mean_of_its_samples(self) -> None:
        features = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 7.0], [1.0, 0.0]])
        labels = torch.tensor([0, 1, 0, 0])
        # 0.7 and (−0.6 + √2/10)/2 from above; (0,1) of class 0: (0 + 1)/2; (1,0): (1 + 0)/2.
        expected = (0.7 + (-0.6 + math.sqrt(2) / 10) / 2 + 0.5 + 0.5) / 4
        risk = mean_cross_boundary_risk(features, labels, TRIANGLE)
        assert risk.item() == pytest.approx(expected, abs=1e-15)

    @pytest.mark.parametrize(("label", "expected"), [(0, -1.0), (1, 1.0)])
    def test_ends_of_the_range(self, label: int, expected: float) -> None:
        weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        features = torch.tensor([[5.0, 0.0]])
        assert mean_cross_boundary_risk(features, torch.tensor([label]), weight) == expected

    @pytest.mark.parametrize("C", [2, 3, 10])
    def test_orthonormal_classes(self, C: int) -> None:
        # x = W_k: W_k · (W_j − W_k)/√2 = −1/√2 for every j.
        weight = torch.eye(C)
        risk = mean_cross_boundary_risk(weight, torch.arange(C), weight)
        assert risk.item() == pytest.approx(-1 / math.sqrt(2), abs=1e-15)

    def test_three_classes_at_120_degrees(self) -> None:
        # x = W_k: the chord W_j − W_k is √3 long and W_k·W_j = −1/2, so −1.5/√3 = −√3/2.
        angle = torch.arange(3, dtype=torch.float64) * (2 * math.pi / 3)
        weight = torch.stack([angle.cos(), angle.sin()], dim=1)
        risk = mean_cross_boundary_risk(weight, torch.arange(3), weight)
        assert risk.item() == pytest.approx(-math.sqrt(3) / 2, abs=1e-15)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize(
        ("B", "C", "d"), [(1, 2, 1), (1, 2, 5), (40, 3, 8), (5, 30, 16), (12, 12, 3), (7, 5, 100)]
    )
    def test_equals_the_formula(self, B: int, C: int, d: int, dtype: torch.dtype) -> None:
        features, labels, weight = random_batch(B, C, d)
        features, weight = features.to(dtype), weight.to(dtype)
        risk = mean_cross_boundary_risk(features, labels, weight)
        assert risk.item() == pytest.approx(naive(features, labels, weight), abs=1e-12)

    @pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
    def test_nearly_equal_class_vectors_keep_their_digits(self, spread: float) -> None:
        features, labels, differences = random_batch(8, 6, 64)
        weight = (torch.ones(64) + spread * differences).float()
        # ε₆₄·‖W‖²/‖W_j − W_k‖², with a factor 100 for the length of the sums; float32 products
        # would be off by more than 1e-3 at the smallest spread.
        tolerance = 100 * 2.2e-16 / spread**2
        risk = mean_cross_boundary_risk(features, labels, weight)
        assert risk.item() == pytest.approx(naive(features, labels, weight), abs=tolerance)

    @pytest.mark.parametrize("label_dtype", [torch.uint8, torch.int32, torch.int64])
    def test_integer_label_dtypes(self, label_dtype: torch.dtype) -> None:
        features, labels, weight = random_batch(9, 4, 3)
        risk = mean_cross_boundary_risk(features, labels.to(label_dtype), weight)
        assert risk.item() == pytest.approx(naive(features, labels, weight), abs=1e-12)

    def test_strided_inputs(self) -> None:
        features, labels, weight = random_batch(9, 4, 6)
        risk = mean_cross_boundary_risk(features[:, ::2], labels, weight.T[::2].T)
        assert risk.item() == pytest.approx(naive(features[:, ::2], labels, weight[:, ::2]))

    def test_autocast_changes_nothing(self) -> None:
        features, labels, weight = random_batch(9, 4, 6)
        expected = mean_cross_boundary_risk(features.float(), labels, weight.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            risk = mean_cross_boundary_risk(features.float(), labels, weight.float())
        assert torch.equal(risk, expected)

    def test_result_is_a_float64_scalar_without_gradient(self) -> None:
        features, labels, weight = random_batch(4, 3, 2)
        weight.requires_grad_()
        risk = mean_cross_boundary_risk(features.requires_grad_(), labels, weight)
        assert (risk.shape, risk.dtype, risk.requires_grad) == ((), torch.float64, False)

    def test_inputs_are_left_alone(self) -> None:
        batch = random_batch(9, 4, 6)
        before = [t.clone() for t in batch]
        mean_cross_boundary_risk(*batch)
        assert all(torch.equal(a, b) for a, b in zip(batch, before, strict=True))

    def test_device_without_float64_gets_float32_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = random_batch(4, 3, 2)
        expected = mean_cross_boundary_risk(*batch)
        # To torch "cpu:0" is another device than "cpu": the inputs' own counts as without float64.
        monkeypatch.setattr(mcbr, "_float64_device", lambda device: torch.device("cpu", 0))
        assert torch.equal(mean_cross_boundary_risk(*batch), expected.float())

    @pytest.mark.parametrize(
        ("device", "computes_on"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("mps", "cpu")]
    )
    def test_only_mps_lacks_float64(self, device: str, computes_on: str) -> None:
        assert mcbr._float64_device(torch.device(device)) == torch.device(computes_on)

    def test_docstring_example(self) -> None:
        result = doctest.testmod(mcbr)
        assert result.attempted > 0
        assert result.failed == 0


class TestProperties:
    @settings(deadline=None, max_examples=60)
    @given(
        seed=st.integers(0, 10**6),
        B=st.integers(1, 12),
        C=st.integers(2, 12),
        d=st.integers(1, 12),
        x_exponent=st.integers(-30, 30),
        w_exponent=st.integers(-30, 30),
    )
    def test_range_and_scale(
        self, seed: int, B: int, C: int, d: int, x_exponent: int, w_exponent: int
    ) -> None:
        features, labels, weight = random_batch(B, C, d, seed=seed)
        risk = mean_cross_boundary_risk(features, labels, weight)
        scaled = mean_cross_boundary_risk(
            features * 10.0**x_exponent, labels, weight * 10.0**w_exponent
        )
        assert -1 <= risk <= 1
        torch.testing.assert_close(scaled, risk, rtol=0, atol=1e-10)

    def test_each_feature_has_its_own_scale(self) -> None:
        features, labels, weight = random_batch(6, 4, 5)
        scales = torch.tensor([1e-8, 1e-3, 1.0, 2.0, 1e3, 1e8], dtype=torch.float64)
        torch.testing.assert_close(
            mean_cross_boundary_risk(features * scales[:, None], labels, weight),
            mean_cross_boundary_risk(features, labels, weight),
        )

    @pytest.mark.parametrize("gap", [2e-7, 1e-6, 1e-5])
    @pytest.mark.parametrize("towards", [-1, 1])
    def test_rounding_does_not_leave_the_range(self, gap: float, towards: int) -> None:
        # Every cosine is exactly ±1 (one direction), and rounding near the equality threshold
        # disturbs the computed ones by up to a percent.
        direction, offset = random_batch(2, 1, 300)[0]
        weight = offset + gap * torch.arange(20.0, dtype=torch.float64)[:, None] * direction
        risk = mean_cross_boundary_risk(towards * direction[None], torch.tensor([0]), weight)
        assert -1 <= risk <= 1
        assert risk.item() == pytest.approx(towards, abs=0.05)

    @pytest.mark.parametrize("block", [1, 2, 7, 64, 100, 1000, 10**6])
    @pytest.mark.parametrize(("B", "C", "d"), [(40, 3, 8), (5, 30, 16), (33, 21, 1)])
    def test_any_chunk_size_gives_the_same(self, B: int, C: int, d: int, block: int) -> None:
        features, labels, weight = random_batch(B, C, d)
        total = mcbr._total_risk(features, labels, weight, block=block)
        assert total.item() / B == pytest.approx(naive(features, labels, weight), abs=1e-12)


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that an operation made (views make none)."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            for tensor in out if isinstance(out, tuple) else (out,):
                if isinstance(tensor, Tensor):
                    self.numel = max(self.numel, tensor.numel())
        return out


class TestMemory:
    def test_21841_classes_stay_within_the_block(self) -> None:
        B, C, d = 100, 21_841, 100
        features, labels, weight = random_batch(B, C, d)
        features, weight = features.float(), weight.float()
        with LargestTensor() as largest:
            risk = mean_cross_boundary_risk(features, labels, weight)
        # B·C and C·d are both larger than the block: neither is ever made.
        assert min(B * C, C * d) > mcbr._BLOCK
        assert 0 < largest.numel <= mcbr._BLOCK

        expected = 0.0
        for x, k in zip(features.double(), labels, strict=True):
            difference = weight.double() - weight[k].double()
            cosines = torch.nn.functional.cosine_similarity(x, difference, dim=1)
            cosines[k] = 0
            expected += cosines.sum().item() / (C - 1) / B
        assert risk.item() == pytest.approx(expected, abs=1e-12)

    def test_many_samples_and_classes_stay_within_the_block(self) -> None:
        features, labels, weight = random_batch(600, 500, 10)
        features, weight = features.float(), weight.float()
        with LargestTensor() as largest:
            mcbr._total_risk(features, labels, weight, block=1024)
        # Without chunks: B·d = 6000, U·C > 100,000. M, U×d, is the documented exception.
        assert largest.numel == 10 * len(set(labels.tolist()))


class TestDegenerate:
    def test_zero_feature_counts_as_risk_zero(self) -> None:
        features = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        risk = mean_cross_boundary_risk(features, torch.tensor([0, 0]), TRIANGLE)
        assert risk.item() == pytest.approx((0.7 + 0) / 2)

    def test_equal_class_vectors_have_cosine_zero(self) -> None:
        weight = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
        risk = mean_cross_boundary_risk(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), weight)
        assert risk.item() == pytest.approx((0 + 0.6) / 2)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("d", [1, 2048, 2**17])
    def test_all_class_vectors_equal(self, d: int, dtype: torch.dtype) -> None:
        features, labels, weight = random_batch(4, 37, d)
        weight = (weight[:1] + 3).to(dtype).repeat(37, 1)
        assert mean_cross_boundary_risk(features.to(dtype), labels, weight) == 0

    @pytest.mark.parametrize("d", [2048, 2**14, 2**17])
    def test_rounding_stays_below_the_threshold_at_any_d(self, d: int) -> None:
        # Equal vectors are told by ‖W_j‖² + ‖W_k‖² − 2·W_j·W_k ≤ 1e-14 of the sum: the products
        # must be a good deal more exact than that. A single running sum is off by 4e-15 at 2^14.
        w = random_batch(1, 1, d)[2] + 3
        exact = math.fsum((w * w).flatten().tolist())
        products = mcbr._products(w.repeat(37, 1), w.repeat(37, 1))
        assert (products / exact - 1).abs().max() < 2e-15

    @pytest.mark.parametrize(
        ("gap", "expected"),
        [
            (1e-7, 0.0),  # ‖(gap, 0)‖² = 1e-14, half of the limit 1e-14·(1 + 1)
            (1e-6, 1.0),  # 1e-12, fifty times the limit: x points along W_1 − W_0
        ],
    )
    def test_where_vectors_begin_to_differ(self, gap: float, expected: float) -> None:
        weight = torch.tensor([[0.0, 1.0], [gap, 1.0]], dtype=torch.float64)
        features = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        risk = mean_cross_boundary_risk(features, torch.tensor([0]), weight)
        assert risk.item() == pytest.approx(expected, abs=1e-3)

    def test_one_class(self) -> None:
        features, labels, weight = random_batch(4, 1, 3)
        assert mean_cross_boundary_risk(features, labels, weight) == 0

    def test_no_dimension(self) -> None:
        risk = mean_cross_boundary_risk(torch.zeros(2, 0), torch.tensor([0, 1]), torch.zeros(3, 0))
        assert risk == 0

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("where", ["features", "weight of the class", "weight of another"])
    def test_not_finite_gives_nan(self, value: float, where: str) -> None:
        features, _, weight = random_batch(3, 4, 5)
        labels = torch.tensor([0, 0, 1])
        # Every other class vector points the other way: ‖W_j − W_k‖² is ∞, not ∞ − ∞.
        weight[:, 2] = -math.copysign(1.0, value)
        broken, row = {
            "features": (features, 1),
            "weight of the class": (weight, 0),
            "weight of another": (weight, 3),
        }[where]
        broken[row, 2] = value
        assert mean_cross_boundary_risk(features, labels, weight).isnan()

    def test_empty_batch(self) -> None:
        with pytest.raises(ValueError, match=r"empty batch.*0 rows: skip the batch"):
            mean_cross_boundary_risk(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), TRIANGLE)


X, Y = torch.ones(3, 2), torch.tensor([0, 1, 2])
BAD_INPUTS = {
    "label too high": (
        (X, torch.tensor([0, 3, 1]), TRIANGLE),
        ValueError,
        r"lie in \[0, 2\].*got 3: drop ignored samples",
    ),
    "label negative": (
        (X, torch.tensor([0, -100, 1]), TRIANGLE),
        ValueError,
        r"lie in \[0, 2\].*got -100: drop ignored samples",
    ),
    "label of a one-class head": ((X, Y, TRIANGLE[:1]), ValueError, r"lie in \[0, 0\].*got 2"),
    "features not pooled": (
        (torch.ones(3, 2, 4, 4), Y, TRIANGLE),
        ValueError,
        r"\(B, d\) but got \(3, 2, 4, 4\): .*pooled",
    ),
    "one-hot labels": (
        (X, torch.eye(3, dtype=torch.int64), TRIANGLE),
        ValueError,
        r"\(B,\) but got \(3, 3\): .*argmax",
    ),
    "conv weight": (
        (X, Y, torch.ones(3, 2, 1, 1)),
        ValueError,
        r"\(C, d\) with C ≥ 1 but got \(3, 2, 1, 1\): pass the weight of the linear",
    ),
    "no class": ((X, Y, torch.ones(0, 2)), ValueError, r"C ≥ 1 but got \(0, 2\)"),
    "other d": (
        (torch.ones(3, 5), Y, TRIANGLE),
        ValueError,
        r"features \(3, 5\) and weight \(3, 2\): pass the input of the layer",
    ),
    "other B": ((X, Y[:2], TRIANGLE), ValueError, r"3 features and 2 labels: pass both"),
    "other device": (
        (X, Y, TRIANGLE.to("meta")),
        ValueError,
        r"on cpu and meta: move one with \.to\(\)",
    ),
    "float labels": ((X, Y.float(), TRIANGLE), TypeError, r"got torch\.float32: .*\.long\(\)"),
    "bool labels": ((X, Y.bool(), TRIANGLE), TypeError, r"integer.*got torch\.bool"),
    "complex labels": (
        (X, Y.to(torch.complex64), TRIANGLE),
        TypeError,
        r"integer.*got torch\.complex64",
    ),
    "integer features": (
        (X.long(), Y, TRIANGLE),
        TypeError,
        r"features must.*floating dtype but got torch\.int64: .*\.float\(\)",
    ),
    "complex weight": (
        (X, Y, TRIANGLE.to(torch.complex64)),
        TypeError,
        r"weight must.*floating dtype but got torch\.complex64",
    ),
    "not a tensor": (
        (X, [0, 1, 2], TRIANGLE),
        TypeError,
        r"labels must be a tensor but got list: .*torch\.as_tensor",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("case", BAD_INPUTS)
    def test_function(self, case: str) -> None:
        arguments, error, message = BAD_INPUTS[case]
        with pytest.raises(error, match=message):
            mean_cross_boundary_risk(*arguments)  # type: ignore[arg-type]

    @pytest.mark.parametrize("case", BAD_INPUTS)
    def test_metric_refuses_it_and_stays_as_it_was(self, case: str) -> None:
        arguments, error, message = BAD_INPUTS[case]
        metric = MeanCrossBoundaryRisk()
        metric.update(X, Y, TRIANGLE)
        before = metric.compute()
        with pytest.raises(error, match=message):
            metric.update(*arguments)  # type: ignore[arg-type]
        assert metric.count == 3
        assert torch.equal(metric.compute(), before)

    def test_metric_checks_an_empty_batch_too(self) -> None:
        with pytest.raises(ValueError, match=r"must have the same d"):
            MeanCrossBoundaryRisk().update(X[:0, :1], Y[:0], TRIANGLE)


class TestMetric:
    def test_nan_before_the_first_sample(self) -> None:
        metric = MeanCrossBoundaryRisk()
        assert metric.compute().isnan()
        metric.update(X[:0], Y[:0], TRIANGLE)
        assert metric.compute().isnan()

    def test_batches_give_the_mean_of_the_whole(self) -> None:
        features, labels, weight = random_batch(20, 6, 4)
        metric = MeanCrossBoundaryRisk()
        for start, stop in [(0, 1), (1, 12), (12, 12), (12, 20)]:
            metric.update(features[start:stop], labels[start:stop], weight)
        whole = mean_cross_boundary_risk(features, labels, weight)
        torch.testing.assert_close(metric.compute(), whole, rtol=0, atol=1e-14)

    def test_state(self) -> None:
        metric = MeanCrossBoundaryRisk()
        metric.update(torch.tensor([[3.0, 4.0]] * 2), torch.tensor([0, 0]), TRIANGLE)
        assert metric.total.item() == pytest.approx(0.7 * 2)
        assert metric.count.item() == 2
        assert (metric.total.dtype, metric.count.dtype) == (torch.float64, torch.int64)

    def test_each_batch_keeps_its_own_weight(self) -> None:
        metric = MeanCrossBoundaryRisk()
        x, k = torch.tensor([[3.0, 4.0]]), torch.tensor([0])
        metric.update(x, k, TRIANGLE)  # 0.7
        metric.update(x, k, -TRIANGLE)  # −0.7
        metric.update(x, k, TRIANGLE[:2])  # 0.6
        assert metric.compute().item() == pytest.approx(0.6 / 3)

    def test_merge(self) -> None:
        features, labels, weight = random_batch(20, 6, 4)
        first, second = MeanCrossBoundaryRisk(), MeanCrossBoundaryRisk()
        first.update(features[:5], labels[:5], weight)
        second.update(features[5:], labels[5:], weight)
        kept = second.compute()
        first.merge(second)
        first.merge(MeanCrossBoundaryRisk())
        whole = mean_cross_boundary_risk(features, labels, weight)
        torch.testing.assert_close(first.compute(), whole, rtol=0, atol=1e-14)
        assert first.count == 20
        assert torch.equal(second.compute(), kept)

    def test_merge_refuses_a_number(self) -> None:
        with pytest.raises(TypeError, match=r"got Tensor: pass the metric itself"):
            MeanCrossBoundaryRisk().merge(torch.tensor(0.5))  # type: ignore[arg-type]

    def test_reset(self) -> None:
        metric = MeanCrossBoundaryRisk()
        metric.update(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), TRIANGLE)
        metric.reset()
        assert metric.compute().isnan()
        metric.update(torch.tensor([[3.0, 4.0]]), torch.tensor([2]), TRIANGLE)
        expected = (-0.8 - math.sqrt(2) / 10) / 2
        assert metric.compute().item() == pytest.approx(expected)

    def test_compute_twice(self) -> None:
        metric = MeanCrossBoundaryRisk()
        metric.update(*random_batch(5, 3, 2))
        assert torch.equal(metric.compute(), metric.compute())

    def test_state_of_inference_mode_goes_on_outside_it(self) -> None:
        features, labels, weight = random_batch(8, 3, 2)
        with torch.inference_mode():
            metric = MeanCrossBoundaryRisk()
            metric.update(features[:4], labels[:4], weight)
        metric.update(features[4:], labels[4:], weight)
        torch.testing.assert_close(
            metric.compute(), mean_cross_boundary_risk(features, labels, weight)
        )

    def test_device(self) -> None:
        assert MeanCrossBoundaryRisk(device="meta").total.device.type == "meta"
        assert MeanCrossBoundaryRisk().total.device.type == "cpu"

    def test_pickle(self) -> None:
        metric = MeanCrossBoundaryRisk()
        metric.update(*random_batch(5, 3, 2))
        again = pickle.loads(pickle.dumps(metric))
        again.merge(metric)
        assert again.count == 10
        torch.testing.assert_close(again.compute(), metric.compute())


def _in_two_processes(directory: str) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=2
    )
    try:
        features, labels, weight = random_batch(8, 5, 4)
        whole = mean_cross_boundary_risk(features, labels, weight)
        mine = slice(0, 5) if rank == 0 else slice(5, 8)
        local = mean_cross_boundary_risk(features[mine], labels[mine], weight)

        metric = MeanCrossBoundaryRisk()
        metric.update(features[mine], labels[mine], weight)
        for _ in range(2):
            torch.testing.assert_close(metric.compute(), whole, rtol=0, atol=1e-14)
        torch.testing.assert_close(metric.compute(sync=False), local, rtol=0, atol=1e-14)
        alone = [dist.new_group([0]), dist.new_group([1])][rank]
        assert isinstance(alone, dist.ProcessGroup)
        torch.testing.assert_close(metric.compute(group=alone), local, rtol=0, atol=1e-14)

        # The second process has seen nothing: the mean is the first one's.
        metric = MeanCrossBoundaryRisk()
        assert metric.compute().isnan()
        if rank == 0:
            metric.update(features, labels, weight)
        torch.testing.assert_close(metric.compute(), whole, rtol=0, atol=1e-14)
        assert metric.count == (8 if rank == 0 else 0)
        Path(directory, f"finished-{rank}").touch()
    finally:
        dist.destroy_process_group()


def test_two_processes_give_the_mean_of_one(tmp_path: Path) -> None:
    for life in ranks(shared_nursery(), [str(tmp_path)], program=Path(__file__)):
        assert life.wait() == 0, life.said()
    assert sorted(p.name for p in tmp_path.glob("finished-*")) == ["finished-0", "finished-1"]


if __name__ == "__main__":
    _in_two_processes(*sys.argv[1:])
