"""Convert forum threads to problems: the statement, a selected solution, and the other posts as candidates.

From: raw threads of the AoPS forum's API; `thread` and `like_a_solution` state the rule of selection.

Differences from the published corpora:
1. The selection rule is documented, and a thread without a solution-like post has no solution.
2. Quotes are removed: a post that only quotes a solution does not count as one.
"""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from proofmill.schema.errors import TableError, shorten
from proofmill.sources.record_fields import field, records, text
from proofmill.text import question_types
from proofmill.text.question_types import BOX, END_OF_PROOF

Row = dict[str, Any]


def thread(where: str, record: Mapping) -> Row:
    """Convert a raw record of the forum's API to a problem.

    The statement is the first post. The solution is selected from the later posts that are like a solution (see
    `like_a_solution`), including those of the thread starter. It is the post with most thanks; ties go to a post with a box
    or an end-of-proof sign, then to the earliest. Without such a post the problem has no solution. All other posts
    are candidates, in order. Deleted posts do not count. Raises TableError for a record of another form.
    """
    topic = field(where, record, "response.response")
    posts = sorted(
        (p for p in records(where, topic, "posts") if not p.get("deleted")),
        key=lambda p: _whole(where, p, "post_number"),
    )
    contents = [_content(where, post) for post in posts]
    likely = [
        (-(_whole(where, post, "thanks_received", 0)), not _is_finished(content), n)
        for n, (post, content) in enumerate(zip(posts, contents, strict=True))
        if n > 0 and like_a_solution(content)
    ]
    chosen = min(likely)[2] if likely else None
    statement = contents[0] if contents else None
    solution = contents[chosen] if chosen is not None else None
    return {
        "statement": statement,
        "solution": solution,
        "candidates": [c for n, c in enumerate(contents) if n not in (0, chosen) and c],
        "question_type": question_types.asks(statement, solution),
        "origin": where,
        "year": _year(where, posts[0]) if posts else None,
        "tags": [tag for each in _objects(topic, "tags") if isinstance(tag := each.get("tag_text"), str)],
    }


def _objects(record: Mapping, column: str) -> list[Mapping]:
    """Return the objects of an optional list."""
    items = record.get(column)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _whole(where: str, post: Mapping, column: str, default: int | None = None) -> int:
    value = post.get(column, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TableError(f"{where}: a post has `{column}` {shorten(value)}; expected a whole number.")
    return value


def _year(where: str, post: Mapping) -> int | None:
    if not post.get("post_time"):
        return None
    try:
        return datetime.fromtimestamp(_whole(where, post, "post_time"), UTC).year
    except (ValueError, ArithmeticError, OSError) as error:
        raise TableError(
            f"{where}: a post has `post_time` {shorten(post['post_time'])}; expected seconds since 1970. Fix the row."
        ) from error


def _content(where: str, post: Mapping) -> str:
    """Return the text of a post without quotes and markup, but with its images, which filters detect."""
    content = plain(text(where, post, "post_canonical") or "")
    for attached in _objects(post, "attachments"):
        name = attached.get("name")
        if name and str(name) not in content:
            content = f"{content}\n[attachment={name}]".strip()
    return content


_TAG = re.compile(
    r"\[(/?)(quote|hide|spoiler|url|b|i|u|s|color|size|center|left|right|list|code)\b([^\[\]\n]{0,300})\]",
    re.IGNORECASE,
)


def plain(post: str) -> str:
    """Remove BBCode: quotes are deleted, other tags unwrapped. An unclosed tag is text, as in `a[i]`."""
    parts: list[str] = []
    opened: list[tuple[str, int]] = []
    awaited: Counter[str] = Counter()  # number of each name in `opened`
    end = 0
    for tag in _TAG.finditer(post):
        parts.append(post[end : tag.start()])
        end = tag.end()
        name = tag[2].lower()
        if not (tag[1] and awaited[name]):
            if not tag[1]:
                opened.append((name, len(parts)))
                awaited[name] += 1
            parts.append(tag[0])
            continue
        inner = None
        while inner != name:  # an inner tag that is never closed is text
            inner, start = opened.pop()
            awaited[inner] -= 1
        if name == "quote":
            del parts[start:]
        else:
            parts[start] = ""
    return "".join([*parts, post[end:]]).strip()


_SHORTEST = 30  # characters; a terse but complete proof of one line has about 60
_TALK = re.compile(
    r"^\W*(?:thanks?\b|thank you|nice\b|great\b|beautiful|cool\b|bump|any (?:ideas?|solutions?|hints?|help)|"
    r"can (?:some|any)(?:one|body)|"
    r"(?:some|any)(?:one|body)\b|please\b|pls\b|help\b|hint\s*:|see\b|"
    r"(?:i )?(?:solved|posted|already posted|have seen|found) (?:it )?(?:here|before)|"
    r"this (?:is|was) (?:well[- ]known|old|posted))",
    re.IGNORECASE,
)
_OBJECTION = re.compile(
    r"\b(?:this|that|it|your (?:proof|solution|answer|claim)|(?:the|your) (?:\w+ )?(?:line|step)|post #?\d+|@\w+)\b"
    r"[^.\n]{0,40}?\b(?:is|are|seems?|looks?|was)\b"
    r"[^.\n]{0,15}\b(?:wrong|incorrect|mistaken|not (?:true|right|correct)|flawed|a mistake)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|or something|not sure|i guess|i (?:don't|do not) know|might work|any ideas?)\b", re.IGNORECASE
)
_MATHEMATICS = re.compile(
    r"[=<>≤≥≡∈∣→]|\\(?:le|ge|leq|geq|equiv|implies|mid|in|Rightarrow|boxed|"
    r"frac|angle|triangle|sim|cong|ne|neq|to|pmod)\b"
)


def like_a_solution(post: str) -> bool:
    """Return whether a post tries to solve the problem.

    It is at least 30 characters long, or has a box or an end-of-proof sign. It has mathematics (a relation, a box). It does
    not begin with thanks, praise, a call for help, or an objection to another post. If it has fewer than 300 characters, it
    neither hedges nor ends in a question.
    """
    if not _is_finished(post) and (len(post) < _SHORTEST or not _MATHEMATICS.search(post)):
        return False
    opening = post[:120]
    if (_TALK.match(post) and len(post) < 300) or (_OBJECTION.search(opening) and "statement" not in opening.lower()):
        return False
    return _is_finished(post) or len(post) >= 300 or not (_HEDGE.search(post) or post.rstrip(" $.)").endswith("?"))


@lru_cache(maxsize=4)
def _is_finished(post: str) -> bool:
    return bool(BOX.search(post) or END_OF_PROOF.search(post))
