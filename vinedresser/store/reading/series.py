"""Columns of values over the steps, for plots, tables and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import MissingDependency, UnknownTensor, did_you_mean
from vinedresser.store.step_record import MODES, Mode

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "Columns", "frame_of"]


@dataclass(frozen=True, eq=False)
class Column:
    """A scalar or scalar statistic over the steps of one rank, in capture order.

    Shape legend: N, the records at which it was captured.

    Attributes:
        name: name of the scalar or tensor.
        steps: int64 [N]. Two evaluations between the same two optimizer steps share a number.
        values: float64 [N].
        times: float64 [N]; end of each step, seconds since the epoch.
        modes: uint8 [N]; positions in `MODES`.
    """

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.float64]
    modes: NDArray[np.uint8]

    @classmethod
    def empty(cls, name: str) -> Column:
        """Return a column without rows."""
        nothing = np.empty(0)
        return cls(name, nothing.astype(np.int64), nothing, nothing, nothing.astype(np.uint8))

    def __len__(self) -> int:
        """Return N."""
        return len(self.steps)

    @property
    def mode(self) -> Mode | None:
        """The mode of all rows; None if there are several modes or no rows."""
        kinds = np.unique(self.modes)
        return MODES[kinds[0]] if len(kinds) == 1 else None

    def of(self, mode: Mode) -> Column:
        """Return the rows of one mode."""
        which = self.modes == MODES.index(mode)
        return Column(
            self.name, self.steps[which], self.values[which], self.times[which], self.modes[which]
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with one row per value and the columns mode, step, time and value.

        Raises:
            MissingDependency: pandas is not installed.
        """
        return _frame([self]).drop(columns="name")


class Columns(Mapping[str, Column]):
    """Columns by name."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = {column.name: column for column in columns}

    def __getitem__(self, name: str) -> Column:
        """Return one column.

        Raises:
            UnknownTensor: no such column (a KeyError; use `get` for a default).
        """
        if name not in self._columns:
            raise UnknownTensor(f"{name}: no such column{did_you_mean(name, self._columns)}")
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names of the columns, for completion in IPython."""
        return [*self]

    def __repr__(self) -> str:
        return f"Columns({', '.join(f'{name}[{len(self[name])}]' for name in self)})"

    def to_pandas(self) -> pd.DataFrame:
        """Return a long frame: one row per value, columns name, mode, step, time and value.

        Raises:
            MissingDependency: pandas is not installed.
        """
        return _frame(list(self.values()))


def frame_of(parts: Mapping[str, Columns]) -> pd.DataFrame:
    """Return one long frame of scalars and statistics.

    Args:
        parts: columns by reduction, "" for scalars.

    Raises:
        MissingDependency: pandas is not installed.
    """
    frame = _frame([column for columns in parts.values() for column in columns.values()])
    lengths = [sum(map(len, columns.values())) for columns in parts.values()]
    frame.insert(1, "reduction", np.repeat(np.array([*parts], dtype=object), lengths))
    return frame


def _frame(columns: list[Column]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependency(
            "to_pandas needs pandas, which is not installed: pip install pandas"
        ) from error

    def joined(part: str, dtype: Any) -> NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *(getattr(column, part) for column in columns)])

    names = [column.name for column in columns]
    lengths = [len(column) for column in columns]
    return pd.DataFrame(
        {
            "name": np.repeat(np.array(names, dtype=object), lengths),
            "mode": np.array(MODES, dtype=object)[joined("modes", np.uint8)],
            "step": joined("steps", np.int64),
            "time": joined("times", np.float64),
            "value": joined("values", np.float64),
        }
    )
