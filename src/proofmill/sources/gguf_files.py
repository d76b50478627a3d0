"""A GGUF file, llama.cpp's format of a model, as a folder of safetensors with its tokenizer and its chat template.

transformers reads the file: quantized weights are multiplied out to float32, which is what they say, not what they were
before they were quantized.

How we differ from transformers 5.17:
1. The special tokens are those whose numbers the file gives. transformers takes `<|im_start|>` for the end of a turn of
   SmolLM2, whose file says `<|im_end|>`.
2. What is saved no longer says that it was quantized, so that it loads as any other model does.
3. A file that is cut off, or is none, is one message with its path.
"""

from pathlib import Path
from struct import error as StructError

from proofmill.schema.errors import TableError

# What reading a damaged file ends in: numpy finds too few bytes, a name is no UTF-8, a type or a field does not exist.
DAMAGE = (ValueError, OSError, KeyError, IndexError, OverflowError, StructError)
SPECIAL = ("bos", "eos", "unknown", "padding")


def unpack(path: Path, folder: Path) -> None:
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
    except (*DAMAGE, NotImplementedError, RuntimeError) as error:  # an architecture, a tokenizer or shapes it lacks
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
