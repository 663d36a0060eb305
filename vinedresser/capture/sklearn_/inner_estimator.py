"""The estimator inside of a pipeline or a search."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

__all__ = ["Inner", "unwrapped"]


class Inner(NamedTuple):
    """The last estimator of a chain.

    Attributes:
        estimator: it.
        before: pipelines whose transformers come before it, the outermost first.
    """

    estimator: Any
    before: tuple[Pipeline, ...]

    def transformed(self, x: Any) -> Any:
        """Return rows as the estimator gets them."""
        for pipeline in self.before:
            x = pipeline.transform(x)
        return x


def unwrapped(estimator: Any) -> Inner:
    """Return the estimator that learns in a fitted pipeline or search, and what is before it."""
    before: list[Pipeline] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                before.append(estimator[:-1])
            estimator = estimator[-1]
        else:
            return Inner(estimator, tuple(before))
