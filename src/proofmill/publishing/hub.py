"""Publish a recipe on the hub: a dataset repository with its tables, and a model repository for each trained model.

`proofmill publish RECIPE --to NAMESPACE/PREFIX`, or PROOFMILL_PUBLISH=NAMESPACE/PREFIX at the end of a run:

    NAMESPACE/PREFIX-tables          results/<kind>/<name>.parquet, pages of `scores`, rollouts and tasks, the card
    NAMESPACE/PREFIX-<kind>-<name>   weights, tokenizer, chat template and configuration of a model, the card

HubError is raised if the hub refuses a repository.

Differences from pushing while training (transformers' `push_to_hub`, huggingface_hub's `CommitScheduler`):
1. Each repository gets one commit after all tables are finished and up to date, so readers never see a partial state.
2. proofmill.json in a repository lists the tables and files behind it. An equal repository is not sent again. Files of
   an earlier push that are no longer published are deleted in the same commit. A repository that has files but no
   proofmill.json belongs to others and is not changed.
3. Cards are generated from stamps (metadata) and tables. A key stops a publication before anything is sent; local paths
   are replaced.
4. The command or the environment sets the destination, never an entry. The key is huggingface_hub's own (HF_TOKEN).
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proofmill.artifacts.states import States
from proofmill.artifacts.weights import MANIFEST
from proofmill.config import yaml_files
from proofmill.config.config import Config, expand
from proofmill.publishing import cards
from proofmill.publishing.private import Private
from proofmill.publishing.repositories import SHOWN, Publication, Repository
from proofmill.runtime.progress import log
from proofmill.schema.errors import HubError, ProofmillError, SettingError
from proofmill.text.suggestions import among

DENIED = (401, 403, 404)
_TO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def publish(
    config: Config,
    wanted: Sequence[str],
    to: str,
    results: Path = Path("results"),
    only: Sequence[str] = (),
    private: bool = False,
    folder: Path | None = None,
    answers: bool = False,
    any_license: bool = False,
) -> dict[str, str]:
    """Publish tables and models of the recipes `wanted`, and return `sent`, `same` or `written` for each repository id.

    `to` is NAMESPACE/PREFIX, `only` names artifacts of the recipes, `private` applies to new repositories. With a
    `folder` the files are written there and nothing is sent. `answers` adds the model outputs behind the tables, unless
    a source has no known license and `any_license` is not set. Everything is checked before anything is sent.
    Raises SettingError for wrong arguments, TableError for a table that is missing, out of date or contains a key, and
    HubError for failures of the hub.
    """
    if not _TO.fullmatch(to):
        raise SettingError(f"--to: found {to!r}; expected NAMESPACE/PREFIX, such as my-group/nano.")
    names = _select(config, wanted, only)
    States(config, results).require_done(names, "Nothing was sent. Finish the recipe, then publish it.")
    hub, place = (None, folder) if folder else (Hub(private), Path())
    hidden = Private(config.entries.values(), results, {"HF_TOKEN": hub.key} if hub else {})
    with tempfile.TemporaryDirectory(prefix="proofmill-") as scratch:
        publication = Publication(config, wanted, to, results, names, hidden, Path(scratch), answers)
        unlicensed = [
            line for line in cards.origins_of(map(publication.show_table, names)) if "unknown license" in line
        ]
        if answers and unlicensed and not any_license:
            raise SettingError(
                f"--with-answers: {unlicensed[0]}; expected a license that lets you publish its texts. Nothing was sent. If you may, "
                "set --any-license."
            )
        planned = publication.repositories()
        return hub.take(planned) if hub else {r.id: _write(r, place / r.id.partition("/")[2]) for r in planned}


def at_end(targets: Sequence[str], results: Path, config: Config | None = None) -> None:
    """Publish the recipes among a finished run's targets if PROOFMILL_PUBLISH=NAMESPACE/PREFIX is set.

    `config` is the configuration of the run (default: config.yaml). PROOFMILL_PUBLISH_PRIVATE=1 is `--private`.
    """
    if not (to := os.environ.get("PROOFMILL_PUBLISH")):
        return
    config = config or expand(yaml_files.read("config.yaml"))
    if wanted := [target for target in targets if target in config.recipes]:
        try:
            publish(config, wanted, to, results, private=os.environ.get("PROOFMILL_PUBLISH_PRIVATE") == "1")
        except ProofmillError as error:  # rerunning a finished run does nothing, so it would never publish
            command = f"proofmill publish {' '.join(wanted)} --to {to}"
            raise type(error)(f"{error} The run itself is finished; to publish it, run: {command}") from error


# ------------------------------------------------------------------------------------------------------------ selection


def _select(config: Config, wanted: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the artifacts of the recipes, each once, limited to `only` if set. Raises SettingError for unknown ones."""
    for recipe in wanted:
        if recipe not in config.recipes:
            raise SettingError(f"{recipe}: no such recipe; expected one of {among(recipe, config.recipes)}")
    names = list(dict.fromkeys(name for recipe in wanted for name in config.list_target(recipe)))
    for name in only:
        if name not in names:
            raise SettingError(
                f"--only {name}: no artifact of {', '.join(wanted)}; expected one of {among(name, names)}"
            )
    return [name for name in names if name in only] if only else names


def _write(repository: Repository, folder: Path) -> str:
    """Write the files of a repository to a new folder instead of sending them."""
    if folder.exists():
        raise SettingError(f"{folder}: already exists; expected a new folder. Remove it, or choose another one.")
    for path, content in repository.contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / path).write_bytes(content)
        else:
            shutil.copyfile(content, folder / path)
    log(repository.id, f"{len(repository.contents):,} files written to {folder}; nothing was sent")
    return "written"


# ------------------------------------------------------------------------------------------------------------------ hub


class Hub:
    """The hub of huggingface_hub's settings (HF_ENDPOINT, HF_TOKEN). All repositories are checked before anything is sent."""

    def __init__(self, private: bool):
        from huggingface_hub import HfApi, constants, get_token

        if constants.is_offline_mode():
            raise SettingError(
                "HF_HUB_OFFLINE: is set, but publishing needs the hub; expected it unset. Nothing was sent. Run "
                "`HF_HUB_OFFLINE=0 proofmill publish ...`, or write the files with --dry-run FOLDER."
            )
        if (key := get_token()) is None:
            raise SettingError(
                "HF_TOKEN: not set; expected a token with write access to the namespace. Nothing was sent. Set it."
            )
        self.api, self.private, self.key = HfApi(), private, key
        self.sent: list[str] = []

    def take(self, repositories: Sequence[Repository]) -> dict[str, str]:
        """Check all repositories, send one commit for each that differs, and return `sent` or `same` by id."""
        states = {repository.id: self.check(repository) for repository in repositories}
        outcomes = {}
        for repository in repositories:
            _, manifest = states[repository.id]
            if manifest == repository.manifest:
                outcomes[repository.id] = "same"
                log(repository.id, "up to date, nothing to send")
                continue
            self.send(repository, *states[repository.id])
            outcomes[repository.id] = "sent"
            self.sent.append(repository.id)
            log(repository.id, f"sent: {len(repository.contents):,} files in one commit")
        return outcomes

    def check(self, repository: Repository) -> tuple[Any, dict | None]:
        """Return the hub's record of a repository (None if new) and its manifest. Raises HubError if it must not change."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.errors import RepositoryNotFoundError
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        with self.translate_errors(repository):
            try:
                info = self.api.repo_info(repository.id, repo_type=repository.type)
            except RepositoryNotFoundError:
                return None, None
            manifest, files = None, {file.rfilename for file in getattr(info, "siblings", None) or ()}
            if MANIFEST in files:
                url = hf_hub_url(repository.id, MANIFEST, repo_type=repository.type, revision=info.sha)
                response = get_session().get(url, headers=build_hf_headers())
                hf_raise_for_status(response)
                content = response.json()
                # A folder of weights has a file of that name too.
                manifest = content if {"recipes", "files"} <= {*content} else None
        if self.private and not info.private:
            raise HubError(
                f"{repository.id}: already exists and is public; expected a private one (--private). Nothing was sent. Make it "
                "private on the hub, or choose another prefix."
            )
        if manifest is None and files - {".gitattributes"}:
            raise HubError(
                f"{repository.id}: has files but no {MANIFEST}, so it belongs to others; expected a new or an empty repository. "
                "Nothing was sent. Choose another prefix."
            )
        if manifest is not None and manifest["recipes"] != [*repository.recipes]:
            raise HubError(
                f"{repository.id}: has {', '.join(manifest['recipes'])}; expected a prefix of its own for "
                f"{', '.join(repository.recipes)}. Nothing was sent. Choose another prefix (--to, PROOFMILL_PUBLISH)."
            )
        return info, manifest

    def send(self, repository: Repository, info: Any, manifest: dict | None) -> None:
        """Commit all files of a repository, and delete files that are no longer published."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        old_files = {*manifest["files"]} - {*repository.files} if manifest else set()
        with self.translate_errors(repository):
            if info is None:
                self.api.create_repo(repository.id, repo_type=repository.type, private=self.private or None)
            present_files = {file.rfilename for file in info.siblings} if info else set()
            self.api.create_commit(
                repository.id,
                [
                    *(CommitOperationAdd(path, content) for path, content in repository.contents.items()),
                    *(CommitOperationDelete(path) for path in sorted(old_files & present_files)),
                ],
                commit_message=f"{', '.join(repository.recipes)}: {', '.join(t.name for t in repository.made_from[:SHOWN])}",
                repo_type=repository.type,
                parent_commit=info.sha if info else None,  # fails if there is a newer commit
            )

    @contextmanager
    def translate_errors(self, repository: Repository) -> Iterator[None]:
        """Turn errors of the hub, the connection or the client into HubError."""
        from httpx import HTTPError

        try:
            yield
        except (HTTPError, OSError, RuntimeError, ValueError) as error:  # the client raises the last two in uploads
            cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
            reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            status = getattr(getattr(cause, "response", None), "status_code", None)
            namespace = repository.id.partition("/")[0]
            denied = f"Check that {namespace} exists and that HF_TOKEN can write to it. " if status in DENIED else ""
            raise HubError(
                f"{repository.id}: publishing failed ({reason}); expected the hub to accept one commit. {denied}Publish again; "
                f"finished repositories are not sent again. Already sent: {', '.join(self.sent) or 'none'}."
            ) from error
