"""Actions that the trainer carries out between steps: checkpoints and changes of parameters."""

from __future__ import annotations

import time
from typing import ClassVar

from vinedresser.capture.requests.requesting import await_answer
from vinedresser.objects import Storage
from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.settings import AdjustSettings
from vinedresser.store.records import (
    TrainerAnswer,
    TrainerRequest,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)
from vinedresser.store.status import run_status

__all__ = ["AdjustAction", "CheckpointAction"]

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
    """Requests the change of parameters that the user has declared tunable.

    Args:
        settings: parameters and changes.
    """

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
        # If one change was made, the action must not be taken again.
        order = ("done", "failed", "refused")
        word = min((one.word for one in results), key=order.index)
        return ActionResult(word, "; ".join(one.detail for one in results))

    def _change(
        self,
        context: ActionContext,
        parameter: str,
        factor: float | None = None,
        value: float | None = None,
    ) -> ActionResult:
        request = TrainerRequest(
            f"{context.id}-{parameter}",
            "adjust",
            context.finding.seen,
            time.time(),
            parameter=parameter,
            factor=factor,
            value=value,
        )
        made = [one for one in _requests(context.storage) if one.parameter == parameter]
        if len(made) >= self._settings.times and request.id not in {one.id for one in made}:
            return ActionResult("refused", f"{parameter}: already changed {len(made)} times")
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
