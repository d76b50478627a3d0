"""Check chat templates: a tokenizer must have one, one from a file is tested first, and none may depend on the day."""

import re
from datetime import date
from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError

DATE = date(2024, 7, 26)  # as in Llama 3.2's own template, where it cannot ask for today's
_CLOCK = r"strftime_now\s*\("
# A call as in `strftime_now("%d %b %Y")`; in a JSON file its quotes are escaped.
_TODAY = re.compile(rf"""{_CLOCK}\s*(\\?["'])(.*?)\1\s*\)""")
TALK = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]


def require_template(tokenizer: Any, model: str) -> Any:
    """Return the tokenizer, with a token for padding. Raises TableError if it has no chat template."""
    if not tokenizer.chat_template:
        raise TableError(
            f"{model}: its tokenizer has no chat template; expected one, for training and sampling. Set `chat-template: plain` "
            "(`User: ... Assistant: ...`) in its `base`, or `chat-template: PATH` with a file of your own."
        )
    if tokenizer.pad_token is None:  # as of Llama 3. Padding is masked, so it can be any token; TRL takes this one, too
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def fix_date(folder: Path) -> None:
    """Write DATE into chat templates that ask for today's date (Llama 3.2), so that no row depends on the day.

    This changes the files, because vLLM's server renders from them. Raises TableError for another use of the clock.
    """
    for path in (*folder.rglob("*.jinja"), folder / "tokenizer_config.json"):
        if path.is_file() and re.search(_CLOCK, text := path.read_text(encoding="utf-8")):
            text = _TODAY.sub(lambda call: f"{call[1]}{DATE.strftime(call[2])}{call[1]}", text)
            if re.search(_CLOCK, text):
                raise TableError(
                    f"{path}: its chat template calls `strftime_now` without a format in quotes, so that prompts depend on the day; "
                    "expected a fixed date. Set `chat-template` to a copy with the date in it."
                )
            path.write_text(text, encoding="utf-8")


def from_file(path: Path, tokenizer: Any) -> str:
    """Read a template from a file. Raises TableError if it is invalid, or does not write both messages of a test."""
    from jinja2 import TemplateError

    try:
        template = path.read_text(encoding="utf-8")
        question = tokenizer.apply_chat_template(
            TALK[:1], chat_template=template, add_generation_prompt=True, tokenize=False
        )
        conversation = tokenizer.apply_chat_template(TALK, chat_template=template, tokenize=False)
    except (OSError, UnicodeDecodeError, TemplateError, TypeError) as error:
        line = getattr(error, "lineno", None)
        raise TableError(
            f"{path}{f':{line}' if line else ''}: no chat template ({error}); expected one in Jinja that transformers can "
            "render. Fix the file."
        ) from error
    if TALK[0]["content"] not in question or TALK[1]["content"] not in conversation:
        raise TableError(
            f"{path}: writes {question!r} for a question, and {conversation!r} with its answer; expected the texts of all "
            "messages. Fix the file."
        )
    return template
