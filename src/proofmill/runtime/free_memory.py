"""Memory that this process may still allocate: free on the system, and allowed by its control groups."""

from pathlib import Path

# Files of a control group (versions 2 and 1), and the line of its statistics on cached pages, which can be reclaimed.
GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def least() -> int | None:
    """Return the bytes that are free and allowed; None if unknown."""
    return min([*available(), *read_limits()], default=None)


def available(meminfo: Path = Path("/proc/meminfo")) -> list[int]:
    """Return the bytes that the system has available; empty if unknown."""
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def read_limits(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the bytes left under each memory limit of this process: of its control group and all parents."""
    left = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in GROUPS:
            folder, limit, used, cached = GROUPS[controllers]
            group = root / folder / path.lstrip("/")
            for level in (group, *group.parents):
                if level.is_relative_to(root / folder) and (level / limit).is_file():
                    maximum = (level / limit).read_text().strip()
                    stat = dict(entry.split() for entry in (level / "memory.stat").read_text().splitlines())
                    usage = int((level / used).read_text()) - int(stat.get(cached, 0))
                    left += [int(maximum) - usage] if maximum != "max" else []
    return left
