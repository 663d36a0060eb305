"""One round of a pruning, which a supervised run executes: prune, fine-tune, evaluate.

Of several ranks, the first one does all of that; the others take part in the fine-tuning.

Each phase leaves its result in the folder of the round before the next begins, so that a round that
was killed continues with the phase in which that happened.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from vinedresser.capture import Hook
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.environment import Environment
from vinedresser.errors import ConfigError, PruningError
from vinedresser.infra.command_line import parameters_as_options, resolved_command
from vinedresser.objects import LocalStorage
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.folders import PRUNED, TUNED, TUNING, round_folder
from vinedresser.pruning.one_round import prune
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.rounds.figures import (
    costs_of,
    evaluated,
    refuse_nonfinite,
    report,
    report_round,
)
from vinedresser.pruning.rounds.fine_tuning import ROUND_VARIABLE
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.settings import PREFIX, PruneTable, tuning_of
from vinedresser.pruning.rounds.user_functions import UserFunctions
from vinedresser.pruning.saving import WEIGHTS, is_saved, load_with_plans, read_proof, save_model
from vinedresser.pruning.targets import are_for_speed
from vinedresser.store.records import Record, read_record, write_record

__all__ = ["ENTRY", "FOLDER", "NUMBER", "Refusal", "Round", "fine_tune_by_command", "main"]

ENTRY = "vinedresser.pruning.rounds.round_run:main"
# Parameters of the run besides the settings of the table.
FOLDER, NUMBER = f"{PREFIX}folder", f"{PREFIX}round"
# Seconds between two looks for the pruned model.
_LOOK = 0.05


@dataclass(frozen=True)
class Refusal(Record):
    """Why a round cannot be made, however often it is tried; in the folder of the round.

    Attributes:
        reason: one sentence.
    """

    KEY: ClassVar[str] = "refused.json"

    reason: str


def main(**parameters: Any) -> None:
    """Execute a round in the run of this process.

    Args:
        parameters: the folder of the pruning, the number of the round, the settings of the table,
            each with a prefix, and the parameters of the fine-tuning.
    """
    folder, number = Path(parameters.pop(FOLDER)), parameters.pop(NUMBER)
    table = PruneTable.from_parameters(parameters)
    environment = Environment.read()
    if table.command is not None:
        # The hooks of the command then open additional runs.
        claim(environment)
    try:
        with Hook() as hook:
            own = Round(folder, number, table, hook)
            execute = own.execute if environment.rank == 0 else own.accompany
            execute(tuning_of(parameters))
    except (PruningError, ConfigError) as error:
        here = LocalStorage(round_folder(folder, number))
        write_record(here, Refusal(str(error)))
        sys.exit(f"vinedresser: {error}")


class Round:
    """A round of a pruning.

    Args:
        number: number of the round; 0 evaluates the unpruned model.
        table: settings of the pruning.

    Raises:
        ConfigError: a function that the table names does not exist.
    """

    def __init__(self, folder: Path, number: int, table: PruneTable, hook: Hook) -> None:
        self._folder = folder
        self._here = round_folder(folder, number)
        self._number = number
        self._table = table
        self._functions = UserFunctions(table)
        self._hook = hook

    def execute(self, tuning: Mapping[str, Any]) -> RoundRecord:
        """Execute what is left of the round, and return its record.

        Args:
            tuning: parameters of the fine-tuning by name.

        Raises:
            PruningError: the model cannot be pruned this way, or it or its evaluation is not finite
                after the fine-tuning.
            SystemExit: the command that fine-tunes the model failed or was stopped.
            OSError: a file cannot be written.
        """
        original = self._original()
        if self._number == 0:
            figure = self._figure(original)
            return self._record(original, original, "", before=figure, figure=figure)
        model, plans = self._load(PRUNED) if is_saved(self._here / PRUNED) else self._prune()
        before = self._figure(model)
        if self._table.command is None:
            report(self._hook, before=before)
        if is_saved(self._here / TUNED):
            model, plans = self._load(TUNED)
        else:
            self._fine_tune(model, original, tuning)
            # A short training may end before a rule stops it, and a figure need not show it.
            refuse_nonfinite(model, self._functions.example(), self._table.trainer)
            save_model(model, plans, None, self._here / TUNED)
        if self._table.command is not None:
            # Earlier, this run would look stalled while the command trains.
            report(self._hook, before=before)
        figure = self._figure(model)
        return self._record(model, original, plans[-1].criterion, before=before, figure=figure)

    def accompany(self, tuning: Mapping[str, Any]) -> None:
        """Fine-tune the pruned model together with rank 0, as another rank.

        Args:
            tuning: see `execute`.

        Raises:
            SystemExit: see `execute`.
        """
        if self._number == 0 or is_saved(self._here / TUNED):
            return
        # The supervisor ends this process if rank 0 cannot prune the model.
        while not is_saved(self._here / PRUNED):
            time.sleep(_LOOK)
        if self._functions.train is None:
            self._fine_tune(None, None, tuning)
        else:
            self._fine_tune(self._load(PRUNED)[0], self._original(), tuning)

    def _fine_tune(self, model: Any, original: Any, tuning: Mapping[str, Any]) -> None:
        if self._functions.train is None:
            command = resolved_command(self._table.command or [])
            argv = [*command, *parameters_as_options(tuning)]
            fine_tune_by_command(argv, model, self._here, self._table.trainer)
            return
        extra = {"teacher": original} if self._table.teacher else {}
        self._functions.train(model, self._hook, **extra, **tuning)

    def _original(self) -> Any:
        """Return the unpruned model; it is saved once, as building it need not be repeatable."""
        first = round_folder(self._folder, 0) / TUNED
        if not is_saved(first):
            model, plans = self._functions.trained_model()
            save_model(model, plans, None, first)
        return load_with_plans(first, self._functions.build)[0]

    def _load(self, which: str) -> tuple[Any, Sequence[Plan]]:
        return load_with_plans(self._here / which, self._functions.build)

    def _prune(self) -> tuple[Any, Sequence[Plan]]:
        """Return the last round's model, pruned; save it with its proof."""
        last = round_folder(self._folder, self._number - 1) / TUNED
        model, plans = load_with_plans(last, self._functions.build)
        table, functions = self._table, self._functions
        amount = table.amount_of(self._number)
        per_mac = are_for_speed(table.targeted) and functions.losses is not None
        pruned = prune(
            model,
            functions.example(),
            amount,
            **self._targets(),
            criterion=functions.criterion,
            losses=functions.losses,
            limits=table.limits,
            kinds=table.kinds,
            ignore=table.ignore,
            per_mac=per_mac and not isinstance(amount, dict),
        )
        plans += pruned.plans
        save_model(pruned.model, plans, pruned.proof, self._here / PRUNED)
        return pruned.model, plans

    def _targets(self) -> dict[str, int]:
        """Return the costs to get down to, beyond which nothing is removed.

        None with a target by latency, which costs do not tell, or with amounts by group.
        """
        first = read_record(LocalStorage(round_folder(self._folder, 0)), RoundRecord)
        by_group = isinstance(self._table.amount_of(self._number), dict)
        if first is None or by_group or self._table.latency is not None:
            return {}
        names = {"parameters": "parameters", "macs": "macs", "size": "size_bytes"}
        targets = self._table.targets(first.costs)
        return {names[key]: int(value) for key, value in targets.items()}

    def _figure(self, model: Any) -> float:
        return evaluated(self._functions.evaluate, model, self._table.evaluate)

    def _record(
        self, model: Any, original: Any, criterion: str, *, before: float, figure: float
    ) -> RoundRecord:
        costs = costs_of(model, original, self._functions.example())
        proof = read_proof(self._here / PRUNED)
        record = RoundRecord(
            number=self._number,
            run=Path(self._hook.path).name,
            removed=proof.count if proof is not None else 0,
            parameters=costs.parameters,
            macs=costs.macs,
            size=costs.size,
            latency=costs.latency.after,
            original_latency=costs.latency.before,
            before=before,
            figure=figure,
            left=costs.channels,
            criterion=criterion,
            checks={check.name: check.figure for check in proof.checks}
            if proof is not None
            else {},
            latency_low=costs.latency.low,
            latency_high=costs.latency.high,
            notes=[*costs.notes],
        )
        report_round(self._hook, record)
        # Last: with its record, the round is complete.
        write_record(LocalStorage(self._here), record)
        return record


def fine_tune_by_command(argv: Sequence[str], model: Any, folder: Path, name: str) -> None:
    """Have a command fine-tune a model, and load the weights that it has saved.

    SIGTERM is passed on to the command, which saves a checkpoint and ends.

    Args:
        argv: program and arguments.
        model: the pruned model, which gets the weights; None: they are for another rank.
        folder: folder of the round.
        name: name of the command, for messages.

    Raises:
        PruningError: the command saved no model, or another one.
        TrainingStopped: it was stopped by SIGTERM.
        SystemExit: it failed, with its exit code or 128 + the signal that ended it.
        OSError: the program cannot be started.
    """
    given = folder / TUNING
    if model is not None and given.exists():
        # A command that was killed may have saved a model before its training was complete.
        shutil.rmtree(given)
    code = _run(argv, {**os.environ, ROUND_VARIABLE: str(folder)})
    if code:
        raise SystemExit(code if code > 0 else 128 - code)
    if model is None:
        return
    if not is_saved(given):
        raise PruningError(
            f"{name}: ended without a saved model: call vinedresser.pruning.fine_tuning.save(model)"
        )
    try:
        backend_of(model).read_weights(model, given / WEIGHTS)
    except PruningError as error:
        raise PruningError(f"{name}: saved a model that is not the pruned one: {error}") from error
    finally:
        shutil.rmtree(given)


def _run(argv: Sequence[str], environment: dict[str, str]) -> int:
    """Return the exit code of a command, or the negative number of the signal that ended it."""
    process: subprocess.Popen[bytes] | None = None
    asked = 0

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal asked
        asked = number
        if process is not None:
            process.send_signal(number)

    # The hook's handler would wait for the next step of this process, which makes none.
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        process = subprocess.Popen(argv, env=environment)
        if asked:
            process.send_signal(asked)
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    if asked:
        raise TrainingStopped(128 + asked)
    return code
