"""The location of the Snakefile: next to the package in a clone, inside the package of an installed wheel."""

from pathlib import Path

from proofmill.schema.errors import SettingError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE.parents[1], _PACKAGE / "project")  # a clone, a wheel (setup.py)


def project_folder() -> Path:
    """Return the folder with Snakefile, config.yaml, workflow/ and data/. Raises SettingError without it."""
    for folder in _PLACES:
        if (folder / "Snakefile").is_file() and (folder / "workflow/common.smk").is_file():
            return folder
    raise SettingError(
        f"{_PACKAGE}: no Snakefile next to this package or in it; expected a clone or an installed wheel of proofmill. "
        "Install it with `pip install .` or `pip install -e .` in a clone."
    )


def snakefile() -> Path:
    """Return the workflow, for `snakemake --snakefile` in a folder with its own configuration."""
    return project_folder() / "Snakefile"
