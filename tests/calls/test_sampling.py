"""The complete sampling setting, and a model's own configuration, which must not override it."""

import json
from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from proofmill.calls.model_requests import ModelRequest
from proofmill.calls.sampling import NEUTRAL, ends, journal_name, neutralize, read_shipped

TALK = (("user", "Why?"),)
QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2], "pad_token_id": 3}


@pytest.fixture
def model(tmp_path):
    """Return `model(own, config)`, which writes a folder with a model's configuration."""

    def written(own, config=None):
        (tmp_path / "generation_config.json").write_text(own if isinstance(own, str) else json.dumps(own))
        (tmp_path / "config.json").write_text(json.dumps(config or {}))
        return tmp_path

    return written


def test_sampling_of_a_question_names_every_setting():
    """Settings that a request omits are neutral; a temperature that is left to the server is omitted."""
    assert ModelRequest("m", TALK, temperature=0.6, top_k=20).sampling == {**NEUTRAL, "temperature": 0.6, "top_k": 20}
    assert ModelRequest("m", TALK).sampling.keys() == NEUTRAL.keys() - {"temperature"}
    assert ModelRequest("m", TALK, temperature=0.0).sampling["temperature"] == 0


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (QWEN3, {"top_k": 20, "top_p": 0.95}),
        ({"repetition_penalty": 1.05}, {"repetition_penalty": 1.05}),
        ({"repetition_penalty": 1.0, "top_p": 1, "top_k": 0, "min_p": None, "no_repeat_ngram_size": 0}, {}),
        ({"_from_model_config": True, "eos_token_id": 1, "transformers_version": "5.17.0", "max_length": 20}, {}),
        ({"suppress_tokens": [5], "max_new_tokens": 8}, {"suppress_tokens": [5], "max_new_tokens": 8}),
        ("{", {}),
        ("[1]", {}),
        ("[" * 100_000, {}),
    ],
)
def test_only_settings_that_could_change_an_answer_are_found(model, own, found):
    """Tokens, the temperature (every request has one), neutral values and an invalid file change no output."""
    assert read_shipped(model(own)) == found


def test_answers_of_neutral_weights_keep_their_key(model, tmp_path):
    """So do requests with all settings of their own; other outputs are not confused with ours."""
    assert journal_name("digest", model({"eos_token_id": 1})) == journal_name("digest", tmp_path / "none") == "digest"
    folder = model(QWEN3)
    assert journal_name("digest", folder, ("top_k", "top_p")) == "digest"
    assert journal_name("digest", folder, ("top_p",)) == journal_name("digest", folder) != "digest"


@pytest.mark.parametrize(
    ("own", "config", "found"),
    [
        ({"eos_token_id": [5, 7]}, {"eos_token_id": 9}, [2, 5, 7]),
        ({"eos_token_id": 5}, {}, [2, 5]),
        ({}, {"eos_token_id": 9}, [2]),
        (None, {"eos_token_id": 9}, [2, 9]),
        (None, {"text_config": {"eos_token_id": [9, 2]}}, [2, 9]),
        (None, {}, [2]),
    ],
)
def test_all_ends_of_a_model_are_kept(model, own, config, found):
    """They are those of its file, or of its configuration without such a file, and the tokenizer's, as in vLLM."""
    folder = model(own or {}, config)
    if own is None:
        (folder / "generation_config.json").unlink()
    assert ends(folder, SimpleNamespace(eos_token_id=2)) == found


def test_neutral_configuration_is_written_with_its_tokens_alone(model, tmp_path):
    """The saved file has no setting; a configuration without any is written unchanged, byte for byte."""
    config = GenerationConfig.from_dict({**QWEN3, "repetition_penalty": 1.05, "suppress_tokens": [4]})
    neutralize(config)
    config.save_pretrained(tmp_path / "out")
    written = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert written.keys() == {"eos_token_id", "pad_token_id", "transformers_version"} and written["eos_token_id"] == [
        1,
        2,
    ]
    own = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None, "use_cache": True, "output_attentions": False}
    plain = GenerationConfig.from_model_config(own)
    plain.save_pretrained(tmp_path / "before")
    neutralize(plain)
    plain.save_pretrained(tmp_path / "after")
    before, after = ((tmp_path / name / "generation_config.json").read_bytes() for name in ("before", "after"))
    assert before == after
