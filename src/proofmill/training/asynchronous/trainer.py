"""TRL's AsyncGRPOTrainer with full steps, our rewards and losses, and a log of every rollout.

Differences from TRL 1.16:
1. A step trains on `problems-per-step` groups, as without staleness; there, on the rollouts that have arrived. No
   rollout is discarded for its age (worker.py). `mini-batches` and `iterations` are steps on one rollout batch.
2. The loss is that of the entry; its sum is over the tokens of a step. TRL takes the mean of every micro-batch, so its
   gradient depends on how rollouts are split.
3. Rewards, unscored rollouts, the audit grader and the rollout log are those of synchronous `grpo`. TRL leaves a rollout
   without a reward in the batch.
4. Batches are not prefetched: with a staleness of one step, sampling and training would wait for each other.
5. A kill loses no sampled rollout (rollout_queue.py); TRL restarts with the problems that were in progress.
6. There is a KL divergence from a reference model. In each step it computes the log-probabilities of the trained tokens.

A mini-batch has full groups, so that a prompt is computed once; in synchronous training TRL shuffles the rollouts.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import is_peft_model
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback
from transformers.utils import logging
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_grpo_trainer import StepIntervalCallback
from trl.experimental.async_grpo.packing import TREE_ATTENTION
from trl.trainer.callbacks import SyncRefModelCallback
from trl.trainer.utils import add_fused_lm_head, create_model_from_path

from proofmill.runtime import processes
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.reasons import StopReason
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.training import adapters, advantages, rollout_log, rollout_rewards, run
from proofmill.training.asynchronous import attention
from proofmill.training.asynchronous.packing import TrainedRollout, TrainedStep, distribute, tree
from proofmill.training.asynchronous.rollout_queue import RolloutQueue
from proofmill.training.asynchronous.sampler import Sampler
from proofmill.training.asynchronous.worker import PendingGroup, Worker
from proofmill.training.checkpoints import MOST_KEPT, SavesReference
from proofmill.training.losses.estimator import Step, Tokens
from proofmill.training.losses.policy import Objective, policy_loss
from proofmill.training.losses.registry import ESTIMATORS
from proofmill.training.losses.token_statistics import TokenStatistics
from proofmill.training.rollout_log import ROLLOUT_LOG, RolloutLog
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import idle_groups, weight_sync
from proofmill.training.rollouts.held_out import HeldOut
from proofmill.training.rollouts.retirement import Retirement

TREE = ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")


class AsyncGrpoTrainer(SavesReference, AsyncGRPOTrainer):
    """Only the main process has `rewards`, `kept_rollouts`, `attempts` and a `sampler` (else None)."""

    control: Any  # of transformers' trainer

    def __init__(
        self,
        entry: Grpo,
        name: str,
        rewards: Rewarding | None,
        kept_rollouts: RolloutLog | None,
        attempts: RolloutQueue | None,
        sampler: Sampler | None,
        start: int,
        held_out: HeldOut | None = None,
        weight_transfer: Any = None,
        **options: Any,
    ):
        """Take the step `start` that the training resumes from, and `options` for TRL."""
        self.entry, self.name, self.rewards, self.kept_rollouts = entry, name, rewards, kept_rollouts
        self.sampler, self.held_out = sampler, held_out
        tokenizer, problems = options["processing_class"], options["train_dataset"].to_list()
        self.opening = OPENING if opens_thought(tokenizer) else ""
        self.problems = len(problems)
        worker, kept = None, kept_rollouts.rows() if kept_rollouts else ()
        self.retirement = Retirement(entry, problems, kept)
        if sampler and rewards and attempts:
            begin = partial(rewards.begin, programs=True)
            worker = Worker(
                entry, self.retirement, attempts, sampler, self._describe, rollout_log.submission, begin, start
            )
        if not torch.cuda.is_available():
            attention.without_cuda()
        level = logging.get_verbosity()
        logging.set_verbosity_error()  # several callbacks are of one class, of which transformers warns
        super().__init__(rollout_worker=worker, weight_transfer=weight_transfer, **options)
        self.ref_model = self._load_reference(options["model"]) if entry.kl and not entry.lora else None
        if entry.reference_sync_steps:
            self.add_callback(StepIntervalCallback(self._update_reference, entry.reference_sync_steps))
        logging.set_verbosity(level)
        if is_peft_model(self.model):  # `_streaming_iter` merges
            self.model.merge_adapter = self.model.unmerge_adapter = lambda: None
        self.recent = rollout_rewards.Unscored(
            entry.max_unscored, entry.mini_batches * entry.problems_per_step * entry.group_size, entry.rounds
        )
        self.audit_grader = rollout_rewards.AuditGrader(
            name, entry, rewards, kept_rollouts.rows() if kept_rollouts else ()
        )
        self._total_train_tokens = 0  # what TRL's other trainers count, and checkpoints keep
        self.objective, self.statistics = Objective.of(entry), TokenStatistics()
        if attempts:
            self.add_callback(DeleteTrained(attempts))

    @property
    def over(self) -> bool:
        """True once the audit grader has stopped the training."""
        return self.audit_grader.over

    def _describe(self, problem: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return rollout_log.describe(problem, ids, self._tokenizer, ends, self.opening)

    @property
    def _tokenizer(self) -> Any:
        return self.processing_class

    def _load_reference(self, weights: str) -> Any:
        model = create_model_from_path(
            weights, device_map=None, attn_implementation=TREE_ATTENTION, **self.args.model_init_kwargs
        )
        add_fused_lm_head(model, temperature=self.temperature)
        if self.is_fsdp_enabled:
            return run.split_frozen(model, self.accelerator)
        return self.accelerator.prepare_model(model, evaluation_mode=True)

    def _update_reference(self) -> None:
        SyncRefModelCallback.sync_target_model(self.accelerator.unwrap_model(self.model), self.ref_model, 1.0)

    # ----------------------------------------------------------------------------------------------------------- steps

    def get_train_dataloader(self) -> DataLoader:
        """Return the micro-batches of this process, one per item."""
        return DataLoader(MicroBatches(self), batch_size=None)

    def micro_batches(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield this process's micro-batches of the steps that share the next rollout batch.

        Raises ServiceError on all ranks if too many rollouts are unscored.
        """
        world, accumulated = self.accelerator.num_processes, self.args.gradient_accumulation_steps
        result: tuple[list[TrainedStep], str | None] = ([], None)
        if self.accelerator.is_main_process:
            result = self._make(self.rollout_worker.step(), world * accumulated)
        steps, fault = processes.broadcast(result)
        if fault:
            kept_rollouts = Path(self.args.output_dir) / ROLLOUT_LOG
            raise rollout_rewards.too_many_unscored(self.name, fault, self.entry.max_unscored, kept_rollouts)
        for distributed, tokens in steps * self.entry.iterations:
            for rollouts_N in distributed[self.accelerator.process_index :: world]:
                yield self._pack(rollouts_N, tokens)

    def _make(self, groups: Sequence[PendingGroup], count: int) -> tuple[list[TrainedStep], str | None]:
        """Return the step of each mini-batch, in `count` micro-batches, and a fault, if any."""
        rollouts_N = [
            (group, group.attempts[place], group.rows[place]) for group in groups for place in sorted(group.rows)
        ]
        rows = [{**row, "policy_step": attempt.policy_step} for _, attempt, row in rollouts_N]
        advantages_N, learned_N, fault = self._score(groups, rows)
        if self.entry.mask_truncated:
            learned_N &= [row["stop_reason"] == StopReason.END for row in rows]
        counted_N = np.ones(len(rows), bool)
        if self.entry.idle == "leave-out":
            counted_N = np.repeat(self._live_P, self.entry.group_size)
        learned_N &= counted_N
        trained_N = [
            TrainedRollout(
                group.number,
                np.array(group.problem["tokens"], np.int32),
                *(attempt.ids_T, attempt.logprobs_T),
                *(advantage, 0.0),
                attempt.policy_step == self.state.global_step,
            )
            for (group, attempt, _), advantage in zip(rollouts_N, advantages_N.tolist(), strict=True)
        ]
        tokens_N = np.array([row["tokens"] for row in rows])
        mean_tokens = max(tokens_N[learned_N].sum(), 1) / self.entry.mini_batches
        useful_N = learned_N & ((advantages_N != 0) | bool(self.entry.entropy or self.entry.kl))
        steps = []
        for own in np.split(np.arange(len(rows)), self.entry.mini_batches):
            tokens = float(max(tokens_N[own][learned_N[own]].sum(), 1))
            counted = max(int(counted_N[own].sum()), 1)
            step = Step(tokens_N[own], counted, tokens, mean_tokens, self.entry.max_tokens)
            weights = learned_N[own] / ESTIMATORS[self.entry.loss].divisors(step)
            # Rollouts without a gradient are skipped, except to give every micro-batch a row.
            by_use = np.argsort(~useful_N[own], kind="stable")
            chosen = sorted(by_use[: max(int(useful_N[own].sum()), count)])
            trained = [trained_N[own[place]]._replace(weight=float(weights[place])) for place in chosen]
            steps.append((distribute(trained, count, self.args.per_device_train_batch_size), tokens))
        return steps, fault

    def _score(
        self, groups: Sequence[PendingGroup], rows: list[dict[str, Any]]
    ) -> tuple[np.ndarray, np.ndarray, str | None]:
        """Return the advantages N, which rollouts have rewards, and a fault, if any; log metrics and rollouts."""
        assert self.rewards is not None and self.kept_rollouts is not None, "the main process has them"
        entry, names, step = self.entry, self.rewards.names, self.state.global_step + 1
        lengths = ([row["tokens"] for row in rows], [row["reference_tokens"] for row in rows])
        scored = self.rewards.reward([*map(rollout_log.submission, rows)], *lengths, step)
        counted_NK = scored.mask_uncounted(entry.unscored)
        totals_N = advantages.total(counted_NK, Rewarding.columns(entry)[1], ~np.isnan(counted_NK))
        # As without staleness: in double precision the mean of equal float32 totals is one of them.
        totals_PG = totals_N.astype(np.float32).astype(float).reshape(-1, entry.group_size)
        advantages_N = advantages.advantages(totals_PG, entry.scale_rewards).ravel()
        self._live_P = idle_groups.find_live(totals_PG)
        audited, audit_metrics = self.audit_grader.audit(scored.rollouts, step, step + entry.block - 1)
        self._log_all(
            {
                **_rewards(totals_PG, counted_NK, names),
                **_lengths(rows),
                **_ages(rows, step - 1),
                **rollout_rewards.curves(scored, entry.max_tokens, [row["question_tokens"] for row in rows]),
                **audit_metrics,
                **({"retired": self.retirement.share(step)} if entry.retires else {}),
            }
        )
        prompts = sum(len(group.problem["tokens"]) * len(group.attempts) for group in groups)
        self._total_train_tokens += prompts + sum(row["tokens"] for row in rows)
        self._metrics["train"]["num_tokens"] = [self._total_train_tokens]
        uses_P = idle_groups.name_uses(self._live_P, len(self._live_P))
        facts = (scored, names, entry.group_size, counted_NK, advantages_N.tolist(), audited, uses_P)
        log_rows = [*rollout_log.entries(self.name, step, rows, *facts)]
        self.kept_rollouts.add(log_rows)
        self.retirement.learn(log_rows)
        return advantages_N, ~np.isnan(totals_N), self.recent.add(rollout_rewards.causes(scored))

    def _log_all(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _pack(self, rollouts_N: Sequence[TrainedRollout], tokens: float) -> dict[str, Any]:
        """Pack a micro-batch, with `weights` of its M trained tokens and the tokens of the step on all devices."""
        weights = [torch.full((len(one.ids_T),), one.weight, dtype=torch.float32) for one in rollouts_N]
        lengths_N = torch.tensor([len(one.ids_T) for one in rollouts_N])
        return {
            **tree(rollouts_N).pack(),
            "weights": torch.cat(weights),
            "rollouts": torch.arange(len(rollouts_N)).repeat_interleave(lengths_N),
            "fresh": torch.tensor([one.fresh for one in rollouts_N]),
            "prompts": [torch.from_numpy(one.prompt_P) for one in rollouts_N],
            "step_tokens": torch.tensor(tokens),
        }

    # ------------------------------------------------------------------------------------------------------------ loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return this micro-batch's part of the step's loss; the parts of all micro-batches and devices are added up."""
        tree = {name: inputs[name] for name in TREE}
        tree["tree_max_seqlen_q"], tree["tree_max_seqlen_k"] = inputs["tree_max_seqlens"].tolist()
        rows = {name: inputs[name].unsqueeze(0) for name in ("input_ids", "position_ids", "shift_labels")}
        index_M = inputs["token_index"]
        reference_M = self._score_by_reference({**rows, **tree})[index_M] if self.entry.kl else None
        outputs = model(**rows, **tree, fused_lm_head=True)
        logprobs_M, entropies_M = outputs.log_probs.flatten()[index_M], outputs.entropy.flatten()[index_M]
        tokens = Tokens(
            logprobs_M,
            inputs["old_log_probs"],
            inputs["advantages"],
            inputs["weights"],
            entropies_M,
            reference_M,
            rollouts=inputs["rollouts"],
        )
        self._check_fresh(inputs, logprobs_M.detach())
        loss, sums = policy_loss(tokens, self.objective, inputs["step_tokens"])
        self.statistics.add(sums)
        if self.accelerator.sync_gradients:
            self._log_all(self.statistics.finish(self.accelerator, kl=bool(self.entry.kl)))
            if self.over:
                self.control.should_training_stop = True
        return loss * self.accelerator.num_processes  # gradients are averaged over processes

    @torch.no_grad()
    def _score_by_reference(self, packed: Mapping[str, Any]) -> torch.Tensor:
        """Return the log-probabilities of packed tokens under the reference, which is the model without its adapter, if any."""
        if self.ref_model is not None:
            return self.ref_model(**packed, fused_lm_head=True).log_probs.flatten()
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self.model(**packed, fused_lm_head=True).log_probs.flatten()

    def _check_fresh(self, inputs: Any, logprobs_M: torch.Tensor) -> None:
        """Raise ServiceError if the sampler gives a rollout of the current weights other log-probabilities (weight_sync.py)."""
        if self.state.global_step % self.entry.block:  # the weights have changed since the block began
            return
        of_rollout_NM = inputs["rollouts"] == torch.arange(len(inputs["fresh"]), device=logprobs_M.device)[:, None]
        tokens_NM = of_rollout_NM & inputs["fresh"][:, None]
        ours_NM, engine_NM = (one.expand_as(tokens_NM) for one in (logprobs_M, inputs["old_log_probs"]))
        read = lambda row: self._tokenizer.decode(inputs["prompts"][row], skip_special_tokens=True)  # noqa: E731
        weight_sync.require_same(self.name, ours_NM, engine_NM, tokens_NM, read)

    # ------------------------------------------------------------------------------------------------ held-out problems

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Grade attempts at the held-out problems by the sampler, which has the weights of the step; log their metrics."""
        assert self.held_out is not None, "the entry names held-out problems"
        metrics = self.held_out.evaluate(self.state.global_step, self._sample_apart, self._describe)
        Trainer.log(self, dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _sample_apart(self, prompts: Sequence[Sequence[int]], temperature: float, _: int) -> list[list[int]]:
        own = self.rollout_worker.evaluate(prompts, temperature) if self.accelerator.is_main_process else None
        return processes.broadcast(own)

    # --------------------------------------------------------------------------------------------------------- the rest

    def _sync_weight(self) -> None:
        if self.sampler:
            self.sampler.coming(self.state.global_step)
        super()._sync_weight()

    def _streaming_iter(self) -> Iterator[tuple[str, torch.Tensor]]:
        network = self.accelerator.unwrap_model(self.model)
        weights = adapters.weights_with_adapter(network) if is_peft_model(network) else super()._streaming_iter()
        yield from ((name, weight.to(self.accelerator.device)) for name, weight in weights)

    def _log_step_metrics(self) -> None:
        """Skip TRL's timings, which no table holds."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log without timings; an epoch has one group per problem, and all steps on it."""
        for name in [name for name in self._metrics["train"] if name.startswith("perf/")]:
            del self._metrics["train"][name]
        taken = self.state.global_step * self.entry.problems_per_step / self.entry.iterations
        self.state.epoch = taken / self.problems
        super().log(logs, start_time)


class MicroBatches(IterableDataset):
    """All micro-batches of a process, step by step. Those of a rollout batch are made when the first is requested."""

    def __init__(self, trainer: AsyncGrpoTrainer):
        self.trainer = trainer

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield from self.trainer.micro_batches()


class DeleteTrained(TrainerCallback):
    """Deletes rollouts that every kept checkpoint was trained on."""

    def __init__(self, attempts: RolloutQueue):
        self.attempts, self.saved = attempts, [0] * MOST_KEPT

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.attempts.forget(self.saved.pop(0))
        self.saved.append(state.global_step)


def _rewards(totals_PG: np.ndarray, counted_NK: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return mean and deviation of a step's rewards, in total and one by one, under the names of TRL's GRPOTrainer."""
    metrics = {"reward": _mean(totals_PG), "reward_std": _deviation(totals_PG)}
    for name, values in zip(names, counted_NK.T, strict=True):
        metrics |= {f"rewards/{name}/mean": _mean(values), f"rewards/{name}/std": _deviation(values)}
    return {**metrics, "frac_reward_zero_std": float(1 - idle_groups.find_live(totals_PG).mean())}


def _lengths(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    tokens = [row["tokens"] for row in rows]
    cut = [row["stop_reason"] == StopReason.LENGTH for row in rows]
    found = {"mean": np.mean(tokens), "min": min(tokens), "max": max(tokens)}
    return {
        **{f"completions/{name}_length": float(value) for name, value in found.items()},
        "completions/clipped_ratio": float(np.mean(cut)),
    }


def _ages(rows: Sequence[Mapping[str, Any]], policy: int) -> dict[str, float]:
    ages = [policy - row["policy_step"] for row in rows]
    return {"staleness/mean": float(np.mean(ages)), "staleness/max": float(max(ages))}


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _deviation(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else float("nan")
