"""Initial weights by their names in Keras and PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.faults.words import known_word, split_word
from vinedresser.errors import ConfigError

__all__ = ["check_init", "initialise"]


def _lecun_normal(weight: Tensor) -> object:
    # nn.init has no LeCun; it is He without the factor of two.
    return nn.init.kaiming_normal_(weight, nonlinearity="linear")


def _lecun_uniform(weight: Tensor) -> object:
    return nn.init.kaiming_uniform_(weight, nonlinearity="linear")


def _truncated(weight: Tensor, std: float) -> object:
    """Fill it with normal values, redrawing those beyond two standard deviations."""
    return nn.init.trunc_normal_(weight, 0.0, std, -2 * std, 2 * std)


_PLAIN: dict[str, Callable[[Tensor], object]] = {
    "glorot_uniform": nn.init.xavier_uniform_,
    "glorot_normal": nn.init.xavier_normal_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "he_uniform": lambda weight: nn.init.kaiming_uniform_(weight, nonlinearity="relu"),
    "he_normal": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "lecun_normal": _lecun_normal,
    "lecun_uniform": _lecun_uniform,
    "orthogonal": nn.init.orthogonal_,
    "identity": nn.init.eye_,
    "zeros": nn.init.zeros_,
    "zero": nn.init.zeros_,
    "ones": nn.init.ones_,
    "one": nn.init.ones_,
    "uniform05": lambda weight: nn.init.uniform_(weight, -0.05, 0.05),
    "random_uniform": lambda weight: nn.init.uniform_(weight, -0.05, 0.05),
    "normal05": lambda weight: nn.init.normal_(weight, 0.0, 0.05),
    "random_normal": lambda weight: nn.init.normal_(weight, 0.0, 0.05),
    "truncated_normal": lambda weight: _truncated(weight, 0.05),
}
_BY_NUMBER: dict[str, Callable[[Tensor, float], object]] = {
    "constant": nn.init.constant_,
    "normal": lambda weight, std: nn.init.normal_(weight, 0.0, std),
    "random_normal": lambda weight, std: nn.init.normal_(weight, 0.0, std),
    "uniform": lambda weight, bound: nn.init.uniform_(weight, -bound, bound),
    "random_uniform": lambda weight, bound: nn.init.uniform_(weight, -bound, bound),
    "truncnormal": _truncated,
    "truncated_normal": _truncated,
    "orthogonal": nn.init.orthogonal_,
    "glorot_uniform": nn.init.xavier_uniform_,
    "glorot_normal": nn.init.xavier_normal_,
}
# These need no fan, which a vector does not have.
_FOR_VECTORS = ("zeros", "zero", "ones", "one", "constant", "normal", "uniform", "truncnormal")
_OWN = ("torch", "default")


def check_init(word: object, where: str) -> str:
    """Return the name of an initialisation.

    Raises:
        ConfigError: The name is unknown, its number is missing, or it takes none.
    """
    name, parameter = split_word(word, where)
    known_word(name, [*_OWN, *_PLAIN, *_BY_NUMBER], where, "initialisation")
    if parameter is None and name not in (*_OWN, *_PLAIN):
        raise ConfigError(f"{where}: {name} needs a number, as in {name}:0.05")
    if parameter is not None and name not in _BY_NUMBER:
        raise ConfigError(f"{where}: {name} takes no number")
    return str(word)


@torch.no_grad()
def initialise(parameter: Tensor, word: str) -> None:
    """Fill a parameter; ``torch`` leaves the default of its module.

    Args:
        parameter: weight, or vector if the initialisation needs no fan.
        word: name checked by `check_init`.

    Raises:
        ConfigError: The initialisation needs a fan, but the parameter is a vector.
    """
    name, value = split_word(word, "init")
    if name in _OWN:
        return
    if parameter.ndim < 2 and not name.startswith(_FOR_VECTORS):
        raise ConfigError(f"init: {word} is for weights, not for vectors")
    if value is None:
        _PLAIN[name](parameter)
    else:
        _BY_NUMBER[name](parameter, value)
