"""Reading the streams that a run has stored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from vinedresser.errors import CorruptData, UnknownStream, did_you_mean
from vinedresser.queries.answer import Answer
from vinedresser.queries.frames import frame_of_answers
from vinedresser.store.reading.notebook_html import paragraph, table
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import known_keys, read_json_lines

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Stream", "Streams", "streams"]

# Bytes; writers close a part much earlier.
_LARGEST_PART = 1 << 20
_SHOWN = ("stream", "query", "every", "answers", "steps")


def streams(run: str | os.PathLike[str] | Run) -> Streams:
    """Return the streams that were stored in a run, by name.

    Args:
        run: an opened run, its directory or its ``s3://`` URL.

    Raises:
        NotARun: there is no run at this place.
        CorruptData: its run.json is invalid.
        StoreError: the storage refused.
    """
    return Streams(run if isinstance(run, Run) else open_run(run))


class Streams(Mapping[str, "Stream"]):
    """The stored streams of a run by name; their answers are read when they are asked for.

    Raises:
        StoreError: the storage refused.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        damaged: list[str] = []
        self._keys: dict[str, list[str]] = {}
        for key in known_keys(run.storage, "streams", damaged):
            self._keys.setdefault(key.split("/")[1], []).append(key)
        for fault in damaged:
            run.problem_log.note(fault)

    def __getitem__(self, name: str) -> Stream:
        """Return a stream with its answers so far.

        Raises:
            UnknownStream: the run has no such stream; the message suggests similar names.
            StoreError: the storage refused.
        """
        if name not in self._keys:
            known = f"; it has {', '.join(self._keys)}" if self._keys else "; it has none"
            hint = did_you_mean(name, self._keys) or known
            raise UnknownStream(f"{self._run.path}: no stream {name}{hint}")
        return Stream(name, self._answers(self._keys[name]))

    def _answers(self, keys: Sequence[str]) -> list[Answer]:
        storage = self._run.storage
        found: list[Answer] = []
        damaged: list[str] = []
        for key in keys:
            place = f"{storage.location}/{key}"
            try:
                content = storage.get(key, 0, _LARGEST_PART + 1)
            except CorruptData as error:
                damaged.append(str(error))
                continue
            if len(content) > _LARGEST_PART:
                damaged.append(f"{place}: larger than a part of a stream; ignored")
                continue
            # The end of a copy that was interrupted is not an answer yet.
            whole = content[: content.rfind(b"\n") + 1]
            found += read_json_lines(
                whole, Answer.from_json, place=place, what="an answer", faults=damaged
            )
        for fault in damaged:
            self._run.problem_log.note(fault)
        return sorted(found, key=lambda answer: (answer.time, answer.rank))

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Streams({self._run.path!r}: {', '.join(self._keys)})"

    def _repr_html_(self) -> str:
        """Return a table of the streams, for a notebook."""
        return table(_SHOWN, (self[name].summary for name in self))


class Stream(Sequence[Answer]):
    """The stored answers to a standing query, in the order of their times."""

    def __init__(self, name: str, answers: Sequence[Answer]) -> None:
        self.name = name
        self._answers = answers

    @overload
    def __getitem__(self, place: int) -> Answer: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Answer]: ...

    def __getitem__(self, place: int | slice) -> Answer | Sequence[Answer]:
        return self._answers[place]

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._answers)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {len(self)} answers)"

    @property
    def summary(self) -> tuple[str, str, str, int, str]:
        """Name, query, windows, number of answers and steps."""
        if not self._answers:
            return self.name, "", "", 0, ""
        first, last = self._answers[0], self._answers[-1]
        return self.name, last.query, last.every, len(self), f"{first.since} to {last.step}"

    def _repr_html_(self) -> str:
        """Return a table of the last answers, for a notebook."""
        rows = (
            (answer.since, answer.step, answer.error or answer.value)
            for answer in self._answers[-20:]
        )
        return paragraph(repr(self)) + table(("from step", "to step", "value"), rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with one row per number: see `frame_of_answers`.

        Raises:
            MissingDependency: pandas is not installed.
        """
        return frame_of_answers(self._answers)
