"""Which adapter watches which model."""

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
    """Return the adapter that watches a model from now on.

    Args:
        session: takes what is seen.
        introduce: makes the adapter known to the hook, again when more is known of the model.
        model: a torch.nn.Module or a keras.Model.
        loss: what the training calls for its loss; None where there is none to watch.
        optimizer: the optimizer, or several in the order of their steps; None: to be found.
        name: comes before the names of all that belongs to the model; None: nothing does.

    Raises:
        ConfigError: the model is of no known kind, or loss or optimizer cannot be watched.
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
    raise ConfigError(f"model: a {kind} cannot be watched; {_remedy(model)}")


def _remedy(model: Any) -> str:
    """Return what to do instead with a model that `make_adapter` does not take."""
    if any(base.__module__.startswith("xgboost.") for base in type(model).__mro__):
        return "give its training the callback hook.xgboost()"
    if any(base.__module__.startswith("sklearn.") for base in type(model).__mro__):
        return "use hook.sklearn(estimator) in its place"
    return "give a torch.nn.Module or a keras.Model, or report steps by hook.step(...)"
