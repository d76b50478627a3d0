"""Split generated problems into parts by a hash of their content.

So parts are disjoint for every wording, seed and number of rows.
"""

import hashlib

PARTS = {"train": range(0, 80), "dev": range(80, 90), "test": range(90, 100)}  # of 100 buckets of the hash


def part_of(content: str) -> str:
    """Return the part of a problem: train, dev or test. `content` identifies the problem."""
    bucket = int(hashlib.sha256(content.encode()).hexdigest(), 16) % 100
    return next(part for part, buckets in PARTS.items() if bucket in buckets)
