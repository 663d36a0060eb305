"""Statistics of torch tensors, cheap enough to be taken while a training runs.

The same figures as `vinedresser.capture.reductions` defines, but of float32 data, on the CPU, in
float32 primitives that run at about the speed of a copy. They are exact to about 1e-5 of l2, std
and abs_mean, and of the mean to 1e-6 of abs_mean. Where float32 would overflow, underflow or meet a
non-finite element, the figures are taken again by the float64 reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch

from vinedresser.capture.reductions import reduce_array

__all__ = ["reduce_later", "reduce_now"]

# A row is summed in float32, its sum goes on in float64: 4096 elements cost no accuracy.
_ROW = 4096
# Temporaries stay in the processor's cache, whatever the size of the tensor. A multiple of a row.
_CHUNK = 1 << 18
# Squares of smaller float32 numbers are denormal or zero.
_LEAST_RMS = 1e-15


def reduce_now(tensor: torch.Tensor, names: Iterable[str]) -> dict[str, float]:
    """Return statistics of a tensor in host memory.

    Args:
        tensor: detached, dense, on the CPU; any shape and dtype.
        names: which; see `vinedresser.capture.reductions`.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return reduce_array(tensor.resolve_conj().numpy(), names)
    if tensor.itemsize < 4:
        tensor = tensor.float()
    flat = tensor.reshape(-1)
    figures = _Figures(flat)
    found = {name: getattr(figures, name)() for name in names}
    if figures.doubtful or not all(map(math.isfinite, found.values())):
        return reduce_array(flat.numpy(), names)
    return found


class _Figures:
    """The figures of one flat float32 or float64 tensor, each computed when it is asked for.

    Attributes:
        doubtful: a figure may have met the limits of float32, or a non-finite element.
    """

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat
        self._array = flat.numpy()
        self._count = flat.numel()
        self._scratch = torch.empty(0)
        self._mean: float | None = None
        self.doubtful = False

    def min(self) -> float:
        # Numpy's minimum is vectorised, torch's is not; both hand a NaN on.
        return float(self._array.min())

    def max(self) -> float:
        return float(self._array.max())

    def mean(self) -> float:
        if self._mean is None:
            self._mean = float(self._flat.sum().item()) / self._count
        return self._mean

    def l2(self) -> float:
        norm = math.sqrt(_squares(self._flat))
        small = norm < _LEAST_RMS * math.sqrt(self._count) and self._flat.dtype == torch.float32
        if small and self._array.any():
            self.doubtful = True
        return norm

    def abs_mean(self) -> float:
        def total(chunk: torch.Tensor, scratch: torch.Tensor) -> float:
            return float(torch.abs(chunk, out=scratch).sum().item())

        return self._over_chunks(total) / self._count

    def std(self) -> float:
        # Shifted by about the mean, else a large mean cancels all digits of the variance.
        shift = float(self._array.dtype.type(self.mean()))
        if not math.isfinite(shift):
            self.doubtful = True
            return shift
        rest = 0.0

        def squares(chunk: torch.Tensor, scratch: torch.Tensor) -> float:
            nonlocal rest
            torch.sub(chunk, shift, out=scratch)
            rest += float(scratch.sum().item())
            return _squares(scratch)

        mean_square = self._over_chunks(squares) / self._count
        variance = max(mean_square - (rest / self._count) ** 2, 0.0)
        if mean_square < _LEAST_RMS**2 and self._flat.dtype == torch.float32:
            self.doubtful = True
        return math.sqrt(variance)

    def zero_share(self) -> float:
        pieces = range(0, self._count, _CHUNK)
        zeros = sum(np.count_nonzero(self._array[i : i + _CHUNK] == 0) for i in pieces)
        return float(zeros / self._count)

    def nonfinite(self) -> float:
        # An infinity or a NaN never leaves a sum.
        if not math.isfinite(self.mean()):
            self.doubtful = True
        return 0.0

    def _over_chunks(self, part: Callable[[torch.Tensor, torch.Tensor], float]) -> float:
        """Return the sum of a part over all chunks, given scratch memory of a chunk's size."""
        if not self._scratch.numel():
            size = min(self._count, _CHUNK)
            self._scratch = torch.empty(size, dtype=self._flat.dtype)
        if self._count <= _CHUNK:
            return part(self._flat, self._scratch)
        chunks = torch.split(self._flat, _CHUNK)
        return math.fsum(part(chunk, self._scratch[: chunk.numel()]) for chunk in chunks)


def _squares(flat: torch.Tensor) -> float:
    """Return the sum of squares of a flat tensor, row by row."""
    count = flat.numel()
    whole = count - count % _ROW
    if whole <= _ROW:
        return float(torch.linalg.vector_norm(flat).item() ** 2)
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), dim=1).double()
    total = float(torch.dot(rows, rows).item())
    if whole < count:
        total += float(torch.linalg.vector_norm(flat[whole:]).item() ** 2)
    return total


def reduce_later(tensor: torch.Tensor, names: Iterable[str]) -> list[torch.Tensor]:
    """Return statistics of a tensor as 0-d float64 tensors on its device, waiting for nothing.

    Args:
        tensor: detached and dense; on a device that has float64.
        names: which; see `vinedresser.capture.reductions`.
    """
    if tensor.is_complex():
        tensor = tensor.abs()
    flat = tensor.reshape(-1)
    if not flat.is_floating_point() or flat.itemsize < 4:
        # Integers to float64, which holds all but the greatest; narrow floats fit into float32.
        flat = flat.float() if flat.is_floating_point() else flat.double()
    return [_LATER[name](flat) if flat.numel() else _of_nothing(flat, name) for name in names]


def _of_nothing(flat: torch.Tensor, name: str) -> torch.Tensor:
    value = 0.0 if name in ("l2", "nonfinite") else math.nan
    return torch.tensor(value, dtype=torch.float64, device=flat.device)


def _std_later(flat: torch.Tensor) -> torch.Tensor:
    # Shifted by about the mean, else a large mean cancels all digits of the variance.
    rest = flat - (flat.sum(dtype=_WIDE) / flat.numel()).to(flat.dtype)
    mean_square = torch.linalg.vector_norm(rest, dtype=_WIDE).square() / flat.numel()
    shift = rest.sum(dtype=_WIDE) / flat.numel()
    return torch.sqrt(torch.clamp(mean_square - shift.square(), min=0))


_WIDE = torch.float64

_LATER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "min": lambda x: x.min().double(),
    "max": lambda x: x.max().double(),
    "mean": lambda x: x.sum(dtype=_WIDE) / x.numel(),
    "l2": lambda x: torch.linalg.vector_norm(x, dtype=_WIDE),
    "abs_mean": lambda x: torch.linalg.vector_norm(x, 1, dtype=_WIDE) / x.numel(),
    "std": _std_later,
    "zero_share": lambda x: 1 - torch.count_nonzero(x).double() / x.numel(),
    "nonfinite": lambda x: x.numel() - torch.count_nonzero(torch.isfinite(x)).double(),
}
