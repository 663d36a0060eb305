"""Which faults can cause others, as the rules declare it."""

from __future__ import annotations

from functools import cache

from vinedresser.rules.base import Rule
from vinedresser.rules.faults import STAGES
from vinedresser.store.finding import Finding

__all__ = ["brings_about", "can_explain", "causal_place", "declaring_rules", "is_unexplained"]


@cache
def declaring_rules() -> dict[str, type[Rule]]:
    """Return the built-in rule that declares the stage and consequences of each fault.

    Several rules may report one fault; the one that is named for it declares it, or the first.
    """
    # Loaded when there is a finding to explain: it imports all rules.
    from vinedresser.rules.registry import RULES

    found: dict[str, type[Rule]] = {}
    for name, rule in RULES.items():
        if rule.fault and (name == rule.fault or rule.fault not in found):
            found[rule.fault] = rule
    return found


def causal_place(fault: str) -> int:
    """Return the place of a fault in the chain from causes to effects (`STAGES`); data come first.

    Args:
        fault: a member of `FAULTS`; an unknown fault has the place of optimisation.
    """
    return STAGES[declaring_rules().get(fault, Rule).stage]


def brings_about(cause: str, symptom: str) -> bool:
    """Return whether one fault can cause another.

    Args:
        cause: a member of `FAULTS`; an unknown fault causes nothing.
        symptom: a member of `FAULTS`.
    """
    rules = declaring_rules()
    if cause not in rules or symptom not in rules:
        return False
    consequences = rules[cause].consequences
    return symptom in consequences or rules[symptom].stage in consequences


def can_explain(cause: Finding, finding: Finding) -> bool:
    """Return whether the steps of two findings allow the first to explain the other."""
    return declaring_rules().get(cause.fault, Rule).can_explain(cause, finding)


def is_unexplained(fault: str) -> bool:
    """Return whether a fault is an outcome that says nothing about its cause.

    Args:
        fault: a member of `FAULTS`.
    """
    return declaring_rules().get(fault, Rule).cause_unknown
