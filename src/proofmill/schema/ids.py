"""Content-derived ids: short digests of JSON-able values, and SHA-256 of files. Row numbers are never ids."""

import hashlib
import json
from pathlib import Path
from typing import Any


def digest(*parts: Any) -> str:
    """16 hexadecimal digits that stand for some JSON-able parts."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
