"""The complete sampling setting, under vLLM's names, and the defaults in a model's own files that would override it.

A library fills in what a request leaves out, from its own defaults or from the model's `generation_config.json`. So
every request names every setting (`ModelRequest.sampling`), vLLM is started with FLAGS, and transformers samples with a
configuration that `neutralize` has emptied. Of the model's own configuration only the end-of-sequence tokens count.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from proofmill.schema.ids import digest

# Neutral values: each token is drawn with the probability that the model assigns to it.
NEUTRAL: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
FLAGS = ("--generation-config", "vllm")  # for vLLM's server; `max_new_tokens` of the model's file would limit outputs
BY_TRL = ("top_p", "top_k", "repetition_penalty", "max_new_tokens")  # settings that TRL's trainers always set
FILE = "generation_config.json"
# Fields of that file that name tokens, or that change no output. Every request to weights has its own temperature.
_TOKENS = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}
_COSMETIC = {"transformers_version", "_from_model_config", "use_cache", "cache_implementation"}
_INERT = {"temperature", "do_sample", "max_length", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}
_NOTHING: tuple[Any, ...] = (None, False, 0, [], {})
_UNIT = {"top_p", "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "num_beams", "num_beam_groups"}


def read_shipped(folder: Path) -> dict[str, Any]:
    """Return the settings of a model's own configuration that could change outputs of requests that omit them."""
    own = _object(folder / FILE)
    neutral = {"num_return_sequences": 1, **dict.fromkeys(_UNIT, 1)}
    return {
        name: value
        for name, value in own.items()
        if name not in _TOKENS | _COSMETIC | _INERT and value not in _NOTHING and value != neutral.get(name)
    }


def journal_name(model: str, folder: Path, given: Collection[str] = ()) -> str:
    """Return the name of weights in the keys of journals.

    This is `model`, the digest of the weights, if their own configuration could not change an output. Otherwise the
    name differs: engines once sampled with that configuration, and such outputs must not be confused with these.
    `given` are the settings that the request has itself.
    """
    return digest(model, "as asked") if set(read_shipped(folder)) - set(given) else model


def ends(folder: Path, tokenizer: Any) -> list[int]:
    """Return the tokens that end an output: those that the model's configuration names, and the tokenizer's."""
    config = _object(folder / "config.json")
    files = [_object(folder / FILE)] if (folder / FILE).exists() else [config, config.get("text_config") or {}]
    named = [value for file in files if (value := file.get("eos_token_id")) is not None]
    ids = [*(named[0] if isinstance(named[0], list) else named)] if named else []
    return sorted({*ids, tokenizer.eos_token_id} - {None})


def neutralize(config: Any) -> None:
    """Remove every setting from a `GenerationConfig`, in place. Tokens and fields that change no output stay.

    A configuration without settings is saved byte for byte as before, so the digest of its weights stays.
    """
    for name, value in config.to_diff_dict().items():
        if name not in _TOKENS | _COSMETIC and value not in _NOTHING:
            setattr(config, name, None)


def _object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty if there is no readable one."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
