"""Suggestions of known names, for messages about an unknown one."""

import difflib
from typing import Any


def among(name: str, known: Any, limit: int = 8) -> str:
    """The first `limit` known names in alphabetical order, and the one nearest to `name`, if any is near."""
    near = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.6)
    listed = sorted(str(k) for k in known)
    return f"{', '.join(listed[:limit])}{' ...' if len(listed) > limit else ''}" + (
        f". Did you mean `{near[0]}`?" if near else "."
    )
