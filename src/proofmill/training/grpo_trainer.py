"""The synchronous trainer of `grpo`: missing rewards, the reasoning cache, and a log of every rollout.

Differences from TRL 1.16:
1. A rollout is unscored if any reward that applies to it is missing; in TRL, only if all are missing.
2. The loss, its estimators and its metrics are ours (losses/), and so are the advantages (advantages.py).
3. The loss and the entropy are over the tokens of a full optimizer step on all devices. TRL takes some means over each
   forward pass, so its gradient depends on the rows of a micro-batch.
4. Checkpoints contain the reference model of `reference-sync-steps`; TRL would resume with the first one. After a resume
   beyond the first epoch, problems continue in the shuffled order of that epoch; TRL would restart with the first
   epoch's order.
5. An unscored rollout is excluded from the loss, with its entropy and divergence; TRL only sets its advantage to 0.
6. On several devices the main process alone calls judges and writes the rollout log; it broadcasts the rewards.
7. Rows are sorted by length into the micro-batches of a step, and each is padded to its own longest row. TRL pads to the
   longest rollout of the rollout batch. On one device, rows without a gradient are skipped.
8. The text of a rollout is the complete output. TRL removes the reasoning if the tokenizer can split it off
   (`response_template`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object
from trl.trainer.utils import RepeatSampler

from proofmill.runtime import processes
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.training import advantages, micro_batches, rollout_log, rollout_rewards
from proofmill.training.checkpoints import SavesReference
from proofmill.training.losses.policy import Objective
from proofmill.training.policy_trainer import PolicyTrainer
from proofmill.training.rollout_log import ROLLOUT_LOG, RolloutLog
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import idle_groups, teacher
from proofmill.training.rollouts.held_out import HeldOut
from proofmill.training.rollouts.retirement import Retirement

OnRollout = Callable[[Sequence[int]], None]  # receives the tokens of a finished rollout


class GrpoTrainer(SavesReference, PolicyTrainer):
    """Only the main process has `rewards` and `kept_rollouts` (else None); `turns` is None without a summarizer."""

    _buffered_inputs: Any  # the micro-batches of a rollout batch

    def __init__(
        self,
        entry: Grpo,
        name: str,
        rewards: Rewarding | None,
        kept_rollouts: RolloutLog | None,
        turns: Any,
        start: int = 0,
        held_out: HeldOut | None = None,
        at_once: int = 1,
        taught_by: Any = None,
        **options: Any,
    ):
        """Take the step `start` that the training resumes from, the model of the teacher, and `options` for TRL.

        The rest is as in PolicyTrainer.
        """
        self.entry, self.name, self.rewards, self.kept_rollouts, self.turns = entry, name, rewards, kept_rollouts, turns
        self.start, self.problems = start, options["train_dataset"].to_list()
        self.prompts: list[Sequence[int]] = []  # tokens of the prompts being sampled
        self.drawn: list[torch.Tensor] = []  # log-probabilities (N,) of the tokens that decoding.py has sampled
        # Callbacks for finished rollouts: by row of the next batch, and by prompt of the current one.
        self.awaited: Sequence[OnRollout] = ()
        self.writing: dict[tuple[int, ...], OnRollout] = {}
        super().__init__(Objective.of(entry), held_out, at_once, **options)
        self.teacher = None if taught_by is None else teacher.place(taught_by, self)
        self.recent = rollout_rewards.Unscored(
            entry.max_unscored, entry.mini_batches * entry.problems_per_step * entry.group_size, entry.rounds
        )
        self.audit_grader = rollout_rewards.AuditGrader(
            name, entry, rewards, kept_rollouts.rows() if kept_rollouts else ()
        )
        # Complete in the main process alone, which decides for all.
        self.retirement = Retirement(entry, self.problems, kept_rollouts.rows() if kept_rollouts else ())

    @property
    def over(self) -> bool:
        """True once the audit grader has stopped the training."""
        return self.audit_grader.over

    # ------------------------------------------------------------------------------------------------------- rollouts

    def _get_train_sampler(self, dataset=None):
        """Repeat a problem for each of its states if there is a reasoning cache; each state has its own group."""
        if self.turns is None:
            return self._advance(super()._get_train_sampler(dataset))
        attempts = self.num_generations * self.entry.summaries
        sampler = RepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=attempts,
            batch_size=self.args.generation_batch_size // attempts,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )
        return self._advance(sampler)

    def _advance(self, sampler):
        """Advance the sampler by the shuffles of finished epochs; on a resume, transformers skips only current batches."""
        batches = len(sampler) // self.args.generation_batch_size
        steps_per_epoch = max(math.ceil(batches / self.args.gradient_accumulation_steps), 1)
        for _ in range(self.start // steps_per_epoch if self.shuffle_dataset else 0):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def _prepare_inputs(self, generation_batch):
        """Return the rows of the next micro-batch (`_arrange`)."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = self._arrange(self._buffered_inputs)  # a new rollout batch
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _arrange(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Split a rollout batch into micro-batches of trained rows of similar lengths.

        Each has the trained tokens of its step on all devices (`step_tokens`), and its rollouts if some are left out.
        """
        size, arranged = self.args.gradient_accumulation_steps, []
        for start in range(0, len(parts), size):
            step = parts[start : start + size]
            whole = {name: torch.cat([part[name] for part in step]) for name, value in step[0].items() if value.dim()}
            sums = {"step_tokens": whole["completion_mask"].sum()}
            if "counted" in whole:
                sums["step_rollouts"] = whole["counted"].sum()
            sums = {name: self.accelerator.reduce(value, reduction="sum") for name, value in sums.items()}
            learned_N = self._has_gradient(whole)
            # Metrics are over rows with a gradient, whether or not others go through the model.
            whole["completion_mask"] = whole["completion_mask"] * learned_N.unsqueeze(1)
            # Several devices run a micro-batch together, so each needs the same number of rows.
            passed_N = learned_N | (self.accelerator.num_processes > 1)
            for part in micro_batches.by_length({**step[0], **whole}, size, passed_N):
                arranged.append({**part, **sums})
        return arranged

    def _has_gradient(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return which rows N have a gradient: without divergence, teacher and entropy, it takes tokens and an advantage."""
        learned_N = rows["completion_mask"].any(dim=1)
        every = self.beta or self.entry.entropy or self.aux_loss_enabled or self.teacher is not None
        return learned_N if every else learned_N & (rows["advantages"] != 0)

    def _generate_and_score_completions(self, inputs):
        self.made_for = self.state.global_step + 1
        inputs = self._replace_retired(inputs) if self.entry.retires else inputs
        if self.turns is not None:
            inputs = self.turns.prepare(self, inputs, self.made_for)
            self._metrics["train"]["unsummarized"].append(self.turns.unsummarized)
        outputs, live_P = self._roll_out(inputs)
        if self.entry.idle == "replace":
            outputs, live_P = self._replace_idle(inputs, outputs, live_P)
        if self.entry.idle != "count":
            outputs["counted"] = torch.from_numpy(self._own(live_P, len(inputs))).to(self.accelerator.device)
            outputs["completion_mask"] = outputs["completion_mask"] * outputs["counted"].unsqueeze(1).int()
        outputs["num_items_in_batch"] = self.accelerator.gather(outputs["completion_mask"].sum()).sum()
        return outputs

    def _roll_out(
        self, inputs: Sequence[Mapping[str, Any]], done: int = 0, needed: int | None = None
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Return the rollouts of this process with their advantages, and which groups P of all processes have a signal.

        `done` groups of the step were sampled before, and the first `needed` ones with a signal are trained on.
        """
        self.awaited = [partial(self._judge, row) for row in inputs] if self.rewards else ()
        outputs = super()._generate_and_score_completions(inputs)
        outputs |= {f"{side}_lengths": outputs[f"{side}_mask"].sum(dim=1) for side in ("prompt", "completion")}
        live_P = idle_groups.find_live(self._totals_N.double().cpu().numpy().reshape(-1, self.entry.group_size))
        if self.teacher is not None:
            outputs["teacher_per_token_logps"], live_P = teacher.score(self, outputs), np.ones_like(live_P)
        self._weigh(outputs)
        if self.accelerator.is_main_process:
            self._remember(done, idle_groups.name_uses(live_P, len(live_P) if needed is None else needed))
        if not self.entry.graded:  # of the reward that TRL needs, which is always 0
            for name in ("reward", "reward_std", "frac_reward_zero_std", "rewards/teacher/mean", "rewards/teacher/std"):
                self._metrics["train"].pop(name, None)
        self._must_be_scored(further=done > 0)
        return outputs, live_P

    def _replace_retired(self, inputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the rows of this process with other problems in the places of retired ones, in all processes the same."""
        drawn = gather_object([row["problem"] for row in inputs])
        self._metrics["train"]["retired"].append(self.retirement.share(self.made_for))
        instead = processes.broadcast(self.retirement.exchange(drawn, self.made_for))
        return [self.problems[instead[row["problem"]]] if row["problem"] in instead else row for row in inputs]

    def _replace_idle(
        self, inputs: Sequence[Mapping[str, Any]], outputs: dict[str, Any], live_P: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Put groups with a signal in the places of idle ones, from at most `idle-rounds` rounds of sampling in all."""
        size, world = self.entry.group_size, self.accelerator.num_processes
        used, done, rounds, first_idle = (
            {*gather_object([row["problem"] for row in inputs])},
            len(live_P),
            1,
            1 - live_P.mean(),
        )
        while rounds < self.entry.idle_rounds and not live_P.all():
            needed = int((~live_P).sum())
            groups = needed + next(more for more in range(world) if (needed + more) * size % world == 0)
            seed = f"{self.entry.seed} {self.made_for} {rounds}"
            places = processes.broadcast(self.retirement.draw(used, groups, self.made_for, seed))
            drawn = [self.problems[place] for place in places]
            used |= {problem["problem"] for problem in drawn}
            rows = [problem for problem in drawn for _ in range(size)]
            kept = {name: [*values] for name, values in self._metrics["train"].items() if name != "num_tokens"}
            share = len(rows) // world
            more, new_P = self._roll_out(rows[self.accelerator.process_index * share :][:share], done, needed)
            self._metrics["train"].update(kept)
            own = np.flatnonzero(self._own(new_P, share))
            donors = gather_object([*idle_groups.rows_of(more, own.tolist())])  # whole groups, one after another
            places = np.flatnonzero(~live_P)[: int(new_P.sum())]
            start = self.accelerator.process_index * len(inputs)
            rows_P = {
                place * size + index - start: donors[number * size + index]
                for number, place in enumerate(places)
                for index in range(size)
                if 0 <= place * size + index - start < len(inputs)
            }
            outputs = idle_groups.put(outputs, rows_P, self._tokenizer.pad_token_id) if rows_P else outputs
            live_P[places], rounds, done = True, rounds + 1, done + groups
        for name, value in (
            ("rounds", rounds),
            ("replaced", first_idle - (1 - live_P.mean())),
            ("left", 1 - live_P.mean()),
        ):
            self._metrics["train"][f"idle/{name}"].append(float(value))
        return outputs, live_P

    def _own(self, values_P: np.ndarray, count: int) -> np.ndarray:
        """Return the value of the group of each of the `count` rollouts of this process."""
        start = self.accelerator.process_index * count
        return np.repeat(values_P, self.entry.group_size)[start : start + count]

    def _generate_single_turn(self, prompt_ids, *args, **options):
        """Sample, and call `awaited` with each rollout or thought as soon as it finishes."""
        self.prompts, self.writing = prompt_ids, dict(zip(map(tuple, prompt_ids), self.awaited, strict=False))
        self.drawn.clear()
        completions, logprobs = super()._generate_single_turn(prompt_ids, *args, **options)
        self.awaited, self.writing = (), {}
        self._logprobs_N = logprobs or [None] * len(completions)
        if self.drawn:
            by_row = torch.stack(self.drawn, dim=1).tolist()
            self._logprobs_N = [row[: len(ids)] for row, ids in zip(by_row, completions, strict=True)]
        return completions, logprobs

    def on_completion(self, prompt: Sequence[int], ids: Sequence[int]) -> None:
        """Receive a finished completion of a prompt, while others are still being sampled."""
        if on_rollout := self.writing.get(tuple(prompt)):
            on_rollout(ids)

    def _judge(self, row: Mapping[str, Any], ids: Sequence[int]) -> None:
        assert self.rewards is not None, "the main process has the rewards"
        self.rewards.begin([rollout_log.submission(self.describe(row, ids))])

    def _must_be_scored(self, further: bool) -> None:
        """Raise ServiceError in every process if too many of the latest rollouts have no verdict."""
        causes = rollout_rewards.causes(self._scored) if self.accelerator.is_main_process else ()
        fault = self.recent.add(causes, further) if self.accelerator.is_main_process else None
        if fault := processes.broadcast(fault):
            kept_rollouts = Path(self.args.output_dir) / ROLLOUT_LOG
            raise rollout_rewards.too_many_unscored(self.name, fault, self.entry.max_unscored, kept_rollouts)

    def _weigh(self, outputs: dict[str, Any]) -> None:
        """Set the advantages of this process's rollouts, and exclude unscored ones from the loss."""
        count = len(outputs["completion_mask"])
        own = slice(self.accelerator.process_index * count, (self.accelerator.process_index + 1) * count)
        outputs["advantages"] = self._advantages_N[own]
        outputs["completion_mask"] = outputs["completion_mask"] * (~self._totals_N[own].isnan()).unsqueeze(1).int()

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Return the rewards NK of the rollouts of all processes, NaN for a missing one; compute their advantages."""
        rows = [
            {**self.describe(row, ids), "logprobs": logprobs}
            for row, ids, logprobs in zip(inputs, completion_ids_list, self._logprobs_N, strict=True)
        ]
        self._rows = gather_object(rows)
        shared: list[Any] = [None]
        if self.accelerator.is_main_process:
            shared = [self._score(self._rows)]
        broadcast_object_list(shared)
        rewards_NK = torch.tensor(np.array(shared[0]), dtype=torch.float32, device=self.accelerator.device)
        weights_K = self.reward_weights.to(rewards_NK.device)
        if rewards_NK.size(1) == 0:  # the teacher alone gives a signal
            rewards_NK, weights_K = rewards_NK.new_zeros((len(rewards_NK), 1)), weights_K.new_ones(1)
        self._totals_N = advantages.total(rewards_NK, weights_K, ~rewards_NK.isnan())
        # In float32 the mean of equal totals is not one of them, and a rounding error would become an advantage.
        totals_PG = self._totals_N.double().reshape(-1, self.entry.group_size)
        self._advantages_N = advantages.advantages(totals_PG, self.entry.scale_rewards).ravel().float()
        return rewards_NK

    def _score(self, rows: list[dict]) -> np.ndarray:
        """Compute the rewards NK of all processes' rollouts and log their metrics; main process only."""
        assert self.rewards is not None, "the main process has the rewards"
        tokens, references = ([row[name] for row in rows] for name in ("tokens", "reference_tokens"))
        self._scored = self.rewards.reward([*map(rollout_log.submission, rows)], tokens, references, self.made_for)
        self._counted_NK = self._scored.mask_uncounted(self.entry.unscored)
        metrics = rollout_rewards.curves(self._scored, self.entry.max_tokens, [row["question_tokens"] for row in rows])
        for name, value in {**metrics, **self._by_turn(rows)}.items():
            self._metrics["train"][name].append(value)
        return self._counted_NK

    def _by_turn(self, rows: list[dict]) -> dict[str, float]:
        """Return the mean grade, as a share of all points, by the turn that the rollouts continued from."""
        grades: dict[str, list[float]] = {}
        for row, rollout in zip(rows, self._scored.rollouts, strict=True):
            if row["turn"] is not None and rollout.verdict.grade is not None:
                grades.setdefault(f"grade/turn-{row['turn']}", []).append(
                    rollout.verdict.grade / rollout.verdict.max_points
                )
        return {name: float(np.mean(values)) for name, values in grades.items()}

    def _remember(self, done: int, uses_P: Sequence[str]) -> None:
        """Write rollouts to the rollout log, after `done` groups of the step; main process only.

        The audit grader is called before if it is due, for the first round of a step.
        """
        assert self.rewards is not None and self.kept_rollouts is not None, (
            "the main process has the rewards and the rollout log"
        )
        last_step = self.made_for + self.num_iterations * self.entry.mini_batches - 1
        audited: list[float | None] = [None] * len(self._rows)
        metrics: dict[str, float] = {}
        if not done:
            audited, metrics = self.audit_grader.audit(self._scored.rollouts, self.made_for, last_step)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        self._metrics["train"]["frac_reward_zero_std"][-1] = uses_P.count(idle_groups.IDLE) / len(uses_P)
        rows = [
            *rollout_log.entries(
                self.name, self.made_for, self._rows, self._scored, self.rewards.names, self.entry.group_size,
                self._counted_NK, self._advantages_N.tolist(), audited, uses_P, done,
            )
        ]  # fmt: skip
        self.kept_rollouts.add(rows)
        self.retirement.learn(rows)

    # ----------------------------------------------------------------------------------------------------------- loss

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if self.accelerator.sync_gradients and self.over:  # after the last micro-batch, so that the step is complete
            self.control.should_training_stop = True
        return loss
