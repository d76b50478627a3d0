"""LoRA adapters: two small matrices next to each linear layer, trained instead of it and merged into it at the end.

From: LoRA (Hu et al. 2021, section 4.1) and QLoRA (Dettmers et al. 2023, section 3), with peft.

Differences from the original:
1. The saved weights are an ordinary model's, which any engine serves: the adapter is merged into the float32 weights
   from before the training, even if the training used 4 bits. The adapter's own files are saved with them, in
   `adapter/`.
2. Layer names are checked; peft adapts those that it finds and ignores the others silently.
3. An engine receives merged weights while the training keeps the original ones (`weights_with_adapter`). peft merges in
   place and subtracts afterwards, which would round bfloat16 weights again at each hand-over.
"""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, set_seed

from proofmill.artifacts.jobs import Job
from proofmill.calls import sampling
from proofmill.schema.errors import ServiceError, TableError
from proofmill.sources import models
from proofmill.training import memory

FOLDER = "adapter"  # in the folder of the merged weights


def load(job: Job, model: str, adapter: Mapping[str, Any], precision: str, seed: int, **options: Any) -> Any:
    """Load the model with a float32 adapter that changes nothing yet (one of its two matrices is zero).

    Raises TableError for a layer that the model lacks, ServiceError for 4 bits without bitsandbytes.
    """
    import peft

    folder = job.parent(model).weights()
    if adapter.get("quantized"):
        options |= _quantization(job)
    options |= loading_options(folder, precision, adapter)
    network = AutoModelForCausalLM.from_pretrained(folder, **options)
    sampling.neutralize(network.generation_config)
    _check_layers(job, model, network, adapter.get("target_modules", []))
    set_seed(seed)
    return peft.get_peft_model(network, lora(adapter))


def loading_options(folder: Path, precision: str, adapter: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options of `from_pretrained` for a model to train: float32, or what `memory.precision_in_memory` says."""
    held = memory.precision_in_memory(AutoConfig.from_pretrained(folder), precision, adapter)
    return models.in_float32(folder) | {"dtype": held}


def lora(adapter: Mapping[str, Any]) -> Any:
    """Return peft's configuration of an entry's adapter."""
    import peft

    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        lora_dropout=adapter.get("dropout", 0.0),
        target_modules=adapter.get("target_modules") or "all-linear",
    )


def merge(trainer: Any, state: Mapping[str, Any] | None, job: Job, folder: Path) -> None:
    """Write the adapter and the merged weights to `folder`; `state` holds the gathered weights of a sharded model."""
    import peft
    import torch

    adapter_folder, base = folder / FOLDER, job.stamp["entry"]["model"]
    trained = trainer.accelerator.unwrap_model(trainer.model)
    trained.peft_config["default"].base_model_name_or_path = base  # a name, not a folder of this machine
    options = {"selected_adapters": ["default"], "save_embedding_layers": False}
    trained.save_pretrained(adapter_folder, **options, **({"state_dict": state} if state else {}))
    (adapter_folder / "README.md").unlink()  # peft's empty template of a model card
    weights = job.parent(base).weights()
    before = AutoModelForCausalLM.from_pretrained(weights, **models.in_float32(weights))
    sampling.neutralize(before.generation_config)
    with torch.random.fork_rng(devices=[]):  # peft draws weights for the adapter before it reads them
        merged = peft.PeftModel.from_pretrained(before, adapter_folder).merge_and_unload()
    merged.save_pretrained(folder)


def weights_with_adapter(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield each weight of the merged model by its name without adapters, one at a time; the network stays as it is.

    Every process must iterate: sharded weights are gathered.
    """
    import torch
    from peft.tuners.lora import LoraLayer
    from peft.utils.integrations import dequantize_module_weight

    layers = {f"{name}.base_layer.weight": m for name, m in network.named_modules() if isinstance(m, LoraLayer)}
    for name, parameter in network.named_parameters():
        if network.prefix in name:
            continue
        weight = parameter.data
        with torch.no_grad():
            if name in layers:
                weight = dequantize_module_weight(layers[name].get_base_layer())
                weight = (weight.float() + layers[name].get_delta_weight("default")).to(weight.dtype)
            weight = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        yield re.sub(r"^base_model\.model\.|\.base_layer|_checkpoint_wrapped_module\.", "", name), weight


def _quantization(job: Job) -> dict[str, Any]:
    """Return loading options: 4-bit NormalFloat, scales quantized too, arithmetic in bfloat16 (QLoRA, section 3)."""
    import torch
    from accelerate import PartialState
    from transformers import BitsAndBytesConfig

    if importlib.util.find_spec("bitsandbytes") is None:
        raise ServiceError(
            f"{job.name}: `lora` is quantized and bitsandbytes is not installed; expected it for weights in "
            "4 bits. Install it (pip install bitsandbytes), or train without `quantized`."
        )
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    device = PartialState(cpu=not torch.cuda.is_available()).local_process_index if torch.cuda.is_available() else "cpu"
    return {"quantization_config": config, "device_map": {"": device}}


def _check_layers(job: Job, model: str, network: Any, layers: list[str]) -> None:
    """Raise TableError unless every named layer is linear and not the head, whose product TRL computes itself."""
    import torch

    head = network.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
    if unknown := [name for name in layers if name not in linear]:
        raise TableError(
            f"{job.name}: `lora` names the layers {', '.join(unknown)}, which {model} does not have; expected some of "
            f"{', '.join(sorted(linear))}. Name those, or none for all of them."
        )
