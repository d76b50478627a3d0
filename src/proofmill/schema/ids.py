"""Compute ids from content: short digests of JSON values, and SHA-256 of files. Row numbers are never ids."""

import hashlib
import json
from pathlib import Path
from typing import Any


def digest(*parts: Any) -> str:
    """Return a digest of JSON values, 16 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
