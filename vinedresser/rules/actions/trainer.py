"""Actions that the trainer carries out between steps: checkpoints and changes of parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from vinedresser.capture.requests.requesting import await_answer
from vinedresser.objects import Storage
from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.settings import AdjustSettings, BoostSettings
from vinedresser.store.finding import CAUGHT_UP, MISSED
from vinedresser.store.records import (
    RunRecord,
    TrainerAnswer,
    TrainerRequest,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)
from vinedresser.store.status import run_status

__all__ = ["AdjustAction", "BoostAction", "CheckpointAction"]

# Seconds to wait for the training to reply.
_PATIENCE = 30.0


class CheckpointAction:
    """Requests a checkpoint; the training continues."""

    name: ClassVar[str] = "checkpoint"

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        request = TrainerRequest(context.id, "checkpoint", context.finding.seen, time.time())
        answer = _request(context.storage, request)
        if isinstance(answer, ActionResult):
            return answer
        return ActionResult("done", f"after {answer.step} steps: {', '.join(answer.files)}")


class AdjustAction:
    """Requests the change of parameters that the user has declared tunable."""

    name: ClassVar[str] = "adjust"

    def __init__(self, settings: AdjustSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        settings = self._settings
        results = []
        if settings.lr is not None:
            results.append(self._change(context, "lr", factor=settings.lr))
        if settings.clip is not None:
            results.append(self._change(context, "clip", value=settings.clip))
        return _joined(results)

    def _change(
        self,
        context: ActionContext,
        parameter: str,
        factor: float | None = None,
        value: float | None = None,
    ) -> ActionResult:
        made = [request for request in _requests(context.storage) if request.parameter == parameter]
        known = {one.id for one in made}
        if len(made) >= self._settings.times and _identity(context, parameter) not in known:
            return ActionResult("refused", f"{parameter}: already changed {len(made)} times")
        return _adjusted(context, parameter, factor=factor, value=value)


class BoostAction:
    """Requests larger weights of classes that are not learned, and takes back those that are.

    Args:
        settings: factor, and number of classes.
    """

    name: ClassVar[str] = "boost"

    def __init__(self, settings: BoostSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        evidence = context.finding.evidence
        over = CAUGHT_UP in evidence
        shares = evidence.get(CAUGHT_UP if over else MISSED)
        if not isinstance(shares, dict) or not shares:
            return ActionResult("refused", f"{context.finding.rule} names no classes")
        record = read_record(context.storage, RunRecord)
        names = [] if record is None else record.classes
        earlier = {} if record is None else record.boosted
        asked = {request.parameter for request in _requests(context.storage)}
        asked |= {f"boost.{name}" for name, one in earlier.items() if one[0] > 1}
        results = []
        for number in shares:
            known = number.isdecimal() and int(number) < len(names)
            parameter = f"boost.{names[int(number)] if known else number}"
            if over and parameter in asked:
                results.append(_adjusted(context, parameter, value=1.0))
            elif not over and len(results) < self._settings.classes:
                results.append(_adjusted(context, parameter, value=self._settings.factor))
        return _joined(results) if results else ActionResult("refused", "nothing was boosted")


def _joined(results: Sequence[ActionResult]) -> ActionResult:
    """Return the result of several changes: if one was made, the action is not taken again."""
    order = ("done", "failed", "refused")
    word = min((result.word for result in results), key=order.index)
    return ActionResult(word, "; ".join(result.detail for result in results))


def _identity(context: ActionContext, parameter: str) -> str:
    return f"{context.id}-{parameter}"


def _adjusted(
    context: ActionContext,
    parameter: str,
    *,
    factor: float | None = None,
    value: float | None = None,
) -> ActionResult:
    """Request the change of a parameter.

    Args:
        parameter: name of the parameter.
        factor: factor to multiply it by; None if a value is given.
        value: new value; None if a factor is given.
    """
    request = TrainerRequest(
        _identity(context, parameter),
        "adjust",
        context.finding.seen,
        time.time(),
        parameter=parameter,
        factor=factor,
        value=value,
    )
    answer = _request(context.storage, request)
    if isinstance(answer, ActionResult):
        return answer
    old, new = (", ".join(f"{one:g}" for one in some) for some in (answer.old, answer.new))
    return ActionResult(
        "done", f"{parameter}: from {old or 'none'} to {new} as of step {answer.step}"
    )


def _request(storage: Storage, request: TrainerRequest) -> TrainerAnswer | ActionResult:
    """Request something from the trainer; return its reply, or the result if there is none.

    A request with the same id is not repeated, since the trainer would carry it out twice.
    """
    before = {one.id: number for number, one in enumerate(_requests(storage))}
    number = before.get(request.id)
    if number is None:
        status = run_status(storage)
        if status.over:
            return ActionResult("refused", f"the run is {status.state}")
        number = write_numbered(storage, request, trainer_request_key)
    key = trainer_answer_key(number, 0)
    answer = await_answer(storage, TrainerAnswer, key, _PATIENCE)
    if answer is None:
        return ActionResult("failed", "the training did not reply")
    return ActionResult("refused", answer.refused) if answer.refused else answer


def _requests(storage: Storage) -> list[TrainerRequest]:
    """Return all requests to the trainer, in numerical order."""
    found: list[TrainerRequest] = []
    while True:
        request = read_record(storage, TrainerRequest, key=trainer_request_key(len(found)))
        if request is None:
            return found
        found.append(request)
