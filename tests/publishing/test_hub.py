"""Publishing: what reaches a hub, what never does, and what the cards say. The hub is a real server that speaks its protocol."""

import base64
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import datasets
import polars as pl
import pytest
import yaml
from huggingface_hub import DatasetCard, ModelCard, constants
from huggingface_hub.utils import sha
from hypothesis import given
from hypothesis import strategies as st

from mill import REFEREE, SMALL, Mill
from project import snapshot
from proofmill.artifacts import fingerprints
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.publishing import cards
from proofmill.publishing import hub as publishing
from proofmill.publishing.private import Private
from proofmill.recipes.book import Book, expand
from proofmill.recipes.entry_values import entry_from
from proofmill.recipes.identity import identity_of
from proofmill.schema import references
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import HubError, RecipeError, SettingError, TableError
from proofmill.schema.kinds import BUFFER, ROLLOUTS
from proofmill.schema.names import kind_of, without_seed

KEY = "hf_" + "k3y" * 12
TABLES = "me/mill-tables"

# -------------------------------------------------------------------------------------------------------------- the hub


class FakeHub:
    """A hub of one user: repositories by (type, id), each with its files, commits and whether it is private."""

    def __init__(self):
        self.repositories, self.large, self.asked = {}, {}, []
        self.refuse = lambda method, path: None  # or (status, headers)
        self.lose = lambda path: None  # or what is answered although the commit was made
        self.lock = threading.Lock()

    def files(self, id, type="dataset"):
        return self.repositories[type, id]["files"]

    def commits(self):
        return {id: len(found["commits"]) for (_, id), found in self.repositories.items()}

    def create(self, type, id, private=False, files=None):
        made = {"private": private, "files": dict(files or {}), "commits": []}
        return self.repositories.setdefault((type, id), made)

    def answer(self, method, path, body, key):
        """(status, content, headers) of a request, by the protocol of huggingface_hub 1.x."""
        with self.lock:
            self.asked.append((method, path))
            if refused := self.refuse(method, path):
                return refused[0], {"error": "refused by the test"}, refused[1]
            if path.startswith("/large/"):
                return self.stored(path.rpartition("/")[2], body)
            if key != f"Bearer {KEY}":
                return 401, {"error": "no key"}, {"X-Error-Message": "Invalid credentials in Authorization header"}
            if path == "/api/repos/create":
                return self.created(json.loads(body))
            if path == "/api/validate-yaml":
                front = json.loads(body)["content"].split("---\n")[1]
                return (200 if isinstance(yaml.safe_load(front), dict) else 400), {"errors": [], "warnings": []}, {}
            if found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
                return self.batch(json.loads(body))
            if found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                content = self.there(found[1], found[2])["files"].get(unquote(found[3]))
                return (404, {}, {"X-Error-Code": "EntryNotFound"}) if content is None else (200, content, {})
            found = re.fullmatch(r"/api/(datasets|models)/([^/]+/[^/]+)(?:/(preupload|commit)/main)?", path)
            repository = found and self.there(found[1] == "datasets", found[2])
            if repository is None:
                return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
            if found[3] is None:
                return 200, self.info(found[2], repository), {}
            if found[3] == "preupload":
                return 200, {"files": [self.mode(repository, file) for file in json.loads(body)["files"]]}, {}
            made = self.committed(repository, [json.loads(line) for line in body.splitlines()])
            return self.lose(path) or made

    def there(self, of_datasets, id):
        return self.repositories.get(("dataset" if of_datasets else "model", id))

    def created(self, asked):
        type, id = asked.get("type", "model"), f"{asked['organization']}/{asked['name']}"
        if (type, id) in self.repositories:
            return 409, {"error": "You already created this repo"}, {}
        self.create(type, id, asked.get("visibility") == "private", {".gitattributes": b"*.parquet filter=lfs"})
        return 200, {"url": f"{self.url}/{'datasets/' * (type == 'dataset')}{id}"}, {}

    def info(self, id, repository):
        siblings = [{"rfilename": path} for path in repository["files"]]
        return {"id": id, "sha": self.head(repository), "private": repository["private"], "siblings": siblings}

    def head(self, repository):
        return hashlib.sha1(str(len(repository["commits"])).encode()).hexdigest()

    def mode(self, repository, file):
        large = file["path"].endswith((".parquet", ".safetensors"))
        old = repository["files"].get(file["path"])
        oid = None if old is None else hashlib.sha256(old).hexdigest() if large else sha.git_hash(old)
        upload = "lfs" if large else "regular"
        return {"path": file["path"], "uploadMode": upload, "shouldIgnore": False, "oid": oid}

    def batch(self, asked):
        def action(name, oid):
            return {"href": f"{self.url}/large/{name}/{oid}"}

        objects = [
            {**o, "actions": {name: action(name, o["oid"]) for name in ("upload", "verify")}}
            if o["oid"] not in self.large
            else o
            for o in asked["objects"]
        ]
        return 200, {"transfer": "basic", "objects": objects}, {}

    def stored(self, oid, body):
        if oid not in self.large and hashlib.sha256(body).hexdigest() != oid:
            return 400, {"error": "other content than was announced"}, {}
        self.large.setdefault(oid, body)
        return 200, {}, {}

    def committed(self, repository, lines):
        header, files = lines[0]["value"], dict(repository["files"])
        if header.get("parentCommit", self.head(repository)) != self.head(repository):
            return 412, {"error": "A commit has happened since"}, {}
        for line in lines[1:]:
            path = line["value"]["path"]
            if line["key"] == "file":
                files[path] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "lfsFile":
                files[path] = self.large[line["value"]["oid"]]
            else:
                del files[path]
        repository["files"] = files
        id = next(id for (_, id), known in self.repositories.items() if known is repository)
        repository["commits"].append({"summary": header["summary"], "lines": lines[1:]})
        oid = self.head(repository)
        return 200, {"commitUrl": f"{self.url}/{id}/commit/{oid}", "commitOid": oid, "pullRequestUrl": None}, {}


@contextmanager
def serving(hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two would wait for each other

        def body(self):
            if self.headers.get("Transfer-Encoding") == "chunked":
                parts = b""
                while size := int(self.rfile.readline(), 16):
                    parts += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return parts
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def handle_any(self):
            path = urlsplit(self.path).path
            status, content, headers = hub.answer(self.command, path, self.body(), self.headers["Authorization"])
            payload = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": len(payload), **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_PUT = handle_any

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{running.server_port}"
    try:
        yield hub
    finally:
        running.shutdown()
        running.server_close()


@pytest.fixture
def hub(monkeypatch):
    """A hub that this process is set to; without Xet, which has a storage server of its own."""
    with serving(FakeHub()) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_TOKEN", KEY)
        yield hub


# -------------------------------------------------------------------------------------------------------------- recipes

ROWS = {
    "problems/rows": {"source": "table", "path": "${PLACE}/rows.jsonl", "columns": {"statement": "question"}},
    "examples/some": {"problems": "problems/rows"},
    "base/theirs": {"source": "hub", "id": "them/small-base", "commit": "a" * 40},
    "sft/one": {"model": "base/theirs", "examples": "examples/some", "steps": 3},
    "grpo/two": {
        "model": "sft/one",
        "problems": "problems/rows",
        "grader": "final-answer",
        "rewards": {"grade": 1},
        "unscored": "drop",
        "steps": 2,
    },
    "scores/both": {
        "models": ["sft/one", "grpo/two"],
        "problems": ["problems/rows"],
        "sampling": {"greedy": {"temperature": 0}},
        "grader": "final-answer",
        "measures": ["avg-at-k"],
    },
}
WEIGHTS = {
    "model.safetensors": b"\x00weights\xff",
    "config.json": b'{"model_type": "qwen3"}',
    "tokenizer.json": b'{"vocab": {"a": 0}}',
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "generation_config.json": b"{}",
}


def problem(id="p", **more):
    return {
        **dict.fromkeys(COLUMNS["problems"]),
        "problem": id,
        "statement": "Why?",
        "candidates": [],
        "tags": [],
        **more,
    }


def score(model, value, split="all", **more):
    found = {
        "model": model,
        "problems": "problems/rows",
        "sampling": "greedy",
        "grader": "final-answer",
        "measure": "avg@1",
    }
    ends = {} if value is None else {"low": value - 0.1, "high": value + 0.1}
    numbers = {"value": value, **ends, "n": 4, "problems_n": 4, "unscored": 0.25}
    return {**dict.fromkeys(COLUMNS["scores"]), **found, **numbers, "split": split, **more}


def finish(mill, name, rows=(), files=None, page=None, **facts):
    """A finished table with these rows, as if its stage had made them."""
    table, entry = mill.table(name), mill.book.entries[name]
    declared = mill.book.declared
    parents, sources = fingerprints.made_from(table, entry, declared)
    fingerprint = fingerprints.fingerprint_of(entry, declared, parents, sources)
    stamp = new_stamp(name, identity_of(entry, declared), fingerprint, parents, sources)
    folder = None
    if files is not None:
        folder = mill.results / "made"
        folder.mkdir(parents=True)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    schema = {column: kind for column, (kind, _) in COLUMNS[table.kind].items()}
    known = {"counts": {"kept": len(rows)}, "seconds": 83.0, "gpus": 0}
    table.write(pl.DataFrame(list(rows), schema=schema, orient="row"), {**stamp, **known, **facts}, folder, page)


def rollouts(*ids, **columns):
    """The bytes of a file of rollouts."""
    made = io.BytesIO()
    pl.DataFrame({"rollout": ids, "applies": [["grade"]] * len(ids), **columns}).write_parquet(made)
    return made.getvalue()


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """`finished(changes)` gives a Mill whose every table stands, with the given rows or files in place of plain ones."""
    place = tmp_path / "secret place"
    place.mkdir()
    (place / "rows.jsonl").write_text('{"question": "Why?"}\n')
    monkeypatch.setenv("PLACE", str(place))

    def make(given=None, entries=ROWS):
        mill = Mill(tmp_path / "results", **entries)
        step = {"step": 1, "epoch": 1.0, "measure": "loss", "value": 2.0}
        plain = {
            "problems/rows": {"rows": [problem()]},
            "examples/some": {"rows": []},
            "base/theirs": {"rows": [{"file": "config.json", "bytes": 2, "sha256": "s"}], "files": WEIGHTS},
            "sft/one": {"rows": [step], "files": WEIGHTS, "counts": {"steps": 3}},
            "grpo/two": {
                "rows": [step],
                "files": {**WEIGHTS, ROLLOUTS: rollouts("r1", "r2")},
                "cost": 1.5,
                "tokens": 1234,
            },
            "scores/both": {"rows": [score("sft/one", 0.5), score("grpo/two", 0.75)], "page": "# scores/both\n"},
        }
        order = [name for name in mill.book.recipes["test"]]
        for name in sorted(order, key=lambda n: len(list(references.ancestors(mill.book.entries, n)))):
            finish(mill, name, **{**plain.get(without_seed(name), {}), **(given or {}).get(name, {})})
        return mill

    return make


def publish(mill, **how):
    return publishing.publish(mill.book, ["test"], "me/mill", mill.results, **how)


def frame(content):
    return pl.read_parquet(io.BytesIO(content))


# ------------------------------------------------------------------------------------------------------- what is sent


def test_publishing_makes_one_commit_for_each_repository(small, hub):
    """The tables are one dataset, the trained model one model, each made by one commit; a scratch base is no repository."""
    assert publish(small) == {TABLES: "sent", "me/mill-sft-cold": "sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert {type for type, _ in hub.repositories} == {"dataset", "model"}
    assert not any(repository["private"] for repository in hub.repositories.values())


def test_published_files_are_the_tables_and_weights_and_nothing_else(small, hub):
    """Tables and weights arrive byte for byte; no journal, log or checkpoint does."""
    publish(small)
    found = hub.files(TABLES)
    tables = {f"results/{name}.parquet": small.table(name).path.read_bytes() for name in SMALL}
    assert {path: content for path, content in found.items() if path.endswith(".parquet")} == tables
    assert set(found) - set(tables) == {"README.md", "proofmill.json", ".gitattributes"}
    model = hub.files("me/mill-sft-cold", "model")
    weights = {path: content for path, content in snapshot(small.table("sft/cold").folder).items()}
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"} <= set(model)
    ours = {"README.md", "proofmill.json", ".gitattributes"}
    assert {path: model[path] for path in set(model) - ours} == {path: weights[path] for path in set(weights) - ours}


def test_second_run_sends_nothing(small, hub):
    """What stands on the hub is read and found equal: no second commit, and not one request that writes."""
    publish(small)
    hub.asked.clear()
    assert publish(small) == {TABLES: "same", "me/mill-sft-cold": "same"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert {method for method, _ in hub.asked} == {"GET"}


def test_changed_table_is_one_more_commit_of_what_differs(finished, hub):
    """Only repositories that were made from it get a commit, and the files that did not change are not sent again."""
    mill = finished()
    publish(mill)
    finish(mill, "scores/both", [score("sft/one", 0.25), score("grpo/two", 0.75, split="Basic")], page="# other\n")
    assert publish(mill) == {TABLES: "sent", "me/mill-sft-one": "sent", "me/mill-grpo-two": "sent"}
    sent = [line["value"]["path"] for line in hub.repositories["dataset", TABLES]["commits"][1]["lines"]]
    assert {"results/scores/both.parquet", "results/scores/both.md", "proofmill.json"} <= set(sent)
    assert "results/sft/one.parquet" not in sent


def test_what_is_no_longer_published_is_deleted_in_the_same_commit(finished, hub):
    """A repository has what was published last; files that others put there stay."""
    mill = finished()
    publish(mill)
    hub.files(TABLES)["LICENSE"] = b"mine"
    assert publish(mill, only=["problems/rows"]) == {TABLES: "sent"}
    kept = {"README.md", "proofmill.json", ".gitattributes", "LICENSE", "results/problems/rows.parquet"}
    assert set(hub.files(TABLES)) == kept
    assert hub.commits()[TABLES] == 2
    assert hub.commits()["me/mill-grpo-two"] == 1


def test_rollouts_are_a_table_and_no_part_of_the_model(finished, hub):
    """They stand in the dataset beside their table; what else lies beside weights is left where it is."""
    beside = {
        "training_args.bin": b"x",
        "trainer.log": b"x",
        "checkpoint-3/model.safetensors": b"x",
        "optimizer.pt": b"x",
    }
    mill = finished({"grpo/two": {"files": {**WEIGHTS, **beside, ROLLOUTS: rollouts("r9")}}})
    publish(mill)
    assert set(hub.files("me/mill-grpo-two", "model")) == {*WEIGHTS, "README.md", "proofmill.json", ".gitattributes"}
    assert frame(hub.files(TABLES)["results/grpo/two/rollouts.parquet"])["rollout"].to_list() == ["r9"]


def test_tasks_of_self_play_are_a_table_beside_its_rollouts(finished, hub):
    """Both stand in the dataset with their columns on the card; the model has neither."""
    played = {"model": "sft/one", "steps": 1}
    step = {"step": 1, "task": "deduce", "role": "solve", "measure": "accuracy", "value": 0.5}
    made = io.BytesIO()
    pl.DataFrame({"id": ["t1", "t2", "t3"]}).write_parquet(made)
    beside = {ROLLOUTS: rollouts("r1"), BUFFER: made.getvalue()}
    given = {"selfplay/three": {"rows": [step], "files": {**WEIGHTS, **beside}}}
    publish(finished(given, {**ROWS, "selfplay/three": played}))
    tables = hub.files(TABLES)
    assert frame(tables[f"results/selfplay/three/{BUFFER}"])["id"].to_list() == ["t1", "t2", "t3"]
    assert frame(tables[f"results/selfplay/three/{ROLLOUTS}"])["rollout"].to_list() == ["r1"]
    card = tables["README.md"].decode()
    assert f"`selfplay/three`](results/selfplay/three/{BUFFER}): 3 tasks" in card and "### buffer of `selfplay`" in card
    assert {config["config_name"] for config in DatasetCard(card).data.to_dict()["configs"]} >= {
        "selfplay--three--rollouts", "selfplay--three--buffer"
    }  # fmt: skip
    own = {"README.md", "proofmill.json", ".gitattributes"}
    assert set(hub.files("me/mill-selfplay-three", "model")) == {*WEIGHTS, *own}


def test_base_that_is_not_ours_is_named_and_not_pushed(finished, hub):
    """The weights of a hub model are in no repository; the card names the model and its commit."""
    publish(finished())
    assert {id for _, id in hub.repositories} == {TABLES, "me/mill-sft-one", "me/mill-grpo-two"}
    card = ModelCard(hub.files("me/mill-sft-one", "model")["README.md"].decode())
    assert card.data.base_model == "them/small-base" and "a" * 40 in card.text


def test_key_is_the_hubs_own(small, hub, monkeypatch):
    """A token that the hub does not know is an error for people, and nothing is created."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        HubError,
        match=r"me/mill-tables: publishing failed \(.*401.*Check that me is there and that HF_TOKEN may write to it",
    ):
        publish(small)
    assert not hub.repositories


@pytest.mark.parametrize(
    ("where", "status", "headers"),
    [
        ("/api/datasets/me/mill-tables", 500, {}),
        ("/api/repos/create", 403, {"X-Error-Message": "no right to write"}),
        ("/api/datasets/me/mill-tables/preupload/main", 403, {"X-Error-Message": "no right to write"}),
        ("/large/upload/", 403, {}),
        ("/api/datasets/me/mill-tables/commit/main", 500, {}),
        ("/api/datasets/me/mill-tables/commit/main", 401, {}),
    ],
)
def test_refused_push_claims_nothing_and_can_be_repeated(small, hub, where, status, headers):
    """A failure at any step is a clear error, leaves no commit, and the same command later sends everything once."""
    hub.refuse = lambda method, path: (status, headers) if path.startswith(where) and method != "GET" else None
    if where.endswith("tables"):
        hub.refuse = lambda method, path: (status, headers) if path == where else None
    with pytest.raises(
        HubError, match=rf"^me/mill-tables: publishing failed \(.*{status}.*Publish once more.*nothing\.$"
    ):
        publish(small)
    assert not any(hub.commits().values())
    hub.refuse = lambda method, path: None
    assert set(publish(small).values()) == {"sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}


def test_failure_in_the_middle_says_what_was_sent(finished, hub):
    """The repositories before it stand, are named, and are not sent again."""
    mill = finished()
    hub.refuse = lambda method, path: (500, {}) if path == "/api/models/me/mill-grpo-two/commit/main" else None
    with pytest.raises(HubError, match=r"^me/mill-grpo-two: .*Sent before: me/mill-tables, me/mill-sft-one"):
        publish(mill)
    hub.refuse = lambda method, path: None
    assert publish(mill) == {TABLES: "same", "me/mill-sft-one": "same", "me/mill-grpo-two": "sent"}


def test_commit_whose_answer_was_lost_is_not_made_twice(small, hub):
    """An error after the commit is an error; the next run finds that everything is there."""
    hub.lose = lambda path: (502, b"<html>gateway</html>", {})
    with pytest.raises(HubError, match=r"me/mill-tables: .* in one commit\. Publish once more"):
        publish(small)
    hub.lose = lambda path: None
    assert publish(small) == {TABLES: "same", "me/mill-sft-cold": "sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}


def test_commit_of_somebody_else_meanwhile_is_not_overwritten(finished, hub):
    """A repository that changes between the look and the commit keeps what was put there."""
    mill = finished()
    publish(mill)
    finish(mill, "scores/both", [score("sft/one", 0.25)])
    repository = hub.repositories["dataset", TABLES]

    def meanwhile(method, path):
        if path.endswith("tables/preupload/main"):
            repository["commits"].append({"summary": "theirs", "lines": []})

    hub.refuse = meanwhile
    with pytest.raises(HubError, match=r"me/mill-tables: publishing failed \(.*412"):
        publish(mill)
    assert repository["commits"][-1]["summary"] == "theirs"


# ---------------------------------------------------------------------------------------------- what stands there already


def test_repository_of_others_is_not_touched(small, hub):
    """One with files that no publication made is refused before anything is sent to any repository."""
    hub.create("model", "me/mill-sft-cold", files={"README.md": b"# my own"})
    with pytest.raises(HubError, match=r"me/mill-sft-cold: has files but no proofmill.json"):
        publish(small)
    assert list(hub.repositories) == [("model", "me/mill-sft-cold")]
    hub.create("model", "me/mill-sft-cold")["files"] = {"proofmill.json": b'{"fingerprint": "f", "name": "sft/cold"}'}
    with pytest.raises(HubError, match=r"has files but no proofmill.json"):  # that of weights, copied by hand
        publish(small)


def test_empty_repository_is_filled(small, hub):
    """One that was made by hand beforehand is taken."""
    hub.create("dataset", TABLES, private=True, files={".gitattributes": b""})
    publish(small, private=True)
    assert "README.md" in hub.files(TABLES) and hub.repositories["model", "me/mill-sft-cold"]["private"]


def test_private_tables_do_not_go_to_a_public_repository(small, hub):
    """Asked to be private, a publication to a repository that is there and public is refused."""
    hub.create("dataset", TABLES)
    with pytest.raises(HubError, match="me/mill-tables: is there and public; expected a private one"):
        publish(small, private=True)
    assert not any(hub.commits().values())


def test_prefix_holds_one_recipe(small, hub):
    """Another recipe does not replace the tables of the first."""
    publish(small)
    other = Book(small.book.entries, small.book.declared, {"other": small.book.recipes["test"]})
    with pytest.raises(HubError, match="me/mill-tables: has test; expected a prefix of its own for other"):
        publishing.publish(other, ["other"], "me/mill", small.results)


# --------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("asked", "how", "expected"),
    [
        ("mill", {}, "--to: found 'mill'; expected NAMESPACE/PREFIX"),
        ("me/a/b", {}, "--to: found 'me/a/b'"),
        ("me/mi--ll", {}, "me/mi--ll-tables: is no name of a repository"),
        ("me/mill", {"only": ["sft/clod"]}, "--only sft/clod: no artifact of test; .* Did you mean `sft/cold`"),
    ],
)
def test_wrong_request_is_refused_before_anything_is_sent(small, hub, asked, how, expected):
    """What cannot be meant is an error for people."""
    with pytest.raises(SettingError, match=expected):
        publishing.publish(small.book, ["test"], asked, small.results, **how)
    assert not hub.repositories


def test_recipe_with_a_mistake_is_not_published_in_part(finished, hub):
    """What was left out of the configuration for its mistake is said, and nothing of the recipe is sent."""
    mill = finished()
    faulty = {**ROWS, "problems/odd": {"source": "arithmetic", "rovs": 3}}
    with pytest.raises(RecipeError, match="unknown key `rovs`"):
        publishing.publish(expand({"test": faulty}, drafts=True), ["test"], "me/mill", mill.results)
    assert not hub.asked


def test_unknown_recipe_is_named(small, hub):
    """The nearest known name is shown."""
    with pytest.raises(SettingError, match=r"tset: no such recipe; expected one of test. Did you mean `test`"):
        publishing.publish(small.book, ["tset"], "me/mill", small.results)


def test_missing_and_stale_tables_are_named_before_anything_is_sent(finished, hub):
    """A table that is not there, one whose entry was edited, and what is made from them, each with its reason."""
    mill = finished()
    mill.table("base/theirs").path.unlink()
    edited = Mill(mill.results, **{**ROWS, "examples/some": {"problems": "problems/rows", "seed": 7}})
    with pytest.raises(TableError) as error:
        publish(edited)
    assert "base/theirs (kept, but not in its place)" in str(error.value)
    assert "examples/some (`seed` 0 -> 7)" in str(error.value)
    assert "sft/one (examples/some will be made)" in str(error.value)
    assert "problems/rows (" not in str(error.value)
    assert not hub.asked


def test_weights_of_another_training_are_refused(finished, hub):
    """A table whose weights do not belong to it is not published."""
    mill = finished()
    (mill.table("sft/one").folder / "proofmill.json").write_text('{"fingerprint": "other"}')
    with pytest.raises(TableError, match="weights of other"):
        publish(mill)
    assert not any(hub.commits().values())


def test_damaged_table_is_named(finished, hub):
    """A file that is cut in the middle of its rows is found while everything is still here."""
    mill = finished(
        {
            "problems/rows": {
                "rows": [problem(f"p{n}", statement=random.Random(n).randbytes(99).hex()) for n in range(9)]
            }
        }
    )
    path = mill.table("problems/rows").path
    content = bytearray(path.read_bytes())
    content[40:240] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"rows.parquet: cannot be read"):
        publish(mill)
    assert not any(hub.commits().values())


def test_offline_is_an_error_for_people(small, hub, monkeypatch):
    """Without the hub nothing is published, and the message says which variable forbids it."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingError, match="HF_HUB_OFFLINE: is set"):
        publish(small)
    assert not hub.asked


def test_missing_key_is_an_error_for_people(small, hub, monkeypatch, tmp_path):
    """The message says which variable is missing."""
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(SettingError, match="HF_TOKEN: the environment has none"):
        publish(small)
    assert not hub.asked


# ------------------------------------------------------------------------------------------------------- what is private

SECRET = "q7-a-key-of-a-judge"


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"problems/rows": {"rows": [problem(evidence=f"asked with {SECRET}")]}}, "problems/rows: column `evidence`"),
        ({"problems/rows": {"rows": [problem(candidates=["a", f"b {SECRET}"])]}}, "problems/rows: column `candidates`"),
        ({"problems/rows": {"rows": [problem()], "engine": SECRET}}, "problems/rows: the stamp"),
        ({"examples/some": {"rows": [{"example": "e", "problem": "p", "messages": [{"role": "user", "content": SECRET}]}]}},
         "examples/some: column `messages`"),
        ({"sft/one": {"files": {**WEIGHTS, "config.json": f'{{"key": "{SECRET}"}}'.encode()}}}, "config.json"),
        ({"sft/one": {"files": {**WEIGHTS, "tokenizer.json": f'{{"{SECRET}": 1}}'.encode()}}}, "tokenizer.json"),
        ({"grpo/two": {"files": {**WEIGHTS, ROLLOUTS: rollouts("r", verdict=[SECRET])}}}, "rollouts.parquet: column `verdict`"),
        ({"scores/both": {"rows": [], "page": f"# {SECRET}"}}, "both.md"),
    ],
)  # fmt: skip
def test_key_stops_a_publication_wherever_it_stands(finished, hub, monkeypatch, given, where):
    """The value of a variable that names a key is in no file that leaves; the message says where and whose, not what."""
    monkeypatch.setenv("PROOFMILL_JUDGE_KEY", SECRET)
    mill = finished(given)
    with pytest.raises(TableError) as error:
        publish(mill)
    assert where in str(error.value) and "the value of PROOFMILL_JUDGE_KEY" in str(error.value)
    assert SECRET not in str(error.value)
    assert not any(hub.commits().values())


@pytest.mark.parametrize("key", [KEY, "hf_" + "Ab3" * 12, "sk-proj-" + "x1" * 15, "ghp_" + "a1" * 18])
def test_key_that_no_variable_holds_is_known_by_its_form(finished, hub, key):
    """The hub's own key, and others by how they look."""
    with pytest.raises(TableError, match=r"problems/rows: column `solution`: has .*expected no key") as error:
        publish(finished({"problems/rows": {"rows": [problem(solution=f"see {key}.")]}}))
    assert key not in str(error.value)


def test_mathematics_is_no_key(finished, hub, monkeypatch):
    """Words that look a little like keys, and short values of such variables, stop nothing."""
    monkeypatch.setenv("PROOFMILL_LOCAL_KEY", "EMPTY")
    plain = "The EMPTY set, risk-neutral-measures-of-all-kinds, hf_1, sk-1, task-oriented-programming-1."
    mill = finished({"problems/rows": {"rows": [problem(statement=plain)]}})
    assert publish(mill)[TABLES] == "sent"
    assert frame(hub.files(TABLES)["results/problems/rows.parquet"])["statement"].to_list() == [plain]


def test_paths_of_the_machine_are_replaced_wherever_they_stand(finished, hub, monkeypatch):
    """Values of `${VARIABLES}`, the folders of the run and the home are in no file; what the configuration calls them is."""
    place, home = os.environ["PLACE"], str(Path.home())
    results = f"{Path(place).parent}/results"
    trace = f"File {place}/rows.jsonl, {home}/x/y.py, {results}/sft/one, and {place}-other is none"
    mill = finished(
        {
            "problems/rows": {"rows": [problem(evidence=trace, candidates=[f"in {place}"], tags=["plain"])]},
            "sft/one": {
                "files": {**WEIGHTS, "config.json": json.dumps({"_name_or_path": f"{results}/base/x"}).encode()}
            },
            "grpo/two": {"files": {**WEIGHTS, ROLLOUTS: rollouts("r", text=[f"cat {place}/a"])}},
            "scores/both": {"rows": [], "page": f"from {place}\n"},
        }
    )
    publish(mill)
    found = {(id, path): content for (_, id), r in hub.repositories.items() for path, content in r["files"].items()}
    for (id, path), content in found.items():
        texts = (
            json.dumps([frame(content).to_dicts(), stamp_of(content)]) if path.endswith(".parquet") else str(content)
        )
        assert f"{place}/" not in texts and not re.search(rf"{place}(?!-)", texts), (id, path)
        assert f"{results}/" not in texts, (id, path)
    row = frame(found[TABLES, "results/problems/rows.parquet"]).to_dicts()[0]
    assert row["evidence"] == f"File ${{PLACE}}/rows.jsonl, ~/x/y.py, results/sft/one, and {place}-other is none"
    assert (row["candidates"], row["tags"], row["statement"]) == (["in ${PLACE}"], ["plain"], "Why?")
    assert list(stamp_of(found[TABLES, "results/problems/rows.parquet"])["sources"]) == ["${PLACE}/rows.jsonl"]
    assert json.loads(found["me/mill-sft-one", "config.json"]) == {"_name_or_path": "results/base/x"}
    assert "${PLACE}/rows.jsonl" in found[TABLES, "README.md"].decode()


def stamp_of(content):
    found = pl.read_parquet_metadata(io.BytesIO(content)).get("proofmill")
    return found and json.loads(found)


def test_stamp_of_clean_rows_is_cleaned_too(finished, hub):
    """A table none of whose rows has a path is written anew where its stamp has one, with the same rows."""
    mill = finished({"problems/rows": {"rows": [problem()], "notices": [f"from {os.environ['PLACE']}/x"]}})
    publish(mill)
    content = hub.files(TABLES)["results/problems/rows.parquet"]
    assert list(stamp_of(content)["sources"]) == ["${PLACE}/rows.jsonl"]
    assert frame(content).equals(mill.table("problems/rows").scan().collect())
    differing = {key for key, value in mill.table("problems/rows").stamp.items() if stamp_of(content)[key] != value}
    assert differing == {"notices"}


def test_vocabulary_is_never_changed(finished, hub):
    """A word of a tokenizer may look like the home of somebody: its files arrive byte for byte."""
    vocabulary = json.dumps({"vocab": {str(Path.home()): 0}}).encode()
    publish(finished({"sft/one": {"files": {**WEIGHTS, "tokenizer.json": vocabulary}}}))
    assert hub.files("me/mill-sft-one", "model")["tokenizer.json"] == vocabulary


def test_path_that_no_variable_names_keeps_its_last_part(tmp_path, monkeypatch):
    """Of a stamp that was made where the variable had another value, or from an absolute path, only file names are left."""
    entries = [entry_from("problems", {"source": "table", "path": p}) for p in ("${PLACE}/a.jsonl", "/abs/set")]
    monkeypatch.setenv("PLACE", "/now")
    stamp = {"sources": {"/then/x/b.jsonl": "1", "/then/y/b.jsonl": "2"}, "entry": {"path": "/abs/set", "rows": 3}}
    assert Private(entries, tmp_path).stamp(stamp) == {
        "sources": {"x/b.jsonl": "1", "y/b.jsonl": "2"},
        "entry": {"path": "set", "rows": 3},
    }
    stamp = {"sources": {"/now/a.jsonl": "1", "/abs/set/s/1.tex": "2"}, "entry": {}}
    assert Private(entries, tmp_path).stamp(stamp)["sources"] == {"${PLACE}/a.jsonl": "1", "set/s/1.tex": "2"}


def test_copy_of_public_data_is_named_by_its_address(tmp_path, monkeypatch):
    """Wherever a copy lies here, what is published has the public address, and no folder of this machine."""
    monkeypatch.setenv("PROOFMILL_DATA", str(tmp_path / "mine"))
    copy = tmp_path / "mine/hub/me/set/main/rows.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_text("{}")
    entry = entry_from("problems", {"source": "table", "path": "hub:me/set@main/rows.jsonl"})
    stamp = Private([entry], tmp_path / "results").stamp({"sources": {str(copy): "1"}, "entry": {"path": entry.path}})
    assert stamp == {"sources": {"hub:me/set@main/rows.jsonl": "1"}, "entry": {"path": entry.path}}


def test_variable_inside_a_path_is_no_file_name(tmp_path, monkeypatch):
    """The value of a variable that is a part of a path stands in no stamp and in no origin of a row."""
    monkeypatch.setenv("WHO", "alice")
    entry = entry_from("problems", {"source": "table", "path": "of/${WHO}/${WHO}.jsonl"})
    private = Private([entry], tmp_path)
    assert private.stamp({"sources": {"of/alice/alice.jsonl": "1"}})["sources"] == {"of/${WHO}/${WHO}.jsonl": "1"}
    assert (
        private.cleaned("alice.jsonl:7, of/alice/alice.jsonl, alice") == "${WHO}.jsonl:7, of/${WHO}/${WHO}.jsonl, alice"
    )


PIECES = st.lists(
    st.sampled_from(["/srv/a", "/srv/a/deep", "/home/me", "/", "-", ".", "~", " ", "x", "é", "\n", '"', "ab"])
)


@given(PIECES)
def test_cleaning_equals_the_slow_definition(pieces):
    """At each place of a text the longest folder is replaced that stands alone there; all else stays as it is."""
    names = {"/srv/a": "${A}", "/srv/a/deep": "${DEEP}", "/home/me": "~"}
    private = Private([], Path("results"))
    private.set_places(names)
    text, slow, at = "".join(pieces), "", 0
    while at < len(text):
        before = text[at - 1] if at else " "
        alone = [
            folder
            for folder in names
            if text.startswith(folder, at)
            and not (before.isalnum() or before in "_./~-")
            and not (
                text[at + len(folder) : at + len(folder) + 1].isalnum() or text[at + len(folder) :][:1] in ("_", "-")
            )
        ]
        longest = max(alone, key=len, default="")
        slow += names[longest] if longest else text[at]
        at += len(longest) or 1
    assert private.cleaned([{"a": text}, 1, None]) == [{"a": slow}, 1, None]


# ------------------------------------------------------------------------------------------------------------- dry runs


def test_dry_run_writes_what_would_be_sent_and_sends_nothing(finished, hub, tmp_path):
    """The folder has, for each repository, the files that the hub gets."""
    mill = finished()
    assert set(publish(mill, folder=tmp_path / "dry").values()) == {"written"}
    assert not hub.asked
    publish(mill)
    for (_, id), repository in hub.repositories.items():
        sent = {path: content for path, content in repository["files"].items() if path != ".gitattributes"}
        assert snapshot(tmp_path / "dry" / id.partition("/")[2]) == sent


def test_dry_run_needs_neither_hub_nor_key(small, tmp_path, monkeypatch):
    """It works offline; a folder that is there is not overwritten."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    publish(small, folder=tmp_path / "dry")
    assert (tmp_path / "dry" / "mill-tables" / "README.md").exists()
    with pytest.raises(SettingError, match="mill-tables: is there already"):
        publish(small, folder=tmp_path / "dry")


def test_every_configuration_loads(small, tmp_path):
    """`load_dataset(repository, "<kind>--<name>")` gives the rows of that table."""
    publish(small, folder=tmp_path / "dry")
    repository = tmp_path / "dry" / "mill-tables"
    wanted = {name.replace("/", "--"): small.table(name).scan().collect().height for name in SMALL}
    found = {
        config: datasets.load_dataset(str(repository), config, split="train", cache_dir=tmp_path / "cache").num_rows
        for config in datasets.get_dataset_config_names(str(repository))
    }
    assert found == wanted


def test_published_results_are_results(finished, tmp_path):
    """The folder `results` of the dataset is read like any other: rows, stamp and columns."""
    mill = finished({"problems/rows": {"rows": [problem(evidence=os.environ["PLACE"])]}})
    publish(mill, folder=tmp_path / "dry")
    table = Table("problems/rows", tmp_path / "dry" / "mill-tables" / "results")
    assert table.rows("problem", "evidence") == [{"problem": "p", "evidence": "${PLACE}"}]
    assert table.stamp["fingerprint"] == mill.table("problems/rows").stamp["fingerprint"]


def test_table_without_rows_has_a_file_and_no_configuration(finished, tmp_path):
    """`load_dataset` cannot read it, and the card says so."""
    publish(finished(), folder=tmp_path / "dry")
    card = DatasetCard.load(tmp_path / "dry" / "mill-tables" / "README.md")
    configs = [config["config_name"] for config in card.data.configs]
    assert "problems--rows" in configs and "grpo--two--rollouts" in configs and "examples--some" not in configs
    assert "Without any row, which `load_dataset` cannot read: `examples/some`" in card.text
    assert (tmp_path / "dry" / "mill-tables" / "results" / "examples" / "some.parquet").exists()


# ----------------------------------------------------------------------------------------------------------------- cards


@pytest.fixture
def read(tmp_path):
    """`read(mill)` publishes to a folder and gives the cards by the name of their repository."""

    def cards_of(mill):
        publish(mill, folder=tmp_path / "dry")
        return {
            folder.name: (DatasetCard if folder.name == "mill-tables" else ModelCard).load(folder / "README.md")
            for folder in (tmp_path / "dry").iterdir()
        }

    return cards_of


def test_card_of_tables_says_what_stamps_say(finished, read):
    """Rows, outcomes, parents, seeds, cost, tokens, time, fingerprints, commit and versions of each table are on it."""
    mill = finished(
        {"problems/rows": {"rows": [problem(), problem("q", dropped="no-image")], "counts": {"kept": 1, "no-image": 1}}}
    )
    text = read(mill)["mill-tables"].text
    assert (
        "| [`problems/rows`](results/problems/rows.parquet) | 2 | 1 kept, 1 no-image | – | 0 | – | – | 1:23 |" in text
    )
    assert "| 1 kept | `sft/one`, `problems/rows` | 0 | 1,234 | $1.50 | 1:23 |" in text
    for name in mill.book.recipes["test"]:
        stamp = mill.table(name).stamp
        known = (stamp["fingerprint"], stamp["content"], stamp["commit"] or "a commit that is not known")
        assert all(f"{what}" in text for what in known), name
        assert all(f"{package} {version}" in text for package, version in stamp["versions"].items())
    assert "(results/scores/both.md)" in text and "`grpo/two`](results/grpo/two/rollouts.parquet): 2 rollouts" in text


def test_card_of_tables_explains_every_column(small, read):
    """Each column of each kind that is published stands there with the sentence of the manual."""
    text = read(small)["mill-tables"].text
    for kind in {kind_of(name) for name in SMALL}:
        section = text.split(f"\n### {kind}\n")[1].split("\n### ")[0]
        for column, (dtype, meaning) in COLUMNS[kind].items():
            assert f"| `{column}` | {dtype} | {meaning} |".replace("|", "") in section.replace("\\|", "").replace(
                "|", ""
            )


def test_entries_on_a_card_are_those_of_the_recipe(small, read):
    """Read back as YAML they are the same entries."""
    made = read(small)
    for text in (made["mill-tables"].text, made["mill-sft-cold"].text):
        blocks = [
            yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        ]
        found = {name: values for block in blocks for name, values in block.items()}
        assert found
        for name, values in found.items():
            entry = entry_from(kind_of(name), values)
            assert references.canonical(entry) == references.canonical(small.book.entries[name])


def test_fence_is_longer_than_any_inside():
    """An entry with a fence of its own cannot leave its block."""
    assert cards.fenced("a\n````\nb\n", "yaml") == "`````yaml\na\n````\nb\n`````"
    assert cards.fenced("a", "yaml") == "```yaml\na\n```"


def test_unknown_is_said_and_not_invented(finished, read):
    """No licence is claimed; an unknown price, source licence and parent are named as unknown."""
    made = read(finished({"grpo/two": {"cost": None}}))
    for card in made.values():
        assert card.data.license is None and "Under which licence" in card.text.split("## What is not known")[1]
    tables = made["mill-tables"].text
    assert "What the calls of `grpo/two` cost: the price of a model that was asked is declared unknown." in tables
    assert "rows.jsonl` (SHA-256 `" in tables and "its licence is not known here" in tables
    assert "| cost of those calls | unknown |" in made["mill-grpo-two"].text


def test_licence_of_a_source_is_known_by_its_digest(finished, read, tmp_path, monkeypatch):
    """data/sources.csv says what a file is, whatever it is called here."""
    mill = finished()
    (digest,) = mill.table("problems/rows").stamp["sources"].values()
    known = tmp_path / "sources.csv"
    known.write_text(f"name,source,file,sha256,licence,rows\nA set,https://example.org,x.jsonl,{digest},CC-BY-4.0,1\n")
    monkeypatch.setattr(cards, "SOURCES", known)
    assert f"(SHA-256 `{digest}`): A set (https://example.org), licence CC-BY-4.0" in read(mill)["mill-tables"].text


def test_parent_that_is_not_published_is_named(finished, tmp_path):
    """What some tables were made from and what is not among them is unknown to the reader, and said."""
    publish(finished(), only=["examples/some"], folder=tmp_path / "dry")
    text = (tmp_path / "dry" / "mill-tables" / "README.md").read_text()
    assert (
        "What stands in `problems/rows`: tables that these are made from and that are not published with them." in text
    )


def test_model_card_has_the_scores_that_measure_it(finished, read):
    """Values with their intervals, n and unscored of the rows whose model it is, and no other model's."""
    made = read(
        finished(
            {
                "scores/both": {
                    "rows": [
                        score("sft/one", 0.5),
                        score("grpo/two", 0.75),
                        score("grpo/two", 0.25, against="sft/one", p=0.0004),
                        score("grpo/two", None, measure="nothing-scored"),
                    ]
                }
            }
        )
    )
    one, two = (made[name].text.split("## Measured")[1] for name in ("mill-sft-one", "mill-grpo-two"))
    assert "| avg@1 | all | 0.50 [0.40, 0.60] | 4 at 4 problems | 25.0% |" in one and "0.75" not in one
    assert "| avg@1 | all | 0.75 [0.65, 0.85] | 4 at 4 problems | 25.0% |" in two
    assert "| avg@1 minus `sft/one` | all | 0.25 [0.15, 0.35], p < 0.001 (Holm) |" in two
    assert "| nothing-scored | all | – |" in two


def test_model_that_nothing_measures_says_so(small, read):
    """Without a scores table there is no number, and a sentence instead."""
    text = read(small)["mill-sft-cold"].text
    assert "No `scores` table that is published with it measures it." in text and "How good it is: no table" in text


def test_scores_over_seeds_are_shown_by_their_own_seed(finished, read):
    """A number over several trainings is no number of one of them."""
    entries = {**ROWS, "scores/seeds": {"repeat": "scores/both", "seeds": [0, 1]}}
    numbers = [score("sft/one", 0.5), score("sft/one", 0.125, "seed 0"), score("sft/one", 0.875, "seed 1")]
    made = read(finished({"scores/both": {"rows": []}, "scores/seeds": {"rows": numbers}}, entries))
    first, second = (made[name].text.split("## Measured")[1] for name in ("mill-sft-one", "mill-sft-one_seed-1"))
    assert "0.12 [" in first and "0.50 [" not in first and "0.88 [" not in first
    assert "0.88 [" in second and "0.50 [" not in second and "0.12 [" not in second


def test_card_of_a_model_leads_back_to_its_base(finished, read):
    """Its descent is told to the first weights, and the hub is told the dataset and the base."""
    card = read(finished())["mill-grpo-two"]
    assert card.data.datasets == [TABLES] and card.data.tags == ["proofmill", "grpo"]
    lineage = card.text.split("## Where it comes from")[1].split("## Training")[0]
    assert re.findall(r"^- `([^`]+)`", lineage, re.MULTILINE) == ["grpo/two", "sft/one", "base/theirs"]
    assert "`them/small-base` of the hub at commit" in lineage


# ---------------------------------------------------------------------------------------------- the command and the end


def test_end_of_a_run_publishes_only_where_the_environment_says_so(small, hub, monkeypatch):
    """Without PROOFMILL_PUBLISH nothing is read or asked; with it the recipes among the targets are published."""
    monkeypatch.delenv("PROOFMILL_PUBLISH", raising=False)
    publishing.at_end(["test"], small.results)
    publishing.at_end(["test"], Path("/nowhere"), small.book)
    assert not hub.asked
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    publishing.at_end(["results/sft/cold.parquet"], small.results, small.book)
    assert not hub.asked
    monkeypatch.setenv("PROOFMILL_PUBLISH_PRIVATE", "1")
    publishing.at_end(["test", "results/sft/cold.parquet"], small.results, small.book)
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert all(repository["private"] for repository in hub.repositories.values())


def test_recipes_that_are_asked_for_together_are_one_dataset(finished, hub, monkeypatch):
    """Their tables stand side by side, each once, and the same request later sends nothing."""
    mill = finished()
    names = mill.book.recipes["test"]
    book = Book(mill.book.entries, mill.book.declared, {"a": names[:3], "b": names[2:]})
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    publishing.at_end(["a", "b"], mill.results, book)
    publishing.at_end(["a", "b"], mill.results, book)
    assert {f"results/{name}.parquet" for name in names} <= set(hub.files(TABLES))
    assert set(hub.commits().values()) == {1}


def test_failure_at_the_end_of_a_run_says_how_to_publish_by_hand(small, hub, monkeypatch):
    """A finished run does nothing the second time, and would not publish: the command is in the message."""
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    hub.refuse = lambda method, path: (500, {}) if path.endswith("/commit/main") else None
    with pytest.raises(HubError, match=r"Sent before: nothing\. .*by hand: proofmill publish test --to me/mill$"):
        publishing.at_end(["test"], small.results, small.book)


def test_command_publishes_to_the_endpoint_of_the_environment(finished, tmp_path):
    """`proofmill publish` in a process of its own, with huggingface_hub's own variables; its errors are one line."""
    mill = finished()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"test": {"api/referee": REFEREE, **ROWS}}))
    with serving(FakeHub()) as hub:

        def command(**environment):
            told = {"HF_ENDPOINT": hub.url, "HF_TOKEN": KEY, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
            return subprocess.run(
                [sys.executable, "-m", "proofmill", "publish", "test", "--to", "me/mill", "--only", "sft/one"],
                cwd=tmp_path,
                env={**os.environ, **told, **environment},
                capture_output=True,
                text=True,
                check=False,
            )

        done = command()
        assert done.returncode == 0, done.stderr
        assert hub.commits() == {TABLES: 1, "me/mill-sft-one": 1}
        assert hub.files("me/mill-sft-one", "model")["model.safetensors"] == WEIGHTS["model.safetensors"]
        assert mill.table("sft/one").path.read_bytes() == hub.files(TABLES)["results/sft/one.parquet"]
        refused = command(HF_TOKEN="hf_wrong")
        assert refused.returncode == 1 and refused.stderr.strip().splitlines()[-1].startswith("HubError: me/mill-")
