"""TRL's GRPOTrainer with our loss, for synchronous training. A subclass provides the rollouts and their advantages."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import trl.trainer.grpo_trainer
from accelerate.utils import gather_object, is_peft_model
from transformers import Trainer
from trl import GRPOTrainer

from proofmill.runtime import processes
from proofmill.runtime.progress import Progress
from proofmill.schema.errors import RecipeError
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.training import adapters, rollout_log, run
from proofmill.training.losses import shared_prompts
from proofmill.training.losses.estimator import Step, Tokens
from proofmill.training.losses.policy import Objective, policy_loss
from proofmill.training.losses.registry import ESTIMATORS
from proofmill.training.losses.token_statistics import TokenStatistics
from proofmill.training.rollouts import weight_sync
from proofmill.training.rollouts.held_out import HeldOut


class PolicyTrainer(GRPOTrainer):
    """Override TRL's loss and evaluation; `objective` is the entry's."""

    name: str  # of the entry
    control: Any  # of transformers' trainer
    generation_config: Any  # of TRL's

    def __init__(self, objective: Objective, held_out: HeldOut | None, at_once: int, **options: Any):
        """Take the problems of evaluations, the rollouts that a device samples `at_once`, and `options` for TRL."""
        self.objective, self.statistics = objective, TokenStatistics()
        self.held_out, self.at_once = held_out, at_once
        trl.trainer.grpo_trainer.prepare_fsdp = run.split_frozen
        require_no_table_of_positions(self.name, options["model"])
        super().__init__(**options)
        self.opening = OPENING if opens_thought(self._tokenizer) else ""
        gathers = processes.sharding() == "zero3"  # TRL gathers all weights together
        if self.use_vllm and is_peft_model(self.model) and not gathers:
            self.vllm_generation._iter_named_params = partial(adapters.weights_with_adapter, self.vllm_generation.model)

    # ------------------------------------------------------------------------------------------------------- sampling

    def sample(self, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], list[float] | None]]:
        """Sample the tokens after each prompt, with vLLM's log-probabilities, in all processes together."""
        share = -(-len(prompts) // processes.world())
        filled = [*prompts, *[prompts[-1]] * (share * processes.world() - len(prompts))]
        own = filled[processes.rank() * share :][:share]
        made: list[tuple[list[int], list[float] | None]] = []
        progress = Progress(self.name, share, "attempts")
        for start in range(0, share, self.at_once):
            ids, logprobs = self._generate_single_turn(own[start : start + self.at_once], None, {}, 1)
            made += zip(ids, logprobs or [None] * len(ids), strict=True)
            if not processes.rank():
                progress.add(len(ids))
            # It signals progress to the watchdog.
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        return gather_object(made)[: len(prompts)]

    def describe(self, problem: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
        """Return the row of a rollout."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return rollout_log.describe(problem, ids, self._tokenizer, ends, self.opening)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Grade attempts at the held-out problems and log their metrics; changes no random number of the training."""
        assert self.held_out is not None, "the entry names held-out problems"
        training = self.model.training
        self.model.eval()
        metrics = self.held_out.evaluate(self.state.global_step, self._sample_apart, self.describe)
        self.model.train(training)
        Trainer.log(self, dict(metrics))  # TRL's would also log the sums of the steps since the last row
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        outputs = super()._generate_and_score_completions(inputs)
        engine_NT, ours_NT = (outputs.get(f"{of}_per_token_logps") for of in ("sampling", "old"))
        if engine_NT is not None and ours_NT is not None:
            read = lambda row: self._tokenizer.decode(outputs["prompt_ids"][row], skip_special_tokens=True)  # noqa: E731
            weight_sync.require_same(self.name, ours_NT, engine_NT, outputs["completion_mask"].bool(), read)
        return outputs

    def _sample_apart(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int) -> list[list[int]]:
        with torch.random.fork_rng(), self._at(temperature):
            torch.manual_seed((seed + processes.rank()) % 2**63)
            return [ids for ids, _ in self.sample(prompts)]

    @contextmanager
    def _at(self, temperature: float) -> Iterator[None]:
        """Sample at another temperature; at 0, the most likely tokens."""
        if self.use_vllm:
            before, self.vllm_generation.temperature = self.vllm_generation.temperature, temperature
            yield
            self.vllm_generation.temperature = before
            return
        config, greedy = self.generation_config, {} if temperature else {"do_sample": False}
        self.generation_config = copy.deepcopy(config)
        self.generation_config.update(temperature=temperature or 1.0, **greedy)
        yield
        self.generation_config = config

    # ----------------------------------------------------------------------------------------------------------- loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        mask_NT = inputs["completion_mask"]
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], mask_NT], dim=1)
        logprobs_NT, entropies_NT, aux_loss = self._get_per_token_logps_and_entropies(
            model, ids, attention, mask_NT.size(1), compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        step = self._step_of(inputs)
        tokens = Tokens(
            logprobs_NT,
            inputs.get("old_per_token_logps", logprobs_NT.detach()),
            inputs["advantages"].unsqueeze(1),
            self._weights(step, mask_NT),
            entropies_NT,
            inputs.get("ref_per_token_logps"),
            inputs.get("teacher_per_token_logps"),
            inputs.get("importance_sampling_ratio"),
        )
        loss, sums = policy_loss(tokens, self.objective, step.tokens)
        loss = loss * self.accelerator.num_processes  # gradients are averaged over processes
        if aux_loss is not None:
            loss = loss + self.router_aux_loss_coef * aux_loss / self.current_gradient_accumulation_steps
            self._metrics["train"]["aux_loss"].append(self.accelerator.gather_for_metrics(aux_loss).mean().item())
        self.statistics.add(sums)
        if self.accelerator.sync_gradients:
            taught = tokens.teacher is not None
            metrics = self.statistics.finish(self.accelerator, kl=bool(self.objective.kl), teacher=taught)
            for name, value in metrics.items():
                self._metrics["train"][name].append(value)
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Read each prompt once where that saves enough (losses/shared_prompts.py), else pass whole rows as TRL does."""
        given = {name for name, value in options.items() if value is not None and value is not False}
        network = self.accelerator.unwrap_model(model)
        if (
            self.accelerator.num_processes > 1  # a wrapper of several devices expects one pass
            or given - {"batch_size", "compute_entropy"}
            or not shared_prompts.can_share(network)
            or not shared_prompts.are_worth_it(input_ids, attention_mask, logits_to_keep)
        ):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        rows = options.get("batch_size") or len(input_ids)
        with self.accelerator.autocast():
            parts = [
                shared_prompts.score(network, ids, attention, logits_to_keep)
                for ids, attention in zip(input_ids.split(rows), attention_mask.split(rows), strict=True)
            ]
        entropies = torch.cat([part.entropy for part in parts]) if options.get("compute_entropy") else None
        return torch.cat([part.log_probs for part in parts]), entropies, None

    def _step_of(self, inputs: dict[str, Any]) -> Step:
        """Count the rollouts and trained tokens of the step of a micro-batch."""
        size, count = self.current_gradient_accumulation_steps, inputs["num_items_in_batch"]  # of a rollout batch
        every = torch.tensor(self.args.per_device_train_batch_size * size * self.accelerator.num_processes)
        return Step(
            tokens_N=inputs["completion_mask"].sum(dim=1),
            rollouts=inputs.get("step_rollouts", every).clamp(min=1),
            tokens=inputs.get("step_tokens", count).clamp(min=1),
            mean_tokens=count.clamp(min=1.0) * size / self.args.steps_per_generation,
            max_tokens=self.max_completion_length,
        )

    def _weights(self, step: Step, mask_NT: torch.Tensor) -> torch.Tensor:
        """Weigh each token of a micro-batch in the sum of its step, shape (N, T); 0 for padding."""
        divisors = torch.as_tensor(ESTIMATORS[self.objective.loss].divisors(step), device=mask_NT.device)
        return mask_NT * (1.0 / divisors).expand(len(mask_NT)).unsqueeze(1)


def require_no_table_of_positions(name: str, model: Any) -> None:
    """Raise RecipeError for a model like GPT-2: training passes would count the padding before shorter prompts."""
    if any(part.endswith("wpe") for part, _ in model.named_modules()):
        raise RecipeError(
            f"{name}: its model ({model.config.model_type}) has a table of positions, and the padding before a prompt would shift them; "
            "expected rotary embeddings. Choose another model."
        )
