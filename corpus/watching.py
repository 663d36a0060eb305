"""Capture of a training, as an unchanged script or by a hook that the script creates."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from vinedresser.capture.attach.launching import additional_runs
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.hook.hook import Hook
from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    ATTACH_VARIABLE,
    RUN_VARIABLE,
    ExitRecord,
    new_run,
    write_first,
    write_record,
)

__all__ = ["AttachedWatch", "Framework", "HookWatch", "Watch"]

Framework = Literal["torch", "keras", "xgboost"]

LossFunction = Callable[..., Tensor]


class Watch:
    """What the script tells a hook, if it has one; this one captures nothing.

    Attributes:
        sizes: entries of each weight of the models, by the name of its parameter.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def expect(self, steps: int) -> None:
        """Note the number of steps, before anything else."""

    def loss(self, function: LossFunction) -> LossFunction:
        """Return the loss function to use."""
        return function

    def begin(
        self,
        model: nn.Module,
        optimizer: Any,  # noqa: ARG002 (hooks use it)
        *,
        name: str | None = None,
    ) -> None:
        """Note a model and its optimizer, before the first step; see `Hook.watch`."""
        self.sizes |= {
            one if name is None else f"{name}.{one}": weight.numel()
            for one, weight in model.named_parameters()
        }

    def begin_keras(self, model: Any, loss: Any = None, optimizer: Any = None) -> None:
        """Note a Keras model before its first step; with its loss and optimizer if not compiled."""

    def lightning(self, module: nn.Module) -> list[Any]:
        """Return the callbacks of a Lightning trainer that fits a module."""
        self.sizes |= {name: weight.numel() for name, weight in module.named_parameters()}
        return []

    def boosting(self, rows: Mapping[str, Any]) -> list[Any]:  # noqa: ARG002 (hooks use it)
        """Return the callbacks of a training with XGBoost.

        Args:
            rows: the sets that are evaluated, each a `DMatrix`, by name.
        """
        return []

    def metric(self, name: str, value: float) -> None:
        """Report a metric of an evaluation."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Return the context of an evaluation."""
        return contextlib.nullcontext()

    def close(self, error: Exception | None) -> None:
        """End the capture.

        Args:
            error: error that ended the training; None if it came to its end.
        """


class AttachedWatch(Watch):
    """Capture of an unchanged script, as by `vinedresser run`.

    Args:
        run: directory of the run; that of further trainings is next to it.
        needs: what the rules need.
        framework: framework that trains.
        told: whether the number of steps is known.
    """

    def __init__(
        self, run: Path, needs: CaptureConfig, framework: Framework, *, told: bool
    ) -> None:
        super().__init__()
        self._run, self._told = run, told
        capture = CaptureConfig({}).with_defaults()
        self._record = replace(
            new_run(run.parent.name),
            capture=capture.to_json(),
            capture_digest=capture.digest(),
            needs=needs.to_json(),
        )
        run.mkdir()
        write_record(LocalStorage(run), self._record)
        os.environ |= {RUN_VARIABLE: str(run), ATTACH_VARIABLE: "1"}
        # The parent process has imported torch, so that no import is left to be noticed.
        importlib.import_module(f"vinedresser.capture.attach.{framework}_training").attach()

    def expect(self, steps: int) -> None:
        """See `Watch.expect`."""
        if self._told:
            write_record(LocalStorage(self._run), replace(self._record, total_steps=steps))

    def close(self, error: Exception | None) -> None:
        """See `Watch.close`; note the end of the script, as its supervisor does."""
        ATTACHMENT.retire()
        end = ExitRecord("finished", "the script ended", time.time(), code=0)
        if error is not None:
            end = ExitRecord("crashed", f"{type(error).__name__}: {error}", time.time(), code=1)
        for run in (self._run, *additional_runs(self._run)):
            write_first(LocalStorage(run), end)


class HookWatch(Watch):
    """A hook, as its documentation shows it.

    Args:
        run: directory of the run.
        needs: what the rules need.
        told: whether the script tells the number of steps.
        reports: whether the script reports its metrics.
    """

    def __init__(self, run: Path, needs: CaptureConfig, *, told: bool, reports: bool) -> None:
        super().__init__()
        self._run, self._needs, self._told, self._reports = run, needs, told, reports
        self._module: nn.Module | None = None
        self._hook: Hook | None = None

    def expect(self, steps: int) -> None:
        """See `Watch.expect`; create the hook."""
        self._hook = Hook(
            self._run,
            collections=self._needs.collections,
            total_steps=steps if self._told else None,
        )

    @property
    def hook(self) -> Hook:
        """The hook."""
        assert self._hook is not None, "a family draws its number of steps first"
        return self._hook

    def loss(self, function: LossFunction) -> LossFunction:
        """See `Watch.loss`."""
        if isinstance(function, nn.Module):
            self._module = function
            return function
        return self.hook.loss(function)

    def begin(self, model: nn.Module, optimizer: Any, *, name: str | None = None) -> None:
        """See `Watch.begin`."""
        super().begin(model, optimizer, name=name)
        loss, self._module = self._module, None
        self.hook.watch(model, loss=loss, optimizer=optimizer, name=name)

    def begin_keras(self, model: Any, loss: Any = None, optimizer: Any = None) -> None:
        """See `Watch.begin_keras`."""
        self.hook.watch(model, loss=loss, optimizer=optimizer)

    def lightning(self, module: nn.Module) -> list[Any]:
        """See `Watch.lightning`."""
        super().lightning(module)
        return [self.hook.lightning()]

    def boosting(self, rows: Mapping[str, Any]) -> list[Any]:
        """See `Watch.boosting`."""
        train, *others = rows
        return [self.hook.xgboost(train=rows[train], validation={one: rows[one] for one in others})]

    def metric(self, name: str, value: float) -> None:
        """See `Watch.metric`."""
        if self._reports:
            self.hook.metric(name, value)

    def evaluating(self) -> AbstractContextManager[None]:
        """See `Watch.evaluating`."""
        return self.hook.mode("eval")

    def close(self, error: Exception | None) -> None:
        """See `Watch.close`."""
        if self._hook is not None:
            self._hook.__exit__(type(error) if error else None, error, None)
