"""Torch tensors that standing queries read at the end of a step."""

from __future__ import annotations

import torch

from vinedresser.capture.recording.recording import LiveValue
from vinedresser.errors import QueryError

__all__ = ["MOST_COPIED", "LiveTensors"]

MOST_COPIED = 256 << 20
"""Maximum size in bytes of the copies that queries may need in a step."""


class LiveTensors:
    """Keeps tensors as they are now until the end of the step.

    Gradients are kept by reference, once `begin_step` has been told who consumes them.
    """

    def __init__(self) -> None:
        # The optimizer that steps now does not change gradients without their version.
        self._steady = False
        # A gradient was overwritten before the end of its step.
        self._overwritten: set[str] = set()

    def begin_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the optimizer that is about to step."""
        # Others may change gradients through `.data`, which no version counts.
        self._steady = type(optimizer).__module__.startswith("torch.")

    def keep(self, others: dict[str, LiveValue], name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor: gradients by reference if nothing overwrites them, others as a copy.

        Args:
            others: values of the same step by name; receives the tensor, unless it has the name.
            name: full name.
            tensor: detached and dense; any shape and dtype.
        """
        if name in others:
            return
        steady = self._steady and name.startswith("gradients/") and name not in self._overwritten
        if steady and not tensor.is_inference():
            others[name] = _Reference(tensor, name, self._overwritten)
            return
        copied = sum(other.octets for other in others.values() if isinstance(other, _Copy))
        others[name] = _Copy(tensor, fits=copied + tensor.nbytes <= MOST_COPIED)

    def add(
        self, others: dict[str, LiveValue], name: str, number: torch.Tensor, weight: float
    ) -> None:
        """Add a number on a device to the weighted mean of its name.

        Args:
            others: values of the same step by name.
            name: full name.
            number: detached, one element.
        """
        mean = others.setdefault(name, _Mean())
        if isinstance(mean, _Mean):
            mean.add(number, weight)


class _Copy:
    """A copy, unless the copies of the step are too large."""

    changed = False

    def __init__(self, tensor: torch.Tensor, *, fits: bool) -> None:
        self.described = _described(tensor)
        self.octets = tensor.nbytes if fits else 0
        self._tensor = tensor.clone() if fits else None

    def read(self) -> torch.Tensor:
        if self._tensor is None:
            raise QueryError(
                f"reads more than {MOST_COPIED >> 20} MiB of tensors in a step: ask for fewer"
            )
        return self._tensor


class _Reference:
    """A tensor that is not copied."""

    def __init__(self, tensor: torch.Tensor, name: str, overwritten: set[str]) -> None:
        self._tensor = tensor
        self._version = tensor._version
        self._name = name
        self._overwritten = overwritten

    @property
    def described(self) -> str:
        return _described(self._tensor)

    @property
    def changed(self) -> bool:
        if self._tensor._version == self._version:
            return False
        self._overwritten.add(self._name)
        return True

    def read(self) -> torch.Tensor:
        return self._tensor


class _Mean:
    """The weighted mean of numbers on a device."""

    changed = False
    described = "number"

    def __init__(self) -> None:
        self._total: torch.Tensor | None = None
        self._weight = 0.0

    def add(self, number: torch.Tensor, weight: float) -> None:
        part = number.reshape(()).to(torch.float64) * weight
        self._total = part if self._total is None else self._total + part
        self._weight += weight

    def read(self) -> torch.Tensor:
        assert self._total is not None, "a value was added"
        return self._total / self._weight


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
