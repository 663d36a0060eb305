"""The names of reductions: ``[channel_][abs_]<statistic>``."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from vinedresser.errors import ConfigError, did_you_mean

__all__ = [
    "REDUCTIONS",
    "ReductionPlan",
    "Reduction",
    "base_name",
    "derived_name",
    "parse_reduction",
    "plan_reductions",
]

# Each is one number of a tensor, taken of every element of it.
REDUCTIONS = (
    "min",
    "max",
    "mean",
    "sum",
    "l1",
    "l2",
    "std",
    "variance",
    "zero_share",
    "nonfinite",
)

_HISTOGRAM = "histogram"
# Of a tensor as a whole, and of its elements as they are.
_FINGERPRINT = "fingerprint"
_UNIT_SIMILARITY = "unit_similarity"
_ALONE = (_FINGERPRINT, _UNIT_SIMILARITY)
_QUANTILE = re.compile(r"p([0-9.]+)")
_GRAMMAR = (
    "a reduction is [channel_][abs_] and one of "
    f"{', '.join(REDUCTIONS)}, {_HISTOGRAM}, or a quantile such as p99.9; or it is "
    f"{' or '.join(_ALONE)}"
)
_PREFIXES = ("", "abs_", "channel_", "channel_abs_")
# Of |x| these are what they are of x, or have a name of their own.
_SAME = {
    "abs_sum": "l1",
    "abs_l1": "l1",
    "abs_l2": "l2",
    "abs_zero_share": "zero_share",
    "abs_nonfinite": "nonfinite",
}


class Reduction(NamedTuple):
    """A reduction, taken apart.

    Attributes:
        text: as it is written.
        channel: it is taken of each channel, not of the whole tensor.
        absolute: it is taken of the magnitudes.
        statistic: one of `REDUCTIONS`, "histogram", "quantile", "fingerprint" or
            "unit_similarity".
        canonical: what is to be computed: the word without ``channel_``, the same for synonyms.
        share: of a quantile, the share of elements below it, from 0 to 1; else 0.
    """

    text: str
    channel: bool
    absolute: bool
    statistic: str
    canonical: str
    share: float = 0.0

    @property
    def sampled(self) -> bool:
        """Whether it is dear: taken of a sample, on the writer's thread."""
        return self.statistic in ("quantile", _HISTOGRAM)

    @property
    def vector(self) -> bool:
        """Whether it is several numbers, stored as a small tensor."""
        return self.channel or self.statistic == _HISTOGRAM


def parse_reduction(text: object) -> Reduction:
    """Take the name of a reduction apart.

    Raises:
        ConfigError: there is no such reduction; the message says what would be right.
    """
    if not isinstance(text, str):
        raise ConfigError(f"reductions: there is no {text!r}; {_GRAMMAR}")
    return _parsed(text)


@cache
def _parsed(text: str) -> Reduction:
    rest = text.removeprefix("channel_")
    channel = rest != text
    statistic = rest.removeprefix("abs_")
    absolute = statistic != rest
    if statistic in (*REDUCTIONS, _HISTOGRAM):
        return Reduction(text, channel, absolute, statistic, _SAME.get(rest, rest))
    if text in _ALONE:
        return Reduction(text, False, False, text, text)
    if number := _QUANTILE.fullmatch(statistic):
        return Reduction(text, channel, absolute, "quantile", rest, _share(text, number[1]))
    known = [prefix + one for prefix in _PREFIXES for one in (*REDUCTIONS, _HISTOGRAM)]
    known += _ALONE
    # The two prefixes are easily put the wrong way round.
    turned = text.replace("abs_channel_", "channel_abs_")
    hint = did_you_mean(turned, known) or f"; {_GRAMMAR}"
    raise ConfigError(f"reductions: there is no {text!r}{hint}")


def _share(text: str, number: str) -> float:
    """Return the share of elements that a quantile's number of percent says."""
    try:
        percent = float(number)
    except ValueError:
        raise ConfigError(f"reductions: {text!r}: {number} is no number; {_GRAMMAR}") from None
    if percent > 100 or 0 < percent < 0.0001:
        raise ConfigError(
            f"reductions: {text!r}: quantiles are in percent, p0 or from p0.0001 to p100"
        )
    # One quantile has one name, else readers would not find it.
    if number != (spelled := f"{percent:.12g}"):
        right = text.removesuffix(number) + spelled
        raise ConfigError(f"reductions: {text!r}: write {right}")
    return percent / 100


class ReductionPlan(NamedTuple):
    """Which of some reductions are taken in which way, each sorted by name.

    Attributes:
        elementwise: numbers of the whole tensor, taken at once.
        elementwise_names: their `Reduction.canonical`, in the same order.
        channels: numbers of each channel, taken at once.
        channel_names: what is to be computed for them.
        sampled: those of a sample of the whole tensor.
        channels_sampled: those of a sample of each channel.
        bits: the fingerprint, of the bytes of the whole tensor.
        units: the similarity of units, of a sample of the channels.
        late: all words but those of `elementwise`.
    """

    elementwise: tuple[Reduction, ...]
    elementwise_names: tuple[str, ...]
    channels: tuple[Reduction, ...]
    channel_names: tuple[str, ...]
    sampled: tuple[Reduction, ...]
    channels_sampled: tuple[Reduction, ...]
    bits: tuple[Reduction, ...]
    units: tuple[Reduction, ...]
    late: frozenset[str]

    @property
    def by_channel(self) -> bool:
        """Whether anything is taken of each channel."""
        return bool(self.channels or self.channels_sampled or self.units)


@cache
def plan_reductions(words: frozenset[str]) -> ReductionPlan:
    """Sort reductions by the way in which they are taken.

    Raises:
        ConfigError: there is no such reduction.
    """
    parsed = [parse_reduction(word) for word in sorted(words)]

    def those(*, channel: bool, sampled: bool) -> tuple[Reduction, ...]:
        ways = ((w, w.channel is channel and w.sampled is sampled) for w in parsed)
        return tuple(word for word, fits in ways if fits and word.text not in _ALONE)

    def alone(text: str) -> tuple[Reduction, ...]:
        return tuple(word for word in parsed if word.text == text)

    elementwise = those(channel=False, sampled=False)
    channels = those(channel=True, sampled=False)
    return ReductionPlan(
        elementwise,
        tuple(word.canonical for word in elementwise),
        channels,
        tuple(word.canonical for word in channels),
        those(channel=False, sampled=True),
        those(channel=True, sampled=True),
        alone(_FINGERPRINT),
        alone(_UNIT_SIMILARITY),
        words - {word.text for word in elementwise},
    )


def derived_name(name: str, word: str) -> str:
    """Return the name under which a reduction of several numbers is stored."""
    return f"{name}|{word}"


def base_name(name: str) -> str | None:
    """Return the name of the tensor of which this is a reduction; None where it is none."""
    base, bar, word = name.rpartition("|")
    return base if bar and _is_vector(word) else None


@cache
def _is_vector(text: str) -> bool:
    """Say whether a text is the name of a reduction of several numbers."""
    try:
        return parse_reduction(text).vector
    except ConfigError:
        return False
