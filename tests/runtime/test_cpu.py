"""Freed memory stays with the process, unless the user set malloc's own variables."""

import os
import subprocess
import sys

import pytest

# Allocates and frees 512 MiB five times, and prints the page faults of the last four.
FAULTS = """
import resource, torch
from proofmill.runtime import cpu
cpu.use(1)
def touch():
    torch.ones(2**27)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, torch.get_num_threads())
"""


def faults(**environment: str) -> tuple[int, int]:
    """Return page faults and threads of a fresh process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    return int(first), int(second)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is a function of glibc")
def test_freed_tensors_are_used_again():
    few, threads = faults()
    assert threads == 1
    many, _ = faults(MALLOC_MMAP_THRESHOLD_="131072")
    assert few < 1000
    assert many > 4 * 256  # of 512 MiB, even in pages of 2 MiB
