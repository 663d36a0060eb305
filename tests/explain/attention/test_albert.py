"""A pretrained ALBERT: one layer that is called twelve times.

The weights are those of rxnmapper (Schwaller et al., "Extraction of organic chemistry grammar from
unsupervised learning of chemical reactions", Science Advances 7, 2021) on PyPI.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from tests.explain.attention.heads import by_hand
from tests.explain.reports.pages import Page
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.explain.attention import read_attention, write_attention

pytestmark = pytest.mark.thorough

FOLDER = "models/transformers/albert_heads_8_uspto_all_1310k"
HEADS, WIDTH, CALLS = 8, 256, 12


def pretrained() -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights and the vocabulary; the package itself needs an old transformers."""
    found = find_spec("rxnmapper")
    if found is None or found.origin is None:
        pytest.skip("needs rxnmapper (pip --no-deps)")
    folder = Path(found.origin).parent / FOLDER
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    return weights, (folder / "vocab.txt").read_text("utf-8").split()


class AttentionOfAlbert(nn.Module):
    """Self-attention with separate projections."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out: Tensor = self.LayerNorm(x + self.dense(mixed))
        return out

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), self.key(x), self.value(x)


class Layer(nn.Module):
    """The shared layer (Lan et al., "ALBERT", ICLR 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = AttentionOfAlbert()
        self.ffn, self.ffn_output = nn.Linear(WIDTH, 512), nn.Linear(512, WIDTH)
        self.full_layer_layer_norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        out: Tensor = self.full_layer_layer_norm(self.ffn_output(F.gelu(self.ffn(x))) + x)
        return out


class Albert(nn.Module):
    """The encoder and its masked language model."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.words = nn.Embedding(591, 128)
        self.positions, self.types = nn.Embedding(512, 128), nn.Embedding(2, 128)
        self.norm = nn.LayerNorm(128, eps=1e-12)
        self.widen = nn.Linear(128, WIDTH)
        self.layer = Layer()
        self.head, self.head_norm = nn.Linear(WIDTH, 128), nn.LayerNorm(128, eps=1e-12)
        self.decoder = nn.Linear(128, 591)
        shared = "albert.encoder.albert_layer_groups.0.albert_layers.0."
        parts = {
            "albert.embeddings.word_embeddings.": "words.",
            "albert.embeddings.position_embeddings.": "positions.",
            "albert.embeddings.token_type_embeddings.": "types.",
            "albert.embeddings.LayerNorm.": "norm.",
            "albert.encoder.embedding_hidden_mapping_in.": "widen.",
            shared: "layer.",
            "predictions.dense.": "head.",
            "predictions.LayerNorm.": "head_norm.",
            "predictions.decoder.": "decoder.",
        }
        self.load_state_dict(
            {
                key.replace(before, after): value
                for key, value in weights.items()
                for before, after in parts.items()
                if key.startswith(before)
            }
        )
        self.seen: list[Tensor] = []

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        x = self.norm(self.words(ids) + self.positions(places) + self.types.weight[0])
        x = self.widen(x)
        self.seen = []
        for _ in range(CALLS):
            self.seen.append(x)
            x = self.layer(x)
        out: Tensor = self.decoder(self.head_norm(F.gelu(self.head(x))))
        return out


def test_all_calls_of_the_shared_layer(tmp_path: Path) -> None:
    weights, vocabulary = pretrained()
    model = Albert(weights).eval()
    # Acetic acid and ethanol give ethyl acetate.
    words = ["[CLS]", *re.findall(">>|.", "CC(=O)O.CCO>>CC(=O)OCC"), "[SEP]"]
    ids = torch.tensor([[vocabulary.index(word) for word in words]])
    always = SaveConfig(every=1, modes=("eval",))
    collections = {"attention": always, "model_inputs": always}
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model)
        with hook.mode("eval"), torch.no_grad():
            logits = model(ids)
    # The network knows SMILES: it names the masked-in tokens again.
    assert (logits.argmax(-1) == ids)[0, 1:-1].float().mean() > 0.9

    found = read_attention(open_run(tmp_path / "run"), mode="eval")
    path = "layer.attention"
    assert [one.name for one in found.layers] == [path, *(f"{path}#{n}" for n in range(1, CALLS))]
    for layer, x in zip(found.layers, model.seen, strict=True):
        q, k, _ = (part.detach() for part in model.layer.attention.project(x))
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2).numpy() for part in (q, k)]
        np.testing.assert_allclose(layer.weights, by_hand(heads[0], heads[1]), atol=1e-6)

    page = Page(
        write_attention(
            found, tmp_path / "page.html", tokenizer=lambda row: [vocabulary[one] for one in row]
        )
    )
    assert len(page.all_figures("chart head")) == CALLS * HEADS
    assert [text.text for text in page.figure_texts("chart head")][: len(words)] == words
    assert len(page.html) < 1_500_000
