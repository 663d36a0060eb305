"""Which cause of a faulty training is proved by experiment: changes tried from its first step."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from benchmarks.faults.cases import Case
from benchmarks.faults.classes import right_words
from benchmarks.faults.training import Training, seeded
from vinedresser.capture.hook.hook import Hook
from vinedresser.errors import VinedresserError
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import recorded_step
from vinedresser.replay.results import Comparison
from vinedresser.replay.running import Replay
from vinedresser.replay.stepping import Replayed
from vinedresser.replay.what_if.trying import what_if
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

__all__ = ["PROVABLE", "Experiment", "experiment_with", "replayed_case"]

STEPS, SECONDS = 100, 20.0
"""Steps of each trial, and time in seconds for all trials of a case."""

# Faults that a change of this kind proves; a learning rate proves one by its direction.
_PROVES = {
    "lower learning rate": {"learning_rate_too_high"},
    "higher learning rate": {"learning_rate_too_low"},
    "clipping": {"nonfinite"},
    "zero_grad": {"gradients_not_cleared"},
    "inputs": {"unnormalised_inputs"},
    "dropout": {"over_regularisation"},
    "weight decay": {"over_regularisation"},
    "eps": {"learning_rate_too_low"},
    "precision": {"mixed_precision"},
    "saturating activation": {"vanishing_gradient", "saturated_activation"},
    "rectifier": {"dying_relu"},
    "exponential activation": {"nonfinite"},
    "equal initial weights": {"identical_units", "bad_initialisation"},
    # Weights that are too small or too large let values and gradients vanish or explode.
    "small initial weights": {"bad_initialisation", "vanishing_gradient"},
    "large initial weights": {"bad_initialisation"},
    "initial biases": {"bad_initialisation", "dying_relu"},
    "output activation": {"loss_output_mismatch"},
    "loss": {"loss_output_mismatch"},
    "target shape": {"loss_output_mismatch", "loss_scale"},
    "targets": {"unnormalised_targets"},
    "loss reduction": {"loss_scale"},
    "parameters": {"untrained_parameters"},
    "detach": {"untrained_parameters"},
}

PROVABLE = frozenset(itertools.chain.from_iterable(_PROVES.values()))
"""Faults that a change can prove."""


@dataclass(frozen=True)
class Experiment:
    """The result of the trials of a case.

    Attributes:
        case: name of the case.
        fault_class: class of its fault, or "healthy".
        seed: seed of its training.
        words: the conclusion.
        cures: kinds of changes that cure it, the best first.
        right: whether one of them proves the fault of the case.
    """

    case: str
    fault_class: str
    seed: int
    words: str
    cures: tuple[str, ...] = ()
    right: bool = False

    @property
    def provable(self) -> bool:
        """Whether a change can prove the fault of the case."""
        return bool(right_words(self.fault_class) & PROVABLE)

    @property
    def wrong(self) -> bool:
        """Whether changes cure it, and none of them proves the fault of the case."""
        return bool(self.cures) and not self.right


def experiment_with(case: Case, seed: int) -> Experiment:
    """Try changes on a case from its first step, with the batches of its training.

    Args:
        case: the case.
        seed: seed of its training.
    """
    of = case.id, case.fault_class, seed
    if case.train.accumulate > 1:
        return Experiment(*of, "not tried: it accumulates gradients")
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = what_if(replayed_case(case, seed, Path(folder)), steps=STEPS, seconds=SECONDS)
    except VinedresserError as error:
        return Experiment(*of, f"not tried: {error}")
    kinds = tuple(_kind(cure.kind, cure.values) for cure in found.cures)
    wanted = right_words(case.fault_class)
    right = any(_PROVES[kind] & wanted for kind in kinds)
    return Experiment(*of, found.conclusion, kinds, right)


def _kind(kind: str, values: tuple[float, ...]) -> str:
    if kind != "learning rate":
        return kind
    before, after = values
    return "lower learning rate" if after < before else "higher learning rate"


def replayed_case(case: Case, seed: int, folder: Path) -> Replayed:
    """Snapshot the first step of a case, and return it, ready to run again.

    Raises:
        VinedresserError: there is no snapshot, or it cannot be run again.
    """
    training = seeded(case, seed, metrics=False)
    settings = SnapshotSettings(every=case.steps)
    hook = Hook(folder / "run", guard="nonfinite", snapshots=settings)
    hook.watch(training.model, loss=training.loss_fn, optimizer=training.optimizer)
    with contextlib.closing(hook):
        training.first_step()
    step = recorded_step(open_snapshot(folder / "run" / "snapshots" / "step-0"))
    batches = [
        Batch((x,), {}, (), y)
        for x, y in itertools.islice(Training(case, seed, metrics=False).batches(), STEPS)
    ]
    step.batches[:] = batches[:1]

    def again(batch: Batch) -> Tensor:
        return training.take(batch.args[0], batch.loaded)

    parts = Parts({"": training.model}, [training.optimizer], step=again, batches=batches[1:])
    replay = Replay(parts, step, case.id)
    return Replayed(replay, replay.run(), Comparison(None, 0, [], {}))
