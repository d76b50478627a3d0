"""Suggest known names in messages about an unknown one."""

import difflib
from typing import Any


def nearest(name: str, known: Any) -> str:
    """Return the known name nearest to `name`, empty if none is near."""
    return next(iter(difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.6)), "")


def among(name: str, known: Any, limit: int = 8) -> str:
    """Return the first `limit` known names in alphabetical order, and the one nearest to `name`, if any is near."""
    near = nearest(name, known)
    listed = sorted(str(k) for k in known)
    return f"{', '.join(listed[:limit])}{' ...' if len(listed) > limit else ''}" + (
        f". Did you mean `{near}`?" if near else "."
    )
