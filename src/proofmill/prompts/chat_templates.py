"""Check chat templates: a tokenizer must have one before sampling or training, and one from a file is tested first."""

from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError

TALK = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]


def require_template(tokenizer: Any, model: str) -> Any:
    """Return the tokenizer. Raises TableError if it has no chat template."""
    if not tokenizer.chat_template:
        raise TableError(
            f"{model}: its tokenizer has no chat template; expected one, for training and sampling. Set `chat-template: plain` "
            "(`User: ... Assistant: ...`) in its `base`, or `chat-template: PATH` with a file of your own."
        )
    return tokenizer


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
