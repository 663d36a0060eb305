"""Take many runs through their lifecycle, a limited number at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import ClassVar, Generic, TypeVar

from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.lifecycle.supervision import Attendance, Stages, supervise
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["RunQueue", "run_queue"]

T = TypeVar("T")


class RunQueue(ABC, Generic[T]):
    """Decides which run begins next, and what follows its end; called from one thread.

    Each item is something that trains in one run, or in several one after the other.

    Attributes:
        look: seconds until `next` is called again while there is room and nothing happens; None:
            only an end brings other items.
        problems: messages of what went wrong beside the runs, each once, in order.
    """

    look: ClassVar[float | None] = None

    def __init__(self) -> None:
        self.problems: dict[str, None] = {}

    @abstractmethod
    def next(self) -> T | None:
        """Return the next item; None if there is none now."""

    @abstractmethod
    def begin(self, item: T) -> RunPlace | None:
        """Return the place of an item's next run, ready to be launched; None if there is none."""

    @abstractmethod
    def ended(self, item: T) -> None:
        """Take note that an item's run is settled."""

    def pause(self, item: T) -> float:  # noqa: ARG002
        """Return the seconds after which an item's next run begins."""
        return 0.0

    def compare(self, item: T) -> Callable[[], None] | None:  # noqa: ARG002
        """Return what follows an item's run to compare it with others; None for nothing."""
        return None


def run_queue(queue: RunQueue[T], experiment: Experiment, stages: Stages) -> None:
    """Take the runs of a queue through their lifecycle until all are settled.

    Args:
        queue: source of the runs.
        experiment: settings that the runs share; limits how many train at the same time.
        stages: how each stage is carried out.
    """
    slots = experiment.max_concurrent
    free, unsettled = slots, 0
    # An item whose run is settled, with the errors of its stages; None: a training has ended.
    events: SimpleQueue[tuple[T, Future[list[BaseException]]] | None] = SimpleQueue()
    with ThreadPoolExecutor(2 * slots, thread_name_prefix="run") as pool:
        while True:
            # Few runs wait to be settled: their results decide on the next ones.
            item = queue.next() if free and unsettled < 2 * slots else None
            if item is not None:
                place = queue.begin(item)
                if place is not None:
                    free, unsettled = free - 1, unsettled + 1
                    attendance = _attendance(place, experiment, queue, item)
                    done = partial(events.put, None)
                    run = copy_context().run
                    settled = pool.submit(run, supervise, place, attendance, stages, done)
                    settled.add_done_callback(partial(_put, events, item))
                continue
            if not unsettled:
                return
            try:
                event = events.get(timeout=queue.look if free else None)
            except Empty:
                continue
            if event is None:
                free += 1
            else:
                unsettled -= 1
                item, settled = event
                queue.problems |= dict.fromkeys(map(str, settled.result()))
                queue.ended(item)


def _put(
    events: SimpleQueue[tuple[T, Future[list[BaseException]]] | None],
    item: T,
    settled: Future[list[BaseException]],
) -> None:
    events.put((item, settled))


def _attendance(place: RunPlace, experiment: Experiment, queue: RunQueue[T], item: T) -> Attendance:
    """Return what accompanies a run here; a worker of a cluster judges its runs itself."""
    compare, pause = queue.compare(item), queue.pause(item)
    if place.elsewhere:
        return Attendance(additional=False, compare=compare, pause=pause)
    run = experiment.run
    return Attendance(
        tuple(experiment.rules),
        additional=run.attach,
        compare=compare,
        preflight=run.preflight,
        pause=pause,
    )
