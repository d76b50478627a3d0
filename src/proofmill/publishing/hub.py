"""Publishes a recipe on the hub: a dataset repository with its tables, and a model repository for each model.

`proofmill publish RECIPE --to NAMESPACE/PREFIX`, or PROOFMILL_PUBLISH=NAMESPACE/PREFIX at the end of a run:

    NAMESPACE/PREFIX-tables          results/<kind>/<name>.parquet, pages of `scores`, rollouts and tasks, the card
    NAMESPACE/PREFIX-<kind>-<name>   weights, tokenizer, chat template and configuration of what was trained, the card

    HubError   the hub did not take a repository: where: what was found; expected what. What to do

How we differ from pushing while training (transformers' `push_to_hub`, huggingface_hub's `CommitScheduler`):
1. Each repository gets one commit, when everything is finished and fresh, so readers never see a part of it.
2. proofmill.json in a repository says what it was made from. An equal repository is not sent again, and files of an
   earlier push that are no longer published are deleted in the same commit. A repository with files but without
   proofmill.json is not ours and stays untouched.
3. Cards say what stamps and tables know. A key stops a publication before anything is sent; paths of the machine are
   replaced.
4. The command or the environment says where to publish, never an entry. The key is huggingface_hub's own (HF_TOKEN).
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
from proofmill.artifacts.weights import MARK
from proofmill.publishing.private import Private
from proofmill.publishing.repositories import SHOWN, Publication, Repository
from proofmill.recipes import yaml_files
from proofmill.recipes.book import Book, expand
from proofmill.runtime.progress import say
from proofmill.schema.errors import HubError, ProofmillError, SettingError, TableError
from proofmill.text.suggestions import among

DENIED = (401, 403, 404)
_TO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def publish(
    book: Book,
    wanted: Sequence[str],
    to: str,
    results: Path = Path("results"),
    only: Sequence[str] = (),
    private: bool = False,
    folder: Path | None = None,
) -> dict[str, str]:
    """Publish tables and models of the recipes `wanted`; returns `sent`, `same` or `written` for each repository id.

    `to` is NAMESPACE/PREFIX, `only` names artifacts of the recipes, `private` applies to repositories that do not exist
    yet. With a `folder` the files are written there and nothing is sent. Everything is checked before anything is sent.
    Raises SettingError for a wrong request, TableError for a table that is missing, stale or has a key in it, HubError
    for the rest.
    """
    if not _TO.fullmatch(to):
        raise SettingError(f"--to: found {to!r}; expected NAMESPACE/PREFIX, such as my-group/nano.")
    names = _selected(book, wanted, only)
    _check_finished(book, names, results)
    hub, place = (None, folder) if folder else (Hub(private), Path())
    hidden = Private(book.entries.values(), results, {"HF_TOKEN": hub.key} if hub else {})
    with tempfile.TemporaryDirectory(prefix="proofmill-") as scratch:
        planned = Publication(book, wanted, to, results, names, hidden, Path(scratch)).repositories()
        return hub.take(planned) if hub else {r.id: _write(r, place / r.id.partition("/")[2]) for r in planned}


def at_end(targets: Sequence[str], results: Path, book: Book | None = None) -> None:
    """Publish the recipes among a finished run's targets, if the environment has PROOFMILL_PUBLISH=NAMESPACE/PREFIX.

    `book` is the configuration of the run; without it config.yaml is read. PROOFMILL_PUBLISH_PRIVATE=1 is `--private`.
    """
    if not (to := os.environ.get("PROOFMILL_PUBLISH")):
        return
    book = book or expand(yaml_files.read("config.yaml"))
    if wanted := [target for target in targets if target in book.recipes]:
        try:
            publish(book, wanted, to, results, private=os.environ.get("PROOFMILL_PUBLISH_PRIVATE") == "1")
        except ProofmillError as error:  # a finished run is not repeated, so it would never publish
            command = f"proofmill publish {' '.join(wanted)} --to {to}"
            raise type(error)(f"{error} The run itself is finished; publish it by hand: {command}") from error


# ------------------------------------------------------------------------------------------------------------ selection


def _selected(book: Book, wanted: Sequence[str], only: Sequence[str]) -> list[str]:
    """The artifacts of the recipes, each once, or only those that `only` names; SettingError for unknown ones."""
    for recipe in wanted:
        if recipe not in book.recipes:
            raise SettingError(f"{recipe}: no such recipe; expected one of {among(recipe, book.recipes)}")
    names = list(dict.fromkeys(name for recipe in wanted for name in book.targeted(recipe)))
    for name in only:
        if name not in names:
            raise SettingError(
                f"--only {name}: no artifact of {', '.join(wanted)}; expected one of {among(name, names)}"
            )
    return [name for name in names if name in only] if only else names


def _check_finished(book: Book, names: Sequence[str], results: Path) -> None:
    """Raise TableError with the tables that are not as the configuration, their parents and sources are now."""
    states = States(book, results)
    due = {name: states[name].why for name in names if states[name].name != "done"}
    if faults := [f"{name} ({'; '.join(why) or 'kept, but not in its place'})" for name, why in due.items()]:
        more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise TableError(
            f"{len(faults)} of {len(names)} tables to publish are not finished: {', '.join(faults[:SHOWN])}{more}; expected all of "
            "them as the configuration has them now. Nothing was sent. Run the recipe to its end, then publish it."
        )


def _write(repository: Repository, folder: Path) -> str:
    """Write the files of a repository to a new folder instead of sending them."""
    if folder.exists():
        raise SettingError(
            f"{folder}: is there already; expected a folder that is not. Remove it, or name another one."
        )
    for path, content in repository.contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / path).write_bytes(content)
        else:
            shutil.copyfile(content, folder / path)
    say(repository.id, f"{len(repository.contents):,} files written to {folder}; nothing was sent")
    return "written"


# -------------------------------------------------------------------------------------------------------------- the hub


class Hub:
    """The hub of huggingface_hub's settings (HF_ENDPOINT, HF_TOKEN); it is read before anything is sent."""

    def __init__(self, private: bool):
        from huggingface_hub import HfApi, constants, get_token

        if constants.is_offline_mode():
            raise SettingError(
                "HF_HUB_OFFLINE: is set, and publishing needs the hub; expected it unset. Nothing was sent: "
                "`HF_HUB_OFFLINE=0 proofmill publish ...`, or look at the files with --dry-run FOLDER."
            )
        if (key := get_token()) is None:
            raise SettingError(
                "HF_TOKEN: the environment has none; expected a token that may write to the namespace. Nothing was sent. Set it."
            )
        self.api, self.private, self.key = HfApi(), private, key
        self.sent: list[str] = []

    def take(self, repositories: Sequence[Repository]) -> dict[str, str]:
        """Send one commit for each repository that differs, after checking all; returns `sent` or `same` by id."""
        there = {repository.id: self.there(repository) for repository in repositories}
        outcomes = {}
        for repository in repositories:
            _, mark = there[repository.id]
            if mark == repository.mark:
                outcomes[repository.id] = "same"
                say(repository.id, "is as it should be, nothing to send")
                continue
            self.send(repository, *there[repository.id])
            outcomes[repository.id] = "sent"
            self.sent.append(repository.id)
            say(repository.id, f"sent: {len(repository.contents):,} files in one commit")
        return outcomes

    def there(self, repository: Repository) -> tuple[Any, dict | None]:
        """The hub's record of a repository (None if new) and its mark; raises HubError if it must not be touched."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.errors import RepositoryNotFoundError
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        with self.answering(repository):
            try:
                info = self.api.repo_info(repository.id, repo_type=repository.type)
            except RepositoryNotFoundError:
                return None, None
            mark, files = None, {file.rfilename for file in getattr(info, "siblings", None) or ()}
            if MARK in files:
                url = hf_hub_url(repository.id, MARK, repo_type=repository.type, revision=info.sha)
                response = get_session().get(url, headers=build_hf_headers())
                hf_raise_for_status(response)
                content = response.json()
                mark = content if {"recipes", "files"} <= {*content} else None  # weights have a file of that name too
        if self.private and not info.private:
            raise HubError(
                f"{repository.id}: is there and public; expected a private one (--private). Nothing was sent. Make it private on "
                "the hub, or choose another prefix."
            )
        if mark is None and files - {".gitattributes"}:
            raise HubError(
                f"{repository.id}: has files but no {MARK}, so that others made it; expected none, or an empty one. Nothing was "
                "sent. Choose another prefix."
            )
        if mark is not None and mark["recipes"] != [*repository.recipes]:
            raise HubError(
                f"{repository.id}: has {', '.join(mark['recipes'])}; expected a prefix of its own for "
                f"{', '.join(repository.recipes)}. Nothing was sent. Choose another prefix (--to, PROOFMILL_PUBLISH)."
            )
        return info, mark

    def send(self, repository: Repository, info: Any, mark: dict | None) -> None:
        """Commit all files of a repository, and the deletion of those that are no longer published."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        old_files = {*mark["files"]} - {*repository.files} if mark else set()
        with self.answering(repository):
            if info is None:
                self.api.create_repo(repository.id, repo_type=repository.type, private=self.private or None)
            files_there = {file.rfilename for file in info.siblings} if info else set()
            self.api.create_commit(
                repository.id,
                [
                    *(CommitOperationAdd(path, content) for path, content in repository.contents.items()),
                    *(CommitOperationDelete(path) for path in sorted(old_files & files_there)),
                ],
                commit_message=f"{', '.join(repository.recipes)}: {', '.join(t.name for t in repository.made_from[:SHOWN])}",
                repo_type=repository.type,
                parent_commit=info.sha if info else None,  # do not overwrite somebody else's commit meanwhile
            )

    @contextmanager
    def answering(self, repository: Repository) -> Iterator[None]:
        """Turn errors of the hub, the connection or the client into HubError."""
        from httpx import HTTPError

        try:
            yield
        except (HTTPError, OSError, RuntimeError, ValueError) as error:  # the client raises the last two in uploads
            cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
            reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            status = getattr(getattr(cause, "response", None), "status_code", None)
            namespace = repository.id.partition("/")[0]
            denied = f"Check that {namespace} is there and that HF_TOKEN may write to it. " if status in DENIED else ""
            raise HubError(
                f"{repository.id}: publishing failed ({reason}); expected the hub to take it in one commit. {denied}Publish once "
                f"more: what is there is not sent again. Sent before: {', '.join(self.sent) or 'nothing'}."
            ) from error
