"""The examples of a batch for which terms are captured, in tensors of any layout."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["Examples", "chosen_examples"]


class Examples(NamedTuple):
    """Some examples of a batch.

    Attributes:
        numbers: their rows in the batch, int64 [K], ascending.
        batch: number of examples in the batch.
    """

    numbers: Tensor
    batch: int

    def of(self, value: Tensor) -> Tensor | None:
        """Return a copy of their part of a tensor, [K, ...], in its dtype.

        Args:
            value: [batch, ...], [steps, batch, ...] with three axes, or [batch * parts, ...] with
                the parts of an example in sequence, which become [K, parts, ...].

        Returns:
            None if it has no axis of examples.
        """
        plain = value.detach()
        if plain.layout is not torch.strided or not plain.dim():
            return None
        length = plain.shape[0]
        if length != self.batch:
            if plain.dim() == 3 and plain.shape[1] == self.batch:
                plain = plain.movedim(1, 0)
            elif length and length % self.batch == 0:
                plain = plain.unflatten(0, (self.batch, -1))
            else:
                return None
        return plain.index_select(0, self.numbers.to(plain.device))


def chosen_examples(batch: int, most: int | None, among: int | None) -> Examples:
    """Return evenly strided examples.

    Args:
        batch: number of examples in the batch.
        most: maximum number of examples; None: all.
        among: number of evenly strided examples from which they are taken; None: the batch.
    """
    numbers = torch.arange(batch)
    for limit in (among, most):
        places = None if limit is None else strided_rows(len(numbers), limit)
        if places is not None:
            numbers = numbers[torch.from_numpy(places)]
    return Examples(numbers, batch)
