"""Tables of the judgement, by family and by class of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.faults.tables import class_table, listing
from benchmarks.faults.verdict import Verdict
from benchmarks.measure import table

__all__ = ["report"]

_HEADERS = (
    *("family", "faulty", "found", "right cause, of found", "first sign", "right before 10%"),
    *("healthy", "stopped", "warned"),
)


def report(verdicts: Sequence[Verdict], *, verbose: bool = False) -> str:
    """Return all tables; with ``verbose``, the findings of each case first."""
    verdicts = sorted(verdicts, key=lambda one: one.id)
    counted = [one for one in verdicts if one.outcome.as_expected]
    parts = [_family_table(counted), class_table(counted)]
    healthy = [one for one in counted if not one.faulty]
    parts += [
        _list("healthy but stopped", (_blamed(one) for one in healthy if one.stop)),
        _list(
            "healthy but warned of",
            (_blamed(one) for one in healthy if one.alarms and not one.stop),
        ),
        _list("rules that blame healthy trainings", _most(_blaming_rules(healthy))),
    ]
    faulty = [one for one in counted if one.faulty]
    missed = [one for one in faulty if not one.signs]
    misnamed = [one for one in faulty if one.signs and not one.named]
    parts += [
        _list("missed", _most(one.fault_class for one in missed)),
        _list(
            "misnamed",
            _most(f"{one.fault_class} as {one.root.fault}" for one in misnamed if one.root),
        ),
        _not_counted(verdicts),
    ]
    if verbose:
        parts.insert(0, listing(verdicts))
    return "\n\n".join(part for part in parts if part)


def _family_table(verdicts: Sequence[Verdict]) -> str:
    families = sorted({_family(one) for one in verdicts})
    rows = [
        _family_row(name, [one for one in verdicts if _family(one) == name]) for name in families
    ]
    return table([*rows, _family_row("all", verdicts)], _HEADERS)


def _family_row(name: str, verdicts: Sequence[Verdict]) -> list[str]:
    faulty = [one for one in verdicts if one.faulty]
    healthy = [one for one in verdicts if not one.faulty]
    found = [one for one in faulty if one.signs]
    signs = [one.detected_at / one.steps for one in found if one.detected_at is not None]
    early = [one for one in found if one.named_at is not None and one.named_at <= 0.1 * one.steps]
    return [
        name,
        str(len(faulty)),
        _share(found, faulty),
        _share([one for one in found if one.named], found),
        f"{median(signs):.0%}" if signs else "",
        _share(early, found),
        str(len(healthy)),
        _share([one for one in healthy if one.stop], healthy),
        _share([one for one in healthy if one.alarms and not one.stop], healthy),
    ]


def _family(one: Verdict) -> str:
    return one.id.partition("-")[0]


def _blamed(one: Verdict) -> str:
    said = [f"{found.severity} {found.rule} at {found.step} of {one.steps}" for found in one.alarms]
    return f"{one.id} ({one.outcome.in_words()}): {', '.join(said)}"


def _blaming_rules(healthy: Iterable[Verdict]) -> list[str]:
    return [
        said
        for one in healthy
        for said in {f"{found.severity} {found.rule}" for found in one.alarms}
    ]


def _not_counted(verdicts: Sequence[Verdict]) -> str:
    left = [one for one in verdicts if not one.outcome.as_expected]
    title = f"not counted, {len(left)} of {len(verdicts)}: not well without a fault, or with it"
    return _list(title, (f"{one.id}  {one.outcome.in_words()}" for one in left))


def _list(title: str, lines: Iterable[str]) -> str:
    listed = "\n".join(f"  {line}" for line in lines)
    return f"{title}:\n{listed}" if listed else ""


def _most(words: Iterable[str]) -> list[str]:
    """Return lines with counts, the most frequent first."""
    return [f"{count:3d}  {word}" for word, count in Counter(words).most_common()]


def _share(some: Sequence[Verdict], of: Sequence[Verdict]) -> str:
    return f"{len(some)}, {len(some) / len(of):.0%}" if of else ""
