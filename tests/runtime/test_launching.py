"""Launching a training: the commands of every process, and that several train what one does."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fixed_rollouts
from mill import ROOT, SMALL, Mill
from proofmill.config import starter
from proofmill.runtime.cluster import launching, slurm

LAUNCHING = (sys.executable, "-m", "proofmill.runtime.cluster.launching")
JOB = ("proofmill.grpo", "grpo/x", "--entry", '{"entry": {"model":', '"sft/cold"}}', "--results", "made")


def dry_run(*words: str, job: tuple[str, ...] = JOB, **environment: str) -> list[str]:
    """Return the lines of a dry run, one per process."""
    done = subprocess.run(
        [*LAUNCHING, *words[:1], "--dry-run", *words[1:], *job],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).splitlines()


def after(line: str, option: str) -> str:
    """Return the value of an option in a command."""
    words = shlex.split(line)
    return words[words.index(option) + 1]


@pytest.mark.parametrize("configuration", [path.stem for path in (ROOT / "workflow/accelerate").glob("*.yaml")])
def test_machine_with_gpus_gets_a_process_for_each(configuration):
    """One command starts as many processes as CUDA_VISIBLE_DEVICES has GPUs, with the job's own words at its end."""
    (line,) = dry_run(configuration, CUDA_VISIBLE_DEVICES="0,1,2,5")
    assert after(line, "--num_processes") == "4" and after(line, "--config_file").endswith(f"{configuration}.yaml")
    assert tuple(shlex.split(line)[-len(JOB) :]) == JOB and "--num_machines" not in line


def test_folder_of_ones_own_has_the_files_of_the_project(tmp_path, monkeypatch, capsys):
    """`proofmill init` writes no workflow/accelerate; a file there overrides the project's."""
    starter.write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("sys.argv", ["launching", "--dry-run", "fsdp2", *JOB])
    launching.main()
    assert after(capsys.readouterr().out, "--config_file") == str(ROOT / "workflow/accelerate/fsdp2.yaml")
    own = Path("workflow/accelerate/fsdp2.yaml")
    own.parent.mkdir(parents=True)
    own.write_text("distributed_type: FSDP\n")
    launching.main()
    assert after(capsys.readouterr().out, "--config_file") == str(own)
    monkeypatch.setattr("sys.argv", ["launching", "--dry-run", "fsdp3", *JOB])
    with pytest.raises(SystemExit, match=r"there is no workflow/accelerate/fsdp3\.yaml; expected one of ddp, fsdp2"):
        launching.main()


def test_rollouts_have_gpus_of_their_own():
    """The server gets the last two of four GPUs and the weights that the training begins with; the training the others."""
    server, training = dry_run("fsdp2", "--rollout-gpus", "2", CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert "CUDA_VISIBLE_DEVICES=2,3 " in server and "trl vllm-serve" in server
    assert after(server, "--model") == "made/sft/cold" and after(server, "--data_parallel_size") == "2"
    assert "CUDA_VISIBLE_DEVICES=0,1 " in training and after(training, "--num_processes") == "2"
    assert f"PROOFMILL_ROLLOUT_SERVER_URL=http://127.0.0.1:{(port := after(server, '--port'))} " in training
    assert f"PROOFMILL_WEIGHT_SYNC_PORT={int(port) + 1} " in training


def test_fewer_processes_than_gpus_see_as_many_gpus():
    """With `--processes 1` the process sees one of four GPUs; next to a rollout server, the first of the others."""
    (line,) = dry_run("ddp", "--processes", "1", CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert "CUDA_VISIBLE_DEVICES=0 " in line and after(line, "--num_processes") == "1"
    _, training = dry_run("ddp", "--processes", "1", "--rollout-gpus", "1", CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert "CUDA_VISIBLE_DEVICES=0 " in training
    (line,) = dry_run("ddp", "--processes", "2", CUDA_VISIBLE_DEVICES="")
    assert "CUDA_VISIBLE_DEVICES" not in line


def test_jobs_have_ports_of_their_own(monkeypatch, capsys):
    """Three each, from 20000 to 29999: where processes meet, the server, and where it takes weights; the next job has others."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(slurm, "nodes", lambda: ["a", "b", "c"])
    monkeypatch.setattr(slurm, "address", str)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("sys.argv", ["launching", "--dry-run", "--rollout-node", "fsdp2", *JOB])

    def ports(number: int) -> set[str]:
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        launching.main()
        return set(re.findall(r"(?:_port |--port |_PORT=|http://c:)(\d+)", capsys.readouterr().out))

    assert ports(1) == {"20003", "20004", "20005"} and ports(2) == {"20006", "20007", "20008"}
    assert max(ports(3332)) == "29998" and ports(3333) == ports(0) == {"20000", "20001", "20002"}


def test_rollouts_ahead_have_a_server_that_takes_weights_meanwhile():
    """With `max-staleness` it is vLLM's own server, which gets weights over NCCL and returns probabilities at the temperature."""
    job = (*JOB[:3], '{"entry": {"model": "sft/cold",', '"max_staleness": 4}}', *JOB[-2:])
    server, training = dry_run("fsdp2", "--rollout-gpus", "1", job=job, CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert "CUDA_VISIBLE_DEVICES=3 VLLM_SERVER_DEV_MODE=1 " in server and "vllm serve made/sft/cold " in server
    assert after(server, "--weight-transfer-config") == '{"backend":"nccl"}' and after(server, "--port") in training
    assert after(server, "--logprobs-mode") == "processed_logprobs" and after(server, "--data-parallel-size") == "1"
    job = (*JOB[:3], '{"entry": {"model": "sft/cold",', '"max_staleness": 4,', '"top_k": 20}}', *JOB[-2:])
    server, _ = dry_run("fsdp2", "--rollout-gpus", "1", job=job, CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert after(server, "--logprobs-mode") == "raw_logprobs"  # over all tokens, at temperature 1


@pytest.mark.parametrize(
    ("words", "gpus", "said"),
    [
        (("fsdp3",), "0", "there is no workflow/accelerate/fsdp3.yaml; expected one of ddp, fsdp2"),
        (("ddp",), "", "this job has no GPU"),
        (("ddp", "--rollout-gpus", "2"), "0,1", "--rollout-gpus 2 of 2 GPUs on 1 nodes"),
        (("ddp", "--rollout-node"), "0,1", "--rollout-node in a job of 1 node; expected two or more"),
    ],
)
def test_launch_that_cannot_be_is_refused(words, gpus, said):
    """Before anything is started, with what is there."""
    (line,) = dry_run(*words, CUDA_VISIBLE_DEVICES=gpus)
    assert line.startswith("SettingError: launching: ") and said in line


@pytest.fixture(scope="module")
def weights(small) -> Path:
    """Return the weights of a model that is a little trained."""
    return Mill(small.results, **SMALL).table("sft/cold").folder


@pytest.mark.long
def test_two_processes_have_the_loss_curve_of_one(weights, tmp_path):
    """Twelve steps of grpo on the same rollouts: two ranks with four rows each, and one with eight, within 1e-4 of the loss."""
    path = tmp_path / "losses.pt"
    subprocess.run(
        [*LAUNCHING, "ddp", "--processes", "2", "fixed_rollouts", weights, path, "2", "curve"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    one, two = fixed_rollouts.curve(weights, 8), torch.load(path)
    assert len(one) == len(two) == fixed_rollouts.STEPS and max(one) - min(one) > 1e-2
    assert two == pytest.approx(one, rel=1e-4, abs=1e-5)
