"""What a script computes between the outputs of its model and the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.snapshots.trees import Computed

# Scalars that are kept for each call of the model.
_MOST = 1000


class LossFunctions:
    """Collects the scalars that may be losses, and puts recorded targets into loss functions.

    Attributes:
        on: whether the model has been called and its update is still to come.
        targets: arguments of the recorded loss function, put in the place of the script's own;
            None if these are right, since they come from a batch that was replaced.
        placed: whether targets were put into a function.
    """

    def __init__(self) -> None:
        self.on = self.placed = False
        self.targets: Sequence[Any] | None = None
        self._scalars: list[list[Tensor]] = []
        # Which of the scalars of each call is its loss.
        self._places: list[int] = []

    def clear(self) -> None:
        """Forget everything: the step begins again."""
        self.on = self.placed = False
        self.targets = None
        self._scalars = []

    def restart(self) -> None:
        """Begin with a step that follows the recorded one, with targets of its own."""
        self.on = False
        self.targets = None
        self._scalars = []

    def called(self, output: Any) -> None:
        """Begin with the functions that are applied to an output of the model."""
        self._scalars.append([])
        self.on = True
        self.take(output)

    def take(self, value: Any) -> None:
        """Keep the scalars in a value, which may be losses."""
        if self._scalars and len(self._scalars[-1]) < _MOST:
            self._scalars[-1] += [
                one.detach() for _, one in leaves(value) if one.numel() == 1 and one.requires_grad
            ]

    def losses(self, recorded: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return the loss of each call: the scalar that was recorded, else the latest.

        Args:
            recorded: values of the losses of each call.
        """
        self._places = []
        for scalars, values in zip(self._scalars, recorded, strict=False):
            known = {digest(value) for value in values}
            same = [place for place, one in enumerate(scalars) if digest(one) in known]
            self._places.append(same[-1] if same else -1)
        return self.following()

    def following(self) -> list[Tensor]:
        """Return the loss of each call: the scalar in the place of the recorded one.

        Of more calls, those before may be for the updates of other models.
        """
        found = []
        latest = self._scalars[-len(self._places) :] if self._places else []
        for scalars, place in zip(latest, self._places, strict=False):
            found += [scalars[place]] if place < len(scalars) and scalars else scalars[-1:]
        return found

    def replaced(self, given: Sequence[Any], *, whole: bool) -> list[Any] | None:
        """Return the arguments of a loss function with the recorded targets.

        Args:
            given: the arguments, tensors and others.
            whole: whether there must be as many tensors as recorded, not possibly more.

        Returns:
            The arguments; None if the function does not compare an output with targets.
        """
        recorded = [
            target for target in self.targets or () if isinstance(target, Tensor | Computed)
        ]
        if len({type(one) is Computed for one in recorded}) < 2:
            # No outputs, or no targets.
            return None
        places = [place for place, one in enumerate(given) if isinstance(one, Tensor)]
        if len(places) < len(recorded) or (whole and len(places) != len(recorded)):
            return None
        made = list(given)
        for place, one in zip(places, recorded, strict=False):
            own = given[place]
            if isinstance(one, Computed):
                if not own.requires_grad:
                    return None
            elif own.requires_grad or own.dtype != one.dtype or own.dim() != one.dim():
                return None
            else:
                made[place] = one.to(own.device)
        self.placed = True
        return made

    def called_by_script(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of torch for the script; see `EachFunction`."""
        if not (self.on and torch.is_grad_enabled()):
            return func(*args, **named)
        made = self.replaced([*args, *named.values()], whole=False)
        if made is not None:
            args, named = tuple(made[: len(args)]), dict(zip(named, made[len(args) :], strict=True))
        result = func(*args, **named)
        if isinstance(result, Tensor):
            self.take(result)
        return result
