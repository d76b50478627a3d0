"""What samples the rollouts of a training: transformers, vLLM in the same process, or TRL's vLLM server.

PROOFMILL_TRAINER_VLLM_URL     TRL's vLLM server for the rollouts (`engine: vllm-server`, on GPUs)
PROOFMILL_TRAINER_VLLM_PORT    the port of the training's node at which that server takes its weights; TRL's without it
"""

import os
from typing import TYPE_CHECKING, Any

from proofmill.artifacts.jobs import Job
from proofmill.engines import fitting
from proofmill.engines.vllm import vllm_options
from proofmill.runtime import environment, processes
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError
from proofmill.training import memory

if TYPE_CHECKING:  # torch is imported by what trains
    from proofmill.engines.decoding import Ended


def before_trl(job: Job) -> None:
    """Keep TRL from importing all of vLLM where it is installed and not used (that takes 4 s), and from saying that what
    `lag` takes of it may change: the locks name its version.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if job.engine == "transformers":
        import trl.import_utils as installed

        installed.is_vllm_available = lambda *_, **__: False


def sampling(job: Job, entry: Any, at_once: int, tokens: int, **beside: Any) -> dict[str, Any]:
    """GRPOConfig's options for the engine of a job, with `at_once` rollouts of at most `tokens` on each device.

    `beside`: what else takes memory, for `memory.plan`. Empty for transformers. Raises SettingError when the server has
    no address, or when vLLM has no room for a rollout.
    """
    if job.engine == "transformers":
        return {}
    if job.engine == "vllm-server":
        port = environment.number("PROOFMILL_TRAINER_VLLM_PORT", int)
        meets = {"vllm_group_port": port} if port else {}
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server(job), **meets}
    weights, options = job.parent(entry.model).weights(), vllm_options(job.engine_args)
    there, cuda = memory.device_memory()
    if cuda and there:
        from proofmill.training import passes  # it imports torch

        network = memory.made(weights)
        planned = passes.planner(
            network, entry, tokens, devices=processes.world(), sharded=processes.sharding(),
            offloaded=processes.offloads(), there=there, cuda=True, **beside,
        )  # fmt: skip
        options = fitting.beside_training(job.name, network, planned(1, True).resident, there, tokens, options)
        _announce(job, options)
    else:
        _keep_linear_weights()
        if not any(option in options for option in fitting.MEMORY):
            # A share of the machine would have to hold this process with all that it trains, too: the cache is given in
            # bytes, which TRL has no word for.
            gigabytes = fitting.gigabytes_for_rollouts(weights, at_once * tokens)
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(gigabytes))
            options["gpu_memory_utilization"] = min(1.0, gigabytes * 2**30 / there) if there else 0.1
        options.setdefault("gpu_memory_utilization", fitting.AWAKE)
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
    """The address of the server that samples rollouts. SettingError without one."""
    if url := os.environ.get("PROOFMILL_TRAINER_VLLM_URL"):
        return url
    raise SettingError(
        f"{job.name}: the engine is vllm-server and the environment has no PROOFMILL_TRAINER_VLLM_URL; expected the address of "
        "`trl vllm-serve`, or with a `lag` of `vllm serve` (docs/training.md). Set it, or choose another engine."
    )


def _announce(job: Job, options: dict[str, Any]) -> None:
    """Say what vLLM may take beside the training."""
    if processes.rank() == 0:
        sleep = "sleeps" if options["enable_sleep_mode"] else "stays awake"
        say(
            job.name,
            f"vLLM takes {options['gpu_memory_utilization']:.0%} of each GPU while it samples, for contexts of up to "
            f"{options['max_model_len']:,} tokens, and {sleep} while the training learns",
        )


def decoded_by_ours(job: Job, model: Any, ended: "Ended | None" = None) -> None:
    """Make rollouts by transformers leave their batch as they end (decoding.py), where each device has whole weights.

    Devices that share out the weights have to make the same passes: there it is transformers' own loop. `ended` hears of
    each rollout as it leaves.
    """
    if job.engine == "transformers" and processes.sharding() == "none":
        from proofmill.engines import decoding

        decoding.sample_with_ours(model, ended)


def heard_at_once(job: Job, model: Any, trainer: Any) -> None:
    """Have a trainer hear of each rollout the moment it ends: `trainer.ended(prompt, ids)`, both tokens.

    `trainer.prompts` are those of the batch that is being sampled. Of TRL's server and of shared weights nothing is heard
    before the last rollout has ended.
    """
    decoded_by_ours(job, model, lambda row, ids: trainer.ended(trainer.prompts[row], ids))
    if job.engine == "vllm":
        engine = trainer.vllm_generation.llm.llm_engine
        step = engine.step

        def told() -> Any:
            outputs = step()
            for output in outputs:
                if output.finished:
                    trainer.ended(output.prompt_token_ids, output.outputs[0].token_ids)
            return outputs

        engine.step = told


def correction(entry: Any) -> dict[str, Any]:
    """GRPOConfig's options for what vLLM and the training differ by."""
    whole = entry.top_p == 1 and entry.top_k is None and getattr(entry, "min_p", None) is None
    return {
        # vLLM's probabilities are those among the tokens that are drawn from (`top-p`, `top-k`, `min-p`), the trained
        # model's are of all tokens: their ratio would weigh tokens by what was left out, which transformers' sampling
        # does not.
        "vllm_importance_sampling_correction": whole,
        # Each token has its own weight, at most 3. TRL's default weighs a whole rollout by the product of its tokens'
        # ratios, which is 0 for nearly all rollouts of 50,000 tokens, however little vLLM and the training differ.
        "vllm_importance_sampling_mode": "token_truncate",
    }


def footprint(sampling: dict[str, Any], at_once: int) -> dict[str, Any]:
    """What sampling takes of the memory of a device (memory.plan), with so many rollouts at once."""
    return {
        "sampled": 0 if sampling else at_once,
        "vllm_share": sampling.get("vllm_gpu_memory_utilization", 0.0),
        "vllm_sleeps": bool(sampling.get("vllm_enable_sleep_mode")),
    }


def _keep_linear_weights() -> None:
    """Make vLLM's linear layers keep their weights on a CPU. Packed weights could not be replaced by new ones."""
    import torch
    import vllm.model_executor.layers.linear as linear
    import vllm.model_executor.layers.utils as utils
    import vllm.model_executor.layers.vocab_parallel_embedding as embedding

    def dispatch(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for module in (utils, linear, embedding):
        if hasattr(module, "dispatch_cpu_unquantized_gemm"):
            module.dispatch_cpu_unquantized_gemm = dispatch
