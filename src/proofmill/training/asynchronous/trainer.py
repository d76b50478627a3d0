"""TRL's AsyncGRPOTrainer with whole steps, our rewards and losses, and a diary of every rollout.

How we differ from TRL 1.16:
1. A step learns from `problems-per-step` groups, as without a lag; there, from as many rollouts as arrive. None is thrown
   away for its age (worker.py).
2. The loss is that of the entry: its sum is over the tokens of a step. TRL takes the mean of every pass, so that its
   gradient depends on how rollouts fall into passes.
3. Rewards, unscored rollouts, the second grader and the diary are those of `grpo` without a lag. TRL leaves a rollout
   without a reward in the batch.
4. Batches are not fetched ahead: at a lag of one step that would have sampling and learning wait for each other.
5. A kill loses no attempt that was sampled (attempts.py); TRL begins anew with the problems that were under way.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback
from transformers.utils import logging
from trl.experimental.async_grpo import AsyncGRPOTrainer

from proofmill.runtime import processes
from proofmill.schema.model_entries import Grpo
from proofmill.schema.reasons import Stop
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.training import advantages, losses, rollout_rewards, rollouts
from proofmill.training.asynchronous import attention
from proofmill.training.asynchronous.attempts import Attempts
from proofmill.training.asynchronous.dealing import Learned, deal, tree
from proofmill.training.asynchronous.sampler import Sampler
from proofmill.training.asynchronous.worker import Group, Worker
from proofmill.training.checkpoints import MOST_KEPT
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import DIARY, Diary

TREE = ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")


class Trainer(AsyncGRPOTrainer):
    """Only the main process has `rewards`, a `diary`, `attempts` and a `sampler` (else None)."""

    def __init__(
        self,
        entry: Grpo,
        name: str,
        rewards: Rewarding | None,
        diary: Diary | None,
        attempts: Attempts | None,
        sampler: Sampler | None,
        start: int,
        weight_transfer: Any = None,
        **options: Any,
    ):
        """`start` is the step that the training goes on from; `options` go to TRL."""
        self.entry, self.name, self.rewards, self.diary, self.sampler = entry, name, rewards, diary, sampler
        tokenizer, problems = options["processing_class"], options["train_dataset"].to_list()
        self.opening = OPENING if opens_thought(tokenizer) else ""
        self.problems = len(problems)
        worker = None
        if sampler and rewards and attempts:
            begin = partial(rewards.begin, programs=True)
            worker = Worker(entry, problems, attempts, sampler, self._described, rollouts.submission, begin, start)
        if not torch.cuda.is_available():
            attention.without_cuda()
        level = logging.get_verbosity()
        logging.set_verbosity_error()  # TRL adds two callbacks of one class, of which transformers warns
        super().__init__(rollout_worker=worker, weight_transfer=weight_transfer, **options)
        logging.set_verbosity(level)
        self.recent = rollout_rewards.Unscored(entry.max_unscored, entry.problems_per_step * entry.group, entry.rounds)
        self.second = rollout_rewards.SecondGrader(name, entry, rewards, diary.rows() if diary else ())
        self._total_train_tokens = 0  # what TRL's other trainers count, and checkpoints keep
        self._measured: list[torch.Tensor] = []  # sums over the passes of a step
        if attempts:
            self.add_callback(_Forgetting(attempts))

    @property
    def over(self) -> bool:
        """Whether the second grader has stopped the training."""
        return self.second.over

    def _described(self, problem: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return rollouts.described(problem, ids, self._tokenizer, ends, self.opening)

    @property
    def _tokenizer(self) -> Any:
        return self.processing_class

    # ----------------------------------------------------------------------------------------------------------- steps

    def get_train_dataloader(self) -> DataLoader:
        """The passes of this process, each a batch of its own."""
        return DataLoader(_Passes(self), batch_size=None)

    def passes(self) -> Iterator[dict[str, torch.Tensor]]:
        """The passes of this process in the next step. Raises ServiceError in all of them when too many are unscored."""
        world, passes = self.accelerator.num_processes, self.args.gradient_accumulation_steps
        made: tuple[list[list[Learned]], float, str | None] = ([], 0.0, None)
        if self.accelerator.is_main_process:
            made = self._made(self.rollout_worker.step(), world * passes)
        dealt, tokens, fault = processes.broadcast(made)
        if fault:
            diary = Path(self.args.output_dir) / DIARY
            raise rollout_rewards.too_many_unscored(self.name, fault, self.entry.max_unscored, diary)
        for rollouts_N in dealt[self.accelerator.process_index :: world]:
            yield self._packed(rollouts_N, tokens)

    def _made(self, groups: Sequence[Group], count: int) -> tuple[list[list[Learned]], float, str | None]:
        """The rollouts of a step in so many passes, the tokens that it learns, and what is wrong, if anything."""
        rollouts_N = [
            (group, group.attempts[place], group.rows[place]) for group in groups for place in sorted(group.rows)
        ]
        rows = [{**row, "policy": attempt.policy} for _, attempt, row in rollouts_N]
        advantages_N, learned_N, fault = self._scored(groups, rows)
        if self.entry.mask_truncated:
            learned_N &= [row["stop"] == Stop.END for row in rows]
        tokens_N = np.array([row["tokens"] for row in rows])
        tokens = float(max(tokens_N[learned_N].sum(), 1))
        weights_N = losses.token_weights(self.entry.loss, tokens_N, tokens, self.entry.max_tokens) * learned_N
        useful_N = learned_N & ((advantages_N != 0) | bool(self.entry.entropy))
        # Rollouts without a gradient go through no pass, but for those that leave none of the passes without a row.
        by_use = sorted(range(len(rows)), key=lambda place: not useful_N[place])
        chosen = {*by_use[: max(int(useful_N.sum()), count)]}
        learned = [
            Learned(
                group.number,
                np.array(group.problem["tokens"], np.int32),
                *(attempt.ids_T, attempt.logprobs_T),
                *(float(advantages_N[place]), float(weights_N[place])),
            )
            for place, (group, attempt, _) in enumerate(rollouts_N)
            if place in chosen
        ]
        return deal(learned, count, self.args.per_device_train_batch_size), tokens, fault

    def _scored(self, groups: Sequence[Group], rows: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray, str | None]:
        """The advantages N of a step's rollouts, which of them have rewards, and what is wrong; measures and diary have them."""
        assert self.rewards is not None and self.diary is not None, "the main process has them"
        entry, names, step = self.entry, self.rewards.names, self.state.global_step + 1
        lengths = ([row["tokens"] for row in rows], [row["reference_tokens"] for row in rows])
        scored = self.rewards.rewarded([*map(rollouts.submission, rows)], *lengths, step)
        counted_NK = scored.counted(entry.unscored)
        totals_N = advantages.total(counted_NK, Rewarding.columns(entry)[1], ~np.isnan(counted_NK))
        totals_PG = totals_N.reshape(-1, entry.group)
        advantages_N = advantages.advantages(totals_PG, entry.scale).ravel()
        opinions, second = self.second.opinions(scored.rollouts, step, step)
        self._log_all(
            {
                **_rewards(totals_PG, counted_NK, names),
                **_lengths(rows),
                **_ages(rows, step - 1),
                **rollout_rewards.curves(scored, entry.max_tokens, [row["question_tokens"] for row in rows]),
                **second,
            }
        )
        prompts = sum(len(group.problem["tokens"]) * len(group.attempts) for group in groups)
        self._total_train_tokens += prompts + sum(row["tokens"] for row in rows)
        self._metrics["train"]["num_tokens"] = [self._total_train_tokens]
        facts = (scored, names, entry.group, counted_NK, advantages_N.tolist(), opinions)
        self.diary.add(rollouts.entries(self.name, step, rows, *facts))
        return advantages_N, ~np.isnan(totals_N), self.recent.add(rollout_rewards.causes(scored))

    def _log_all(self, measures: Mapping[str, float]) -> None:
        for name, value in measures.items():
            self._metrics["train"][name].append(value)

    def _packed(self, rollouts_N: Sequence[Learned], tokens: float) -> dict[str, torch.Tensor]:
        """A pass as a batch; `weights` of its M learned tokens, and the tokens of the step on all devices."""
        weights = [torch.full((len(one.ids_T),), one.weight, dtype=torch.float32) for one in rollouts_N]
        return {**tree(rollouts_N).pack(), "weights": torch.cat(weights), "step_tokens": torch.tensor(tokens)}

    # ------------------------------------------------------------------------------------------------------------ loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The part of the step's loss that this pass has; the parts of all passes and devices are added up."""
        tree = {name: inputs[name] for name in TREE}
        tree["tree_max_seqlen_q"], tree["tree_max_seqlen_k"] = inputs["tree_max_seqlens"].tolist()
        names = ("input_ids", "position_ids", "shift_labels")
        outputs = model(**{name: inputs[name].unsqueeze(0) for name in names}, fused_lm_head=True, **tree)
        index_M, weights_M = inputs["token_index"], inputs["weights"]
        logprobs_M, entropy_M = outputs.log_probs.flatten()[index_M], outputs.entropy.flatten()[index_M]
        ratios_M = losses.ratios(logprobs_M, inputs["old_log_probs"])
        ratios_M1, advantages_M = ratios_M.unsqueeze(1), inputs["advantages"]
        if self.entry.policy == "clipped":
            objective_M1 = losses.clipped(ratios_M1, advantages_M, self.epsilon_low, self.epsilon_high)
        else:
            objective_M1 = losses.reinforce(logprobs_M.unsqueeze(1), ratios_M1, advantages_M, self.epsilon_high)
        loss = -(weights_M * objective_M1.squeeze(1)).sum()
        if self.entry.entropy:
            share_M = weights_M if self.entry.loss == "sequence_sum" else (weights_M > 0) / inputs["step_tokens"]
            loss = loss - self.entry.entropy * (share_M * entropy_M).sum()
        self._measure(ratios_M.detach(), entropy_M.detach(), advantages_M, weights_M > 0)
        if self.accelerator.sync_gradients:
            self._log_measures()
            if self.over:
                self.control.should_training_stop = True
        return loss * self.accelerator.num_processes  # whose gradients are averaged

    def _measure(
        self, ratios_M: torch.Tensor, entropy_M: torch.Tensor, advantages_M: torch.Tensor, learned_M: torch.Tensor
    ) -> None:
        low_M = (ratios_M < 1 - self.epsilon_low) & (advantages_M < 0)
        high_M = (ratios_M > 1 + self.epsilon_high) & (advantages_M > 0)
        per_token = torch.stack([torch.ones_like(ratios_M), ratios_M, ratios_M**2, entropy_M, low_M, high_M])
        sums = (per_token * learned_M).sum(dim=1)
        largest = (ratios_M * learned_M).max() if len(ratios_M) else sums.new_zeros(())
        self._measured.append(torch.cat([sums, largest.unsqueeze(0)]))

    def _log_measures(self) -> None:
        """Log what the passes of a step had in common, over all devices."""
        passes = self.accelerator.gather(torch.stack(self._measured))
        self._measured.clear()
        tokens, ratios, squares, entropy, low, high = passes[:, :-1].sum(dim=0).tolist()
        tokens = max(tokens, 1.0)
        self._log_all(
            {
                "ratio/mean": ratios / tokens,
                "ratio/max": passes[:, -1].max().item(),
                "ratio/effective-share": ratios**2 / max(tokens * squares, 1e-12),
                "entropy": entropy / tokens,
                "clip_ratio/low_mean": low / tokens,
                "clip_ratio/high_mean": high / tokens,
                "clip_ratio/region_mean": (low + high) / tokens,
            }
        )

    # --------------------------------------------------------------------------------------------------------- the rest

    def _sync_weight(self) -> None:
        if self.sampler:
            self.sampler.coming(self.state.global_step)
        super()._sync_weight()

    def _log_step_metrics(self) -> None:
        """TRL's clocks, which no table holds."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log without clocks; an epoch is as many groups as there are problems."""
        for name in [name for name in self._metrics["train"] if name.startswith("perf/")]:
            del self._metrics["train"][name]
        self.state.epoch = self.state.global_step * self.entry.problems_per_step / self.problems
        super().log(logs, start_time)


class _Passes(IterableDataset):
    """All passes of a process, step by step. A step's are made when the first of them is asked for."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield from self.trainer.passes()


class _Forgetting(TrainerCallback):
    """Lets go of attempts that each checkpoint has learned that is kept."""

    def __init__(self, attempts: Attempts):
        self.attempts, self.saved = attempts, [0] * MOST_KEPT

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.attempts.forget(self.saved.pop(0))
        self.saved.append(state.global_step)


def _rewards(totals_PG: np.ndarray, counted_NK: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Mean and deviation of the rewards of a step, in all and one by one, as TRL's GRPOTrainer names them."""
    measures = {"reward": _mean(totals_PG), "reward_std": _deviation(totals_PG)}
    for name, values in zip(names, counted_NK.T, strict=True):
        measures |= {f"rewards/{name}/mean": _mean(values), f"rewards/{name}/std": _deviation(values)}
    return {**measures, "frac_reward_zero_std": rollout_rewards.without_signal(totals_PG)}


def _lengths(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    tokens = [row["tokens"] for row in rows]
    cut = [row["stop"] == Stop.LENGTH for row in rows]
    found = {"mean": np.mean(tokens), "min": min(tokens), "max": max(tokens)}
    return {
        **{f"completions/{name}_length": float(value) for name, value in found.items()},
        "completions/clipped_ratio": float(np.mean(cut)),
    }


def _ages(rows: Sequence[Mapping[str, Any]], policy: int) -> dict[str, float]:
    ages = [policy - row["policy"] for row in rows]
    return {"lag/mean": float(np.mean(ages)), "lag/max": float(max(ages))}


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _deviation(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else float("nan")
