"""Models of others: files of the hub in its own cache, a GGUF file as a folder of safetensors, weights of 8 bits.

`snapshot` has the files of one commit that a model of the hub needs to run. `unpack_gguf` writes a GGUF file, llama.cpp's
format of a model, with its tokenizer and its chat template. transformers reads the file: quantized weights are
multiplied out to float32, which is what they say, not what they were before they were quantized. `in_float32` says how
weights are read that stand in 8 bits on the hub (DeepSeek-V3): multiplied out, too.

How we differ from transformers 5.17, of GGUF files:
1. The special tokens are those whose numbers the file gives. transformers takes `<|im_start|>` for the end of a turn of
   SmolLM2, whose file says `<|im_end|>`.
2. What is saved no longer says that it was quantized, so that it loads as any other model does.
3. A file that is cut off, or is none, is one message with its path.

How we differ, of weights of 8 bits:
1. A layer that does not consist of whole blocks is refused. transformers 5.17 derives the size of blocks from the number
   of scales, and so multiplies the rows of such a layer by the wrong ones, or stops.
"""

import json
from pathlib import Path
from struct import error as StructError
from typing import Any

from proofmill.schema.errors import HubError, TableError

TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = (*TOKENIZER, "*.safetensors")
# What reading a damaged file ends in: numpy finds too few bytes, a name is no UTF-8, a type or a field does not exist.
DAMAGE = (ValueError, OSError, KeyError, IndexError, OverflowError, StructError)
SPECIAL = ("bos", "eos", "unknown", "padding")


def snapshot(id: str, commit: str, weights: bool = True, here: bool = False) -> Path:
    """The folder with the files of a model, or of its tokenizer alone; `here` asks nobody.

    Raises HubError, also for a model of which only some files are in the cache and nobody is to be asked.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            id,
            revision=commit,
            allow_patterns=list(WEIGHTS if weights else TOKENIZER),
            local_files_only=here or constants.HF_HUB_OFFLINE,  # a full commit is else asked for even when offline
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        raise HubError(
            f"{id} at {commit}: cannot be fetched ({str(error).splitlines()[0]}); expected a model of the hub at that commit. "
            "Check both, the network, HF_HUB_OFFLINE and, for a gated model, HF_TOKEN."
        ) from error
    return Path(folder)


def is_here(id: str, commit: str, weights: bool = True) -> bool:
    """Whether the cache has all files of a model; nobody is asked."""
    try:
        return snapshot(id, commit, weights, here=True).is_dir()
    except HubError:
        return False


# -------------------------------------------------------------------------------------------------------- 8-bit weights


BLOCK = 128  # rows and columns of a block of 8-bit weights with one scale (DeepSeek-V3, section 3.3.2)
SCALES = ".weight_scale_inv"


def in_float32(folder: Path) -> dict[str, Any]:
    """Options of `from_pretrained` by which a model is read as float32, 8-bit weights multiplied out by their scales.

    Raises TableError for weights in another quantization, and for layers whose blocks are not whole.
    """
    options: dict[str, Any] = {"dtype": "float32"}
    quantized = json.loads((folder / "config.json").read_bytes()).get("quantization_config")
    if quantized is None:
        return options
    if (method := quantized.get("quant_method")) != "fp8":
        raise TableError(
            f"{folder}: its weights are quantized (`{method}`); expected whole numbers of 16 or 32 bits, or of 8 bits in blocks "
            "(`fp8`). Take the model before it was quantized, or a copy that is multiplied out."
        )
    block = quantized.get("weight_block_size") or [BLOCK, BLOCK]
    uneven = [
        name
        for name, size in _quantized_sizes(folder)
        if any(length % side and length > side for length, side in zip(size, block, strict=True))
    ]
    if uneven:
        raise TableError(
            f"{folder}: {len(uneven)} of its 8-bit layers, such as {uneven[0]}, do not consist of whole blocks, and transformers "
            "would mix up their scales; expected whole ones. Take a copy that is multiplied out to bfloat16."
        )
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    config.quantization_config = {**quantized, "dequantize": True}
    return {**options, "config": config}


def _quantized_sizes(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """The layers that have scales, with their rows and columns, from the heads of the files."""
    from safetensors import safe_open

    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            named = [name.removesuffix(SCALES) for name in file.keys() if name.endswith(SCALES)]  # noqa: SIM118
            found += [(name, tuple(file.get_slice(f"{name}.weight").get_shape())) for name in named]
    return found


# ----------------------------------------------------------------------------------------------------------- GGUF files


def unpack_gguf(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a folder. TableError for a file that is missing, damaged or of no known model."""
    if path.suffix.lower() != ".gguf" or not path.is_file():
        found = "no such file" if not path.exists() else "is a folder" if path.is_dir() else "does not end in .gguf"
        raise TableError(f"{path}: {found}; expected one GGUF file, such as model.Q4_1.gguf. Mend the path.")
    numbers = _special_numbers(path)
    _save(path, folder, numbers)


def _special_numbers(path: Path) -> dict[str, int]:
    """The numbers of the special tokens by their names in transformers. TableError for a file that cannot be read to its end."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        for tensor in reader.tensors:
            tensor.data[-1:]  # a view: what the file does not have fails here and not while weights are made
        fields = {name: reader.get_field(f"tokenizer.ggml.{name}_token_id") for name in SPECIAL}
        if not reader.tensors:
            raise ValueError("it has no weights")
        if reader.get_field("tokenizer.ggml.tokens") is None:
            raise ValueError("it has no tokenizer")
    except DAMAGE as error:
        raise TableError(
            f"{path}: cannot be read ({_first_line(error)}); expected a whole GGUF file of a language model. Copy it again."
        ) from error
    known = {name: int(field.contents()) for name, field in fields.items() if field is not None}
    names = {"unknown": "unk", "padding": "pad"}
    return {names.get(name, name): number for name, number in known.items()}


def _save(path: Path, folder: Path, special: dict[str, int]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype="float32")
    except Exception as error:  # what is below these two calls raises errors of any class at bytes that are no model
        raise TableError(
            f"{path}: transformers cannot load it ({_first_line(error)}); expected a model that it knows, whole. Take another "
            "file of the model, or its weights as safetensors (`source: folder` or `hub`)."
        ) from error
    for name, number in special.items():
        setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.clean_up_tokenization_spaces = False  # would take blanks before punctuation out of what was written
    model.hf_quantizer, model.is_quantized = None, False
    del model.quantization_method, model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
