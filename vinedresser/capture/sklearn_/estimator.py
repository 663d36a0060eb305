"""Proxies of scikit-learn estimators that capture each fit."""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.session import Session
from vinedresser.capture.sklearn_.fit_recorder import FitRecorder
from vinedresser.capture.sklearn_.inner_estimator import inner_estimator, training_setup
from vinedresser.capture.sklearn_.sample import Sample
from vinedresser.capture.sklearn_.stages import stages_of
from vinedresser.errors import ConfigError
from vinedresser.objects.files import replacing

__all__ = ["SklearnAdapter", "WatchedEstimator", "watched"]

_FITS = frozenset({"fit", "fit_predict", "fit_transform", "partial_fit"})


class SklearnAdapter(Adapter):
    """The adapter of one estimator.

    Args:
        introduce: registers the adapter with the hook; called again when more is known.
        estimator: an estimator, pipeline or search.
        validation: rows to evaluate on; None for no evaluation.
        rows: maximum number of rows used of a batch or data set.
        suffix: end of the names of its checkpoints, which other estimators of the hook have not.
    """

    framework = "sklearn"

    def __init__(
        self,
        session: Session,
        introduce: Callable[[Adapter], None],
        estimator: Any,
        validation: Sample | None,
        *,
        rows: int,
        suffix: str,
    ) -> None:
        self.versions = {"sklearn": sklearn.__version__}
        self.estimator = estimator
        self.report = session.shield.report
        self._introduce = introduce
        self._suffix = suffix
        self._recorder = FitRecorder(session, estimator, validation, rows)
        self._described = self._detached = False
        guard = session.shield.guard
        # The guard lets TrainingStopped through.
        self._step = guard("the end of a step", session.step_ended)
        self._record = guard("the end of a fit", self._record_fit)

    def setup(self) -> TrainingSetup:
        """See `Adapter.setup`."""
        return training_setup(self.estimator)

    def features(self) -> list[str]:
        """See `Adapter.features`; "x0", "x1", ... if there are no names."""
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None:
            names = [f"x{place}" for place in range(getattr(self.estimator, "n_features_in_", 0))]
        return list(map(str, names))

    def classes(self) -> list[str]:
        """See `Adapter.classes`."""
        return list(map(str, getattr(self.estimator, "classes_", ())))

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        _save_checkpoint(self.estimator, directory / f"step-{step}{self._suffix}.npz")

    def detach(self) -> None:
        """See `Adapter.detach`."""
        self._detached = True

    def fitted(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a call of a fitting method and end the step.

        Raises:
            TrainingStopped: The training was requested to stop.
        """
        if not self._detached:
            self._record(name, args, kwargs)
            self._step()

    def _record_fit(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["X"]
        y = args[1] if len(args) > 1 else kwargs.get("y")
        if not self._described:
            self._described = True
            self._introduce(self)
        with _without_side_effects(self.estimator, inner_estimator(self.estimator).estimator):
            (self._recorder.record_batch if name == "partial_fit" else self._recorder.record_fit)(
                x, y
            )


class WatchedEstimator:
    """A proxy of an estimator that captures each of its fits.

    `isinstance` treats it as an instance of the estimator's class. Clones, copies and pickles are
    plain estimators and are not watched.
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
        # `set_params` and similar methods return the estimator, which may be fitted next.
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
        # `copy.copy` is in the standard library, so unpickling does not need vinedresser.
        return copy.copy, (self._inside,)

    def __sklearn_clone__(self) -> Any:
        kind = type(self._inside).__name__
        self._adapter.report(
            f"a clone of the watched {kind} is not watched; if a search or an ensemble made it, "
            "watch that instead: hook.sklearn(GridSearchCV(…))"
        )
        return clone(self._inside)

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method to return the proxy instead of the estimator and to capture fits."""

        @functools.wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if name in _FITS:
                self._adapter.fitted(name, args, kwargs)
            return self if result is self._inside else result

        return called


class _WatchedSequence(WatchedEstimator):
    """A proxy of an estimator with members or steps, such as a pipeline."""

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
    suffix: str = "",
) -> Any:
    """Return a watched proxy of an estimator.

    Args:
        introduce: registers an adapter with the hook.
        estimator: a scikit-learn compatible estimator with ``fit`` or ``partial_fit``, a pipeline
            or a search.
        validation: (X, y) to evaluate on after each step; None for no evaluation.
        rows: maximum number of evenly strided rows used of a batch or data set.
        suffix: end of the names of its checkpoints, which other estimators of the hook have not.

    Raises:
        ConfigError: `estimator` is not an estimator or already watched, or another argument is
            invalid.
    """
    if isinstance(estimator, type) or not (
        _has(estimator, "fit") or _has(estimator, "partial_fit")
    ):
        raise ConfigError(f"estimator: {estimator!r} has neither fit nor partial_fit")
    if issubclass(type(estimator), WatchedEstimator):
        raise ConfigError("estimator: already watched")
    if not isinstance(rows, int) or rows < 1:
        raise ConfigError(f"rows = {rows!r}: must be an integer, at least 1")
    sample = None
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise ConfigError(f"validation: must be (X, y), not a {type(validation).__name__}")
        sample = Sample.of(validation[0], validation[1], rows)
    adapter = SklearnAdapter(session, introduce, estimator, sample, rows=rows, suffix=suffix)
    introduce(adapter)
    members = hasattr(type(estimator), "__len__") and hasattr(type(estimator), "__getitem__")
    return (_WatchedSequence if members else WatchedEstimator)(adapter)


def _has(estimator: Any, method: str) -> bool:
    return callable(getattr(estimator, method, None))


@contextmanager
def _without_side_effects(*estimators: Any) -> Iterator[None]:
    """Suppress warnings and restore the random state at the end of the context.

    Some estimators draw random numbers when they predict, for example a random dummy classifier,
    and some emit warnings about calls that the user did not make.

    Args:
        estimators: estimators whose ``random_state`` may be a generator.
    """
    own = (getattr(estimator, "random_state", None) for estimator in estimators)
    generators = [one for one in own if isinstance(one, np.random.RandomState)]
    states = [one.get_state() for one in generators]
    common = np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(common)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _save_checkpoint(estimator: Any, target: Path) -> None:
    """Save an estimator atomically, without pickle.

    The file contains each numeric attribute that ends with an underscore under its name (lists as
    ``coefs_.0``, ...), the columns of trees as ``trees.<stage>.<tree>.<column>``, and ``params``,
    the parameters as JSON. In a pipeline, the names start with the step's name and a dot.

    Args:
        estimator: the estimator, fitted or not.
        target: the file.
    """
    steps = estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]
    arrays = {
        f"{name}.{key}" if name else key: array
        for name, one in steps
        for key, array in _arrays(one)
    }
    with replacing(target) as path, path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _arrays(estimator: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of an estimator by name."""
    if hasattr(estimator, "get_params"):
        yield "params", np.array(json.dumps(estimator.get_params(deep=False), default=str))
    for name, value in getattr(estimator, "__dict__", {}).items():
        if not name.endswith("_") or name.startswith("_"):
            continue
        several = isinstance(value, (list, tuple)) and any(np.ndim(one) for one in value)
        for key, one in enumerate(value) if several else [(None, value)]:
            array = (
                np.asarray(one) if isinstance(one, (np.ndarray, np.generic, float, int)) else None
            )
            if array is not None and array.dtype.kind in "biufcSU":
                yield (name if key is None else f"{name}.{key}"), array
    yield from _trees(estimator)


def _trees(estimator: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    stages = stages_of(estimator)
    for stage in range(stages.count if stages else 0):
        for number, tree in enumerate(stages.trees(stage) if stages else ()):
            for column, values in vars(tree).items():
                yield f"trees.{stage}.{number}.{column}", np.asarray(values)
