"""Where the Snakefile stands: beside the package in a clone, inside the package where a wheel was installed."""

from pathlib import Path

from proofmill.schema.errors import SettingError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE.parents[1], _PACKAGE / "project")  # a clone, a wheel (setup.py)


def project_folder() -> Path:
    """The folder with Snakefile, config.yaml, workflow/ and data/. Raises SettingError where there is none."""
    for folder in _PLACES:
        if (folder / "Snakefile").is_file() and (folder / "workflow/common.smk").is_file():
            return folder
    raise SettingError(
        f"{_PACKAGE}: no Snakefile is beside this package or in it; expected a clone or an installed wheel of proofmill. "
        "Install it with `pip install .` or `pip install -e .` in a clone."
    )


def snakefile() -> Path:
    """The workflow, for `snakemake --snakefile` in a folder with a configuration of its own."""
    return project_folder() / "Snakefile"
