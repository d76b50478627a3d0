"""A folder of a user's own: what `proofmill init` writes. The files stand in files/ as they are written."""

import shutil
from pathlib import Path

from proofmill.runtime.project import project_folder, snakefile
from proofmill.schema.errors import SettingError

HIDDEN = ("env", "gitignore")  # written with a dot
SNAKEFILE = '''"""The pipeline, run in this folder with the configuration beside this file."""

include: "{snakefile}"


workflow.default_target = next(iter(BOOK.recipes))  # Snakemake takes none from a file that is included
'''


def write(folder: Path) -> None:
    """Write the files into a new or empty folder. Raises SettingError for another, and where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SettingError(f"{folder}: is not empty; expected a new folder. Name another one.")
        for file in sorted((Path(__file__).parent / "files").iterdir()):
            shutil.copyfile(file, folder / (f".{file.name}" if file.name in HIDDEN else file.name))
        (folder / "Snakefile").write_text(SNAKEFILE.format(snakefile=snakefile()), encoding="utf-8")
        shutil.copytree(project_folder() / "profiles", folder / "profiles")
    except OSError as error:
        raise SettingError(
            f"{error.filename or folder}: {error.strerror}; expected a folder that can be written. Name another one."
        ) from error
