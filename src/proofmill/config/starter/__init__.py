"""Write the project folder of `proofmill init`. Its files are copied from files/."""

import shutil
from pathlib import Path

from proofmill.runtime.project import project_folder, snakefile
from proofmill.schema.errors import SettingError

HIDDEN = ("env", "gitignore")  # written with a dot
SNAKEFILE = '''"""The pipeline, run in this folder with the configuration next to this file."""

include: "{snakefile}"


workflow.default_target = next(iter(CONFIG.recipes))  # Snakemake ignores the default target of an included file
'''


def write(folder: Path) -> None:
    """Write the files into a new or empty folder. Raises SettingError if it is not empty or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SettingError(f"{folder}: is not empty; expected a new or empty folder. Choose another one.")
        for file in sorted((Path(__file__).parent / "files").iterdir()):
            shutil.copyfile(file, folder / (f".{file.name}" if file.name in HIDDEN else file.name))
        (folder / "Snakefile").write_text(SNAKEFILE.format(snakefile=snakefile()), encoding="utf-8")
        shutil.copytree(project_folder() / "profiles", folder / "profiles")
    except OSError as error:
        raise SettingError(
            f"{error.filename or folder}: {error.strerror}; expected a writable folder. Choose another one."
        ) from error
