"""TRL's SFTTrainer with numbers that do not depend on how a batch is split over devices and accumulation steps.

Differences from TRL 1.16:
1. On several devices, filler rows without trained tokens complete the last batch of an epoch; accelerate would repeat
   the epoch's first rows.
2. Entropy and accuracy of a step are means over its tokens; TRL averages the means of its micro-batches.
3. The evaluation loss is a mean over all trained tokens; transformers averages the means of batches.
4. Epochs are counted in steps; transformers counts them in micro-batches, of which the last step has fewer.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import SeedableRandomSampler
from datasets import Dataset, concatenate_datasets
from torch.utils.data import Sampler
from trl import SFTTrainer

FILLER = 2  # tokens of a filler row; with a single one there would be nothing to predict
PER_TOKEN = ("entropy", "mean_token_accuracy")


class SftTrainer(SFTTrainer):
    """SFTTrainer with filler rows, token-weighted metrics, and epochs counted in steps."""

    train_dataset: Any
    eval_dataset: Any
    control: Any

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.rows = len(self.train_dataset)
        self.parts: list[int] = []  # trained tokens of the passes of a step
        self.steps_a_pass = math.ceil(self.rows / self.get_total_train_batch_size(self.args))
        if self.args.world_size > 1:
            self.train_dataset = self._fill(self.train_dataset)
            self.eval_dataset = self.eval_dataset and self._fill(self.eval_dataset)

    def _fill(self, data: Dataset) -> Dataset:
        """Return the rows, followed by filler rows that make the shares of all devices equal."""
        missing = -len(data) % (self.args.per_device_train_batch_size * self.args.world_size)
        if not missing:
            return data
        row = {
            "input_ids": [self._tokenizer.pad_token_id] * FILLER,
            "labels": [-100] * FILLER,
            "seq_lengths": [FILLER],
        }
        filler = {name: [row[name]] * missing for name in data.column_names}
        return concatenate_datasets([data, Dataset.from_dict(filler, features=data.features)])

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.world_size == 1:
            return super()._get_train_sampler(train_dataset)
        return FilledSampler(self.rows, len(self.train_dataset), self.args.data_seed)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        metrics = self._metrics["train"]
        if self.args.gradient_accumulation_steps > 1:
            learned = inputs["labels"][:, 1:].ne(-100).sum()
            self.parts.append(self.accelerator.gather(learned).sum().item())
        if self.accelerator.sync_gradients:
            if self.parts:
                for name in PER_TOKEN:
                    means, metrics[name] = metrics[name][-len(self.parts) :], metrics[name][: -len(self.parts)]
                    weighted = sum(mean * count for mean, count in zip(means, self.parts, strict=True))
                    metrics[name].append(weighted / max(sum(self.parts), 1))
                self.parts.clear()
            if (self.state.global_step + 1) % self.steps_a_pass == 0:
                self._total_train_tokens -= FILLER * (len(self.train_dataset) - self.rows)
                metrics["num_tokens"] = [self._total_train_tokens]
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        passes, steps = divmod(self.state.global_step, self.steps_a_pass)
        self.state.epoch = passes + steps / self.steps_a_pass
        super().log(logs, start_time)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict:
        """Compute loss, entropy and accuracy over all trained tokens of the evaluation examples."""
        model = self.model_wrapped
        model.eval()
        sums = torch.zeros(4, dtype=torch.float64)
        for inputs in self.get_eval_dataloader(eval_dataset):
            with torch.no_grad(), self.compute_loss_context_manager():
                outputs = model(**self._prepare_inputs(inputs), use_cache=False, fused_lm_head=True)
            parts = (-outputs.log_probs, outputs.entropy, outputs.is_top1, outputs.label_mask)
            sums += torch.stack([part.double().sum().cpu() for part in parts])
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        loss, *means = self._over_devices(sums)
        names = [f"{metric_key_prefix}_{name}" for name in ("loss", *PER_TOKEN)]
        metrics = dict(zip(names, (loss, *means), strict=True))
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _over_devices(self, sums: torch.Tensor) -> list[float]:
        """Return all sums but the last, each divided by the last one, over all devices."""
        totals = self.accelerator.gather(sums.to(self.accelerator.device)[None]).sum(0)
        return (totals[:-1] / totals[-1]).tolist()


class FilledSampler(Sampler[int]):
    """Row indices of an epoch in the order of a single process, followed by those of the filler rows."""

    def __init__(self, rows: int, filled: int, seed: int):
        self.order, self.rows, self.filled = SeedableRandomSampler(range(rows), data_seed=seed), rows, filled

    def __len__(self) -> int:
        return self.filled

    def __iter__(self) -> Iterator[int]:
        yield from self.order
        yield from range(self.rows, self.filled)

    def set_epoch(self, epoch: int) -> None:
        self.order.set_epoch(epoch)
