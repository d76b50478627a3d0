"""The repositories of a publication, as they are to be: their files, and what they are made from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet

from proofmill.artifacts.kept import MARK
from proofmill.artifacts.tables import Table
from proofmill.publishing import cards
from proofmill.publishing.cards import Shown
from proofmill.publishing.private import Private
from proofmill.recipes.book import Book
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS, ROLLOUTS
from proofmill.schema.names import kind_of, seed_of, without_seed

REVISION = 1  # raised when the same tables should give other files or cards
OF_A_MODEL = {".safetensors", ".json", ".txt", ".model", ".jinja"}  # weights, configuration, tokenizer, chat template
SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Repository:
    """A repository as it is to be: its files by path (a place on this machine or the content), and what they are made from."""

    id: str
    type: str  # `dataset` or `model`
    files: Mapping[str, Path | bytes]
    made_from: Sequence[Table]
    recipes: Sequence[str]

    @property
    def mark(self) -> dict[str, Any]:
        """What proofmill.json says: equal marks mean that there is nothing to send."""
        made_from = {t.name: {key: t.stamp[key] for key in ("fingerprint", "content")} for t in self.made_from}
        return {"revision": REVISION, "recipes": [*self.recipes], "made_from": made_from, "files": sorted(self.files)}

    @property
    def contents(self) -> dict[str, Path | bytes]:
        """All files, proofmill.json among them."""
        return {**self.files, MARK: json.dumps(self.mark, indent=2, ensure_ascii=False).encode()}


@dataclass(frozen=True)
class Publication:
    """Makes the repositories of some artifacts of some recipes; files that differ from those in `results` go to `scratch`."""

    book: Book
    wanted: Sequence[str]
    to: str
    results: Path
    names: Sequence[str]
    private: Private
    scratch: Path

    def repositories(self) -> list[Repository]:
        """The tables first: the cards of models point to them."""
        models = {name: self.model_id(name) for name in self.names if KINDS[kind_of(name)].learns}
        for id in (self.tables_id, *models.values()):
            _check_id(id)
        return [self.tables(models), *(self.model(name, id) for name, id in models.items())]

    @property
    def tables_id(self) -> str:
        return f"{self.to}-tables"

    def model_id(self, name: str) -> str:
        """`@` of derived names is no letter of a repository's name, and `_` is none of an artifact's."""
        return f"{self.to}-{name.replace('/', '-').replace('@', '_')}"

    def tables(self, models: Mapping[str, str]) -> Repository:
        files: dict[str, Path | bytes] = {}
        tables = [Table(name, self.results) for name in self.names]
        for table in tables:
            stamp = self.private.stamp(table.stamp)
            path = f"results/{table.name}"
            files[f"{path}.parquet"] = self.private.rows(
                table.path, table.name, self.scratch / f"{path}.parquet", stamp
            )
            if table.page.exists():
                files[f"{path}.md"] = self.private.text(table.page.read_text(encoding="utf-8"), str(table.page))
            if KINDS[table.kind].learns and (rollouts := table.weights() / ROLLOUTS).exists():
                kept = self.scratch / path / ROLLOUTS
                files[f"{path}/{ROLLOUTS}"] = self.private.rows(rollouts, str(rollouts), kept)
        card = cards.dataset(self.tables_id, self.wanted, [self.shown(name) for name in self.names], models)
        return self.repository(self.tables_id, "dataset", card, files, tables)

    def model(self, name: str, id: str) -> Repository:
        table = Table(name, self.results)
        folder, files = table.weights(), {}
        for path in sorted(folder.iterdir()):
            if path.suffix in OF_A_MODEL and path.name != MARK:
                files[path.name] = self.private.of_a_model(path)
        measured = {score: self.measured(name, score) for score in self.names if kind_of(score) == "scores"}
        rows = [{"table": score, **row} for score, found in measured.items() for row in found]
        lineage = [self.shown(ancestor) for ancestor in self.lineage(name)]
        card = cards.model(id, self.wanted, lineage, rows, self.tables_id)
        made_from = [table, *(table.other(score) for score, found in measured.items() if found)]
        return self.repository(id, "model", card, files, made_from)

    def repository(self, id: str, type: str, card: str, files: Mapping, made_from: Sequence[Table]) -> Repository:
        return Repository(
            id, type, {"README.md": self.private.text(card, f"{id}: the card"), **files}, made_from, self.wanted
        )

    def shown(self, name: str) -> Shown:
        table = Table(name, self.results)
        rollouts = table.folder / ROLLOUTS
        return Shown(
            name,
            self.private.stamp(table.stamp),
            parquet.read_metadata(table.path).num_rows,
            table.page.exists(),
            parquet.read_metadata(rollouts).num_rows if rollouts.exists() else None,
        )

    def lineage(self, name: str) -> list[str]:
        """The model, the one it started from, and so on, to a `base`."""
        found = [name]
        while KINDS[kind_of(found[-1])].learns:
            found.append(self.book.entries[found[-1]].model)
        return found

    def measured(self, name: str, score: str) -> list[dict[str, Any]]:
        """The rows of a `scores` table that measure this model, and not others of its entry with other seeds besides."""
        entries = self.book.entries
        models = {entries[entries[grades].responses].model for grades in entries[score].grades}
        bare = without_seed(name)
        trainings = {model for model in models if without_seed(model) == bare}
        if name not in trainings:
            return []
        split = None if len(trainings) == 1 else f"seed {seed_of(name)}"
        rows = Table(score, self.results).rows()
        return [row for row in rows if row["model"] == bare and split in (None, row["split"])]


def _check_id(id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(id)
    except HFValidationError as error:
        raise SettingError(
            f"{id}: is no name of a repository ({str(error).splitlines()[0]}); expected letters, digits, `-`, `_`, `.`. Nothing was "
            "sent. Choose another prefix, or rename the artifact."
        ) from error
