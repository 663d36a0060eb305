"""Choosing the adapter for a model, and the names that tell several models apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.capture.recording.session import Session
from vinedresser.errors import ConfigError

__all__ = ["ModelNames", "make_adapter"]


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
    if is_a(model, "keras", "Model") and not _of_torch(optimizer):
        with needed("a Keras model", "tensorflow"):
            from vinedresser.capture.keras_.adapter import KerasAdapter
        return KerasAdapter(session, introduce, model, loss, optimizer, name=name)
    if is_a(model, "torch", "nn.Module"):
        with needed("a torch model", "torch"):
            from vinedresser.capture.torch_.adapter import TorchAdapter
        adapter = TorchAdapter(session, model, loss, optimizer, name)
        if not session.detected:
            adapter.find_losses(name)
        return adapter
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    raise ConfigError(f"model: cannot watch a {kind}; {_remedy(model)}")


def _of_torch(optimizer: Any) -> bool:
    """Return whether an optimizer, or each of several, is one of torch."""
    some = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    return bool(some) and all(is_a(one, "torch", "optim.Optimizer") for one in some)


def _remedy(model: Any) -> str:
    """Return what to do instead with an unsupported model."""
    if any(base.__module__.startswith("xgboost.") for base in type(model).__mro__):
        return "pass the callback hook.xgboost() to its training"
    if any(base.__module__.startswith("sklearn.") for base in type(model).__mro__):
        return "use hook.sklearn(estimator) instead"
    return "pass a torch.nn.Module or a keras.Model, or report steps with hook.step(...)"


class ModelNames:
    """The names of the watched models, which are unique; one model may be unnamed."""

    def __init__(self) -> None:
        self._taken: set[str | None] = set()

    def check(self, name: str | None) -> None:
        """Check that a model can be watched under a name.

        Raises:
            ConfigError: the name is invalid or taken.
        """
        if name is not None and (not isinstance(name, str) or not name or "/" in name):
            raise ConfigError(f"name = {name!r}: must be a word without '/'")
        if name in self._taken:
            raise ConfigError(
                "a model is already watched; give each additional model a unique name=…"
                if name is None
                else f"name = {name!r}: already the name of a watched model"
            )

    def take(self, name: str | None) -> None:
        """Reserve the name of a watched model."""
        self._taken.add(name)
