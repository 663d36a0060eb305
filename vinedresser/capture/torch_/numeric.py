"""Computing queries with torch tensors, on the device where they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vinedresser.capture.torch_.copies.device_statistics import device_statistics
from vinedresser.capture.torch_.copies.host_statistics import host_statistics
from vinedresser.capture.torch_.copies.reductions import channel_rows, sampled_rows
from vinedresser.frameworks.torch_.views import host_view, plain_tensor
from vinedresser.store.reductions.elementwise import elementwise_statistics

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "-": torch.neg,
    "log": torch.log,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    # Unlike numpy's, torch's sign of NaN is 0.
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
    "isnan": torch.isnan,
    "isfinite": torch.isfinite,
    "not": torch.logical_not,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda left, right: (left != 0) & (right != 0),
    "or": lambda left, right: (left != 0) | (right != 0),
}

_FLOAT32, _STRIDED = torch.float32, torch.strided
# Elements up to which a norm in float32 is as exact as that of `host_statistics`.
_FEW = 1 << 17
# The results for small tensors of float32, without the detour over a view for numpy.
_TOGETHER: dict[str, Callable[[list[Tensor]], list[Tensor]]] = {
    "l2": lambda tensors: list(torch._foreach_norm(tensors)),
    "sum": lambda tensors: [one.sum() for one in tensors],
    "mean": lambda tensors: [one.mean() for one in tensors],
}
# Squares of elements of tensors with smaller norms may be denormal in float32.
_LEAST = 1e-12
_AS_THEY_ARE = (torch.float32, torch.float64)


class TorchNumeric:
    """Computes with torch tensors and numpy arrays; see `Numeric`.

    No operation records gradients or draws random numbers. The caller sees to it that none of the
    user's torch modes is active (`WithoutModes`).
    """

    channels_last = False

    def owns(self, value: Any) -> bool:
        """See `Numeric.owns`."""
        return isinstance(value, Tensor | np.ndarray)

    def shape(self, x: Any) -> tuple[int, ...]:
        """See `Numeric.shape`."""
        return tuple(_tensor(x).shape)

    def is_float(self, x: Any) -> bool:
        """See `Numeric.is_float`."""
        return _tensor(x).is_floating_point()

    def widening(self, x: Any) -> tuple[int, bool]:
        """See `Numeric.widening`."""
        tensor = _tensor(x)
        wide = _wide_type(tensor)
        return wide.itemsize, wide != tensor.dtype

    def unary(self, operation: str, x: Any) -> Tensor:
        """See `Numeric.unary`."""
        return _UNARY[operation](_widened(x))

    def binary(self, operation: str, left: Any, right: Any) -> Tensor:
        """See `Numeric.binary`."""
        found: Tensor = _BINARY[operation](_widened(left), _widened(right))
        return found

    def choose(self, condition: Any, left: Any, right: Any) -> Tensor:
        """See `Numeric.choose`."""
        given = _tensor(condition) if self.owns(condition) else torch.tensor(condition)
        return torch.where(given != 0, _widened(left), _widened(right))

    def argmax(self, x: Any, axis: int) -> Tensor:
        """See `Numeric.argmax`."""
        return torch.argmax(_widened(x), axis)

    def sizes(self, tensors: Sequence[Any]) -> list[int] | None:
        """See `Numeric.sizes`."""
        if all(type(tensor) is Tensor and tensor.dtype in _AS_THEY_ARE for tensor in tensors):
            return [tensor.numel() for tensor in tensors]
        converted = any(self.widening(tensor)[1] for tensor in tensors)
        return None if converted else [_tensor(tensor).numel() for tensor in tensors]

    def statistic(self, name: str, rows: Any) -> Any:
        """See `Numeric.statistic`."""
        tensor = _tensor(rows)
        if tensor.device.type not in ("cpu", "mps"):
            return device_statistics(tensor, (name,))[0]
        tensor = _widened(tensor.cpu())
        if len(tensor) == 1 and tensor.numel():
            return np.array([host_statistics(tensor.reshape(-1), (name,))[name]])
        return elementwise_statistics(host_view(tensor), (name,))[name]

    def statistic_of_each(self, name: str, tensors: Sequence[Any]) -> Any:
        """See `Numeric.statistic_of_each`."""
        if name in _TOGETHER and all(map(_is_small, tensors)):
            # The usual case at every step of a training.
            numbers = [value.item() for value in _TOGETHER[name]([*tensors])]
            if all(_LEAST < abs(number) < math.inf for number in numbers):
                return np.array(numbers)
        given = [_tensor(tensor) for tensor in tensors]
        if any(not one.is_cpu and one.device.type != "mps" for one in given):
            home = given[0].device
            parts = [_on_device(name, group) for group in _by_device(given)]
            return torch.cat([part.to(home) for part in parts])
        found = np.full(len(given), np.nan)
        together = [place for place, one in enumerate(given) if _is_small(one)]
        if name in _TOGETHER and together:
            values = _TOGETHER[name]([given[place] for place in together])
            # Faster than stacking numbers in host memory.
            found[together] = [value.item() for value in values]
        size = np.abs(found)
        # Beyond the range of float32, and large ones more exactly.
        for place in np.flatnonzero(~((size > _LEAST) & (size < np.inf))).tolist():
            found[place] = self.statistic(name, given[place].reshape(1, -1))[0]
        return found

    def sample(self, rows: Any) -> Tensor:
        """See `Numeric.sample`."""
        return sampled_rows(_tensor(rows))

    def rows(self, x: Any, axis: int | None) -> Tensor:
        """See `Numeric.rows`."""
        return channel_rows(_tensor(x), axis)

    def select(self, x: Any, mask: Any) -> Tensor:
        """See `Numeric.select`."""
        return _tensor(x)[_tensor(mask) != 0]

    def join(self, rows: Sequence[Any]) -> Tensor:
        """See `Numeric.join`."""
        return torch.cat([_widened(row) for row in rows], 1)

    def top(self, x: Any, count: int) -> Tensor:
        """See `Numeric.top`."""
        values, places = torch.topk(_widened(x).reshape(-1), count)
        return torch.stack([values.double(), places.double()])

    def fetch(self, values: Sequence[Any]) -> list[NDArray[np.float64]]:
        """See `Numeric.fetch`."""
        if all(type(value) is np.ndarray and value.dtype == np.float64 for value in values):
            return [*values]
        tensors = [_tensor(value) for value in values]
        away = [place for place, one in enumerate(tensors) if one.device.type != "cpu"]
        if away:
            # One transfer for all; a device without float64 moves float32.
            wide = torch.float32 if tensors[away[0]].device.type == "mps" else torch.float64
            moved = torch.cat([tensors[place].reshape(-1).to(wide) for place in away]).cpu()
            parts = moved.split([tensors[place].numel() for place in away])
            for place, part in zip(away, parts, strict=True):
                tensors[place] = part.reshape(tensors[place].shape)
        return [np.array(host_view(tensor.double()), np.float64) for tensor in tensors]


def _tensor(x: Any) -> Tensor:
    """Return a tensor detached, dense and with its values, or an array as a tensor."""
    if type(x) is Tensor and not x.requires_grad and x.layout is torch.strided:
        return x if not x.is_complex() else plain_tensor(x)
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x if x.flags.writeable else x.copy())
    return plain_tensor(x)


def _is_small(x: Any) -> bool:
    if type(x) is not Tensor or x.dtype is not _FLOAT32 or not x.is_cpu or x.requires_grad:
        return False
    return 0 < x.numel() <= _FEW and x.layout is _STRIDED


def _by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return consecutive tensors of the same device together."""
    return [list(group) for _, group in groupby(tensors, key=lambda one: one.device)]


def _on_device(name: str, tensors: list[Tensor]) -> Tensor:
    """Return a statistic of each tensor, float64 [tensors], on their device."""
    if name == "l2" and all(tensor.is_floating_point() and tensor.numel() for tensor in tensors):
        return torch.stack(list(torch._foreach_norm(tensors, 2, torch.float64)))
    return torch.cat([device_statistics(tensor.reshape(1, -1), (name,))[0] for tensor in tensors])


def _wide_type(x: Tensor) -> torch.dtype:
    if x.is_floating_point():
        return x.dtype if x.itemsize >= 4 else torch.float32
    return torch.float32 if x.device.type == "mps" else torch.float64


def _widened(x: Any) -> Any:
    if not isinstance(x, Tensor | np.ndarray):
        return x
    tensor = _tensor(x)
    return tensor.abs().double() if tensor.is_complex() else tensor.to(_wide_type(tensor))
