"""The command `proofmill` itself: its help, version and completion, and a reader that goes away."""

import argparse
import os
import shlex
import subprocess
import sys

import pytest

import proofmill
from mill import ROOT
from proofmill.__main__ import main, parser
from proofmill.runtime.project import project_folder, snakefile


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return every subcommand."""
    return next(action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run the command in the root of the project."""
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run([sys.executable, "-m", "proofmill", *arguments], check=False, **options)


@pytest.mark.parametrize("command", list(commands()))
def test_command_has_help_with_an_example_that_it_understands(command):
    """`--help` ends with an example, which the command's own parser accepts."""
    example = commands()[command].epilog.removeprefix("example: ")
    program, *arguments = shlex.split(example)
    assert (program, arguments[0]) == ("proofmill", command)
    assert parser().parse_args(arguments).command == command


def test_command_says_its_version(capsys):
    """`proofmill --version` is the package's."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"proofmill {proofmill.__version__}\n")


def test_completion_names_every_command_and_is_read_by_bash(capsys):
    """The output of `--print-completion bash` is a valid script that knows all commands and options."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert all(command in script for command in commands()) and "--configfile" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("words", [("manual", "grpo"), ("show",)])
def test_command_without_a_reader_ends_without_a_traceback(words, monkeypatch):
    """`proofmill manual grpo | head -0` ends as other commands do whose pipe is closed, also with a short output."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # else nothing is left to write at the end
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(*words, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_command_outside_a_project_says_where_to_go(tmp_path):
    """Without a config.yaml nothing can be planned, and the message says so."""
    done = run("plan", "nano", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 1 and "config.yaml: No such file or directory; expected" in done.stderr
    assert "Traceback" not in done.stderr


def test_project_folder_of_a_clone_is_its_root():
    """The Snakefile that a folder of one's own names is the clone's."""
    assert project_folder() == ROOT and snakefile() == ROOT / "Snakefile"


def test_command_without_the_stages_packages_names_the_extra(monkeypatch):
    """Where only the library is installed, a command that needs more says what to install."""
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "proofmill.planning.plan", raising=False)
    monkeypatch.setattr(sys, "argv", ["proofmill", "plan"])
    with pytest.raises(SystemExit, match=r"polars is not installed.*proofmill\[pipeline\]"):
        main()


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["numpy", "polars", "pyarrow", "pydantic", "yaml", "jinja2", "msgspec", "torch", "proofmill.schema.kinds"]),
        (["plan", "--help"], ["numpy", "polars", "pyarrow", "pydantic", "yaml", "jinja2", "torch"]),
        (["plan", "nano"], ["torch", "transformers", "trl", "vllm", "datasets", "openai", "httpx", "rich", "matplotlib", "starlette"]),
    ],
)  # fmt: skip
def test_command_imports_only_what_it_needs(arguments, absent):
    """`--help` reads no table and no configuration; a plan loads no model, opens no connection and draws nothing."""
    code = "import runpy, sys\ntry: runpy.run_module('proofmill', run_name='__main__')\nexcept SystemExit: pass\n"
    command = [sys.executable, "-c", f"{code}print(*sys.modules, file=sys.stderr)", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "proofmill" in done.stdout or "problems/" in done.stdout
    assert not loaded & set(absent)


@pytest.mark.parametrize(("model", "shown"), [("", True), ("/models/mine", False)])
def test_server_of_open_weights_loads_their_commit(model, shown):
    """vLLM gets the commit of the entry, unless PROOFMILL_<NAME>_MODEL names other weights."""
    environment = {**os.environ, **({"PROOFMILL_GPT_OSS_20B_MODEL": model} if model else {})}
    done = run("serve", "api/gpt-oss-20b", "--dry-run", env=environment)
    assert done.returncode == 0, done.stderr
    assert ("--revision 6cee5e81ee83917806bbde320786a8fb61efebee" in done.stdout) is shown
