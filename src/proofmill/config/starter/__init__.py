"""Write the project folder of `proofmill init`. Its files are copied from files/ and profiles/, except those that exist."""

from pathlib import Path

from proofmill.runtime.project import project_folder
from proofmill.schema.errors import SettingError

FILES = Path(__file__).parent / "files"
HIDDEN = ("env", "gitignore")  # written with a dot


def write(folder: Path, here: bool = False) -> tuple[list[str], list[str]]:
    """Write the files into a new or empty folder; with `here`, those that a folder with other files lacks.

    Return the files that were written and those that were kept. Of a folder with its own config.yaml, the starter's data
    and reward are not written. Raises SettingError if the folder is not empty or cannot be written.
    """
    profiles = project_folder() / "profiles"
    sources = {file: f".{file.name}" if file.name in HIDDEN else file.name for file in sorted(FILES.iterdir())}
    shared = {file: f"profiles/{file.relative_to(profiles)}" for file in sorted(profiles.rglob("*")) if file.is_file()}
    written, kept = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not here:
            raise SettingError(
                f"{folder}: is not empty; expected a new or empty folder. Choose another one, or add what is missing to it: "
                f"cd {folder} && proofmill init --here"
            )
        is_configured = (folder / "config.yaml").exists()
        for source, name in {**sources, **shared}.items():
            if is_configured and name in ("problems.jsonl", "parts.py"):
                continue
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(place, "xb") as file:
                    file.write(source.read_bytes())
                written.append(name)
            except FileExistsError:
                kept.append(name)
    except OSError as error:
        raise SettingError(
            f"{error.filename or folder}: {error.strerror}; expected a writable folder. Choose another one."
        ) from error
    return written, kept
