"""GPT-2 in transformers' Trainer, each matrix on a sphere of its own: three lines are new.

    python examples/transformers_gpt2.py

GPT-2's head is tied to its embedding, so it stays the optimizer's, without a cap; ``convert`` says
so. Its start is a small one: ``radius`` makes it four times as large. ``learning_rate`` is the
largest angle of a step. What the trainer logs has the angles.
"""

from __future__ import annotations

import argparse as some_text
import inspect
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import fixnorm
import fixnorm.integrations.transformers  # new

CONTEXT, STEPS, LR = 32, 60, 0.05


def main(folder: Path) -> None:
    """Train a small one from nothing, on the source of a module that every Python has."""
    torch.manual_seed(0)
    text = inspect.getsource(some_text)
    known = sorted(set(text))
    codes = torch.tensor([known.index(c) for c in text])
    examples = [{"input_ids": x, "labels": x} for x in codes.unfold(0, CONTEXT, CONTEXT)]
    config = GPT2Config(
        vocab_size=len(known), n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)

    sample = {"input_ids": torch.stack([example["input_ids"] for example in examples[:4]])}
    print(fixnorm.convert(model, scope="matrix", radius=4.0, sample=sample))  # new
    args = TrainingArguments(
        output_dir=str(folder),
        learning_rate=LR,  # an angle; AdamW, without weight decay
        lr_scheduler_type="cosine",
        warmup_steps=STEPS // 10,
        max_steps=STEPS,
        per_device_train_batch_size=16,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=args, train_dataset=examples)
    fixnorm.integrations.transformers.attach(trainer, length="own")  # new
    trainer.train()

    logged = [row for row in trainer.state.log_history if "loss" in row]
    angle = "fixnorm/angle/transformer.h.0.attn.c_attn.weight"
    for row in logged:
        print(f"loss {float(row['loss']):.2f}; the first attention turned by {row[angle]:.4f}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder))
