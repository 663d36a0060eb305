"""A whole pruning in one process: a trial of a sweep, whose epochs are the rounds.

The run of the process gets the figures of the rounds, each at the step of its number. Each round
trains in an additional run beside it: rules that followed one training from model to model would
take each removal for a fault.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinedresser.capture import Hook
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.environment import Environment
from vinedresser.errors import ConfigError, PruningError
from vinedresser.objects import LocalStorage
from vinedresser.plain_logs import plain_logger
from vinedresser.pruning.folders import PRUNED, TUNED, ResultRecord, round_folder
from vinedresser.pruning.rounds.ending import choose, ending
from vinedresser.pruning.rounds.figures import report_round
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import FOLDER, Round
from vinedresser.pruning.rounds.settings import PruneTable, tuning_of
from vinedresser.pruning.saving import is_saved
from vinedresser.store.records import read_record, write_record

__all__ = ["ENTRY", "main"]

_LOG = plain_logger(__name__)

ENTRY = "vinedresser.pruning.rounds.whole_pruning:main"


def main(**parameters: Any) -> None:
    """Execute a pruning, or what is left of it, in the run of this process.

    Args:
        parameters: the folder of the pruning and the settings of the table, each with a prefix, and
            the parameters of the fine-tuning.
    """
    folder = Path(parameters.pop(FOLDER))
    # The hooks of the rounds then open additional runs.
    claim(Environment.read())
    try:
        with Hook() as hook:
            table = PruneTable.from_parameters(parameters)
            rounds = _execute(folder, table, tuning_of(parameters), hook)
            _finish(folder, table, rounds, hook)
    except (PruningError, ConfigError) as error:
        sys.exit(f"vinedresser: {error}")


def _execute(
    folder: Path, table: PruneTable, tuning: Mapping[str, Any], hook: Hook
) -> list[RoundRecord]:
    """Execute the rounds that are not complete; return the records of all, from round 0."""
    rounds: list[RoundRecord] = []
    while not rounds or ending(rounds, table) is None:
        try:
            record = _round(folder, len(rounds), table, tuning)
        except PruningError as error:
            removed = is_saved(round_folder(folder, len(rounds)) / PRUNED)
            if len(rounds) < 2 or removed:
                raise
            # That no further round is possible is how a pruning ends.
            _LOG.warning("no round %d: %s", len(rounds), error)
            break
        if record is None:
            break
        rounds.append(record)
        if record.number:
            # The unpruned model is the same in all trials: nothing to compare.
            report_round(hook, record)
        _end_step(hook)
    return rounds


def _end_step(hook: Hook) -> None:
    """End the step of a round, and wait until its figures are readable.

    SIGTERM still ends the process at once unless a model trains: the handler that the hook installs
    would wait for the next step, which is the end of the next round.
    """
    handler = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    hook.step()
    signal.signal(signal.SIGTERM, handler)
    hook.flush()


def _round(
    folder: Path, number: int, table: PruneTable, tuning: Mapping[str, Any]
) -> RoundRecord | None:
    """Return the record of a round, executed now unless it is complete.

    None after the last round of a pruning whose result is known: its other models may be removed.
    """
    record = read_record(LocalStorage(round_folder(folder, number)), RoundRecord)
    if record is not None or read_record(LocalStorage(folder), ResultRecord) is not None:
        return record
    with Hook() as hook:
        return Round(folder, number, table, hook).execute(tuning)


def _finish(folder: Path, table: PruneTable, rounds: list[RoundRecord], hook: Hook) -> None:
    """Report and record the result, and remove the models of the other rounds."""
    chosen = choose(rounds, table)
    assert chosen is not None, "at least round 0 is complete"
    if chosen.round != rounds[-1].number:
        # The last values of a trial are those that are compared.
        report_round(hook, rounds[chosen.round])
    write_record(LocalStorage(folder), chosen)
    # One more than there are records: the limits may have ended a round that had begun.
    for number in {*range(len(rounds) + 1)} - {chosen.round}:
        for which in (PRUNED, TUNED):
            if (part := round_folder(folder, number) / which).exists():
                shutil.rmtree(part)
