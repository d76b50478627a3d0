"""The memory that is free and allowed, from the files of Linux."""

from proofmill.runtime import free_memory


def group(folder, limit, used, cached, names=("memory.max", "memory.current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")


def test_limits_of_control_groups_are_all_respected(tmp_path):
    """Each limit around the process counts, less memory that is used and not merely cached; `max` is no limit."""
    group(tmp_path / "fs/job/step", "max", 10, 0)
    group(tmp_path / "fs/job", 1000, 300, 100)
    group(tmp_path / "fs/other", 1, 0, 0)
    (tmp_path / "fs/memory").mkdir()
    (tmp_path / "cgroup").write_text("5:devices:/job\n0::/job/step\n")
    assert free_memory.read_limits(tmp_path / "cgroup", tmp_path / "fs") == [800]


def test_limits_of_the_first_version_are_respected(tmp_path):
    """The memory controller of the first version has its own folder and names."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(tmp_path / "fs/memory/slurm/job", 500, 60, 10, names)
    (tmp_path / "cgroup").write_text("4:memory:/slurm/job\n0::/\n")
    assert free_memory.read_limits(tmp_path / "cgroup", tmp_path / "fs") == [450]


def test_memory_that_is_not_reported_is_unknown(tmp_path):
    """Without the files of Linux there is nothing to say, and no error."""
    assert free_memory.available(tmp_path / "absent") == [] == free_memory.read_limits(tmp_path / "absent", tmp_path)


def test_free_memory_is_what_the_system_calls_available(tmp_path):
    """Pages that could be had count, not only those that are empty."""
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 70 kB\n")
    assert free_memory.available(tmp_path / "meminfo") == [70 * 1024]
