"""What pyproject.toml cannot say: the Snakefile and what it reads stand beside the package, and are in its wheel too.

They become `proofmill/project/`; `proofmill.runtime.project` finds them there and in a clone.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROJECT = ("Snakefile", "config.yaml", "workflow", "profiles", "data")


class BuildWithProject(build_py):
    """Copies the project's files after the package's own; an editable installation finds them in the clone."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for path in map(Path, PROJECT):
                for file in [path] if path.is_file() else filter(Path.is_file, sorted(path.rglob("*"))):
                    target = Path(self.build_lib, "proofmill/project", file)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)


setup(cmdclass={"build_py": BuildWithProject})
