"""TRL's GRPOTrainer with missing rewards, QED-Nano's loss, the reasoning cache, and a diary of every rollout.

How we differ from TRL 1.16:
1. A rollout is unscored if any reward that applies to it is missing; in TRL, only if all are missing.
2. `sequence_sum`: QED-Nano's sum over tokens, with its entropy and its clamped divergence, for the clipped ratio or
   REINFORCE.
3. `bnpo` and the entropy are means over the tokens of a whole optimizer step, on all devices; TRL takes the mean of
   every forward pass, so that its gradient depends on the rows of one pass.
4. Checkpoints hold the reference model of `sync-reference`; TRL would resume with the first one. After a resume beyond
   the first epoch, problems continue in the shuffled order of that epoch; TRL would restart with the first epoch's
   order.
5. An unscored rollout is excluded from the loss, with its entropy and divergence; TRL only sets its advantage to 0.
6. On several devices the main process alone asks judges and writes the diary; it broadcasts the rewards.
7. Rows are sorted by length into the passes of a step, which are as long as their own rows; TRL's are as long as the
   longest rollout of the round. Rows without a gradient go through none, where one device learns alone.
8. Entropy, divergence, clipped shares and ratios of a step are those of its learned tokens; TRL averages the means of
   forward passes.
9. The text of a rollout is all that was written. TRL's is an answer without its reasoning, where the tokenizer says how
   to take them apart (`response_template`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from proofmill.runtime import processes
from proofmill.schema.model_entries import Grpo
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.training import advantages, losses, passes, rollout_rewards, rollouts
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import DIARY, Diary

REFERENCE = "reference.pt"
Heard = Callable[[Sequence[int]], None]  # what is done with the tokens of a rollout that has ended


class Trainer(GRPOTrainer):
    """Only the main process has `rewards` and a `diary` (else None); `turns` is None without a summarizer."""

    _buffered_inputs: Any  # the passes of a round

    def __init__(
        self,
        entry: Grpo,
        name: str,
        rewards: Rewarding | None,
        diary: Diary | None,
        turns: Any,
        start: int = 0,
        **options: Any,
    ):
        """`start` is the step that the training resumes from; `options` go to TRL."""
        self.entry, self.name, self.rewards, self.diary, self.turns = entry, name, rewards, diary, turns
        self.start = start
        self.tokens: list[int] = []  # learned in the passes of a step
        self.prompts: list[Sequence[int]] = []  # the prompts for which rollouts are being written, in tokens
        # What is to be done, for each prompt of the next batch and of the one at hand, with the tokens that follow it.
        self.awaited: Sequence[Heard] = ()
        self.writing: dict[tuple[int, ...], Heard] = {}
        super().__init__(**options)
        self.opening = OPENING if opens_thought(self._tokenizer) else ""
        self.recent = rollout_rewards.Unscored(
            entry.max_unscored, entry.batches * entry.problems_per_step * entry.group, entry.rounds
        )
        self.second = rollout_rewards.SecondGrader(name, entry, rewards, diary.rows() if diary else ())

    @property
    def over(self) -> bool:
        """Whether the second grader has stopped the training."""
        return self.second.over

    # ------------------------------------------------------------------------------------------------------- rollouts

    def _get_train_sampler(self, dataset=None):
        """With a reasoning cache, a problem is repeated for each of its states; each state has a group of its own."""
        if self.turns is None:
            return self._advanced(super()._get_train_sampler(dataset))
        attempts = self.num_generations * self.entry.states
        sampler = RepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=attempts,
            batch_size=self.args.generation_batch_size // attempts,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )
        return self._advanced(sampler)

    def _advanced(self, sampler):
        """The sampler after the shuffles of finished epochs; on a resume, transformers skips only current batches."""
        batches = len(sampler) // self.args.generation_batch_size
        steps_per_epoch = max(math.ceil(batches / self.args.gradient_accumulation_steps), 1)
        for _ in range(self.start // steps_per_epoch if self.shuffle_dataset else 0):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def _prepare_inputs(self, generation_batch):
        """The rows of the next forward pass (`_arranged`)."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = self._arranged(self._buffered_inputs)  # a new round of rollouts
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _arranged(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The passes of a round, of learned rows of similar lengths.

        Each has the learned tokens of its step (`step_tokens`) and its own (`pass_tokens`), on all devices, and how many
        of the rows that a pass may have it has (`share`).
        """
        size, arranged = self.args.gradient_accumulation_steps, []
        for start in range(0, len(parts), size):
            step = parts[start : start + size]
            whole = {name: torch.cat([part[name] for part in step]) for name, value in step[0].items() if value.dim()}
            tokens = self._tokens(whole)
            for part in passes.by_length({**step[0], **whole}, size, self._learned(whole)):
                share = len(part["advantages"]) / self.args.per_device_train_batch_size
                arranged.append({**part, "step_tokens": tokens, "pass_tokens": self._tokens(part), "share": share})
        return arranged

    def _tokens(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.accelerator.reduce(rows["completion_mask"].sum(), reduction="sum")

    def _learned(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Which rows N go through a pass: those with a gradient, where one device learns alone.

        Without divergence and entropy a gradient takes tokens and an advantage. Several devices measure the rows of a
        pass together, of which each has to have as many.
        """
        learned_N = rows["completion_mask"].any(dim=1)
        if self.accelerator.num_processes > 1:
            return torch.ones_like(learned_N)
        every = self.beta or self.entry.entropy or self.aux_loss_enabled
        return learned_N if every else learned_N & (rows["advantages"] != 0)

    def _generate_and_score_completions(self, inputs):
        self.made_for = self.state.global_step + 1
        if self.turns is not None:
            inputs = self.turns.prepared(self, inputs, self.made_for)
            self._metrics["train"]["unsummarized"].append(self.turns.unsummarized)
        self.awaited = [partial(self._judge, row) for row in inputs] if self.rewards else ()
        outputs = super()._generate_and_score_completions(inputs)
        self._leave_out(outputs)
        if self.accelerator.is_main_process:
            self._remember()
        self._must_be_scored()
        return outputs

    def _generate_single_turn(self, prompt_ids, *args, **options):
        """Sample, and do what is `awaited` with each rollout, or thought, as it ends."""
        self.prompts, self.writing = prompt_ids, dict(zip(map(tuple, prompt_ids), self.awaited, strict=False))
        outputs = super()._generate_single_turn(prompt_ids, *args, **options)
        self.awaited, self.writing = (), {}
        return outputs

    def ended(self, prompt: Sequence[int], ids: Sequence[int]) -> None:
        """Hear of what has been written for a prompt, while others are being written."""
        if heard := self.writing.get(tuple(prompt)):
            heard(ids)

    def _judge(self, row: Mapping[str, Any], ids: Sequence[int]) -> None:
        assert self.rewards is not None, "the main process has the rewards"
        self.rewards.begin([rollouts.submission(self._row(row, ids))])

    def _must_be_scored(self) -> None:
        """Raise ServiceError in every process when too many of the latest rollouts have no verdict."""
        fault = self.recent.add(rollout_rewards.causes(self._scored)) if self.accelerator.is_main_process else None
        if fault := processes.broadcast(fault):
            diary = Path(self.args.output_dir) / DIARY
            raise rollout_rewards.too_many_unscored(self.name, fault, self.entry.max_unscored, diary)

    def _leave_out(self, outputs: dict[str, Any]) -> None:
        """Exclude unscored rollouts from the loss."""
        count = len(outputs["completion_mask"])
        unscored_N = self._unscored[self.accelerator.process_index * count :][:count]
        outputs["completion_mask"] = outputs["completion_mask"] * (~unscored_N).unsqueeze(1).int()
        outputs["num_items_in_batch"] = self.accelerator.gather(outputs["completion_mask"].sum()).sum()

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """The rewards NK of the rollouts of all processes; NaN for a missing one."""
        rows = [self._row(row, ids) for row, ids in zip(inputs, completion_ids_list, strict=True)]
        self._rows = gather_object(rows)
        shared: list[Any] = [None]
        if self.accelerator.is_main_process:
            shared = [self._score(self._rows)]
        broadcast_object_list(shared)
        rewards_NK = torch.tensor(shared[0], dtype=torch.float32, device=self.accelerator.device)
        self._unscored = rewards_NK.isnan().all(dim=1)
        return rewards_NK

    def _row(self, problem: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return rollouts.described(problem, ids, self._tokenizer, ends, self.opening)

    def _score(self, rows: list[dict]) -> np.ndarray:
        """Compute the rewards NK of all processes' rollouts and log their measures; main process only."""
        assert self.rewards is not None, "the main process has the rewards"
        tokens, references = ([row[name] for row in rows] for name in ("tokens", "reference_tokens"))
        self._scored = self.rewards.rewarded([*map(rollouts.submission, rows)], tokens, references, self.made_for)
        self._counted_NK = self._scored.counted(self.entry.unscored)
        measures = rollout_rewards.curves(self._scored, self.entry.max_tokens, [row["question_tokens"] for row in rows])
        for name, value in {**measures, **self._by_turn(rows)}.items():
            self._metrics["train"][name].append(value)
        return self._counted_NK

    def _by_turn(self, rows: list[dict]) -> dict[str, float]:
        """Mean share of full marks by the turn that the attempts continued from."""
        marks: dict[str, list[float]] = {}
        for row, rollout in zip(rows, self._scored.rollouts, strict=True):
            if row["turn"] is not None and rollout.verdict.grade is not None:
                marks.setdefault(f"marks/turn-{row['turn']}", []).append(rollout.verdict.grade / rollout.verdict.out_of)
        return {name: float(np.mean(values)) for name, values in marks.items()}

    def _remember(self) -> None:
        """Write the step's rollouts to the diary, after asking the second grader if that is due; main process only."""
        assert self.rewards is not None and self.diary is not None, "the main process has the rewards and the diary"
        last_step = self.made_for + self.num_iterations * self.entry.batches - 1
        opinions, measures = self.second.opinions(self._scored.rollouts, self.made_for, last_step)
        for name, value in measures.items():
            self._metrics["train"][name].append(value)
        counted_NK = self._counted_NK
        totals_N = advantages.total(counted_NK, self.reward_weights.tolist(), ~np.isnan(counted_NK))
        idle = rollout_rewards.without_signal(totals_N.reshape(-1, self.entry.group))
        self._metrics["train"]["frac_reward_zero_std"][-1] = idle
        advantages_N = list(self._logs["advantages"])[-len(self._rows) :]
        self.diary.add(
            rollouts.entries(
                self.name, self.made_for, self._rows, self._scored, self.rewards.names, self.entry.group,
                counted_NK, advantages_N, opinions,
            )
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------------------- loss

    def _get_per_token_logps_and_entropies(self, model, *args, **options):
        outputs = super()._get_per_token_logps_and_entropies(model, *args, **options)
        self._latest = outputs
        return outputs

    def _compute_loss(self, model, inputs):
        loss = self._sequence_sum(model, inputs) if self.entry.loss == "sequence_sum" else self._by_trl(model, inputs)
        now_NT = self._latest[0].detach()
        mask_NT = inputs["completion_mask"]
        ratios_NT = losses.ratios(now_NT, inputs.get("old_per_token_logps", now_NT))
        learned_ratios = ratios_NT[mask_NT.bool()] if mask_NT.any() else ratios_NT.new_zeros(1)
        self._measure("ratio/mean", learned_ratios.mean())
        self._measure("ratio/max", learned_ratios.max())
        self._measure("ratio/effective-share", losses.effective_share(ratios_NT, mask_NT))
        self.tokens.append(inputs["pass_tokens"].item())
        if self.accelerator.sync_gradients:
            passes.measured(self._metrics["train"], self.tokens)
            self.tokens.clear()
            if self.over:  # after the last pass: transformers would leave a step between two of its passes
                self.control.should_training_stop = True
        return loss

    def _by_trl(self, model, inputs):
        """TRL's loss, with its token counts and the entropy those of the whole step."""
        if self.entry.loss == "bnpo":  # computed as `dapo`, whose count TRL divides by the steps of a round
            inputs = {**inputs, "num_items_in_batch": inputs["step_tokens"] * self.entry.batches}
        loss = super()._compute_loss(model, inputs)
        if self.entry.loss in ("grpo", "dr_grpo"):  # means over the rows of a pass
            loss = loss * inputs["share"]
        if self.entry.entropy:
            entropy = (self._latest[1] * inputs["completion_mask"]).sum() / inputs["step_tokens"].clamp(min=1)
            loss = loss - self.entry.entropy * entropy * self.accelerator.num_processes  # whose gradients are averaged
        return loss

    def _measure(self, name: str, value: torch.Tensor) -> None:
        self._metrics["train"][name].append(value.item())

    def _sequence_sum(self, model, inputs):
        """QED-Nano's loss (PipelineRL, `rl_step`)."""
        mask_NT = inputs["completion_mask"]
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], mask_NT], dim=1)
        logprobs_NT, entropies_NT, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, mask_NT.size(1), compute_entropy=True
        )
        ratios_NT = losses.ratios(logprobs_NT, inputs.get("old_per_token_logps", logprobs_NT.detach()))
        advantages_N = inputs["advantages"]
        if self.entry.policy == "clipped":
            objective_NT = losses.clipped(ratios_NT, advantages_N, self.epsilon_low, self.epsilon_high)
        else:
            objective_NT = losses.reinforce(logprobs_NT, ratios_NT, advantages_N, self.epsilon_high)
        if "importance_sampling_ratio" in inputs:  # our probabilities over vLLM's
            objective_NT = objective_NT * inputs["importance_sampling_ratio"]
        objective_NT = objective_NT + self.entry.entropy * entropies_NT
        if self.beta:
            kl_NT = losses.divergence(logprobs_NT, inputs["ref_per_token_logps"])
            objective_NT = objective_NT - self.beta * kl_NT
            self._measure("kl", (kl_NT * mask_NT).sum() / mask_NT.sum().clamp(min=1))
        self._measure("entropy", (entropies_NT * mask_NT).sum() / mask_NT.sum().clamp(min=1))
        signs_N1 = advantages_N.unsqueeze(1)
        cut_NT = ((ratios_NT < 1 - self.epsilon_low) & (signs_N1 < 0)) | (
            (ratios_NT > 1 + self.epsilon_high) & (signs_N1 > 0)
        )
        self._measure("clip_ratio/region_mean", (cut_NT * mask_NT).sum() / mask_NT.sum().clamp(min=1))
        loss = losses.sequence_sum(objective_NT, mask_NT) * inputs["share"]
        return loss / self.current_gradient_accumulation_steps

    # ------------------------------------------------------------------------------------------------------ checkpoints

    def _save_checkpoint(self, model, trial):
        super()._save_checkpoint(model, trial)
        if self.entry.sync_reference and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            reference = self.accelerator.unwrap_model(self.ref_model)
            torch.save(reference.state_dict(), folder / REFERENCE)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.entry.sync_reference:
            state = torch.load(Path(resume_from_checkpoint) / REFERENCE, map_location="cpu", weights_only=True)
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(state)
