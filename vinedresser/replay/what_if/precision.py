"""Computing a step in another precision than that of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.frameworks.torch_.modes import EachFunction
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch, mapped

__all__ = ["HalfSeen", "cast_batch", "in_precision", "widening"]

_HALF = (torch.float16, torch.bfloat16)
_CASTS = {
    torch.float32: {Tensor.half: Tensor.float, Tensor.bfloat16: Tensor.float},
    torch.float64: {
        Tensor.half: Tensor.double,
        Tensor.bfloat16: Tensor.double,
        Tensor.float: Tensor.double,
    },
}


class HalfSeen:
    """Notes whether a function returns a tensor of half precision.

    Attributes:
        dtype: the first such dtype; None if there was none.
    """

    def __init__(self) -> None:
        self.dtype: torch.dtype | None = None

    def watching(self) -> EachFunction:
        """Return a context whose functions are looked at."""
        return EachFunction(self._call)

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if self.dtype is None:
            found = (one.dtype for _, one in leaves(result) if one.dtype in _HALF)
            self.dtype = next(found, None)
        return result


def _wider(wide: torch.dtype) -> EachFunction:
    """Return a context of a wider precision: no casts to a narrower one, no autocast."""
    narrow, casts = _narrower(wide), dict[Any, Any](_CASTS[wide])

    def widened(value: Any) -> Any:
        return wide if isinstance(value, torch.dtype) and value in narrow else value

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                # The context of the program sets it back at its end.
                torch.set_autocast_enabled(kind, False)
        named = {key: widened(one) for key, one in kwargs.items()}
        return casts.get(func, func)(*map(widened, args), **named)

    return EachFunction(call)


@contextmanager
def in_precision(
    wide: torch.dtype, models: Iterable[nn.Module], optimizers: Iterable[Optimizer]
) -> Iterator[None]:
    """Compute in a wider precision; afterwards, parameters and buffers have their dtypes again.

    Values in the state of the optimizers stay wide.

    Args:
        wide: float32, which replaces half precision, or float64, which replaces float32, too.
        models: the models of the step.
    """
    narrow, widen = _narrower(wide), widening(wide)
    models = list(models)
    parameters = [
        parameter for each in models for parameter in each.parameters() if parameter.dtype in narrow
    ]
    buffers = [
        (module, name, one.dtype)
        for each in models
        for module in each.modules()
        for name, one in module._buffers.items()
        if one is not None and one.dtype in narrow
    ]
    dtypes = [parameter.dtype for parameter in parameters]
    default = torch.get_default_dtype()
    _cast(parameters, [wide] * len(dtypes))
    _cast_buffers([(module, name, wide) for module, name, _ in buffers])
    for state in (one for each in optimizers for one in each.state.values()):
        state.update({key: widen(value) for key, value in state.items()})
    try:
        if default in narrow:
            torch.set_default_dtype(wide)
        with torch.compiler.set_stance("force_eager"), _wider(wide):
            yield
    finally:
        torch.set_default_dtype(default)
        # Also within another such context, which would widen the dtypes.
        with torch._C.DisableTorchFunction():
            _cast(parameters, dtypes)
            _cast_buffers(buffers)


def cast_batch(batch: Batch, wide: torch.dtype) -> Batch:
    """Return a batch whose tensors of narrower precision have another dtype.

    Args:
        wide: see `in_precision`.
    """
    return mapped(batch, widening(wide))


def widening(wide: torch.dtype) -> Callable[[Any], Any]:
    """Return a function that casts a tensor of narrower precision, or a list of some.

    Args:
        wide: see `in_precision`.
    """
    narrow = _narrower(wide)

    def widened(value: Any) -> Any:
        if type(value) is list:
            # LBFGS keeps its latest directions in lists.
            return [widened(one) for one in value]
        is_narrow = isinstance(value, Tensor) and value.dtype in narrow
        return value.to(wide) if is_narrow else value

    return widened


def _cast(parameters: list[nn.Parameter], dtypes: list[torch.dtype]) -> None:
    for one, dtype in zip(parameters, dtypes, strict=True):
        one.grad = None
        one.data = one.data.to(dtype)


def _cast_buffers(buffers: Iterable[tuple[nn.Module, str, torch.dtype]]) -> None:
    for module, name, dtype in buffers:
        buffer = module._buffers[name]
        if buffer is not None:
            module._buffers[name] = buffer.to(dtype)


def _narrower(wide: torch.dtype) -> tuple[torch.dtype, ...]:
    return _HALF if wide == torch.float32 else (*_HALF, torch.float32)
