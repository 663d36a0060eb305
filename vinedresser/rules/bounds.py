"""Range checks for the parameters of rules."""

from __future__ import annotations

from vinedresser.errors import ConfigError

__all__ = ["require_above", "require_at_least", "require_between", "require_share"]


def require_above(bound: float, **parameters: float) -> None:
    """Raise `ConfigError` unless all parameters are greater than ``bound``."""
    for name, value in parameters.items():
        if not value > bound:
            raise ConfigError(f"{name} = {value:g}: must be greater than {bound:g}")


def require_at_least(bound: float, **parameters: float) -> None:
    """Raise `ConfigError` if any parameter is less than ``bound``."""
    for name, value in parameters.items():
        if not value >= bound:
            raise ConfigError(f"{name} = {value:g}: must be at least {bound:g}")


def require_between(low: float, high: float, **parameters: float) -> None:
    """Raise `ConfigError` unless all parameters lie strictly between ``low`` and ``high``."""
    for name, value in parameters.items():
        if not low < value < high:
            raise ConfigError(f"{name} = {value:g}: must lie between {low:g} and {high:g}")


def require_share(**parameters: float) -> None:
    """Raise `ConfigError` unless all parameters are greater than 0 and at most 1."""
    for name, value in parameters.items():
        if not 0 < value <= 1:
            raise ConfigError(f"{name} = {value:g}: must lie above 0 and up to 1")
