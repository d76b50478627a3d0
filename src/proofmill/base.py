"""Import or initialize a model, or import a tokenizer. One row is a file of it.

A model comes from the hub, a folder, GGUF or another entry, or starts with random weights (`scratch`).

Differences from other pipelines:
1. A scratch model's tokenizer is a byte-level BPE with single digits as tokens. A model of this size does not learn
   arithmetic on numbers that are split differently.
2. A scratch model's weights start with a standard deviation of 0.08. With the usual 0.02 it learned nothing in the same
   time.
3. The chat template is stored with the weights, with a fixed date if it asks for today's; later stages assume no
   template of their own.
4. A model's context and the base of its rotary embeddings may be raised, as open-r1 does for Qwen2.5-Math. The weights
   do not change; only training can adapt them to the longer context.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.weights import MANIFEST
from proofmill.prompts import chat_templates
from proofmill.public_data.locations import local_path
from proofmill.schema.entries.model_entries import Base
from proofmill.schema.errors import TableError
from proofmill.schema.fields import require
from proofmill.schema.ids import file_sha256
from proofmill.schema.kinds import STEPS
from proofmill.sources.models import snapshot, unpack_gguf

PAD, END, ROLES = "<|pad|>", "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}\n\n"
    "{% elif message['role'] == 'user' %}User: {{ message['content'] }}\n\n"
    "{% else %}Assistant: {{ message['content'] }}{{ eos_token }}\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
CONTEXT, ROPE_THETA = 512, 10_000.0  # of a scratch model
NEEDED = ("config.json",)
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")  # suffixes of weight files that can run code when loaded
JSON = (*NEEDED, "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def main(entry: Base, job: Job) -> None:
    folder = job.table.scratch / "weights"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if entry.source == "scratch":
        _from_scratch(entry, job, folder)
    elif entry.source == "tokenizer":
        _save_tokenizer(_tokenizer_of(entry), folder)
    elif "/" in entry.source:
        weights = job.parent(entry.source).weights()
        _copy(weights / STEPS / f"step-{entry.step}" if entry.step else weights, folder)
    elif entry.source == "folder":
        _copy(local_path(require(entry.path)), folder)
    elif entry.source == "gguf":
        unpack_gguf(local_path(require(entry.path)), folder)
    else:
        _copy(snapshot(require(entry.id), require(entry.commit)), folder)
    if entry.source != "scratch" and (entry.context or entry.rope_theta):
        _set_positions(folder, entry.context, entry.rope_theta)
    if entry.chat_template:
        _set_template(folder, entry.chat_template)
    chat_templates.fix_date(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    rows = [{"file": str(f.relative_to(folder)), "bytes": f.stat().st_size, "sha256": file_sha256(f)} for f in files]
    job.finish(rows, {"files": len(rows)}, weights=folder)


def _from_scratch(entry: Base, job: Job, folder: Path) -> None:
    import torch
    from transformers import Qwen3ForCausalLM

    rows = job.parent(require(entry.problems)).rows("statement", "solution")
    tokenizer = train_tokenizer((f"{row['statement']}\n{row['solution'] or ''}" for row in rows), entry.vocabulary)
    torch.manual_seed(entry.seed)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = Qwen3ForCausalLM(scratch_config(entry, len(tokenizer), **ends))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def scratch_config(entry: Base, vocabulary: int, **ends: int) -> Any:
    """Return the transformers configuration of a scratch model; `ends` are ids of special tokens."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=entry.hidden,
        num_hidden_layers=entry.layers,
        num_attention_heads=entry.heads,
        num_key_value_heads=entry.heads,
        head_dim=32,
        intermediate_size=entry.feed_forward,
        tie_word_embeddings=True,
        initializer_range=entry.initializer_range,
        max_position_embeddings=entry.context or CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": entry.rope_theta or ROPE_THETA},
        bos_token_id=None,
        **ends,
    )


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """Train a byte-level BPE with single digits on `texts`, and set the chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, additional_special_tokens=list(ROLES)
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _copy(source: Path, folder: Path) -> None:
    """Copy a model's folder. Raises TableError if config.json or safetensors are missing or damaged."""
    missing = [name for name in NEEDED if not (source / name).is_file()]
    weights = [*source.glob("*.safetensors")]
    if not weights and (pickles := sorted(path for path in source.glob("*") if path.suffix in PICKLES)):
        raise TableError(
            f"{pickles[0]}: a pickle, which can run any code when loaded; expected weights as *.safetensors. Convert it if "
            "you trust the file (`save_pretrained` of transformers writes safetensors), or use another copy."
        )
    if missing or not weights:
        raise TableError(
            f"{source}: {'no such folder' if not source.is_dir() else 'no ' + ' and no '.join(missing or ['weights'])}; "
            "expected a model's folder with config.json, weights (*.safetensors) and its tokenizer. Fix `path`."
        )
    _check_readable(source)
    others = shutil.ignore_patterns(STEPS, "*.parquet", MANIFEST)  # of a training
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=others)


def _check_readable(source: Path) -> None:
    """Raise TableError for invalid JSON, and for weights that are truncated or not safetensors."""
    from safetensors import SafetensorError, safe_open

    for path in sorted([*(source / name for name in JSON if (source / name).is_file()), *source.glob("*.safetensors")]):
        try:
            if path.name in JSON:
                if not isinstance(json.loads(path.read_bytes()), dict):
                    raise ValueError("no JSON object")
            else:
                safe_open(path, "numpy").keys()  # opens if the file is as long as its header says
        except (ValueError, RecursionError, SafetensorError) as error:
            raise TableError(
                f"{path}: cannot be read ({error}); expected a complete file of a model. Copy it again."
            ) from error


def _set_positions(folder: Path, context: int | None, theta: float | None) -> None:
    """Write the context and the base of the rotary embeddings into config.json, and the context into the tokenizer.

    Raises TableError as `require_plain_positions` does.
    """
    path = folder / "config.json"
    config = json.loads(path.read_bytes())
    rope = require_plain_positions(path, config)
    if context:
        config["max_position_embeddings"] = context
    if theta and "rope_parameters" in config:
        config["rope_parameters"] = {**rope, "rope_theta": theta}
    elif theta:
        config["rope_theta"] = theta
    path.write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = folder / "tokenizer_config.json"
    if context and tokenizer.is_file():
        settings = json.loads(tokenizer.read_bytes())
        if settings.get("model_max_length", context) < context:
            tokenizer.write_text(
                json.dumps({**settings, "model_max_length": context}, indent=2, ensure_ascii=False) + "\n"
            )


def require_plain_positions(path: str | Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rotary embeddings of a config.json whose `context` or `rope-theta` is to change.

    Raises TableError for a model without rotary embeddings, and for one with stretched ones: their factor would have
    another meaning with another base or length.
    """
    if "max_position_embeddings" not in config:
        raise TableError(
            f"{path}: `max_position_embeddings` is missing; expected a model with rotary embeddings if `context` or "
            "`rope-theta` is set. Remove them."
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}  # transformers 5, and 4
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise TableError(
            f"{path}: its rotary embeddings are stretched already (`{kind}`); expected plain ones if `context` or "
            "`rope-theta` is set. Remove them, or edit the file in a copy of the model."
        )
    return rope


def _set_template(folder: Path, template: str) -> None:
    """Write a chat template into a tokenizer: `plain` if it has none, or the template of a file, which replaces its own.

    Raises TableError if the tokenizer has a template that `plain` would replace, or if the file has none.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if template == "plain" and tokenizer.chat_template:
        raise TableError(
            f"{folder}: the tokenizer has a chat template; expected none with `chat-template: plain`. Remove `chat-template`, or set it "
            "to a file, which replaces the template."
        )
    plain = template == "plain"
    tokenizer.chat_template = PLAIN_TEMPLATE if plain else chat_templates.from_file(local_path(template), tokenizer)
    tokenizer.save_pretrained(folder)


def _tokenizer_of(entry: Base) -> Path:
    """Return the folder of a tokenizer: a local one, or the hub's cache."""
    if entry.path:
        return local_path(entry.path)
    return snapshot(require(entry.id), require(entry.commit), weights=False)


def _save_tokenizer(source: Path, folder: Path) -> None:
    """Save only a tokenizer, also one without `tokenizer.json`. Raises TableError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    except (OSError, ValueError) as error:
        raise TableError(
            f"{source}: no tokenizer can be read ({str(error).splitlines()[0]}); expected a folder with tokenizer.json, or with "
            "vocab.json, merges.txt and tokenizer_config.json. Fix `path` or `id`."
        ) from error


if __name__ == "__main__":
    run(main)
