"""Escape untrusted texts, so that they cannot close a block of a prompt, start a turn, or add a control token.

1. `enclose` and `in_blocks` are for the fields of a prompt: they leave neither our tags nor control tokens.
2. `without_control_tokens` is for a turn of a conversation, which may contain its own tags.
3. `ControlTokens` is for a given tokenizer: all texts that it reads as one of its control tokens are escaped.

The first two know the families of control tokens that chat templates use, for any model: prompts are part of a call's
key and must be the same on every machine. They search the folded view of a text (text/folding.py), the last the
tokenizer's output. Only the first character of each match is changed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from proofmill.text.folding import escape, escape_at, fold

# The tags of our prompts and of the outputs that they ask for.
BLOCKS = (
    "problem", "solution", "source", "comments", "comment", "scheme", "proof", "reference", "answer", "others",
    "judgement", "points", "score", "verdict", "assessment", "errors", "summary", "reasoning", "reply", "approach",
    "report", "keep", "other",
)  # fmt: skip
REASONING = "think"
NONE = "(none)"  # an absent field
OURS = frozenset(f"<{slash}{name}>" for slash in ("", "/") for name in (*BLOCKS, REASONING))

_WORDS = (
    "s|bos|eo[dmpst]|sop|pad|unk|cls|sep|[gs]?mask|start|end|role|system|user|assistant|human|bot|model|developer|tool|function|"
    "observation|thought|thinking|image|audio|video"
)
_NAME = r"[\w▁./:-]"
# No name may contain `&` or `;`, so a text that is escaped already does not match and stays as it is.
_TOKENS = rf"""
    <(?= /? \| {_NAME}{{2,64}}+ (?: \| {_NAME}{{1,64}}+ )? \|? >     # <|im_end|>, <|turn>, <|DSML|function_calls>
       | /? \| DSML \|
       | /? {_NAME}{{2,64}}+ \| >                                    # <turn|>
       | /? (?: {_WORDS} ) >                                         # <s>
       | /? [a-z]{{2,64}}+ (?: [_:▁] [a-z0-9]{{1,64}}+ ){{1,8}}+ >   # <start_of_turn>, <seed:eos>, <extra_id_1>
       | /? [a-z]{{3,64}}+ \d{{1,8}}+ >                              # <unused99>
       | < /? SYS >> )
  | \[(?= /? (?: INST | SYSTEM_PROMPT | AVAILABLE_TOOLS | TOOL_(?: RESULTS | CALLS | CONTENT ) | MODEL_SETTINGS ) \]
        | /? (?-i: THINK | ARGS | CALL_ID | IMG(?: _BREAK | _END )? | [gs]? MASK ) \]  # [mask] is an index
        | \| /? [a-z_▁]{{3,64}}+ \| \]                               # [|user|]
        | e~\[ )
  | \](?= ~!?b[\[\]] )                                               # ]~b]
"""
# A model may also read a tag with white space in it, or with other brackets or strokes than `<` and `/`.
_OPENS = r"[<‹〈⟨˂ᐸ❬❮❰](?= [\s/⁄∕╱⧸\\]*+"


def _space(name: str) -> str:
    return r"\s*+".join(name)


_THOUGHT = rf"{_OPENS} {_space(REASONING)} \s*+ >)"
_SWITCH = r"/(?= no_?think \b )"  # turns off the reasoning of GLM and Qwen


def _compile(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.VERBOSE)


_IN_A_TURN, _OF_OTHERS = _compile(_TOKENS), _compile(_TOKENS, _THOUGHT)


@lru_cache
def _in_a_block(tags: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(_space, (*BLOCKS, *sorted(tags))))
    return _compile(_TOKENS, _THOUGHT, rf"{_OPENS} (?: {names} ) \b )", _SWITCH)


class Enclosed(str):
    """Our own blocks around texts that are enclosed already. Joining it to another text gives an ordinary string."""


def enclose(value: str | None, tags: frozenset[str] = frozenset()) -> str:
    """Escape a field's text, so that it can neither close a block nor open a turn; `(none)` for an absent one.

    `tags` are names of blocks in addition to ours.
    """
    if value is None or not value.strip():
        return NONE
    return value if isinstance(value, Enclosed) else escape(value, _in_a_block(tags))


def in_blocks(tag: str, texts: Iterable[str]) -> Enclosed:
    """Return several texts as one field, each escaped and in its own block."""
    return Enclosed("\n".join(f"<{tag}>\n{enclose(text)}\n</{tag}>" for text in texts))


def without_control_tokens(text: str, reasoning: bool = False) -> str:
    """Escape a turn, so that it cannot open or end another; with `reasoning` it keeps the tags of its own reasoning."""
    return escape(text, _IN_A_TURN if reasoning else _OF_OTHERS)


class ControlTokens:
    """The control tokens of a tokenizer: those that it declares as special, and its added ones in brackets.

    The latter act as special tokens, too, although DeepSeek-R1's distilled models declare `<｜User｜>` as ordinary, and
    Qwen3 `<tool_call>`; `split_special_tokens` does not split them. Our own tags never count as control tokens: in a
    rendered prompt only our own are left, and in training texts they are the form to be learned.
    """

    def __init__(self, tokenizer: Any):
        from transformers import PreTrainedTokenizerFast

        self.tokenizer = tokenizer
        # Other tokenizers report no offsets. One of them, mistral-common, parses no control token in a message.
        added = tokenizer.added_tokens_decoder if isinstance(tokenizer, PreTrainedTokenizerFast) else {}
        named = {id: (_name(token.content), token.special) for id, token in added.items()}
        self._names = {
            id: name
            for id, (name, special) in named.items()
            if len(name) > 1 and name not in OURS and (special or name[0] + name[-1] in ("<>", "[]"))
        }

    def escape(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Escape the control tokens in a conversation, so that those of the template are the only ones.

        All fields of a message except its role are escaped, also the calls of tools.
        """
        return [
            {key: value if key == "role" else self.escape_inside(value) for key, value in message.items()}
            for message in messages
        ]

    def escape_inside(self, value: Any) -> Any:
        """Escape the control tokens in all texts of a value."""
        if isinstance(value, str):
            return self.escape_text(value)
        if isinstance(value, Mapping):
            return {self.escape_text(key): self.escape_inside(inner) for key, inner in value.items()}
        return [self.escape_inside(inner) for inner in value] if isinstance(value, list) else value

    def escape_text(self, text: str) -> str:
        """Escape each control token that the tokenizer finds in a text."""
        while places := self._places(text):
            text = escape_at(text, places)
        return text

    def _places(self, text: str) -> list[int]:
        """Return the offsets of control tokens. The unknown token counts only if the text spells it out."""
        if not self._names:
            return []
        tokens = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        spans = [
            (self._names[id], start, text[start:end])
            for id, (start, end) in zip(tokens["input_ids"], tokens["offset_mapping"], strict=True)
            if id in self._names
        ]
        return [start + len(span) - len(span.lstrip()) for name, start, span in spans if _name(span) == name]


def _name(token: str) -> str:
    return fold(token).strip().casefold()
