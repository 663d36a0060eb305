"""Which configurations come next in a study: points, failed trials, repeats, a grid, proposals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

import optuna
from optuna.trial import FrozenTrial, TrialState

from vinedresser.errors import ConfigError
from vinedresser.store.json_values import shown
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.population import Population
from vinedresser.sweeps.proposer import CHOSEN, KNOWN, given_point
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.stored_trial import AGAIN, LINE, stored_trial
from vinedresser.sweeps.trial import ALL_BEGUN
from vinedresser.sweeps.tried import Tried

# User attribute of a trial: number of the failed one that it tries again.
_RETRY_OF = "retry_of"
# Number of configurations up to which those of a space are counted.
_COUNTED = 100_000


class Agenda:
    """The configurations of a study that come next, as a function of its trials and the settings.

    Args:
        space: the search space.
        where: prefix of messages, such as ``sweep.toml: sweep``.

    Attributes:
        retried: by the number of a failed trial, that of the trial that tries it again.
        over: why no trial comes next; "" while one may.

    Raises:
        ConfigError: an invalid point, two equal ones, or a grid of a range without values.
    """

    def __init__(self, settings: SweepTable, space: Space, where: str) -> None:
        self._settings = settings
        self._space = space
        self._points = [
            space.point(point, f"{where}.points[{number}]")
            for number, point in enumerate(settings.points)
        ]
        _refuse_equal(self._points, space, f"{where}.points")
        self._population = Population.of(settings, space, self._points, where)
        self._grid = space.grid() if settings.sampler_name == "grid" else []
        self.tried = Tried(space)
        self.retried: dict[int, int] = {}
        self.over = ""
        # By the number of a trial: how many trials had its configuration before; and the failed
        # trial that it tries again.
        self._before: dict[int, int] = {}
        self._originals: dict[int, int] = {}
        # By the number of a trial that trains the best one again: its number, and the seed.
        self._again: dict[int, tuple[int, int]] = {}
        self._waiting: deque[FrozenTrial] = deque()
        self._queued: list[dict[str, Choice]] = []
        self._begun = 0

    def restore(self, study: optuna.Study) -> None:
        """Take in the trials of a study, in which later ones will be queued, and no others."""
        self._study = study
        self._begun = 0
        for known in (self.tried, self.retried, self._before, self._originals, self._again):
            known.clear()
        self._waiting.clear()
        self._queued.clear()
        for trial in study.get_trials(deepcopy=False):
            self._add(trial)

    def advance(self) -> bool:
        """Make sure that Optuna's next trial is the one that comes next; False if none does."""
        if self._waiting:
            first = self._waiting[0]
            due = (
                not {_RETRY_OF, AGAIN}.isdisjoint(first.user_attrs)
                or given_point(first) in self._points
            )
            if not due and self._is_used_up():
                return False
            self._waiting.popleft()
        elif (point := next(self._pending(), None)) is not None:
            self._queue(point)
        elif self._is_used_up() or not self._plan():
            return False
        self._begun += 1
        return True

    def enqueue(self, point: dict[str, Choice]) -> None:
        """Add a point, which comes next, also if all trials have begun.

        An incomplete one that was given before has another configuration.
        """
        self._points.append(point)

    def note(self, number: int, configuration: Mapping[str, Choice]) -> None:
        """Note the configuration of a trial."""
        if number not in self._originals and number not in self._again:
            self._before[number] = self.tried.add(configuration)

    def seed(self, number: int) -> int | None:
        """Return the seed that a trial is passed, that of the failed one if it tries it again."""
        while number in self._originals:
            number = self._originals[number]
        if number in self._again:
            return self._again[number][1]
        seeds = self._settings.seeds
        if not seeds:
            return None
        turn = self._before[number] if self._settings.repeats > 1 else number
        return seeds[turn % len(seeds)]

    def train_again(self, number: int, configuration: Mapping[str, Choice]) -> bool:
        """Make sure that Optuna's next trial trains the best one again; False if all have begun."""
        for seed in self._settings.again:
            if (number, seed) not in self._again.values():
                again = {AGAIN: [number, seed]}
                self._study.enqueue_trial(dict(configuration), user_attrs=again)
                self._add(self._study.get_trials(deepcopy=False)[-1])
        if not self._waiting or AGAIN not in self._waiting[0].user_attrs:
            return False
        self._waiting.popleft()
        self._begun += 1
        return True

    def retry_failed(self) -> int:
        """Queue another trial for each failed one that was not tried again; see `Study`."""
        failed = self._study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        known = self.retried.keys() | self._again.keys()
        wanted = [one for one in failed if one.number not in known]
        for one in wanted:
            configuration = one.user_attrs.get(CHOSEN, one.params)
            self._study.enqueue_trial(configuration, user_attrs={_RETRY_OF: one.number})
            self._add(self._study.get_trials(deepcopy=False)[-1])
        return len(wanted)

    @property
    def members(self) -> int | None:
        """Number of members of its population; None without one."""
        return None if self._population is None else self._population.settings.population

    @property
    def planned(self) -> int | None:
        """Number of trials that there will be at most; None if that is unknown."""
        limits = [] if self._settings.trials is None else [self._settings.trials]
        if self._size is not None:
            limits.append(self._size * self._settings.repeats)
        if not limits:
            return None
        wanted = self._begun + len(list(self._pending())) * self._settings.repeats
        return max(min(limits), wanted) + len(self.retried) + len(self._again)

    def _add(self, one: FrozenTrial) -> None:
        """Take in a trial; one that tries another again takes its place among those begun."""
        if KNOWN in one.user_attrs:
            return
        original, again = one.user_attrs.get(_RETRY_OF), one.user_attrs.get(AGAIN)
        if again is not None:
            best, seed = again
            self._again[one.number] = int(best), int(seed)
            self._begun -= 1
        elif original is not None:
            if type(original) is not int or not 0 <= original < one.number:
                raise ValueError(f"trial {one.number} tries trial {shown(original)} again")
            self.retried[original] = one.number
            self._originals[one.number] = original
            self._begun -= 1
        elif given := given_point(one):
            self._queued.append(given)
        if one.state is TrialState.WAITING:
            self._waiting.append(one)
            return
        self._begun += 1
        if CHOSEN in one.user_attrs:
            self.note(one.number, one.user_attrs[CHOSEN])

    def _pending(self) -> Iterator[dict[str, Choice]]:
        """Yield the points that were not tried, as when they are new in a resumed sweep."""
        if self._population is not None:
            # Its first members have them.
            return
        queued = list(self._queued)
        for point in self._points:
            if point in queued:
                queued.remove(point)
            elif self.tried.another(point) is not None:
                yield point

    def _is_used_up(self) -> bool:
        """Return whether the number of trials has been reached, and say so."""
        used_up = self._settings.trials is not None and self._begun >= self._settings.trials
        if used_up:
            self.over = ALL_BEGUN
        return used_up

    def _plan(self) -> bool:
        """Queue a configuration if it is not to be proposed; False if all have been tried."""
        if self._population is not None:
            return self._succeed(self._population)
        repeats, grid = self._settings.repeats, self._settings.sampler_name == "grid"
        following = self.tried.fewer_than(repeats)
        if following is None and grid:
            following = next((one for one in self._grid if one not in self.tried), None)
        if following is not None:
            self._queue(following)
            return True
        if not grid and self.tried.another({}) is not None:
            return True
        several = f"all {len(self._grid or self.tried)} configurations of the"
        times = f" {repeats} times" if repeats > 1 else ""
        self.over = f"{several} {'grid' if grid else 'space'} have been tried{times}"
        return False

    def _succeed(self, population: Population) -> bool:
        """Queue the next trial of a population; False while it depends on one that trains."""
        newest = self._study.get_trials(deepcopy=False)[-2 * population.settings.population :]
        following = population.successor([stored_trial(one, {}) for one in newest])
        if following is not None:
            self._study.enqueue_trial(dict(following.given), user_attrs={LINE: [*following.line]})
        return following is not None

    def _queue(self, configuration: Mapping[str, Choice]) -> None:
        """Queue a configuration, which is the next one that Optuna returns."""
        self._queued.append(dict(configuration))
        self._study.enqueue_trial(dict(configuration))

    @cached_property
    def _size(self) -> int | None:
        """Number of configurations of the space or grid; None if it is unknown or large."""
        if self._population is not None:
            return None
        if self._settings.sampler_name == "grid":
            whole = [point for point in self._points if self._space.is_whole(point)]
            if len(whole) < len(self._points):
                return None
            return len({self._space.key(one) for one in (*self._grid, *whole)})
        most = self._settings.trials or _COUNTED
        size = sum(1 for _ in islice(self._space.configurations({}), most + 1))
        return size if size <= most else None


def _refuse_equal(points: Sequence[dict[str, Choice]], space: Space, where: str) -> None:
    """Refuse two points that are the same configuration."""
    known: dict[object, int] = {}
    for number, point in enumerate(points):
        first = known.setdefault(space.key(point), number) if space.is_whole(point) else number
        if first != number:
            raise ConfigError(
                f"{where}[{number}]: the same configuration as {where}[{first}]; remove it, or set "
                "repeats to try each configuration several times"
            )
