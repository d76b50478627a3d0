"""Suggest known names in messages about an unknown one."""

import difflib
from collections.abc import Iterable

FEW, MANY = 8, 40  # names to list next to a suggestion, and without one
# Words that people try, with our names for them.
MEANT = {
    **dict.fromkeys(("json", "jsonl", "csv", "tsv", "parquet", "file", "local"), ("table",)),
    **dict.fromkeys(("accuracy", "mean", "score"), ("avg-at-k", "solve-rate", "grade")),
    **dict.fromkeys(("avg", "average"), ("mean", "avg-at-k")),
    **dict.fromkeys(("correct", "correctness"), ("grade", "solve-rate", "solved")),
    **dict.fromkeys(("length", "short", "brevity"), ("length-group", "statement-length")),
    **dict.fromkeys(("ppo", "reinforce"), ("clipped", "reinforce")),
    **dict.fromkeys(("dedup", "duplicates"), ("not-duplicate", "distinct")),
}


def nearest(name: object, known: Iterable[object]) -> list[str]:
    """Return the known names that may be meant, the nearest first: alike, with this word in them, or by MEANT."""
    word, names = str(name).lower(), {str(k).lower(): str(k) for k in known}
    words = {**{w: [n for n in ours if n in names] for w, ours in MEANT.items()}, **{n: [n] for n in names}}
    alike = [
        difflib.get_close_matches(word, [w for w in words if words[w]], n, cutoff) for n, cutoff in ((1, 0.6), (3, 0.8))
    ]
    parts = [n for n in names if n.endswith(f"/{word}") or (len(word) > 3 and word in n)]
    found = [names[n] for w in (*alike[0], *alike[1]) for n in words[w]]
    return list(dict.fromkeys([*found, *(names[n] for n in parts)]))[:3]


def list_known(known: Iterable[object], limit: int = MANY) -> str:
    """Return the first known names in alphabetical order and the number of the others; words for an empty list."""
    listed = sorted(str(k) for k in known)
    more = f" and {len(listed) - limit:,} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more if listed else "the declared names, and none is declared"


def among(name: object, known: Iterable[object]) -> str:
    """Return the known names, as the end of a sentence, and a question with those nearest to `name`, if any is near."""
    known = list(known)
    near = nearest(name, known)
    meant = f" Did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    return f"{list_known(known, FEW if near else MANY)}.{meant}"
