"""Layers over time.

Shape legend: B batch, T time steps, F features, U units.
"""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["OverTime", "Recurrent"]


class Recurrent(nn.Module):
    """A recurrent layer that returns its last output, or all of them.

    Args:
        kind: LSTM, GRU or RNN.
        features: F.
        units: U.
        sequences: return [B, T, U] instead of [B, U].
        bidirectional: read the sequence from both ends: 2 U.
        act: activation of an RNN; "" for tanh.
    """

    def __init__(
        self,
        kind: type[nn.RNNBase],
        features: int,
        units: int,
        *,
        sequences: bool,
        bidirectional: bool,
        act: str,
    ) -> None:
        super().__init__()
        self.sequences = sequences
        self._inner = {"", "tanh", "relu"} if kind is nn.RNN else {"", "tanh"}
        if kind is nn.RNN and act == "relu":
            self.rnn: nn.RNNBase = nn.RNN(
                features, units, batch_first=True, bidirectional=bidirectional, nonlinearity="relu"
            )
        else:
            # A subclass sets its mode itself.
            make = {nn.RNN: nn.RNN, nn.LSTM: nn.LSTM, nn.GRU: nn.GRU}[kind]
            self.rnn = make(features, units, batch_first=True, bidirectional=bidirectional)

    def uses(self, act: str) -> bool:
        """Return whether the layer includes an activation itself."""
        return act in self._inner

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, F] to [B, U] or [B, T, U]."""
        out: Tensor = self.rnn(x)[0]
        return out if self.sequences else out[:, -1]


class OverTime(nn.Module):
    """A convolution or pooling over time.

    Args:
        inner: maps [B, F, T] to [B, U, T'], as in torch.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, F] to [B, T', U]."""
        out: Tensor = self.inner(x.transpose(1, 2)).transpose(1, 2)
        return out
