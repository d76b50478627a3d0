"""`proofmill selftest`: train and sample in each way that this machine can, and compare the plan with what it took."""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from proofmill.cli.config_options import add_json, print_result
from proofmill.runtime.cluster import site_resources
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

if TYPE_CHECKING:
    from proofmill.artifacts.states import States
    from proofmill.config.config import Config

LAUNCH = f"{site_resources.LAUNCH} proofmill.runtime.cluster.launching"
RECIPE = "selftest"
STEPS = {"cpu": {"sft": 4, "grpo": 4}, "gpu": {"sft": 100, "grpo": 8}}
WRITTEN = {"cpu": 32, "gpu": 512}  # tokens of an attempt
# Random weights, so nothing is downloaded. On a GPU, rows are long enough for the rates that the plan assumes.
BASE = {"cpu": {}, "gpu": {"hidden": 1024, "layers": 12, "heads": 32, "feed-forward": 2816, "initializer-range": 0.02, "context": 2048}}  # fmt: skip
SOURCE = {"cpu": {}, "gpu": {"families": ["digits"], "sizes": {"digits": [80, 99]}}}


@dataclass(frozen=True)
class Check:
    """An artifact that is made in one way. It needs `gpus`, or a CPU if it can run `on_cpu`."""

    name: str
    about: str
    gpus: int = 1
    on_cpu: bool = True
    site: Mapping[str, Any] = field(default_factory=dict)  # its words in site.yaml
    entry: Mapping[str, Any] = field(default_factory=dict)  # its own fields

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def trains(self) -> bool:
        return KINDS[self.kind].trains is not None


FSDP2, SERVER = {"launch": f"{LAUNCH} fsdp2 --processes 2"}, f"{LAUNCH} ddp --processes 1 --rollout-gpus 1"
CHECKS = (
    Check("sft/one", "SFT, one process"),
    Check("sft/two", "SFT, FSDP2 with two processes", 2, site=FSDP2),
    Check("responses/vllm", "sampling with vLLM", site={"engine": "vllm"}),
    Check("grpo/transformers", "GRPO, sampling with transformers", site={"engine": "transformers"}),
    Check("grpo/vllm", "GRPO, vLLM in the same process", site={"engine": "vllm"}),
    Check("grpo/two", "GRPO, FSDP2 and vLLM in two processes", 2, False, {**FSDP2, "engine": "vllm"}),
    Check("grpo/server", "GRPO, vLLM on a GPU of its own", 2, False, {"engine": "vllm-server", "launch": SERVER}),
    Check(
        "grpo/stale", "the same, sampling while training", 2, False, {"engine": "vllm-server", "launch": SERVER}, {"max-staleness": 1}
    ),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `selftest`."""
    parser.add_argument("--gpu", action="store_true", help="test the GPUs of this machine, in bfloat16")
    parser.add_argument(
        "--folder", type=Path, default=Path("selftest"), help="where to work; a rerun resumes there (default: selftest)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the checks and print a report; exit with 1 if one failed."""
    import torch

    from proofmill.artifacts.states import States
    from proofmill.config import yaml_files
    from proofmill.config.config import expand

    gpus = torch.cuda.device_count() if options.gpu else 0
    if options.gpu and not gpus:
        raise SettingError(
            "--gpu: torch sees no GPU on this machine; expected at least one. Install torch for CUDA (docs/cluster.md), or "
            "leave --gpu out to test the CPU."
        )
    checks = [check for check in CHECKS if (gpus >= check.gpus if gpus else check.on_cpu)]
    _write(options.folder, checks, gpus)
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "gpus", "--", RECIPE]
    subprocess.run(command, cwd=options.folder, stdout=sys.stderr, check=False)
    config = expand(yaml_files.read(str(options.folder / "config.yaml")))
    planned, states = _plan(config, gpus), States(config, options.folder / "results")
    found = [_read(check, states if check in checks else None, planned.get(check.name)) for check in CHECKS]
    machine = _name_gpu() if gpus else "cpu"
    print_result(options, {"machine": machine, "gpus": gpus, "checks": found}, _lines(machine, gpus, found))
    if any(check["outcome"] == "failed" for check in found):
        sys.exit(1)


def _write(folder: Path, checks: Sequence[Check], gpus: int) -> None:
    """Write the project. Raises SettingError if the folder has another one."""
    from proofmill.config import starter

    place = folder / "config.yaml"
    if place.exists() and not place.read_text(encoding="utf-8").startswith(f"{RECIPE}:"):
        raise SettingError(f"--folder {folder}: has another config.yaml; expected a new folder. Choose another one.")
    starter.write(folder, here=True)
    size = "gpu" if gpus else "cpu"
    precision = "bfloat16" if gpus else "float32"
    sft = {"model": "base/selftest", "examples": "examples/selftest", "batch-size": 16}
    grpo = {
        "model": "base/selftest",
        "problems": "problems/selftest",
        "grader": "arithmetic",
        "rewards": {"grade": 1},
        "unscored": "drop",
        "group-size": 8,
        "problems-per-step": 8,
        "max-tokens": WRITTEN[size],
        "entropy": 0.001,  # so that each rollout has a gradient
    }
    responses = {"problems": "problems/selftest", "model": "base/selftest", "max-tokens": WRITTEN[size]}
    entries: dict[str, dict[str, Any]] = {"sft": sft, "grpo": grpo, "responses": responses}
    for kind, steps in STEPS[size].items():
        entries[kind] |= {"steps": steps, "precision": precision}
    recipe = {
        "problems/selftest": {"source": "arithmetic", "rows": 256, **SOURCE[size]},
        "base/selftest": {"source": "scratch", "problems": "problems/selftest", **BASE[size]},
        "examples/selftest": {"problems": "problems/selftest"},
        **{check.name: entries[check.kind] | {**check.entry} for check in checks},
    }
    alone = {"launch": f"{LAUNCH} ddp --processes 1"} if gpus > 1 else {}  # it must see one GPU
    site = {c.name: {"gpu": c.gpus * bool(gpus), **(alone if c.trains else {}), **c.site} for c in checks}
    place.write_text(yaml.safe_dump({RECIPE: recipe}, sort_keys=False), encoding="utf-8")
    (folder / "site.yaml").write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")


def _plan(config: "Config", gpus: int) -> dict[str, list[float]]:
    """Return the seconds that a plan expects of each check: at the fast and at the slow end. None are known of a CPU."""
    from proofmill.planning.feasibility import Feasibility
    from proofmill.planning.machines import machine
    from proofmill.planning.plan import RunPlan

    if not gpus:
        return {}
    plan = RunPlan(config, RECIPE, Path("nothing is finished here"))
    seconds: dict[str, list[float]] = {}
    for check in CHECKS:
        verdicts = Feasibility(plan, machine(f"{check.gpus}x{_name_gpu()}")).verdicts
        (known,) = [v.hours for v in verdicts if v.stage == check.name] or [None]
        if known and check.site.get("engine") != "transformers":  # whose sampling the plan does not know
            seconds[check.name] = [3600 * end for end in known.wall.tolist()]
    return seconds


def _name_gpu() -> str:
    """Return the name of the first GPU as `--machine` takes it; if it is unknown, by its memory."""
    import torch

    from proofmill.planning.machines import GB, GPUS

    properties = torch.cuda.get_device_properties(0)
    named = (name for name in GPUS if all(part in properties.name for part in name.split("-")))
    return next(named, f"{round(properties.total_memory / GB)}GB")


def _read(check: Check, states: "States | None", planned: Sequence[float] | None) -> dict[str, Any]:
    """Return what a check took, or why it failed; without states it did not run.

    A table of other settings, such as those of a CPU, does not count. Bytes are those of a training step on one device.
    """
    from proofmill.artifacts.tables import Table

    found: dict[str, Any] = {"check": check.name, "about": check.about, "outcome": "passed", "why": ""}
    if states is None:
        return {**found, "outcome": "not run", "why": f"needs {check.gpus} GPUs"}
    table = Table(check.name, states.results)
    if states[check.name].name != "done":
        lines = table.log.read_text(encoding="utf-8").splitlines() if table.log.exists() else []
        return {**found, "outcome": "failed", "why": next((line for line in reversed(lines) if line.strip()), "no log")}
    stamp = table.stamp
    seconds = stamp.get("training_seconds", stamp["seconds"])
    measured = {name: stamp.get(name) for name in ("planned_bytes", "peak_bytes")}
    return {**found, "seconds": seconds, "planned_seconds": planned, **measured}


def _lines(machine: str, gpus: int, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the report as text."""
    versions = ", ".join(f"{package} {version(package)}" for package in ("proofmill", "torch", "transformers", "trl"))
    yield f"selftest on {f'{gpus} x ' if gpus else ''}{machine}, {versions}"
    for check in found:
        yield f"  {check['check']:<18} {check['outcome']:<8} {check['about']}{': ' if check['why'] else ''}{check['why']}"
        if check["outcome"] == "passed":
            yield f"  {'':<27} {_describe(check)}"
    if gpus:
        yield "To report it, send these lines, or --json, with the logs in results/."


def _describe(check: Mapping[str, Any]) -> str:
    """Return time and memory of a check, each next to the plan."""
    from proofmill.training.memory import size

    parts = [f"{check['seconds']:.1f} s"]
    if check["planned_seconds"]:
        low, high = check["planned_seconds"]
        parts[0] += f" (planned: {low:.1f} to {high:.1f} s)"
    if check["planned_bytes"]:
        measured = "" if check["peak_bytes"] is None else f", measured {size(check['peak_bytes'])}"
        parts.append(f"a training step: planned {size(check['planned_bytes'])}{measured}")
    return "; ".join(parts)
