"""The engine that samples a training's rollouts: transformers, vLLM in the same process, or TRL's vLLM server.

PROOFMILL_ROLLOUT_SERVER_URL     TRL's vLLM server for the rollouts (`engine: vllm-server`, on GPUs)
PROOFMILL_WEIGHT_SYNC_PORT    port on the training's node for the transfer of weights; default: TRL's
"""

import os
from typing import Any

from proofmill.artifacts.jobs import Job
from proofmill.engines import vllm_memory
from proofmill.engines.vllm import vllm_options
from proofmill.runtime import environment, processes
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError
from proofmill.training import memory


def before_trl(job: Job) -> None:
    """Prepare the import of TRL.

    If vLLM is installed but not used, TRL must not import it (4 s). TRL's warning about experimental parts, which `max-staleness`
    uses, is silenced: the lock files pin its version.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if job.engine == "transformers":
        import trl.import_utils as installed

        installed.is_vllm_available = lambda *_, **__: False


def sampling(job: Job, entry: Any, at_once: int, tokens: int, **extra_memory: Any) -> dict[str, Any]:
    """Return GRPOConfig's options for the engine of a job, with `at_once` rollouts of at most `tokens` on each device.

    `extra_memory` lists other memory uses, for `memory.plan`. Returns nothing for transformers. Raises SettingError if
    the server has no address, or if vLLM has no room for a rollout.
    """
    if job.engine == "transformers":
        return {}
    if job.engine == "vllm-server":
        port = environment.number("PROOFMILL_WEIGHT_SYNC_PORT", int)
        meets = {"vllm_group_port": port} if port else {}
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server(job), **meets}
    weights, options = job.parent(entry.model).weights(), vllm_options(job.engine_args)
    device_bytes, cuda = memory.device_memory()
    if cuda and device_bytes:
        from proofmill.training import micro_batches  # it imports torch

        network = memory.build_empty(weights)
        planned = micro_batches.planner(
            network, entry, tokens, place=micro_batches.place_here(device_bytes, True), **extra_memory
        )
        options = vllm_memory.fit_next_to_training(
            job.name, network, planned(1, True).resident, device_bytes, tokens, options
        )
        _announce(job, options)
    else:
        _keep_linear_weights()
        if not any(option in options for option in vllm_memory.MEMORY):
            # A share of the machine would have to include this training process. So the cache is set in bytes, for
            # which TRL has no option.
            gigabytes = vllm_memory.gigabytes_for_rollouts(weights, at_once * tokens)
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(gigabytes))
            options["gpu_memory_utilization"] = min(1.0, gigabytes * 2**30 / device_bytes) if device_bytes else 0.1
        options.setdefault("gpu_memory_utilization", vllm_memory.AWAKE)
    known = {
        "gpu_memory_utilization": "vllm_gpu_memory_utilization",
        "tensor_parallel_size": "vllm_tensor_parallel_size",
        "max_model_len": "vllm_max_model_length",
        "enable_sleep_mode": "vllm_enable_sleep_mode",
    }
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        **{theirs: options[ours] for ours, theirs in known.items() if ours in options},
    }


def server(job: Job) -> str:
    """Return the address of the server that samples rollouts. Raises SettingError without one."""
    if url := os.environ.get("PROOFMILL_ROLLOUT_SERVER_URL"):
        return url
    raise SettingError(
        f"{job.name}: the engine is vllm-server and the environment has no PROOFMILL_ROLLOUT_SERVER_URL; expected the address of "
        "`trl vllm-serve`, or of `vllm serve` if `max-staleness` is set (docs/training.md). Set it, or choose another engine."
    )


def _announce(job: Job, options: dict[str, Any]) -> None:
    """Log the memory that vLLM takes next to the training."""
    if processes.rank() == 0:
        sleep = "sleeps" if options["enable_sleep_mode"] else "stays awake"
        log(
            job.name,
            f"vLLM takes {options['gpu_memory_utilization']:.0%} of each GPU while it samples, for contexts of up to "
            f"{options['max_model_len']:,} tokens, and {sleep} during optimization",
        )


def decode_by_ours(job: Job, model: Any, **options: Any) -> None:
    """Sample with `decoding.decode`, so that rollouts leave their batch as they end, if each device has all weights.

    Devices that shard the weights must run the same forward passes, so they use transformers' own loop. `options` are
    those of `decode`.
    """
    if job.engine == "transformers" and processes.sharding() == "none":
        from proofmill.engines import decoding

        decoding.sample_with_ours(model, **options)


def report_at_once(job: Job, model: Any, trainer: Any) -> None:
    """Call `trainer.on_completion(prompt, ids)`, both token ids, as soon as a rollout ends; `trainer.drawn` gets log-probabilities.

    `trainer.prompts` are those of the batch that is being sampled. TRL's server and sharded weights report nothing
    before the last rollout has ended.
    """
    decode_by_ours(
        job,
        model,
        ended=lambda row, ids: trainer.on_completion(trainer.prompts[row], ids),
        logprobs=trainer.drawn,
        heat=trainer.temperature,
    )
    if job.engine == "vllm":
        engine = trainer.vllm_generation.llm.llm_engine
        step = engine.step

        def step_and_report() -> Any:
            outputs = step()
            for output in outputs:
                if output.finished:
                    trainer.on_completion(output.prompt_token_ids, output.outputs[0].token_ids)
            return outputs

        engine.step = step_and_report


def correction(entry: Any) -> dict[str, Any]:
    """Return GRPOConfig's options that correct for differences between vLLM and the trained model."""
    all_tokens = entry.top_p == 1 and entry.top_k is None and getattr(entry, "min_p", None) is None
    return {
        # vLLM renormalizes probabilities over the tokens that may be drawn (`top-p`, `top-k`, `min-p`); the trained
        # model's are over all tokens. Their ratio would include the excluded tokens, which sampling with transformers
        # does not.
        "vllm_importance_sampling_correction": all_tokens,
        # Each token has its own weight, at most 3. TRL's default weighs a rollout by the product of its tokens' ratios,
        # which is nearly 0 for most rollouts of 50,000 tokens, even if vLLM and the training hardly differ.
        "vllm_importance_sampling_mode": "token_truncate",
    }


def footprint(sampling: dict[str, Any], at_once: int) -> dict[str, Any]:
    """Return the memory use of sampling `at_once` rollouts on a device, for memory.plan."""
    return {
        "sampled": 0 if sampling else at_once,
        "vllm_share": sampling.get("vllm_gpu_memory_utilization", 0.0),
        "vllm_sleeps": bool(sampling.get("vllm_enable_sleep_mode")),
    }


def _keep_linear_weights() -> None:
    """Make vLLM's linear layers keep unpacked weights on a CPU; packed ones could not be updated."""
    import torch
    import vllm.model_executor.layers.linear as linear
    import vllm.model_executor.layers.utils as utils
    import vllm.model_executor.layers.vocab_parallel_embedding as embedding

    def dispatch(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for module in (utils, linear, embedding):
        if hasattr(module, "dispatch_cpu_unquantized_gemm"):
            module.dispatch_cpu_unquantized_gemm = dispatch
