"""Elementwise statistics on a device, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vinedresser.store.reductions.elementwise import statistic_of_empty

__all__ = ["device_statistics"]

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
        return [torch.full(rows.shape[:1], one, dtype=_WIDE, device=rows.device) for one in values]
    statistics = _RowStatistics(_wide_enough(rows))
    return [getattr(statistics, name)() for name in names]


def _wide_enough(rows: Tensor) -> Tensor:
    """Return elements as float32 or float64: magnitudes if complex, float64 if integers."""
    if rows.is_complex():
        return rows.to(torch.complex128).abs()
    if rows.is_floating_point():
        return rows if rows.itemsize >= 4 else rows.float()
    return rows.double()


class _RowStatistics:
    """Statistics of rows, computed on demand; shared intermediate results only once.

    Args:
        rows: float32 or float64 [C, m], m > 0.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._size = rows.shape[1]
        self._known: dict[str, Tensor] = {}

    def min(self) -> Tensor:
        return self._once("min", lambda: self._rows.amin(1).double())

    def max(self) -> Tensor:
        return self._once("max", lambda: self._rows.amax(1).double())

    def sum(self) -> Tensor:
        return self._once("sum", lambda: self._rows.sum(1, dtype=_WIDE))

    def mean(self) -> Tensor:
        return self.sum() / self._size

    def l1(self) -> Tensor:
        return self._once("l1", lambda: torch.linalg.vector_norm(self._rows, 1, 1, dtype=_WIDE))

    def l2(self) -> Tensor:
        return self._once("l2", lambda: torch.linalg.vector_norm(self._rows, 2, 1, dtype=_WIDE))

    def variance(self) -> Tensor:
        return self._once("variance", lambda: _variance(self._rows, self.mean()))

    def std(self) -> Tensor:
        return self.variance().sqrt()

    def zero_share(self) -> Tensor:
        return 1 - torch.count_nonzero(self._rows, 1).double() / self._size

    def nonfinite(self) -> Tensor:
        return self._size - torch.isfinite(self._rows).sum(1).double()

    def abs_min(self) -> Tensor:
        return self._rows.abs().amin(1).double()

    def abs_max(self) -> Tensor:
        return torch.maximum(-self.min(), self.max())

    def abs_mean(self) -> Tensor:
        return self.l1() / self._size

    def abs_variance(self) -> Tensor:
        return self._once("abs_variance", lambda: _variance(self._rows.abs(), self.abs_mean()))

    def abs_std(self) -> Tensor:
        return self.abs_variance().sqrt()

    def _once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return an intermediate result, computed on first use."""
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]


def _variance(rows: Tensor, mean: Tensor) -> Tensor:
    """Return the variance float64 [C] of rows [C, m], given their mean float64 [C]."""
    # Shifted by the rounded mean: a large mean would cancel all digits.
    rest = rows - mean.to(rows.dtype)[:, None]
    mean_square = torch.linalg.vector_norm(rest, 2, 1, dtype=_WIDE).square() / rows.shape[1]
    shift = rest.sum(1, dtype=_WIDE) / rows.shape[1]
    return torch.clamp(mean_square - shift.square(), min=0)
