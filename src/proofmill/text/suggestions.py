"""The nearest known name, for messages about a name that nobody knows."""

import difflib
from typing import Any


def among(found: str, known: Any, limit: int = 8) -> str:
    """The nearest known name first; a short list otherwise."""
    near = difflib.get_close_matches(str(found), [str(k) for k in known], n=1, cutoff=0.6)
    listed = sorted(str(k) for k in known)
    return f"{', '.join(listed[:limit])}{' ...' if len(listed) > limit else ''}" + (
        f". Did you mean `{near[0]}`?" if near else "."
    )
