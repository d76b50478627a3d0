"""`proofmill selftest`: what it runs here, what it would run on GPUs, and its report."""

import json
import subprocess
import sys

import pytest
import yaml

from mill import Mill
from proofmill.artifacts.states import States
from proofmill.cli import selftest
from proofmill.config.config import expand
from proofmill.planning.machines import GPUS
from proofmill.schema.errors import SettingError

NO_GPU = [check.name for check in selftest.CHECKS if check.on_cpu]


def run(folder, *options):
    command = [sys.executable, "-m", "proofmill", "selftest", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.vllm
def test_machine_without_a_gpu_passes_what_it_can(tmp_path):
    """Each check that needs no GPU is made for real, and a second run repeats nothing."""
    first = run(tmp_path, "--json")
    assert first.returncode == 0, first.stderr[-3000:]
    found = {check["check"]: check for check in json.loads(first.stdout)["checks"]}
    assert [name for name, check in found.items() if check["outcome"] == "passed"] == NO_GPU
    assert {check["why"] for check in found.values() if check["outcome"] == "not run"} == {"needs 2 GPUs"}
    assert found["sft/one"]["planned_bytes"] > 0 and found["sft/one"]["peak_bytes"] is None
    again = run(tmp_path)
    assert again.returncode == 0 and "took" not in again.stderr
    assert "sft/two            passed   SFT, FSDP2 with two processes" in again.stdout


def test_gpus_that_torch_does_not_see_are_an_error(tmp_path):
    """`--gpu` on a machine without one stops before anything is written."""
    failed = run(tmp_path, "--gpu")
    assert failed.returncode == 1 and "--gpu: torch sees no GPU on this machine" in failed.stderr
    assert not [*tmp_path.iterdir()]


def test_folder_of_another_project_is_not_touched(tmp_path):
    """A folder with a configuration of its own is refused."""
    (tmp_path / "config.yaml").write_text("mine: {}\n")
    with pytest.raises(SettingError, match=r"has another config.yaml; expected a new folder"):
        selftest._write(tmp_path, selftest.CHECKS, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_checks_of_gpus_fit_them_and_have_planned_seconds(tmp_path, monkeypatch, gpus):
    """On every known GPU each check has a range of seconds to compare with, of minutes in all; a lone process sees one GPU."""
    checks = [check for check in selftest.CHECKS if check.gpus <= gpus]
    selftest._write(tmp_path, checks, gpus)
    config = expand(yaml.safe_load((tmp_path / "config.yaml").read_text()))
    for name in GPUS:
        monkeypatch.setattr(selftest, "_name_gpu", lambda name=name: name)
        planned = selftest._plan(config, gpus)
        assert {*planned} == {check.name for check in checks} - {"grpo/transformers"}
        assert all(0 < low < high for low, high in planned.values()) and sum(low for low, _ in planned.values()) < 300
    site = yaml.safe_load((tmp_path / "site.yaml").read_text())
    assert ("--processes 1" in site["grpo/vllm"].get("launch", "")) == (gpus > 1)
    assert ("grpo/server" in site) == (gpus > 1)


def test_report_has_the_last_line_of_a_failed_check(tmp_path):
    """A check without a table failed, for the reason at the end of its log."""
    log = tmp_path / "results/grpo/vllm.log"
    log.parent.mkdir(parents=True)
    log.write_text("12:00:00  starts\n12:00:01  RuntimeError: no kernel image is available\n\n")
    selftest._write(tmp_path, selftest.CHECKS, 0)
    config = expand(yaml.safe_load((tmp_path / "config.yaml").read_text()))
    (check,) = (check for check in selftest.CHECKS if check.name == "grpo/vllm")
    found = selftest._read(check, States(config, tmp_path / "results"), None)
    assert found["outcome"] == "failed"
    report = "\n".join(selftest._lines("H100", 2, [found]))
    assert "grpo/vllm          failed   GRPO, vLLM in the same process: 12:00:01  RuntimeError: no kernel" in report


def test_table_of_other_settings_is_no_passed_check(tmp_path):
    """After a test of the CPU, a failed test of GPUs in the same folder is not taken for passed."""
    entries = {"problems/selftest": {"source": "arithmetic", "rows": 256}}
    mill = Mill(tmp_path / "results", **entries)
    mill.make("problems/selftest")
    check = selftest.Check("problems/selftest", "problems")
    assert selftest._read(check, States(mill.config, mill.results), None)["outcome"] == "passed"
    selftest._write(tmp_path, selftest.CHECKS, 1)
    config = expand(yaml.safe_load((tmp_path / "config.yaml").read_text()))
    assert selftest._read(check, States(config, mill.results), None)["outcome"] == "failed"


def test_report_compares_a_passed_check_with_the_plan():
    """Seconds are next to the planned range, and the peak next to the planned bytes."""
    passed = {"outcome": "passed", "check": "sft/one", "about": "SFT", "why": "", "seconds": 12.34}
    passed |= {"planned_seconds": [5.0, 20.0], "planned_bytes": 3 * 10**9, "peak_bytes": 2 * 10**9}
    lines = [*selftest._lines("H100", 1, [passed])]
    assert lines[0].startswith("selftest on 1 x H100, proofmill ")
    assert lines[2].strip() == "12.3 s (planned: 5.0 to 20.0 s); a training step: planned 3.0 GB, measured 2.0 GB"
