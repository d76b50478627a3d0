"""Machines by name, and the launch files that their layouts stand for."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

from mill import ROOT
from proofmill.planning import machines
from proofmill.planning.trainings import LAYOUTS
from proofmill.runtime import processes
from proofmill.runtime.cluster.site_lines import LAUNCHED
from proofmill.schema.errors import SettingError


@pytest.mark.parametrize(
    ("name", "devices", "nodes", "gigabytes"),
    [
        ("H100", 1, 1, 80),
        ("8xH100", 8, 1, 80),
        ("2x8xh200", 16, 2, 141),
        ("4xA100", 4, 1, 80),
        ("8xA100-40", 8, 1, 40),
        ("2x4090", 2, 1, 24),
        ("8xRTX-4090", 8, 1, 24),
        ("8x48GB", 8, 1, 48),
        ("16x8x96gb", 128, 16, 96),
    ],
)
def test_machine_has_the_gpus_of_its_name(name, devices, nodes, gigabytes):
    """A number of nodes, of GPUs in each, and a listed GPU or its GB; in any case."""
    found = machines.machine(name)
    assert (found.devices, found.nodes, found.bytes) == (devices, nodes, gigabytes * 10**9)
    assert machines.machine(found.name) == found
    assert (found.gpu.bfloat16 == 0) == name.lower().endswith("gb")


@pytest.mark.parametrize(
    ("devices", "computers"), [(1, 1), (8, 1), (9, 3), (11, None), (12, 2), (14, 2), (15, 3), (24, 3), (25, None)]
)
def test_computers_of_a_training_have_as_many_gpus_each(devices, computers):
    """The fewest of three with eight each; none where a number does not divide."""
    assert machines.machine("3x8xH100").nodes_for(devices) == computers


@pytest.mark.parametrize("name", ["8xH10", "0xH100", "H100x8", "2x2x2xH100", "xH100", "0GB", ""])
def test_unknown_machine_is_refused_with_those_that_are_known(name):
    """The message has the name, the known ones, and the nearest."""
    with pytest.raises(SettingError, match=r"no such machine; expected .* cpu, .* A100-40, A100-80, B200, H100, H200"):
        machines.machine(name)


def test_every_gpu_calculates_and_reads_faster_than_it_holds():
    """Figures have one unit each: bfloat16 is faster than float32, memory is read within a second."""
    for name, gpu in machines.GPUS.items():
        assert gpu.bfloat16 > gpu.float32 > gpu.bandwidth > gpu.bytes, name
        assert gpu.host > gpu.bytes, name


@pytest.mark.parametrize("layout", LAUNCHED)
def test_launch_file_of_a_layout_is_what_the_plan_takes_it_for(layout, monkeypatch):
    """The environment that accelerate sets for a job is read as this sharding, on the host or not."""
    file = str(ROOT / f"workflow/accelerate/{layout}.yaml")
    arguments = launch_command_parser().parse_args(["--config_file", file, "-m", "x"])
    for name, value in prepare_multi_gpu_env(_validate_launch_command(arguments)[0]).items():
        monkeypatch.setenv(name, value)
    planned = LAYOUTS[layout].get("sharded", "none"), LAYOUTS[layout].get("offloaded", False)
    assert (processes.sharding(), processes.offloads()) == planned
    fsdp = yaml.safe_load(Path(file).read_text()).get("fsdp_config", {})
    assert fsdp.get("fsdp_activation_checkpointing", False) == planned[1]
