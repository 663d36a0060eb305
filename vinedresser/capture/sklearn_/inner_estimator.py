"""The estimator inside a pipeline or a search."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

__all__ = ["InnerEstimator", "inner_estimator"]


class InnerEstimator(NamedTuple):
    """The last estimator of nested pipelines and searches.

    Attributes:
        estimator: the estimator.
        before: pipelines with the preceding transformers, outermost first.
    """

    estimator: Any
    before: tuple[Pipeline, ...]

    def transformed(self, x: Any) -> Any:
        """Return rows as they are passed to the estimator."""
        for pipeline in self.before:
            x = pipeline.transform(x)
        return x


def inner_estimator(estimator: Any) -> InnerEstimator:
    """Return the learning estimator inside a fitted pipeline or search."""
    before: list[Pipeline] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                before.append(estimator[:-1])
            estimator = estimator[-1]
        else:
            return InnerEstimator(estimator, tuple(before))
