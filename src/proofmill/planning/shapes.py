"""Build models without weights, before any download: from a config.json, a scratch entry, or data/shapes.jsonl.

data/shapes.jsonl has the config.json fields that determine sizes, for the models and commits that recipes name (a test
compares data/sources.csv). Any other shape is unknown until its config.json is on this machine. It is never guessed.
"""

import json
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.base import require_plain_positions, scratch_config
from proofmill.config.config import Config
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import is_public
from proofmill.runtime.project import project_folder
from proofmill.schema.entries.model_entries import Base
from proofmill.schema.errors import TableError
from proofmill.schema.fields import require
from proofmill.schema.names import kind_of
from proofmill.sources import models
from proofmill.training import memory


def read_published() -> dict[str, dict[str, Any]]:
    """Read data/shapes.jsonl: the config.json fields by model id, or by the path of the file in its package."""
    lines = (project_folder() / "data/shapes.jsonl").read_text(encoding="utf-8").splitlines()
    return {fields.pop("id"): fields for fields in map(json.loads, lines)}


class Shapes:
    """Build each model of a configuration once, on torch's meta device; `faults` has the reasons for bases that cannot be."""

    def __init__(self, config: Config, results: Path):
        self.config, self.results = config, results
        self.faults: dict[str, str] = {}
        self._built: dict[tuple[str, bool], Any] = {}

    def base_of(self, name: str) -> str:
        """Return the base that a model was trained from."""
        while kind_of(name) != "base":
            name = self.config.entries[name].model
        return name

    def build_published(self, id: str) -> Any:
        """Return the network of an id of data/shapes.jsonl; None for another id."""
        from transformers import AutoConfig

        fields = read_published().get(id)
        return fields and memory.build_empty(AutoConfig.for_model(**fields))

    def of(self, name: str) -> Any:
        """Return the network of a base or of a model trained from it; None if it is unknown or has a fault."""
        base = self.base_of(name)
        key = base, name == base
        if key not in self._built:
            try:
                self._built[key] = self._network(base, self.config.entries[base], trained=name != base)
            except (OSError, ValueError, TableError) as error:
                why = str(error).splitlines()[0].removeprefix(f"{base}: ")
                self.faults[base], self._built[key] = f"{base}: {why}", None
        return self._built[key]

    def _network(self, name: str, entry: Base, trained: bool) -> Any:
        """Build the network of a base; None if its shape is unknown. The weights of a `trained` one are float32.

        Raises ValueError or OSError for a model that cannot be built or writes no text, TableError for refused positions.
        """
        from transformers import AutoConfig

        if entry.source == "scratch":
            return memory.build_empty(scratch_config(entry, entry.vocabulary))
        if "/" in entry.source:
            return self.of(entry.source)
        folder = next((place for place in self._places(name, entry) if (place / "config.json").is_file()), None)
        id = entry.id or (entry.path or "").rpartition(":")[2].partition("@")[2].partition("/")[2]
        fields = json.loads((folder / "config.json").read_bytes()) if folder else read_published().get(id)
        if fields is None:
            return None
        if entry.context or entry.rope_theta:
            require_plain_positions(name, fields)
        model_config = AutoConfig.from_pretrained(folder) if folder else AutoConfig.for_model(**fields)
        if entry.context:
            model_config.get_text_config().max_position_embeddings = entry.context
        if trained:
            model_config.dtype = "float32"
        return memory.build_empty(model_config)

    def _places(self, name: str, entry: Base) -> list[Path]:
        """Return the folders that may contain its config.json: in the results, on this machine, in the hub's cache."""
        places = [Table(name, self.results).folder]
        if entry.source == "folder" and entry.path and not is_public(entry.path):
            places.append(local_path(entry.path))
        if entry.source == "hub" and models.is_here(require(entry.id), require(entry.commit), weights=False):
            places.append(models.snapshot(require(entry.id), require(entry.commit), weights=False, here=True))
        return places
