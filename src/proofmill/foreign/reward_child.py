"""Call a reward function for rewards.py; this program imports nothing of proofmill.

    python reward_child.py REQUEST.json REPLY.json

The function is called as trainers call it: keyword arguments with a list each. One that is not for conversations gets the
texts alone.
"""

import importlib
import inspect
import json
import runpy
import sys
from pathlib import Path
from typing import Any


def find(reference: str) -> Any:
    """Return the function: `package.module:function`, or `path/file.py:function`."""
    place, _, name = reference.rpartition(":")
    return runpy.run_path(place)[name] if place.endswith(".py") else getattr(importlib.import_module(place), name)


def main() -> None:
    """Write the reward of each row: a number, or null."""
    sys.path.insert(0, ".")
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    function, rows = find(request["reference"]), request["rows"]
    talk = [[{"role": "assistant", "content": row["text"]}] for row in rows]
    columns = {
        "completions": talk if request["talk"] else [row["text"] for row in rows],
        "prompts": [[{"role": "user", "content": row["statement"]}] for row in rows],
        **{name: [row["answer"] for row in rows] for name in ("answer", "ground_truth", "target")},
        **{name: [row["solution"] for row in rows] for name in ("solution", "reference")},
        **{name: [row["statement"] for row in rows] for name in ("problem", "question", "statement")},
    }
    known = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind == parameter.VAR_KEYWORD for parameter in known)
    names = {parameter.name for parameter in known}
    values = function(**{name: value for name, value in columns.items() if takes_all or name in names})
    rewards = [None if value is None else float(value) for value in values]
    Path(sys.argv[2]).write_text(json.dumps({"rewards": rewards}), encoding="utf-8")


if __name__ == "__main__":
    main()
