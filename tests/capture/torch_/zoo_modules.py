"""The modules that are trained in the torch zoo."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.utils.checkpoint import checkpoint

__all__ = ["Block", "Checkpointed", "Recurrent", "Transformer"]


class Block(nn.Module):
    """A residual block that writes in place wherever it can."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        out: Tensor = self.relu(y)
        return out


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.lstm = nn.LSTM(5, 6, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 11)

    def forward(self, tokens: Tensor) -> dict[str, Any]:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(tokens), [5] * 4 + [3] * 4, batch_first=True
        )
        states, last = self.lstm(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        return {"logits": self.head(F.gelu(padded)), "last": last}


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.cross = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Tensor, *, causal: bool = True) -> Tensor:
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        hidden = self.encoder(x, mask=mask if causal else None)
        mixed, _ = self.cross(hidden, x, x, need_weights=False)
        queries = F.scaled_dot_product_attention(mixed, x, x, dropout_p=0.1, is_causal=True)
        out: Tensor = self.head(hidden + queries)
        return out


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(16, 16)
            )
            for _ in range(2)
        )
        self.last = nn.Linear(16, 3)
        self._reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.first(x)
        for block in self.blocks:
            y = checkpoint(block, y, use_reentrant=self._reentrant)
        out: Tensor = self.last(y)
        return out
