"""Elementwise statistics on a device, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from vinedresser.store.reductions.elementwise import statistic_of_empty

_WIDE = torch.float64


def device_statistics(rows: Tensor, names: tuple[str, ...]) -> list[Tensor]:
    """Return statistics of each row in the order of names; each float64 [C], on the rows' device.

    Sums are computed in float64, elements in float32 or float64. The variance of float32 data has
    float32 accuracy.

    Args:
        rows: [C, m], any dtype; detached and dense, on a device with float64.
        names: `Reduction.canonical` of reductions that are not sampled.
    """
    if not rows.shape[1]:
        values = map(statistic_of_empty, names)
        return [
            torch.full(rows.shape[:1], value, dtype=_WIDE, device=rows.device) for value in values
        ]
    found = _Rows(_wide_enough(rows))
    return [_FORMULAS[name](found) for name in names]


def _wide_enough(rows: Tensor) -> Tensor:
    """Return elements as float32 or float64: magnitudes if complex, float64 if integers."""
    if rows.is_complex():
        return rows.to(torch.complex128).abs()
    if rows.is_floating_point():
        return rows if rows.itemsize >= 4 else rows.float()
    return rows.double()


class _Rows:
    """Rows, and intermediate results that several statistics share.

    Args:
        rows: float32 or float64 [C, m], m > 0.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.size = rows.shape[1]

    @cached_property
    def low(self) -> Tensor:
        return self.rows.amin(1).double()

    @cached_property
    def high(self) -> Tensor:
        return self.rows.amax(1).double()

    @cached_property
    def sum(self) -> Tensor:
        return self.rows.sum(1, dtype=_WIDE)

    @cached_property
    def l1(self) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.rows, 1, 1, dtype=_WIDE)
        return norm

    @cached_property
    def variance(self) -> Tensor:
        return _variance(self.rows, self.sum / self.size)

    @cached_property
    def abs_variance(self) -> Tensor:
        return _variance(self.rows.abs(), self.l1 / self.size)


_FORMULAS: dict[str, Callable[[_Rows], Tensor]] = {
    "min": lambda of: of.low,
    "max": lambda of: of.high,
    "sum": lambda of: of.sum,
    "mean": lambda of: of.sum / of.size,
    "l1": lambda of: of.l1,
    "l2": lambda of: torch.linalg.vector_norm(of.rows, 2, 1, dtype=_WIDE),
    "variance": lambda of: of.variance,
    "std": lambda of: of.variance.sqrt(),
    "zero_share": lambda of: 1 - torch.count_nonzero(of.rows, 1).double() / of.size,
    "nonfinite": lambda of: of.size - torch.isfinite(of.rows).sum(1).double(),
    "abs_min": lambda of: of.rows.abs().amin(1).double(),
    "abs_max": lambda of: torch.maximum(-of.low, of.high),
    "abs_mean": lambda of: of.l1 / of.size,
    "abs_variance": lambda of: of.abs_variance,
    "abs_std": lambda of: of.abs_variance.sqrt(),
}


def _variance(rows: Tensor, mean: Tensor) -> Tensor:
    """Return the variance float64 [C] of rows [C, m], given their mean float64 [C]."""
    # Shifted by the rounded mean: a large mean would cancel all digits.
    rest = rows - mean.to(rows.dtype)[:, None]
    mean_square = torch.linalg.vector_norm(rest, 2, 1, dtype=_WIDE).square() / rows.shape[1]
    shift = rest.sum(1, dtype=_WIDE) / rows.shape[1]
    return torch.clamp(mean_square - shift.square(), min=0)
