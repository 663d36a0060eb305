"""Embeddings of sentences, trained by the trainer of sentence-transformers with pairs."""

from __future__ import annotations

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from tests.libraries.scripts.printed import printed

WORDS = 60


def save_model(place: str) -> None:
    """Save a model that was not trained, with a tokenizer of words."""
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{word}": word + 2 for word in range(WORDS)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
    )
    wrapped.save_pretrained(place)
    config = BertConfig(
        vocab_size=WORDS + 2,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(place)


def pairs(count: int) -> Dataset:
    """Return pairs of sentences with the same topic, words of one of ten groups."""
    drawn = torch.Generator().manual_seed(1)
    topics = torch.randint(0, 10, (count,), generator=drawn)
    words = 6 * topics[:, None, None] + torch.randint(0, 6, (count, 2, 5), generator=drawn)
    texts = [[" ".join(f"w{word}" for word in one) for one in both] for both in words.tolist()]
    return Dataset.from_dict(
        {"anchor": [one for one, _ in texts], "positive": [other for _, other in texts]}
    )


def main() -> None:
    set_seed(0)
    save_model("plain")
    transformer = Transformer("plain")
    model = SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu")
    arguments = SentenceTransformerTrainingArguments(
        "out",
        max_steps=60,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=pairs(512), loss=MultipleNegativesRankingLoss(model)
    )
    trainer.train()
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    model.save_pretrained("saved")
    printed(model, losses, "saved/model.safetensors")


if __name__ == "__main__":
    main()
