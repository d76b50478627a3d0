"""Build the repositories of a publication: their files, their cards, and the tables behind them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet

from proofmill.artifacts.contents import page_sha256
from proofmill.artifacts.tables import Table
from proofmill.artifacts.weights import MANIFEST, OF_A_MODEL
from proofmill.config.config import Config
from proofmill.publishing import cards, eval_results
from proofmill.publishing.cards import TableCard
from proofmill.publishing.private import Private
from proofmill.publishing.reproduction import pack_answers
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import TABLES, kind_of, model_suffix, parse_seed, without_seed

REVISION = 5  # raise it if the same tables now result in different files or cards
SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Repository:
    """A repository to publish: files by path (a local file or the content), and the tables behind them."""

    id: str
    type: str  # `dataset` or `model`
    files: Mapping[str, Path | bytes]
    made_from: Sequence[Table]
    recipes: Sequence[str]

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of proofmill.json; if the hub has an equal one, nothing is sent."""
        made_from = {t.name: {key: t.stamp[key] for key in ("fingerprint", "content")} for t in self.made_from}
        return {"revision": REVISION, "recipes": [*self.recipes], "made_from": made_from, "files": sorted(self.files)}

    @property
    def contents(self) -> dict[str, Path | bytes]:
        """All files, including proofmill.json."""
        return {**self.files, MANIFEST: json.dumps(self.manifest, indent=2, ensure_ascii=False).encode()}


@dataclass(frozen=True)
class Publication:
    """Builds the repositories of the artifacts `names` of the recipes `wanted`; cleaned files go to `scratch`."""

    config: Config
    wanted: Sequence[str]
    to: str
    results: Path
    names: Sequence[str]
    private: Private
    scratch: Path
    answers: bool = False  # with the outputs behind the tables, so that they can be derived again

    def repositories(self) -> list[Repository]:
        """Return the repository of tables, then those of models. Raises SettingError for an invalid id."""
        models = {name: self.model_id(name) for name in self.names if KINDS[kind_of(name)].trains}
        for id in (self.tables_id, *models.values()):
            _check_id(id)
        return [self.tables(models), *(self.model(name, id) for name, id in models.items())]

    @property
    def tables_id(self) -> str:
        return f"{self.to}{TABLES}"

    def model_id(self, name: str) -> str:
        """Return the id of a model's repository."""
        return f"{self.to}{model_suffix(name)}"

    def tables(self, models: Mapping[str, str]) -> Repository:
        """Build the dataset repository of all tables; `models` are the ids of the weights' repositories by artifact."""
        files: dict[str, Path | bytes] = {}
        tables = [Table(name, self.results) for name in self.names]
        for table in tables:
            stamp, path = self.private.stamp(table.stamp), f"results/{table.name}"
            if (page := table.read_page()) is not None:
                files[f"{path}.md"] = published = self.private.text(page, str(table.page))
                stamp["page"] = page_sha256(published.decode())
            files[f"{path}.parquet"] = self.private.rows(
                table.path, table.name, self.scratch / f"{path}.parquet", stamp
            )
            answers = f"results/calls/{table.name}/00001.parquet"
            if self.answers and (packed := pack_answers(table, self.scratch / "packed" / answers)):
                files[answers] = self.private.rows(packed, f"answers of {table.name}", self.scratch / answers)
            weights = table.weights() if KINDS[table.kind].extra_files else table.folder
            for extra in (file for file in KINDS[table.kind].extra_files if (weights / file).exists()):
                cleaned = self.scratch / path / extra
                files[f"{path}/{extra}"] = self.private.rows(weights / extra, str(weights / extra), cleaned)
        card = cards.dataset(self.tables_id, self.wanted, [self.show_table(name) for name in self.names], models)
        return self.repository(self.tables_id, "dataset", card, files, tables)

    def model(self, name: str, id: str) -> Repository:
        """Build the model repository of one artifact."""
        table = Table(name, self.results)
        folder, files = table.weights(), dict[str, Path | bytes]()
        for path in sorted(folder.iterdir()):
            if path.suffix in OF_A_MODEL and path.name != MANIFEST:
                files[path.name] = self.private.of_a_model(path)
        scores = {score: self.scores_of(name, score) for score in self.names if kind_of(score) == "scores"}
        rows = [{"table": score, **row} for score, score_rows in scores.items() for row in score_rows]
        slices = ("all", f"seed {parse_seed(name)}")
        files |= eval_results.files(filter(None, (self.eval_result(row) for row in rows if row["slice"] in slices)))
        lineage = [self.show_table(ancestor) for ancestor in self.lineage(name)]
        card = cards.model(id, self.wanted, lineage, rows, self.tables_id)
        made_from = [table, *(table.other(score) for score, score_rows in scores.items() if score_rows)]
        return self.repository(id, "model", card, files, made_from)

    def repository(self, id: str, type: str, card: str, files: Mapping, made_from: Sequence[Table]) -> Repository:
        return Repository(
            id, type, {"README.md": self.private.text(card, f"{id}: the card"), **files}, made_from, self.wanted
        )

    def show_table(self, name: str) -> TableCard:
        """Return an artifact's table as cards show it."""
        table = Table(name, self.results)
        extra_files = [file for file in KINDS[table.kind].extra_files if (table.folder / file).exists()]
        return TableCard(
            name,
            self.private.stamp(table.stamp),
            parquet.read_metadata(table.path).num_rows,
            table.page.exists(),
            {file: parquet.read_metadata(table.folder / file).num_rows for file in extra_files},
        )

    def lineage(self, name: str) -> list[str]:
        """Return the model, its parent model, and so on, up to a `base`."""
        names = [name]
        while KINDS[kind_of(names[-1])].trains:
            names.append(self.config.entries[names[-1]].model)
        return names

    def scores_of(self, name: str, score: str) -> list[dict[str, Any]]:
        """Return the rows of a `scores` table about this model alone, without other seeds of its entry."""
        entries = self.config.entries
        models = {entries[entries[grades].responses].model for grades in entries[score].grades}
        seedless = without_seed(name)
        trainings = {model for model in models if without_seed(model) == seedless}
        if name not in trainings:
            return []
        split = None if len(trainings) == 1 else f"seed {parse_seed(name)}"
        rows = Table(score, self.results).rows()
        return [row for row in rows if row["model"] == seedless and split in (None, row["slice"])]

    def eval_result(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a row of scores as the hub shows it, or None: not of a benchmark of the hub, or with several scales."""
        entries = self.config.entries
        graded = [(entries[entries[grades].responses].problems, grades) for grades in entries[row["table"]].grades]
        graded = [(problems, grades) for problems, grades in graded if without_seed(problems) == row["problems"]]
        if len(benchmarks := {problems for problems, _ in graded}) != 1:
            return None
        (problems,) = benchmarks
        if not eval_results.counts(row, entries[problems], Table(problems, self.results)):
            return None
        points = [Table(grades, self.results).rows("max_points") for _, grades in graded]
        if len(scales := {grade["max_points"] for some in points for grade in some}) != 1:
            return None
        url = f"https://huggingface.co/datasets/{self.tables_id}"
        return eval_results.of_row(row, scales.pop(), entries[problems], url)


def _check_id(id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(id)
    except HFValidationError as error:
        raise SettingError(
            f"{id}: invalid repository name ({str(error).splitlines()[0]}); expected letters, digits, `-`, `_`, `.`. Nothing "
            "was sent. Choose another prefix, or rename the artifact."
        ) from error
