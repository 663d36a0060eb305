"""A classifier of token sequences, trained by the trainer of transformers."""

from __future__ import annotations

import importlib.util

# As libraries do before they import it.
assert importlib.util.find_spec("torch") is not None

from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from tests.libraries.scripts.printed import printed  # noqa: E402
from tests.libraries.scripts.tokens import Sequences  # noqa: E402


def main() -> None:
    set_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=3,
    )
    model = BertForSequenceClassification(config)
    arguments = TrainingArguments(
        "out",
        max_steps=60,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        eval_strategy="steps",
        eval_steps=20,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model, arguments, train_dataset=Sequences(512, 1), eval_dataset=Sequences(64, 2)
    )
    trainer.train()
    trainer.save_model("saved")
    losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    printed(model, losses, "saved/model.safetensors")


if __name__ == "__main__":
    main()
