"""Paths of this machine: `${VARIABLES}` of an entry come from the environment, and do not decide the entry's rows."""

import os
import re
from pathlib import Path

from proofmill.schema.errors import SettingError


def local_path(text: str) -> Path:
    """A path of an entry with its `${VARIABLES}` filled from the environment. Raises SettingError when one is unset."""
    missing = [name for name in re.findall(r"\$\{(\w+)\}", text) if name not in os.environ]
    if missing:
        raise SettingError(
            f"path {text}: the environment has no {', '.join(missing)}; expected the folder with the data. "
            f"Set it, for example: export {missing[0]}=/path/to/data"
        )
    return Path(os.path.expandvars(text)).expanduser()
