"""Choosing the adapter for a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.capture.recording.session import Session
from vinedresser.errors import ConfigError

__all__ = ["make_adapter"]


def make_adapter(
    session: Session,
    introduce: Callable[[Adapter], None],
    model: Any,
    loss: Any,
    optimizer: Any,
    *,
    name: str | None,
) -> Adapter:
    """Start to watch a model and return its adapter.

    Args:
        session: session of the hook.
        introduce: adds the adapter to the hook; called again when the model becomes known better.
        model: torch.nn.Module or keras.Model.
        loss: loss module, or None.
        optimizer: optimizer, or several in the order of their steps; None: find it.
        name: prefix of the model's tensor names, or None.

    Raises:
        ConfigError: the model, the loss or the optimizer cannot be watched.
        MissingDependency: a package of the framework's extra is not installed.
    """
    # A Keras model on the torch backend is a torch module too.
    if is_a(model, "keras", "Model"):
        with needed("a Keras model", "tensorflow"):
            from vinedresser.capture.keras_.adapter import KerasAdapter
        return KerasAdapter(session, introduce, model, loss, optimizer, name=name)
    if is_a(model, "torch", "nn.Module"):
        with needed("a torch model", "torch"):
            from vinedresser.capture.torch_.adapter import TorchAdapter
        return TorchAdapter(session, model, loss, optimizer, name)
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    raise ConfigError(f"model: cannot watch a {kind}; {_remedy(model)}")


def _remedy(model: Any) -> str:
    """Return what to do instead with an unsupported model."""
    if any(base.__module__.startswith("xgboost.") for base in type(model).__mro__):
        return "pass the callback hook.xgboost() to its training"
    if any(base.__module__.startswith("sklearn.") for base in type(model).__mro__):
        return "use hook.sklearn(estimator) instead"
    return "pass a torch.nn.Module or a keras.Model, or report steps with hook.step(...)"
