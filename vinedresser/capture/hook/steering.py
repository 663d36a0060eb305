"""The methods of a hook for trainings that are steered and asked while they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from vinedresser.capture.hook.reported_values import ReportedValues
from vinedresser.capture.live.agent import Agent
from vinedresser.capture.requests.boosts import FedShares, class_order
from vinedresser.capture.requests.trainer_requests import TrainerRequests


class SteeredTraining(ReportedValues):
    """The part of `Hook` with which a script declares what may be changed."""

    _requests: TrainerRequests
    _agent: Agent | None
    _on_stop: Callable[[Path, int], None] | None

    def on_stop(self, callback: Callable[[Path, int], None]) -> None:
        """Replace the checkpoint that is saved when the training is stopped.

        Args:
            callback: called once, between two steps, with the run's checkpoint directory and the
                number of finished optimizer steps.
        """
        self._on_stop = callback

    def tunable(
        self,
        name: str,
        *targets: Any,
        get: Callable[[], float] | None = None,
        set: Callable[[Any], object] | None = None,  # noqa: A002 (reads best at the call)
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
    ) -> Self:
        """Allow a parameter of the running training to be changed.

        Requests for a change (`vinedresser set`, the actions `adjust` and `boost`) are executed
        once, between two steps. Nothing else of the training is ever changed.

        Args:
            name: "lr" (learning rate, torch or Keras), "clip" (maximum gradient norm, torch),
                "boost" (weights of the classes of a mixture, as ``boost.<class>``; the shares that
                it feeds are saved every 50 steps as ``saved/fed/<class>``), or any word for a
                number with `get` and `set`.
            targets: the optimizer; for "lr" of torch, followed by its schedulers, which would reset
                the rate otherwise; for Keras and for "clip", one or more optimizers; for "boost"
                the `vinedresser.data.Mixture`.
            get: return the number; called on the training's thread.
            set: set the number; an integer stays one.
            min: smallest value; None: 0 for "lr", "clip" and "boost", else unbounded.
            max: largest value; None: 100 for "boost", else unbounded.

        Returns:
            The hook.

        Raises:
            ConfigError: the name is unknown, a target does not have the parameter, or `get` does
                not return a number.
            MissingDependency: a package of the framework's extra is not installed.
        """
        self._requests.executor.declare(name, targets, get=get, set_to=set, low=min, high=max)
        if name == "boost" and targets:
            self._session.classes = class_order(targets[0])
            self._session.boosted = lambda: dict(targets[0].boosted)
            shares = FedShares(targets[0], self._save)
            self._session.each_step.append(
                self._session.shield.guard("the shares of classes", shares.step_ended)
            )
        return self

    def event(self, name: str, /, **values: Any) -> None:
        """Tell that something has happened, such as the end of an epoch.

            hook.event("epoch")
            hook.event("validated", scores=scores)

        Changes that wait for the event (`vinedresser set --at next-epoch`) are made, and queries
        that ask at this event (`vinedresser ask --every validated`) are answered.

        Args:
            name: "epoch", or any other word.
            values: numbers and tensors that queries may read at this event by their names, or
                functions without arguments that return them, called only if a query reads them.
        """
        if self._closed:
            return
        self._requests.happened(name)
        if self._agent is not None:
            self._agent.observer.happened(name, self._session.recorder.steps, values)
