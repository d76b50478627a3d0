"""Self-play with TRL's GRPOTrainer: a round of the game instead of rollouts of problems, and TRR++ as the advantage.

A step of Absolute Zero Reasoner (arXiv 2505.03335, algorithm 1): the policy proposes tasks and solves tasks. The game
(selfplay_tasks/round.py) rewards each reply, and TRR++ computes its advantage within the replies of one task and role (section
3.3.5). One update of PPO's clipped objective, a mean over the tokens of all replies, trains on all of them.

Differences from the published code (veRL):
1. The replies to all prompts of a step are sampled at once.
2. A micro-batch is padded to its own longest row, not to the longest reply of the step.
3. An ungraded reply has no gradient and does not enter a baseline. The original counts it as wrong.
4. A checkpoint contains the tasks: a training that resumes from one ends with exactly the weights of an uninterrupted
   one.

On several devices each samples and trains on its share; the main process alone plays, and the others wait for its
prompts.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.runtime.progress import Progress, log
from proofmill.sandbox.executor import Executor
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.schema.errors import SandboxError
from proofmill.schema.ids import digest
from proofmill.schema.kinds import BUFFER
from proofmill.schema.reasons import StopReason
from proofmill.selfplay_tasks.round import Messages, PolicyReply, SelfplayRound, Turn, metrics
from proofmill.selfplay_tasks.tasks import Invalid
from proofmill.training import advantages, memory, micro_batches, rollout_log
from proofmill.training.losses.policy import Objective
from proofmill.training.policy_trainer import PolicyTrainer
from proofmill.training.rollout_log import RolloutLog
from proofmill.training.rollout_rewards import Unscored
from proofmill.training.rollouts.held_out import HeldOut

FIRST_TASKS = "first-tasks.parquet"  # among the checkpoints: the buffer before the first step


class SelfplayTrainer(PolicyTrainer):
    """Only the main process has an `executor`, plays, and writes `kept_rollouts` (else None)."""

    def __init__(
        self,
        entry: Selfplay,
        name: str,
        executor: Executor | None,
        first: Sequence[Mapping[str, Any]],
        kept_rollouts: RolloutLog | None,
        held_out: HeldOut | None,
        at_once: int,
        **options: Any,
    ):
        """Take the rows of `first` tasks, if any; the rest as in PolicyTrainer."""
        self.entry, self.name, self.first, self.kept_rollouts = entry, name, first, kept_rollouts
        self.recent = Unscored(entry.max_unscored, entry.rows, -(-entry.steps // entry.iterations))
        self.play = SelfplayRound(entry, executor, self.fits) if executor else None
        self.turns: list[dict[str, Any]] = []  # replies of the current step to train on, in every process
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # a warning about `rollout_func`
        own = {"rollout_func": self._own_turns, "reward_funcs": [reward]}
        super().__init__(Objective.of(entry), held_out, at_once, **own, **options)
        self.escapes = ControlTokens(self._tokenizer)

    # --------------------------------------------------------------------------------------------------------- a round

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        """Return the rows of a step that this process trains on, with their advantages."""
        if processes.broadcast(self.play is not None and not self.play.begun):
            self._begin()
        step = self.state.global_step + 1
        self.turns = self._lead(lambda play: self._play(play, step))
        self._must_be_scored()
        outputs = super()._generate_and_score_completions(inputs)
        own, device = self._own(len(inputs)), self.accelerator.device
        outputs["advantages"] = torch.tensor([turn["advantage"] for turn in own], device=device)
        scored_N = torch.tensor([turn["reward"] is not None for turn in own], device=device)
        outputs["completion_mask"] = outputs["completion_mask"] * scored_N.unsqueeze(1).int()
        outputs["num_items_in_batch"] = self.accelerator.gather(outputs["completion_mask"].sum()).sum()
        return outputs

    def _play(self, play: SelfplayRound, step: int) -> list[dict[str, Any]]:
        """Play a round; return tokens, reward and advantage of each turn."""
        played = play.step(step, self.replies)
        for name, value in metrics(played, play).items():
            self._metrics["train"][name].append(value)
        turns = [turn for turn in played if turn.role in self.entry.roles]
        advantages_N = self._advantages(turns)
        assert self.kept_rollouts is not None, "the process that plays keeps it"
        self.kept_rollouts.add(entries(self.name, step, turns, advantages_N))
        return [
            {
                "prompt_ids": turn.reply.prompt_ids,
                "completion_ids": turn.reply.ids,
                "logprobs": turn.reply.logprobs,
                "reward": turn.reward,
                "advantage": advantage,
            }
            for turn, advantage in zip(turns, advantages_N, strict=True)
        ]

    def _must_be_scored(self) -> None:
        """Raise SandboxError in every process if too many of the latest rollouts have no verdict."""
        if fault := self.recent.add("no grade" for turn in self.turns if turn["reward"] is None):
            raise SandboxError(
                f"{self.name}: {fault}; expected at most {self.entry.max_unscored:.0%} (`max-unscored`), because they carry "
                "no gradient. Find the unreadable outputs (`rollouts.jsonl` among the checkpoints), or raise the "
                "limit. Rerun the same command to resume from the last checkpoint."
            )

    def _advantages(self, turns: Sequence[Turn]) -> list[float]:
        """Compute TRR++ (equation 8): rewards whitened among the turns of the same task and role."""
        rewards_N = [float("nan") if turn.reward is None else turn.reward for turn in turns]
        groups_N = [(turn.kind, turn.role) if self.entry.baselines == "task-and-role" else None for turn in turns]
        lengths_N = [len(turn.reply.ids) for turn in turns] if self.entry.baseline_over == "token" else None
        return advantages.task_advantages(rewards_N, groups_N, lengths_N).tolist()

    def _begin(self) -> None:
        """Fill the buffer with first tasks. Sampling them does not use the training's random numbers."""
        kept, progress = Path(self.args.output_dir) / FIRST_TASKS, Progress(self.name, None, "replies")

        def ask(prompts: Sequence[Messages]) -> list[PolicyReply]:
            replies = self.replies(prompts)
            progress.add(len(replies), tokens=sum(len(reply.ids) for reply in replies))
            return replies

        if not processes.broadcast(kept.exists()):
            with torch.random.fork_rng():
                torch.manual_seed(self.entry.seed + processes.rank())
                refused = self._lead(lambda play: play.begin(ask, self.first))
            if self.play:
                kept.parent.mkdir(parents=True, exist_ok=True)
                self.play.save(kept)
                tasks = {f"to {kind}": len(tasks) for kind, tasks in self.play.buffers.tasks.items()}
                log(
                    self.name,
                    f"first tasks: {_list_counts(tasks)}" + f"; not valid: {_list_counts(refused)}" * bool(refused),
                )
        elif self.play:
            self.play.restore(kept)

    def _own(self, count: int) -> list[dict[str, Any]]:
        """Return the part of the step's turns that this process trains on."""
        return self.turns[self.accelerator.process_index * count :][:count]

    def _own_turns(self, prompts: list, _: Any) -> dict[str, Any]:
        """Return the turns of the round to TRL (`rollout_func`), instead of sampling."""
        own = self._own(len(prompts))
        columns = {key: [turn[key] for turn in own] for key in ("prompt_ids", "completion_ids", "logprobs")}
        return columns if self.use_vllm else {**columns, "logprobs": None}

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Return the rewards N1 of the turns of all processes, for TRL's log; NaN for a missing one."""
        rewards = [[float("nan") if turn["reward"] is None else turn["reward"]] for turn in self.turns]
        return torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)

    # -------------------------------------------------------------------------------------------------------- sampling

    def _lead(self, act: Callable[[SelfplayRound], Any]) -> Any:
        """Return the main process's result in every process; the others sample their share whenever it needs replies."""
        if self.play:
            made = act(self.play)
            processes.broadcast(None)
            return processes.broadcast(made)
        while (prompts := processes.broadcast()) is not None:
            self.sample(prompts)
        return processes.broadcast()

    def encode(self, messages: Messages) -> list[int]:
        """Return the tokens of a prompt."""
        escaped = self.escapes.escape(messages)
        return self._tokenizer.apply_chat_template(escaped, add_generation_prompt=True, return_dict=True)["input_ids"]

    def fits(self, messages: Messages) -> bool:
        """Return whether a prompt is short enough, also for the context of the model."""
        length, context = len(self.encode(messages)), memory.context_of(self.model)
        return length <= self.entry.max_prompt_tokens and length + self.entry.max_tokens <= (context or math.inf)

    def replies(self, prompts: Sequence[Messages]) -> list[PolicyReply]:
        """Sample a reply to each prompt from the current policy; main process only."""
        if not prompts:
            return []
        encoded = [self.encode(messages) for messages in prompts]
        made = self.sample(processes.broadcast(encoded))
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        texts = rollout_log.decode(self._tokenizer, [ids for ids, _ in made], ends)
        return [
            PolicyReply(
                self.opening + text, StopReason.END if ids[-1] in ends else StopReason.LENGTH, prompt, ids, logprobs
            )
            for text, prompt, (ids, logprobs) in zip(texts, encoded, made, strict=True)
        ]

    # ------------------------------------------------------------------------------------------------------------ loss

    def _prepare_inputs(self, generation_batch):
        """Return the rows of a micro-batch, without the padding that only longer replies of the step need."""
        return micro_batches.trim(super()._prepare_inputs(generation_batch))

    # ----------------------------------------------------------------------------------------------------- checkpoints

    def _save_checkpoint(self, model, trial):
        super()._save_checkpoint(model, trial)
        if self.play:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            self.play.save(folder / BUFFER)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.play:
            self.play.restore(Path(resume_from_checkpoint) / BUFFER)


def entries(run: str, step: int, turns: Sequence[Turn], advantages_N: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield the log's rows of a step (PLAYED_COLUMNS)."""
    for place, (turn, advantage) in enumerate(zip(turns, advantages_N, strict=True)):
        invalid = turn.task if isinstance(turn.task, Invalid) else None
        yield {
            "rollout": digest(run, step, place),
            "step": step,
            "task": turn.kind,
            "role": turn.role,
            "task_id": None if isinstance(turn.task, Invalid) else turn.task.id,
            "prompt": turn.request.messages[-1]["content"],
            "text": turn.reply.text,
            "stop_reason": turn.reply.stop_reason,
            "tokens": len(turn.reply.ids),
            "reason": invalid.reason if invalid else "unscored" if turn.reward is None else "ok",
            "detail": invalid.detail if invalid else "",
            "well_formed": turn.formed,
            "accuracy": turn.accuracy,
            "reward": turn.reward,
            "advantage": advantage,
        }


def reward(**_: Any) -> list[float]:
    """Raise an error: TRL requires a reward function and logs its name, but `_calculate_rewards` has the game's."""
    raise AssertionError("the game computes the rewards")


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())
