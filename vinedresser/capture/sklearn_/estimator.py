"""An estimator of scikit-learn that is watched whenever it is fitted."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sklearn
from sklearn.base import clone

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.session import Session
from vinedresser.capture.sklearn_.checkpoint import save_checkpoint
from vinedresser.capture.sklearn_.fit_recorder import Taker
from vinedresser.capture.sklearn_.inner_estimator import unwrapped
from vinedresser.capture.sklearn_.sample import Sample
from vinedresser.capture.sklearn_.setup import training_setup
from vinedresser.capture.sklearn_.side_effects import aside
from vinedresser.errors import ConfigError
from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["SklearnAdapter", "WatchedEstimator", "watched"]

_FITS = frozenset({"fit", "fit_predict", "fit_transform", "partial_fit"})


class SklearnAdapter:
    """Ties a hook to an estimator.

    Args:
        session: takes what is seen.
        introduce: makes the adapter known to the hook, and again when more is known of it.
        estimator: a plain estimator, pipeline or search.
        validation: rows to evaluate on; None without.
        rows: of a larger batch or data set so many rows are looked at.
    """

    def __init__(
        self,
        session: Session,
        introduce: Callable[[Adapter], None],
        estimator: Any,
        validation: Sample | None,
        rows: int,
    ) -> None:
        self.estimator = estimator
        self.report = session.shield.report
        self._introduce = introduce
        self._taker = Taker(session, estimator, validation, rows)
        self._described = self._detached = False
        guard = session.shield.guard
        # TrainingStopped passes.
        self._step = guard("the end of a step", session.step_ended)
        self._take = guard("the end of a fit", self._take_fit)

    @property
    def framework(self) -> str:
        """See `Adapter.framework`."""
        return "sklearn"

    @property
    def versions(self) -> dict[str, str]:
        """See `Adapter.versions`."""
        return {"sklearn": sklearn.__version__}

    def names(self) -> list[str]:
        """See `Adapter.names`; they are known when something was fitted."""
        return []

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`; an estimator has none."""
        return {}

    def setup(self) -> TrainingSetup:
        """See `SetUp.setup`."""
        return training_setup(self.estimator)

    def path_of(self, module: Any) -> str | None:  # noqa: ARG002 (the protocol's)
        """See `Adapter.path_of`."""
        return None

    def features(self) -> list[str]:
        """See `TabularAdapter.features`; "x0", "x1", ... where they have no names."""
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None:
            names = [f"x{place}" for place in range(getattr(self.estimator, "n_features_in_", 0))]
        return list(map(str, names))

    def classes(self) -> list[str]:
        """See `TabularAdapter.classes`."""
        return list(map(str, getattr(self.estimator, "classes_", ())))

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        save_checkpoint(self.estimator, directory, step)

    def detach(self) -> None:
        """See `Adapter.detach`."""
        self._detached = True

    def fitted(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take what a call of a fitting method has done, and end the step.

        Args:
            name: of the method.
            args: with which it was called.
            kwargs: with which it was called.

        Raises:
            TrainingStopped: the training was asked to end.
        """
        if not self._detached:
            self._take(name, args, kwargs)
            self._step()

    def _take_fit(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["X"]
        y = args[1] if len(args) > 1 else kwargs.get("y")
        if not self._described:
            self._described = True
            self._introduce(self)
        with aside(self.estimator, unwrapped(self.estimator).estimator):
            (self._taker.batch if name == "partial_fit" else self._taker.fit)(x, y)


class WatchedEstimator:
    """Behaves as the estimator inside, and has each of its fits captured.

    It is an instance of the estimator's class as far as `isinstance` tells. A clone, a copy and
    what is pickled are plain estimators that nobody watches.

    Args:
        adapter: of the estimator.
    """

    __slots__ = ("__weakref__", "_adapter", "_inside")

    def __init__(self, adapter: SklearnAdapter) -> None:
        object.__setattr__(self, "_adapter", adapter)
        object.__setattr__(self, "_inside", adapter.estimator)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._inside)

    def __getattr__(self, name: str) -> Any:
        if name in WatchedEstimator.__slots__:
            raise AttributeError(name)
        value = getattr(self._inside, name)
        # `set_params` and its like return the estimator, to be fitted next.
        return self._watched(name, value) if name in _FITS or name.startswith("set_") else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inside, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._inside, name)

    def __dir__(self) -> list[str]:
        return dir(self._inside)

    def __repr__(self) -> str:
        return repr(self._inside)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        # `copy.copy` is of the standard library: it can be loaded without us.
        return copy.copy, (self._inside,)

    def __sklearn_clone__(self) -> Any:
        kind = type(self._inside).__name__
        self._adapter.report(
            f"a clone of the watched {kind} is not watched; if that is a search's or an "
            "ensemble's, watch the whole: hook.sklearn(GridSearchCV(…))"
        )
        return clone(self._inside)

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that returns us where it would return itself; fits are captured."""

        @functools.wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if name in _FITS:
                self._adapter.fitted(name, args, kwargs)
            return self if result is self._inside else result

        return called


class _WatchedSequence(WatchedEstimator):
    """An estimator with members or steps, such as a pipeline."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._inside)

    def __getitem__(self, key: Any) -> Any:
        return self._inside[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inside)


def watched(
    session: Session,
    introduce: Callable[[Adapter], None],
    estimator: Any,
    *,
    validation: Any = None,
    rows: int = 10_000,
) -> Any:
    """Return an estimator that behaves as the given one, and is watched.

    Args:
        session: takes what is seen.
        introduce: makes an adapter known to the hook.
        estimator: with ``fit`` or ``partial_fit``: of scikit-learn or after its fashion, a pipeline
            or a search.
        validation: (X, y) to evaluate on after each step.
        rows: of a larger batch or data set so many evenly strided rows are looked at.

    Raises:
        ConfigError: it is no estimator, or watched already, or an argument is not right.
    """
    if isinstance(estimator, type) or not (
        _has(estimator, "fit") or _has(estimator, "partial_fit")
    ):
        raise ConfigError(f"estimator: {estimator!r} is none: it has neither fit nor partial_fit")
    if issubclass(type(estimator), WatchedEstimator):
        raise ConfigError("estimator: it is watched already")
    if not isinstance(rows, int) or rows < 1:
        raise ConfigError(f"rows = {rows!r}: must be an integer, at least 1")
    sample = None
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise ConfigError(f"validation: a {type(validation).__name__}; give (X, y)")
        sample = Sample.of(validation[0], validation[1], rows)
    adapter = SklearnAdapter(session, introduce, estimator, sample, rows)
    introduce(adapter)
    members = hasattr(type(estimator), "__len__") and hasattr(type(estimator), "__getitem__")
    return (_WatchedSequence if members else WatchedEstimator)(adapter)


def _has(estimator: Any, method: str) -> bool:
    return callable(getattr(estimator, method, None))
