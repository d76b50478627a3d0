"""Load foreign models: files of the hub in its cache, GGUF files as folders of safetensors, 8-bit weights.

`snapshot` returns the files of one commit that a model of the hub needs to run. `unpack_gguf` converts a GGUF file
(llama.cpp's model format) with its tokenizer and chat template. transformers reads the file; quantized weights are
dequantized to float32, which does not restore the precision that quantization lost. `in_float32` returns the options that
dequantize 8-bit weights of the hub (DeepSeek-V3).

Differences from transformers 5.17, for GGUF files:
1. Special tokens have the ids that the file states. transformers uses `<|im_start|>` as the end of a turn of SmolLM2, whose
   file states `<|im_end|>`.
2. The saved model is not marked as quantized, so it loads like any other model.
3. A truncated or invalid file raises one message with its path.

Differences, for 8-bit weights:
1. A layer that does not consist of complete blocks is rejected. transformers 5.17 derives the block size from the number of
   scales, and so multiplies rows of such a layer by wrong scales, or fails.
"""

import json
from pathlib import Path
from struct import error as StructError
from typing import Any

from proofmill.schema.errors import HubError, TableError

TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = (*TOKENIZER, "*.safetensors")
# Errors of damaged files: numpy finds too few bytes, a name is not UTF-8, a type or a field does not exist.
DAMAGE = (ValueError, OSError, KeyError, IndexError, OverflowError, StructError)
SPECIAL = ("bos", "eos", "unknown", "padding")


def snapshot(id: str, commit: str, weights: bool = True, here: bool = False) -> Path:
    """Return the folder with the files of a model, or only of its tokenizer; `here` uses the cache without network.

    Raises HubError, also if the cache lacks some files of the model and the network is off.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            id,
            revision=commit,
            allow_patterns=list(WEIGHTS if weights else TOKENIZER),
            local_files_only=here or constants.HF_HUB_OFFLINE,  # a full commit is requested even when offline
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        raise HubError(
            f"{id} at {commit}: cannot be downloaded ({str(error).splitlines()[0]}); expected a model of the hub at that commit. "
            "Check the id, the commit, the network, HF_HUB_OFFLINE and, for a gated model, HF_TOKEN."
        ) from error
    return Path(folder)


def is_here(id: str, commit: str, weights: bool = True) -> bool:
    """Return whether the cache has all files of a model, without network."""
    try:
        return snapshot(id, commit, weights, here=True).is_dir()
    except HubError:
        return False


# -------------------------------------------------------------------------------------------------------- 8-bit weights


BLOCK = 128  # rows and columns of a block of 8-bit weights with one scale (DeepSeek-V3, section 3.3.2)
SCALES = ".weight_scale_inv"


def in_float32(folder: Path) -> dict[str, Any]:
    """Return options of `from_pretrained` that load a model as float32 and dequantize 8-bit weights.

    Raises TableError for another quantization, and for layers with incomplete blocks.
    """
    options: dict[str, Any] = {"dtype": "float32"}
    quantized = json.loads((folder / "config.json").read_bytes()).get("quantization_config")
    if quantized is None:
        return options
    if (method := quantized.get("quant_method")) != "fp8":
        raise TableError(
            f"{folder}: its weights are quantized (`{method}`); expected weights of 16 or 32 bits, or of 8 bits in blocks "
            "(`fp8`). Use the model before quantization, or a dequantized copy."
        )
    block = quantized.get("weight_block_size") or [BLOCK, BLOCK]
    uneven = [
        name
        for name, size in _read_quantized_sizes(folder)
        if any(length % side and length > side for length, side in zip(size, block, strict=True))
    ]
    if uneven:
        raise TableError(
            f"{folder}: {len(uneven)} of its 8-bit layers, such as {uneven[0]}, do not consist of complete blocks, and transformers "
            "would apply wrong scales; expected complete blocks. Use a copy dequantized to bfloat16."
        )
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    config.quantization_config = {**quantized, "dequantize": True}
    return {**options, "config": config}


def _read_quantized_sizes(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return the layers with scales, and their rows and columns, from the headers of the files."""
    from safetensors import safe_open

    sizes = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            named = [name.removesuffix(SCALES) for name in file.keys() if name.endswith(SCALES)]  # noqa: SIM118
            sizes += [(name, tuple(file.get_slice(f"{name}.weight").get_shape())) for name in named]
    return sizes


# ----------------------------------------------------------------------------------------------------------- GGUF files


def unpack_gguf(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a folder. Raises TableError if it is missing, damaged or of an unknown model."""
    if path.suffix.lower() != ".gguf" or not path.is_file():
        fault = "no such file" if not path.exists() else "is a folder" if path.is_dir() else "does not end in .gguf"
        raise TableError(f"{path}: {fault}; expected one GGUF file, such as model.Q4_1.gguf. Fix the path.")
    numbers = _special_numbers(path)
    _save(path, folder, numbers)


def _special_numbers(path: Path) -> dict[str, int]:
    """Return the ids of the special tokens by their names in transformers. Raises TableError for an unreadable file."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        for tensor in reader.tensors:
            tensor.data[-1:]  # a view: missing bytes fail here, not while weights are built
        fields = {name: reader.get_field(f"tokenizer.ggml.{name}_token_id") for name in SPECIAL}
        if not reader.tensors:
            raise ValueError("it has no weights")
        if reader.get_field("tokenizer.ggml.tokens") is None:
            raise ValueError("it has no tokenizer")
    except DAMAGE as error:
        raise TableError(
            f"{path}: cannot be read ({_first_line(error)}); expected a complete GGUF file of a language model. Copy it again."
        ) from error
    known = {name: int(field.contents()) for name, field in fields.items() if field is not None}
    names = {"unknown": "unk", "padding": "pad"}
    return {names.get(name, name): number for name, number in known.items()}


def _save(path: Path, folder: Path, special: dict[str, int]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype="float32")
    except Exception as error:  # bytes that are not a model raise errors of any class
        raise TableError(
            f"{path}: transformers cannot load it ({_first_line(error)}); expected a complete model that it supports. Use another "
            "file of the model, or its weights as safetensors (`source: folder` or `hub`)."
        ) from error
    for name, number in special.items():
        setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.clean_up_tokenization_spaces = False  # would remove blanks before punctuation
    model.hf_quantizer, model.is_quantized = None, False
    del model.quantization_method, model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
