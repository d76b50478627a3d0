"""Add the Snakefile and the files that it reads to the wheel, which pyproject.toml cannot express.

They are next to the package in a clone, and in `proofmill/project/` in a wheel; `proofmill.runtime.project` finds both.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROJECT = ("Snakefile", "config.yaml", "workflow", "profiles", "data")


class BuildWithProject(build_py):
    """Copy the project's files after the package's own. An editable installation uses those of the clone."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for path in map(Path, PROJECT):
                for file in [path] if path.is_file() else filter(Path.is_file, sorted(path.rglob("*"))):
                    target = Path(self.build_lib, "proofmill/project", file)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)


setup(cmdclass={"build_py": BuildWithProject})
