"""The passes in which a model is run: its mode, and numbers that are not drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from vinedresser.pruning.proof import global_generators_kept

__all__ = [
    "EVALUATION",
    "Pass",
    "in_pass",
    "is_of_torch",
    "is_settled",
    "operator_name",
    "precise",
    "settled",
]

# What replaces numbers that an operator draws, by its name; None: the middle of its bounds, or
# its mean.
_SETTLED: dict[str, float | None] = {
    "bernoulli": 1.0,
    "rand": 0.5,
    "rand_like": 0.5,
    "uniform": None,
    "randn": 0.0,
    "randn_like": 0.0,
    "normal": None,
    "exponential": 1.0,
}


class Pass(NamedTuple):
    """One run of a model.

    Attributes:
        training: whether it runs in training mode.
        seed: seed of all random numbers.
    """

    training: bool
    seed: int


EVALUATION = Pass(training=False, seed=0)


def operator_name(operator: torch._ops.OpOverload) -> str:
    """Return the name of an operator without namespace, overload and underscore."""
    return operator._schema.name.rpartition("::")[2].removesuffix("_")


@contextmanager
def in_pass(model: torch.nn.Module, one: Pass) -> Iterator[None]:
    """Put a model into the mode of a pass, with random numbers of its seed.

    PyTorch's own modules stay in evaluation mode: theirs decides about random numbers and
    statistics, and not about which channels they read. Buffers and the states of all generators
    are restored afterwards.

    Args:
        model: a copy of the user's model, in evaluation mode.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers() if one.training]
    try:
        with torch.random.fork_rng(devices=_cuda_devices()), global_generators_kept(one.seed):
            torch.manual_seed(one.seed)
            if one.training:
                model.train()
                for module in model.modules():
                    module.training = module.training and not is_of_torch(module)
            yield
    finally:
        if one.training:
            model.eval()
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _cuda_devices() -> Sequence[int]:
    return range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()


def is_of_torch(module: torch.nn.Module) -> bool:
    """Return whether torch has the code that a module runs; containers only pass on."""
    where = type(module).forward.__module__
    return where.startswith("torch.nn.") and where not in {
        "torch.nn.modules.container",
        "torch.nn.modules.module",
    }


def precise(
    operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Run an operator in float64 if it casts to another type of float or makes a new tensor."""
    given = dict(kwargs)
    dtype = given.get("dtype")
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        given["dtype"] = torch.float64
    result = operator(*args, **given)
    imprecise = isinstance(result, torch.Tensor) and result.is_floating_point()
    if imprecise and result.dtype != torch.float64 and not operator._schema.is_mutable:
        return result.to(torch.float64)
    return result


def settled(
    operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Run an operator; fill tensors of noise with a constant: results do not depend on their sizes.

    A model without some of its channels draws fewer numbers. Dropout keeps everything. A single
    number, which may decide which layers run, is drawn. A batch normalization with running
    statistics uses them, also if the model's code calls it in training mode.
    """
    name = operator_name(operator)
    if name.endswith("batch_norm") and len(args) > 5 and args[3] is not None:
        args = (*args[:5], False, *args[6:])
    if not is_settled(operator):
        return operator(*args, **kwargs)
    with torch.random.fork_rng(devices=_cuda_devices()):
        result: torch.Tensor = operator(*args, **kwargs)
    if result.ndim < 2 and result.numel() == 1:
        return operator(*args, **kwargs)
    value = _SETTLED[name]
    return result.fill_(_middle(name, args[1:]) if value is None else value)


def is_settled(operator: torch._ops.OpOverload) -> bool:
    """Return whether an operator draws numbers that are replaced."""
    return operator_name(operator) in _SETTLED


def _middle(name: str, bounds: Sequence[Any]) -> float:
    """Return the middle of the bounds of `uniform_`, or the mean of `normal_`."""
    first, *others = [*(bound for bound in bounds if isinstance(bound, int | float)), 0.0]
    return first if name == "normal" else (first + (others[0] if len(others) > 1 else 1.0)) / 2
