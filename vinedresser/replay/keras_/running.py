"""Running a recorded step of a Keras model once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from vinedresser.errors import ConfigError, CorruptData, did_you_mean
from vinedresser.frameworks.keras_.codec import (
    digest,
    is_tensor,
    mapped,
    nonfinite_entries,
)
from vinedresser.frameworks.keras_.gradient_step import (
    GradientStep,
    gradients_by_path,
    without_updates,
)
from vinedresser.frameworks.keras_.model_state import (
    changing_variables,
    optimizer_variables,
    parameters,
)
from vinedresser.frameworks.keras_.names import Names
from vinedresser.replay.keras_.batch import KerasBatch, batch_size, selected
from vinedresser.replay.keras_.factory import NEEDED, KerasParts
from vinedresser.replay.keras_.recorded import RecordedKerasModel, RecordedKerasStep
from vinedresser.replay.results import Outcome
from vinedresser.replay.samples import numbered, with_samples
from vinedresser.snapshots.trees import Computed
from vinedresser.store.json_values import DAMAGE

__all__ = ["KerasOutcome", "KerasReplay"]


@dataclass(frozen=True)
class KerasOutcome(Outcome):
    """What a step computed.

    Attributes:
        values: the gradients by path.
    """

    values: dict[str, Any]


@dataclass
class KerasReplay:
    """Runs a recorded step, each time from its recorded state.

    Attributes:
        parts: result of the factory.
        whose: name of the factory, for messages.
        eager: whether it is always run as it is written, without graphs.
        runs: number of runs so far.

    Raises:
        ConfigError: the factory builds something else.
    """

    parts: KerasParts
    step: RecordedKerasStep
    whose: str
    eager: bool = False
    runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Check the models, and build those that have no variables yet."""
        if self.parts.models.keys() != self.step.models.keys():
            raise ConfigError(
                f"{self.whose}: builds the models {sorted(self.parts.models)}; the snapshot has "
                f"{sorted(self.step.models)}; return a dictionary of them by name"
            )
        self.model = self.parts.models[self.step.trained]
        self._names = Names(self.model)
        if self.step.own and not self.model.compiled:
            if self.parts.loss is None or not self.parts.optimizers:
                raise ConfigError(f"{self.whose}: the model is not compiled; {NEEDED}")
            self.model.compile(self.parts.optimizers[0], self.parts.loss)
        if not all(model.built for model in self.parts.models.values()):
            self._run(self.step.batches[0], eager=True)
        self._graph = self._function(eager=False)

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Number of the batch and row of each sample; [] if they cannot be told apart."""
        return numbered(batch_size(batch) for batch in self.step.batches)

    def run(
        self,
        samples: Sequence[tuple[int, int]] | None = None,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        eager: bool = False,
    ) -> KerasOutcome:
        """Run the step.

        Args:
            samples: the samples to run it with, some of `samples`; None: all, as recorded.
            within: makes the context for the computations.
            eager: run it as it is written even if it was a graph.

        Raises:
            ConfigError: the factory builds something else, or the step computes no gradient.
        """
        self.runs += 1
        _restore(self.parts, self.step, self.whose)
        batches = self.step.batches
        if samples is not None:
            batches = with_samples(batches, samples, selected)
        losses: list[Any] = []
        gradients: dict[str, Any] = {}
        eager = eager or self.eager
        with _as_written() if eager else nullcontext(), within():
            for batch in batches:
                loss, found = self._run(batch, eager=eager)
                losses += [] if loss is None else [keras.ops.convert_to_numpy(loss)]
                gradients |= found
        if not gradients:
            raise ConfigError(f"{self.whose}: the step computed no gradient; {NEEDED}")
        name = self.step.trained
        counts = {(name, path): nonfinite_entries(one) for path, one in gradients.items()}
        return KerasOutcome(
            losses,
            {(name, path): digest(one) for path, one in gradients.items()},
            {key: number for key, number in counts.items() if number},
            gradients,
        )

    def _run(self, batch: KerasBatch, *, eager: bool) -> tuple[Any, dict[str, Any]]:
        function = self._function(eager=True) if eager else self._graph
        if self.step.own:
            return function(mapped(batch.data, keras.ops.convert_to_tensor))
        content = mapped((batch.args, batch.kwargs, batch.loss_args), keras.ops.convert_to_tensor)
        losses, gradients = function(content)
        return losses[0] if losses else None, dict(gradients)

    def _function(self, *, eager: bool) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
        """Return the function that runs the step on a batch, as a graph if the recorded one was."""
        if self.step.own:
            return GradientStep(self.model, self._names, eager=eager).run
        if eager or not self.step.graph:
            return self._loop_step
        import tensorflow as tf

        function = tf.function(self._loop_step, autograph=False)
        # A part of a batch has another shape.
        function._omit_frequent_tracing_warning = True
        return function  # type: ignore[no-any-return]

    def _loop_step(self, content: Any) -> tuple[list[Any], dict[str, Any]]:
        """Run a step of a custom loop; return its loss, if it has one, and the gradients."""
        batch = KerasBatch(*content)
        gradients: dict[str, Any] = {}

        def take(optimizer: Any, given: Any, variables: Any) -> None:
            gradients.update(gradients_by_path(self._names, optimizer, given, variables))

        with without_updates(take):
            if self.parts.step is not None:
                loss = self.parts.step(batch)
            else:
                loss = self._plain_step(batch, take)
        return [loss] if is_tensor(loss) else [], gradients

    def _plain_step(self, batch: KerasBatch, take: Callable[[Any, Any, Any], None]) -> Any:
        """Run the model and the loss, and take the gradients."""
        variables = self.model.trainable_variables
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = self._loss(batch)
            take(None, tape.gradient(loss, [variable.value for variable in variables]), variables)
            return loss
        self.model.zero_grad()
        loss = self._loss(batch)
        loss.backward()
        take(None, [variable.value.grad for variable in variables], variables)
        return loss.detach()

    def _loss(self, batch: KerasBatch) -> Any:
        computed = [one for one in batch.loss_args if isinstance(one, Computed)]
        if self.parts.loss is None or len(computed) != 1:
            raise ConfigError(
                f"{self.whose}: what the loss compared is not known: return a step function"
                if self.parts.loss is not None
                else f"{self.whose}: it returned neither a loss nor a step function; {NEEDED}"
            )
        output = self.model(*batch.args, **(batch.kwargs or {}))
        given = [output if isinstance(one, Computed) else one for one in batch.loss_args]
        return keras.ops.mean(self.parts.loss(*given))


@contextmanager
def _as_written() -> Iterator[None]:
    """Run functions that TensorFlow or torch would compile as they are written."""
    if keras.backend.backend() == "torch":
        import torch

        with torch.compiler.set_stance("force_eager"):
            yield
        return
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _restore(parts: KerasParts, step: RecordedKerasStep, whose: str) -> None:
    """Put everything into the state at the beginning of a step.

    Args:
        parts: result of the factory, with models that are built.
        whose: name of the factory, for messages.

    Raises:
        ConfigError: the factory builds another model or optimizer.
    """
    for name, model in parts.models.items():
        recorded = step.models[name]
        _restore_model(model, recorded, whose)
        optimizers = parts.optimizers or [one for one in [model.optimizer] if one is not None]
        for optimizer, state in zip(optimizers, recorded.optimizers, strict=False):
            _restore_optimizer(optimizer, state, model, whose)
    try:
        _restore_random(step.random)
    except (*DAMAGE, RuntimeError) as error:
        raise CorruptData(f"the recorded random states are not valid: {error}") from error


def _restore_model(model: Any, recorded: RecordedKerasModel, whose: str) -> None:
    names = Names(model)
    ours = parameters(names) | changing_variables(names)
    for path, value in recorded.variables.items():
        if path == "global seed" and path not in ours:
            # It is made when it is first used.
            continue
        if path not in ours:
            near = did_you_mean(path, ours)
            raise ConfigError(
                f"{whose}: builds another model: it has no variable {path}, which the snapshot has"
                f"{near}"
            )
        variable = ours[path]
        if tuple(variable.shape) != value.shape or str(variable.dtype) != value.dtype.name:
            raise ConfigError(
                f"{whose}: builds another model: {path} is {variable.dtype} "
                f"{list(variable.shape)}; in the snapshot it is {value.dtype} {list(value.shape)}"
            )
        variable.assign(value)
    for path in ours:
        if path not in recorded.variables and path != "global seed":
            raise ConfigError(
                f"{whose}: builds another model: its variable {path} is not in the snapshot"
            )


def _restore_optimizer(optimizer: Any, recorded: dict[str, Any], model: Any, whose: str) -> None:
    if type(optimizer).__name__ != recorded["type"]:
        raise ConfigError(
            f"{whose}: builds another optimizer: {type(optimizer).__name__}; the snapshot has "
            f"{recorded['type']}"
        )
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    ours, theirs = optimizer_variables(optimizer), recorded["variables"]
    if [tuple(one.shape) for one in ours] != [one.shape for one in theirs]:
        raise ConfigError(
            f"{whose}: builds another optimizer: it has {len(ours)} variables, the snapshot "
            f"{len(theirs)}, or they have other shapes"
        )
    for variable, value in zip(ours, theirs, strict=True):
        variable.assign(value)


def _restore_random(states: dict[str, Any]) -> None:
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        np.random.set_state(states["numpy"])
    if "torch" in states:
        import torch

        torch.set_rng_state(torch.from_numpy(states["torch"]))
