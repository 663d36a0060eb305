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

# Statistics of one number, computed from every element.
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
# Statistics without prefixes.
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
# Reductions of |x| that equal one of x, or have a name of their own.
_SAME = {
    "abs_sum": "l1",
    "abs_l1": "l1",
    "abs_l2": "l2",
    "abs_zero_share": "zero_share",
    "abs_nonfinite": "nonfinite",
}


class Reduction(NamedTuple):
    """A parsed reduction.

    Attributes:
        text: the name, such as "channel_abs_p99".
        channel: it is computed per channel, not for the whole tensor.
        absolute: it is computed from the magnitudes.
        statistic: one of `REDUCTIONS`, "histogram", "quantile", "fingerprint" or
            "unit_similarity".
        canonical: name of the computation: without ``channel_``, and the same for synonyms.
        share: fraction of elements below a quantile, from 0 to 1; else 0.
    """

    text: str
    channel: bool
    absolute: bool
    statistic: str
    canonical: str
    share: float = 0.0

    @property
    def sampled(self) -> bool:
        """Whether it is expensive: computed from a sample, on the writer's thread."""
        return self.statistic in ("quantile", _HISTOGRAM)

    @property
    def vector(self) -> bool:
        """Whether it has several numbers, and is stored as a small tensor."""
        return self.channel or self.statistic == _HISTOGRAM


def parse_reduction(text: object) -> Reduction:
    """Parse the name of a reduction.

    Raises:
        ConfigError: no such reduction; the message suggests valid names.
    """
    if not isinstance(text, str):
        raise ConfigError(f"reductions: unknown reduction {text!r}; {_GRAMMAR}")
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
    # The two prefixes are easily swapped.
    turned = text.replace("abs_channel_", "channel_abs_")
    hint = did_you_mean(turned, known) or f"; {_GRAMMAR}"
    raise ConfigError(f"reductions: unknown reduction {text!r}{hint}")


def _share(text: str, number: str) -> float:
    """Return the fraction of elements below a percentile."""
    try:
        percent = float(number)
    except ValueError:
        raise ConfigError(f"reductions: {text!r}: {number} is not a number; {_GRAMMAR}") from None
    if percent > 100 or 0 < percent < 0.0001:
        raise ConfigError(f"reductions: {text!r}: percentiles are p0, or from p0.0001 to p100")
    # Each quantile has only one name, so that readers find it.
    if number != (spelled := f"{percent:.12g}"):
        right = text.removesuffix(number) + spelled
        raise ConfigError(f"reductions: {text!r}: write {right}")
    return percent / 100


class ReductionPlan(NamedTuple):
    """Reductions grouped by how they are computed, each group sorted by name.

    Attributes:
        elementwise: statistics of the whole tensor, computed immediately.
        elementwise_names: their `Reduction.canonical`, in the same order.
        channels: statistics of each channel, computed immediately.
        channel_names: their `Reduction.canonical`, in the same order.
        sampled: statistics of a sample of the whole tensor.
        channels_sampled: statistics of a sample of each channel.
        bits: the fingerprint, of the bytes of the whole tensor.
        units: the similarity of units, of a sample of the channels.
        late: names of all reductions except `elementwise`.
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
        """Whether anything is computed per channel."""
        return bool(self.channels or self.channels_sampled or self.units)


@cache
def plan_reductions(words: frozenset[str]) -> ReductionPlan:
    """Group reductions by how they are computed.

    Raises:
        ConfigError: no such reduction.
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
    """Return the name of the tensor that stores a vector reduction.

    Args:
        name: name of the tensor that is reduced.
        word: the reduction, such as "histogram".
    """
    return f"{name}|{word}"


def base_name(name: str) -> str | None:
    """Return the name of the reduced tensor; None if a name is not that of a vector reduction."""
    base, bar, word = name.rpartition("|")
    return base if bar and _is_vector(word) else None


@cache
def _is_vector(text: str) -> bool:
    """Return whether a text is the name of a vector reduction."""
    try:
        return parse_reduction(text).vector
    except ConfigError:
        return False
