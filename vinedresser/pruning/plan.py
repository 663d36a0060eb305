"""Plans: what one round of pruning removes, as readable JSON that can be replayed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.group import Group
from vinedresser.store.json_values import DAMAGE, known_fields, parse_json

__all__ = ["Plan", "architecture_digest", "check_fits", "make_plan", "plan_from_json"]

_VERSION = 1


@dataclass(frozen=True)
class Plan:
    """Which channels go, and what that means for each tensor.

    It is data only: to replay it takes the model that it was made for, built by the user's own
    code. Channels, axes and indices are counted from 0, before the removal.

    Attributes:
        architecture: `architecture_digest` of the model before the removal.
        criterion: name of the criterion that ranked the channels.
        channels: removed channels by group, sorted.
        scores: scores of all channels of these groups; the lowest were removed.
        tensors: removed indices by tensor and axis, sorted. JSON has only text as keys, so axes are
            text, too ("0").
        attributes: new values of integer attributes of modules, where they change: the number of
            groups of a depthwise convolution ("block.depthwise.groups"), the number of heads.
        version: version of this format.
    """

    architecture: str
    criterion: str
    channels: dict[str, list[int]]
    tensors: dict[str, dict[str, list[int]]]
    scores: dict[str, list[float]] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    version: int = _VERSION

    @property
    def count(self) -> int:
        """Number of removed filters (see `Group`)."""
        return sum(map(len, self.channels.values()))

    @property
    def checksum(self) -> str:
        """SHA-256 of its contents, in hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the plan as JSON, one line per group and tensor, sorted: plans can be compared.

        Its checksum is beside its fields.
        """
        lines = [
            f'  "{key}": {json.dumps(getattr(self, key))}'
            for key in ("version", "architecture", "criterion")
        ]
        for key in ("channels", "tensors", "scores", "attributes"):
            rows = [
                f"    {json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
                for name, value in sorted(getattr(self, key).items())
            ]
            lines.append(f'  "{key}": {{' + ("\n" + ",\n".join(rows) + "\n  }" if rows else "}"))
        lines.append(f'  "checksum": "{self.checksum}"')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_from_json(text: str | bytes, *, source: str) -> Plan:
    """Read a plan, with its checksum or, if it was written by hand or by 0.1, without one.

    Args:
        text: what `Plan.to_json` returned.
        source: the file it was read from, for messages.

    Raises:
        PruningError: it is not a plan, was changed since it was written, or of a newer format.
    """
    try:
        document = parse_json(text)
        plan = Plan(**known_fields(Plan, document))
        _check(plan)
        if document.get("checksum", plan.checksum) != plan.checksum:
            raise ValueError("damaged: its checksum does not fit its contents")
    except DAMAGE as error:
        raise PruningError(f"{source}: not a valid pruning plan: {error}") from error
    return plan


def _check(plan: Plan) -> None:
    if plan.version != _VERSION:
        raise ValueError(f"version is {plan.version}; this vinedresser reads version {_VERSION}")
    lists = [(name, gone) for name, gone in plan.channels.items()]
    for name, axes in plan.tensors.items():
        for axis, gone in axes.items():
            if not axis.isdecimal():
                raise ValueError(f"tensors.{name}: {axis!r} is not an axis")
            lists.append((f"{name}.{axis}", gone))
    for name, gone in lists:
        if not gone or gone != sorted(set(gone)) or gone[0] < 0:
            raise ValueError(f"{name}: indices are missing, not sorted, repeated or below 0")


def architecture_digest(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return a digest of a model's tensors: their names and shapes, in any order.

    Args:
        shapes: shape of each parameter and buffer by name.

    Returns:
        16 hexadecimal digits.
    """
    text = json.dumps(sorted((name, list(shape)) for name, shape in shapes.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_fits(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that a plan can be applied to a model.

    Args:
        plan: the plan, maybe from a file.
        shapes: shape of each of the model's parameters and buffers by name.

    Raises:
        PruningError: it is for another architecture, or names what the model does not have.
    """
    digest = architecture_digest(shapes)
    if digest != plan.architecture:
        raise PruningError(
            f"the plan is for another architecture: {plan.architecture}, not {digest}; it takes "
            "the model before the removal, with the same names and shapes"
        )
    for name, axes in plan.tensors.items():
        for axis, gone in axes.items():
            shape = shapes.get(name, ())
            if int(axis) >= len(shape) or (gone and gone[-1] >= shape[int(axis)]):
                raise PruningError(
                    f"the plan removes {gone[-1:]} from axis {axis} of {name}, whose shape is "
                    f"{list(shape)}"
                )


def make_plan(
    channels: Mapping[str, tuple[int, ...]],
    groups: Mapping[str, Group],
    *,
    architecture: str,
    criterion: str,
    scores: Mapping[str, Any],
    attributes: Mapping[str, int],
) -> Plan:
    """Make the plan that removes channels of groups.

    Args:
        groups: the model's groups by name.
        architecture: `architecture_digest` of the model.
        criterion: name of the criterion.
        scores: float64 [channels] by group.
        attributes: new values of integer attributes of modules, where they change.

    Raises:
        PruningError: a group is locked or unknown, or has no such channel.
    """
    gone: dict[str, dict[int, set[int]]] = {}
    for name, numbers in channels.items():
        group = _removable(groups, name, numbers)
        for member in group.members:
            indices = gone.setdefault(member.tensor, {}).setdefault(member.axis, set())
            indices.update(np.ravel(member.indices[list(numbers)]).tolist())
    return Plan(
        architecture=architecture,
        criterion=criterion,
        channels={name: sorted(numbers) for name, numbers in channels.items() if numbers},
        tensors={
            tensor: {str(axis): sorted(found) for axis, found in sorted(axes.items()) if found}
            for tensor, axes in gone.items()
        },
        scores={name: [float(one) for one in scores[name]] for name in channels if name in scores},
        attributes=dict(attributes),
    )


def _removable(groups: Mapping[str, Group], name: str, numbers: tuple[int, ...]) -> Group:
    if name not in groups:
        raise PruningError(f"{name}: no such group; the model has {', '.join(groups) or 'none'}")
    group = groups[name]
    if group.locked:
        raise PruningError(f"{name}: cannot be pruned: {group.locked}")
    if any(not 0 <= number < group.size for number in numbers):
        raise PruningError(f"{name}: has channels 0 to {group.size - 1}, not {max(numbers)}")
    if len(set(numbers)) >= group.size:
        raise PruningError(f"{name}: all {group.size} channels would be removed; one has to stay")
    return group
