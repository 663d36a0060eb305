"""How far targets are from the input tokens that they repeat, and whether a model sees them."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["FutureTokens", "Seen", "TokenOffset"]

# Distances that are told apart, and by how many tokens inputs may be longer than their targets.
_OFFSETS, _LONGER = range(4), range(3)
# Minimum number of compared tokens and of distinct ones.
_TOKENS, _KINDS = 192, 8

# Samples that count, and minimum numbers of targets at the last and at other positions.
_SAMPLES = 32
_LAST, _REST = 32, 128
# Minimum difference between the shares of right predictions, its standard errors, and the largest
# difference of what the previous token predicts.
_APART, _SURE, _ALIKE = 0.25, 5.0, 0.1
# Maximum number of distinct pairs of neighbouring tokens.
_PAIRS = 1 << 16


class Seen(NamedTuple):
    """Right predictions of next tokens, as shares.

    Attributes:
        last: at the last position, whose target is not among the inputs.
        rest: at the other positions of the second half of the sequences.
        last_by_pair, rest_by_pair: share that the most frequent successor of a token predicts.
        targets: number of targets at the last position.
    """

    last: float
    rest: float
    last_by_pair: float
    rest_by_pair: float
    targets: int


class _Sample(NamedTuple):
    """One sample: numbers of targets, and of right predictions by the model and by pairs."""

    targets: NDArray[np.float64]
    model: NDArray[np.float64]
    pairs: NDArray[np.float64]


class TokenOffset:
    """The distance from each target to the input token that it repeats; a pure fold.

    It is 1 for a language model, whose targets are the next tokens, and 0 for targets that are not
    shifted. Targets below 0 are ignored, as by the loss.

    Attributes:
        kinds: distinct targets so far, until there are enough.
    """

    def __init__(self) -> None:
        self.kinds: frozenset[int] = frozenset()
        # Number of targets that are the input token at a distance, by how many tokens the inputs
        # are longer, and this distance; without those of which any target was another token.
        self._equal = dict.fromkeys(itertools.product(_LONGER, _OFFSETS), 0)

    def add(self, inputs: NDArray[Any], targets: NDArray[np.int64]) -> None:
        """Process a batch.

        Args:
            inputs: tokens, integers [rows, positions].
            targets: tokens, [rows, positions] or [n], evenly strided ones of all positions.
        """
        self._equal = {
            (longer, offset): before + equal
            for (longer, offset), before in self._equal.items()
            if (equal := _equal(inputs, targets, longer, offset)) is not None
        }
        if len(self.kinds) < _KINDS:
            self.kinds |= frozenset(np.unique(targets[targets >= 0]).tolist())

    @property
    def possible(self) -> frozenset[int]:
        """The distances at which all targets so far are the input tokens."""
        return frozenset(offset for (_, offset), equal in self._equal.items() if equal)

    @property
    def tokens(self) -> int:
        """The number of targets that are the input token at the same distance."""
        return max(self._equal.values(), default=0)

    @property
    def known(self) -> int | None:
        """The distance, once no other is possible and enough tokens were compared."""
        few = self.tokens < _TOKENS or len(self.kinds) < _KINDS
        return None if few or len(self.possible) != 1 else next(iter(self.possible))

    @property
    def least(self) -> int:
        """The smallest possible distance from a prediction to its target.

        If inputs are longer than targets, it may be the first tokens that have no prediction.
        """
        return min((at - longer for (longer, at), equal in self._equal.items() if equal), default=0)


def _equal(
    inputs: NDArray[Any], targets: NDArray[np.int64], longer: int, offset: int
) -> int | None:
    """Return how many targets are the input token at a distance; None if any is another one.

    Args:
        inputs: [rows, positions].
        targets: [rows, positions - longer], or [n], evenly strided ones of them.
    """
    places = _places(inputs, targets, inputs.shape[1] - longer)
    if places is None:
        return None
    row, position = places
    wanted = targets.reshape(-1)
    there = (wanted >= 0) & (position + offset < inputs.shape[1])
    given = inputs[row[there], position[there] + offset]
    return len(given) if np.array_equal(given, wanted[there]) else None


def _places(
    inputs: NDArray[Any], targets: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the row and the position of each target, int64 [n]; None if they do not fit.

    Args:
        inputs: tokens, [rows, positions].
        targets: [rows, length], or [n], evenly strided ones of all.
        length: number of targets of each row.
    """
    shaped = targets.shape == (len(inputs), length)
    if length < 1 or not targets.size or not (shaped or targets.ndim == 1):
        return None
    chosen = strided_rows(len(inputs) * length, targets.size)
    places = np.arange(len(inputs) * length) if chosen is None else chosen
    row, position = np.divmod(places, length)
    return (row, position) if len(places) == targets.size else None


class FutureTokens:
    """Compares the predictions at the last position of sequences with those before.

    The target of each position is the input token of the next one, but that of the last position is
    not among the inputs. A model that sees only the past is as good there as before, since it has
    the longest context. One that sees the future copies its targets everywhere but there. The last
    tokens may be harder to predict by themselves, such as answers after a fixed text; then the
    previous token predicts them worse, too.

    Attributes:
        apart: whether a target was another token than the next input, as far as is known: the
            question does not arise.
    """

    def __init__(self) -> None:
        self.apart = False
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._successors: dict[int, Counter[int]] = {}
        self._pairs = 0

    def add(
        self, inputs: NDArray[Any], targets: NDArray[np.int64], predicted: NDArray[np.int64]
    ) -> None:
        """Process a batch.

        Args:
            inputs: tokens, integers [rows, positions], all rows of the batch; if there are
                more, the targets do not match, and the question is left open.
            targets: next tokens, [rows, positions], or [n], evenly strided ones of all positions.
            predicted: predicted tokens, shaped like the targets.
        """
        length = inputs.shape[1]
        places = _places(inputs, targets, length)
        if places is None or length < 4 or self._pairs > _PAIRS:
            self.apart = True
            return
        targets, predicted = targets.reshape(-1), predicted.reshape(-1)
        row, position = places
        last = position == length - 1
        inner = ~last
        following = inputs[row[inner], position[inner] + 1]
        if not np.array_equal(targets[inner], following):
            self.apart = True
            return
        if self._successors:
            given = inputs[row, position]
            guessed = np.array([self._successor(int(one)) for one in given])
            counted = self._ordinary(targets)
            groups = (last & counted, inner & counted & (position >= length // 2))
            self._samples.append(
                _Sample(
                    np.array([group.sum() for group in groups], np.float64),
                    np.array([(predicted == targets)[one].sum() for one in groups], np.float64),
                    np.array([(guessed == targets)[one].sum() for one in groups], np.float64),
                )
            )
        self._learn(inputs)

    def seen(self) -> Seen | None:
        """Return the shares of right predictions if they show that the model sees its targets."""
        targets = sum((sample.targets for sample in self._samples), np.zeros(2))
        if targets[0] < _LAST or targets[1] < _REST:
            return None
        model = sum((sample.model for sample in self._samples), np.zeros(2))
        shares = model / targets
        pairs = sum((sample.pairs for sample in self._samples), np.zeros(2)) / targets
        common = model.sum() / targets.sum()
        error = math.sqrt(common * (1 - common) * (1 / targets).sum())
        apart = shares[1] - shares[0]
        if apart < max(_APART, _SURE * error) or pairs[1] - pairs[0] > _ALIKE:
            return None
        return Seen(
            float(shares[0]), float(shares[1]), float(pairs[0]), float(pairs[1]), int(targets[0])
        )

    def _successor(self, token: int) -> int:
        """Return the most frequent successor of a token; -1 if it is new."""
        known = self._successors.get(token)
        return known.most_common(1)[0][0] if known else -1

    def _ordinary(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which tokens are ordinary: others follow them, unlike padding."""
        return np.array(
            [
                any(one != token for one in self._successors.get(token, ()))
                for token in tokens.tolist()
            ]
        )

    def _learn(self, inputs: NDArray[Any]) -> None:
        pairs = np.stack([inputs[:, :-1].reshape(-1), inputs[:, 1:].reshape(-1)], 1)
        for (token, following), count in zip(
            *(one.tolist() for one in np.unique(pairs, axis=0, return_counts=True)), strict=True
        ):
            known = self._successors.setdefault(token, Counter())
            self._pairs += following not in known
            known[following] += count
