"""The result of a pruning, and MLflow's run of it."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vinedresser.explain.reports.pruning import PruningPage, write_pruning_report
from vinedresser.infra.services.tracking import RunStatus
from vinedresser.objects import LocalStorage, Location
from vinedresser.pruning.folders import ResultRecord, round_folder
from vinedresser.pruning.rounds.ending import choose, missed
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.spec import PruningRecord
from vinedresser.store.finding import Finding
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import TrackingRecord, read_record, write_record
from vinedresser.tasks.config.prune_file import Pruning
from vinedresser.tasks.interruption import Interruption
from vinedresser.tasks.lifecycle.run_result import result_or_damage
from vinedresser.tasks.parents.beginning import begin_parent
from vinedresser.tasks.parents.ending import tell_end
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.parents.parent_artifact import leave_parent_artifact
from vinedresser.tasks.pruning.round_queue import RoundQueue

__all__ = ["PruningResult", "begin_pruning", "finish_pruning", "leave_pruning_artifact"]


@dataclass(frozen=True)
class PruningResult:
    """The result of a pruning.

    Attributes:
        store: store of its rounds.
        rounds: records of the complete rounds, from round 0, the unpruned model.
        chosen: the round that is the result, and why; None if there is none.
        missed: the targets that it does not reach, and what kept the pruning from them; "" for
            none.
        over: why no other round began.
        rule: the rule that ended it; "" if none did.
        problem: what is wrong with the pruning as a whole; "" for nothing.
        problems: what went wrong beside the rounds.
        mlflow_run: id of MLflow's run of the pruning.
    """

    name: str
    store: Location
    rounds: tuple[RoundRecord, ...]
    chosen: ResultRecord | None
    missed: str
    over: str
    rule: str
    problem: str
    problems: tuple[str, ...]
    mlflow_run: str

    @property
    def verdict(self) -> str:
        """The problem; or the round that is the result, its size, and targets that it misses."""
        if self.problem or self.chosen is None:
            return self.problem or f"no result: {self.over}"
        best, original = self.rounds[self.chosen.round], self.rounds[0]
        parameters = f"{100 * best.parameters / original.parameters:.0f} % of the parameters"
        macs = f"{100 * best.macs / original.macs:.0f} % of the MACs"
        missed = f"; not reached: {self.missed}" if self.missed else ""
        return (
            f"round {best.number} of {len(self.rounds) - 1}: figure {best.figure:.4g} of "
            f"{original.figure:.4g}, {parameters} and {macs}{missed}"
        )


def begin_pruning(pruning: Pruning, *, resume: bool) -> TrackingRecord:
    """Make a pruning's record and MLflow's run of it, or find the existing ones.

    Returns:
        MLflow's run, as the rounds' parent.

    Raises:
        AlreadyARun: the pruning exists, and `resume` is not set.
        ConfigError: there is none to resume, or it differs from this one.
        TrackingError: MLflow's database or server refused.
    """
    record = PruningRecord(
        name=pruning.name,
        created=time.time(),
        tracking_uri=pruning.experiment.tracking_uri,
        experiment_id="",
        id=uuid.uuid4().hex,
        ranks=pruning.experiment.run.ranks,
        prune=pruning.table.per_round,
        parameters=dict(pruning.experiment.specs[0].parameters),
        register=pruning.table.register or "",
    )
    if resume:
        _update(pruning, record)
    settings = {
        key: json.dumps(value) if isinstance(value, list | dict) else value
        for key, value in pruning.table.to_parameters().items()
    }
    return begin_parent(record, pruning.experiment, settings, resume=resume)


def _update(pruning: Pruning, record: PruningRecord) -> None:
    """Take over what may have changed since a pruning began: anything before its first round."""
    storage = LocalStorage(pruning.state)
    before = read_record(storage, PruningRecord)
    if before is None:
        return
    before = replace(before, register=record.register)
    begun = LocalStorage(round_folder(pruning.state, 0)).exists(RoundRecord.KEY)
    if not begun and before.differences(record):
        # A mistake in the file, such as the name of a function, must not need another name.
        shutil.rmtree(round_folder(pruning.state, 0), ignore_errors=True)
        before = replace(before, prune=record.prune, parameters=record.parameters)
    write_record(storage, before)


def finish_pruning(
    queue: RoundQueue, tracking: TrackingRecord, problems: Iterable[str]
) -> PruningResult:
    """Choose the result, write the page, and give MLflow's run its end.

    Args:
        queue: queue of the pruning, which is over.
        tracking: MLflow's run of it, as the rounds' parent.
        problems: what went wrong beside the rounds.

    Returns:
        The result, with another problem if MLflow did not accept it.

    Raises:
        StoreError: a file cannot be written.
    """
    pruning, rounds = queue.pruning, tuple(queue.rounds)
    chosen = choose(rounds, pruning.table)
    store = pruning.experiment.store
    result = PruningResult(
        name=pruning.name,
        store=store,
        rounds=rounds,
        chosen=chosen,
        missed=missed(rounds, chosen.round, pruning.table) if chosen is not None else "",
        over=queue.over,
        rule=queue.rule,
        problem=queue.problem,
        problems=tuple(problems),
        mlflow_run=tracking.parent,
    )
    if not is_removed(pruning.state, PruningRecord):
        if chosen is not None:
            write_record(LocalStorage(pruning.state), chosen)
        page = PruningPage(
            pruning.name,
            pruning.table,
            rounds,
            chosen,
            queue.over,
            _findings(store),
            result.missed,
        )
        write_pruning_report(page, pruning.page)
    status: RunStatus = "FAILED" if queue.problem else "FINISHED"
    if Interruption.is_reason(queue.over):
        status = "KILLED"
    told = tell_end(store, PruningRecord, tracking, status, _tags(result, pruning))
    return replace(result, problems=(*result.problems, *told))


def leave_pruning_artifact(
    pruning: Pruning, pruned: PruningResult, tracking: TrackingRecord
) -> None:
    """Leave an artifact on Prefect's pages: the rounds, and which one is the result.

    Args:
        tracking: MLflow's run of it, as the rounds' parent.
    """
    chosen = pruned.chosen
    result = f"The result is round {chosen.round}: {chosen.why}" if chosen is not None else ""
    rows = [
        (one.number, f"{one.figure:.4g}", f"{one.parameters:,}", f"{one.macs:,}")
        for one in pruned.rounds
    ]
    header = ("round", "figure", "parameters", "multiply-adds")
    sentences = (pruned.problem, result, pruned.over, *pruned.problems)
    leave_parent_artifact(pruned.name, sentences, [header, *rows], pruning.page, tracking)


def _findings(store: Location) -> dict[str, Sequence[Finding]]:
    """Return the findings by name of the run, of runs that have some."""
    results = [result_or_damage(location) for location in runs_in(store)]
    return {result.name: result.verdict.findings for result in results if result.verdict.findings}


def _tags(result: PruningResult, pruning: Pruning) -> dict[str, object]:
    tags: dict[str, object] = {
        "verdict": result.verdict,
        "pruning.over": result.over,
        "pruning.rule": result.rule,
        # "" replaces the problem from before the pruning was resumed.
        "pruning.problem": result.problem,
        "pruning.rounds": max(len(result.rounds) - 1, 0),
    }
    if result.chosen is None:
        return tags
    best, original = result.rounds[result.chosen.round], result.rounds[0]
    return tags | {
        "pruning.result": f"round-{best.number}",
        "pruning.result.why": result.chosen.why,
        # "" replaces what was missed before the pruning was resumed.
        "pruning.result.missed": result.missed,
        "pruning.result.model": str(round_folder(pruning.state, best.number)),
        "pruning.result.figure": best.figure,
        "pruning.result.parameters": best.parameters,
        "pruning.result.macs": best.macs,
        "pruning.original.figure": original.figure,
        "pruning.original.parameters": original.parameters,
        "pruning.original.macs": original.macs,
    }
