"""Chat templates: a tokenizer has one before its model is asked or taught, and one of a file is tried before it is used."""

from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError

TALK = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]


def required(tokenizer: Any, model: str) -> Any:
    """The tokenizer. Raises TableError when it has no chat template."""
    if not tokenizer.chat_template:
        raise TableError(
            f"{model}: its tokenizer has no chat template; expected one, in which conversations are learned and asked. Give "
            "its `base` the `template: plain` (`User: ... Assistant: ...`), or `template: PATH` with a file of your own."
        )
    return tokenizer


def from_file(path: Path, tokenizer: Any) -> str:
    """The template of a file. Raises TableError when it is none, or writes nothing for a question and its answer."""
    from jinja2 import TemplateError

    try:
        template = path.read_text(encoding="utf-8")
        asked = tokenizer.apply_chat_template(
            TALK[:1], chat_template=template, add_generation_prompt=True, tokenize=False
        )
        said = tokenizer.apply_chat_template(TALK, chat_template=template, tokenize=False)
    except (OSError, UnicodeDecodeError, TemplateError, TypeError) as error:
        line = getattr(error, "lineno", None)
        raise TableError(
            f"{path}{f':{line}' if line else ''}: no chat template ({error}); expected one in Jinja, as transformers renders it. "
            "Mend the file."
        ) from error
    if TALK[0]["content"] not in asked or TALK[1]["content"] not in said:
        raise TableError(
            f"{path}: writes {asked!r} for a question, and {said!r} with its answer; expected the texts of all messages. Mend "
            "the file."
        )
    return template
