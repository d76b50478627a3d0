"""Publishing: sent files, private texts, refusals and cards. The hub is a local server with the hub's protocol."""

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
from huggingface_hub import DatasetCard, ModelCard, constants, parse_eval_result_entries
from huggingface_hub.utils import sha
from hypothesis import given
from hypothesis import strategies as st

from mill import REFEREE, SMALL, Mill
from project import snapshot
from proofmill.artifacts import fingerprints
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config, expand
from proofmill.config.entry_values import entry_from
from proofmill.config.identity import identity_of
from proofmill.publishing import cards, reproduction
from proofmill.publishing import hub as publishing
from proofmill.publishing.private import Private
from proofmill.schema import references
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import HubError, RecipeError, SettingError, TableError
from proofmill.schema.kinds import BUFFER, ROLLOUTS
from proofmill.schema.names import kind_of, without_seed

KEY = "hf_" + "k3y" * 12
TABLES = "me/mill-tables"

# ------------------------------------------------------------------------------------------------------------------ hub


class FakeHub:
    """A hub with one user: repositories by (type, id), each with files, commits and a flag for private."""

    def __init__(self):
        self.repositories, self.large, self.asked = {}, {}, []
        self.refuse = lambda method, path: None  # or (status, headers)
        self.lose = lambda path: None  # or the response that replaces that of a successful commit
        self.lock = threading.Lock()

    def files(self, id, type="dataset"):
        return self.repositories[type, id]["files"]

    def commits(self):
        return {id: len(found["commits"]) for (_, id), found in self.repositories.items()}

    def create(self, type, id, private=False, files=None):
        made = {"private": private, "files": dict(files or {}), "commits": []}
        return self.repositories.setdefault((type, id), made)

    def answer(self, method, path, body, key):
        """Return (status, content, headers) for a request, by the protocol of huggingface_hub 1.x."""
        with self.lock:
            self.asked.append((method, path))
            if refused := self.refuse(method, path):
                return refused[0], {"error": "refused by the test"}, refused[1]
            if path.startswith("/large/"):
                return self.store(path.rpartition("/")[2], body)
            if key != f"Bearer {KEY}":
                return 401, {"error": "no key"}, {"X-Error-Message": "Invalid credentials in Authorization header"}
            if path == "/api/repos/create":
                return self.created(json.loads(body))
            if path == "/api/validate-yaml":
                front = json.loads(body)["content"].split("---\n")[1]
                return (200 if isinstance(yaml.safe_load(front), dict) else 400), {"errors": [], "warnings": []}, {}
            if re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
                return self.batch(json.loads(body))
            if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                repository = self.find(match[1], match[2])
                if (content := repository["files"].get(unquote(match[3]))) is None:
                    return 404, {}, {"X-Error-Code": "EntryNotFound"}
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                return 200, content, {"ETag": etag, "X-Repo-Commit": self.head(repository)}
            match = re.fullmatch(
                r"/api/(datasets|models)/([^/]+/[^/]+)(?:/(preupload|commit|revision|tree)/[^/]+)?", path
            )
            repository = match and self.find(match[1] == "datasets", match[2])
            if repository is None:
                return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
            if match[3] in (None, "revision"):
                return 200, self.info(match[2], repository), {}
            if match[3] == "tree":
                files = repository["files"].items()
                return (
                    200,
                    [{"type": "file", "path": name, "size": len(c), "oid": sha.git_hash(c)} for name, c in files],
                    {},
                )
            if match[3] == "preupload":
                return 200, {"files": [self.mode(repository, file) for file in json.loads(body)["files"]]}, {}
            response = self.commit(repository, [json.loads(line) for line in body.splitlines()])
            return self.lose(path) or response

    def find(self, of_datasets, id):
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

    def store(self, oid, body):
        if oid not in self.large and hashlib.sha256(body).hexdigest() != oid:
            return 400, {"error": "content differs from its announced digest"}, {}
        self.large.setdefault(oid, body)
        return 200, {}, {}

    def commit(self, repository, lines):
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
        wbufsize = -1  # head and body in one packet; two packets would delay each other

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
            if self.command != "HEAD":
                self.wfile.write(payload)

        do_HEAD = do_GET = do_POST = do_PUT = handle_any

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
    """Set this process to a fake hub, without Xet, which has its own storage server."""
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
        "metrics": ["avg-at-k"],
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


def score(model, value, part="all", **more):
    found = {
        "model": model,
        "problems": "problems/rows",
        "sampling": "greedy",
        "grader": "final-answer",
        "metric": "avg@1",
    }
    ends = {} if value is None else {"low": value - 0.1, "high": value + 0.1}
    numbers = {"value": value, **ends, "n": 4, "n_problems": 4, "unscored": 0.25}
    return {**dict.fromkeys(COLUMNS["scores"]), **found, **numbers, "slice": part, **more}


def finish(mill, name, rows=(), files=None, page=None, **facts):
    """Write a finished table with these rows, as its stage would."""
    table, entry = mill.table(name), mill.config.entries[name]
    declared = mill.config.declared
    parents, sources = fingerprints.digest_inputs(table, entry, declared)
    fingerprint = fingerprints.fingerprint_of(name, entry, declared, parents, sources)
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
    """Return the bytes of a file of rollouts."""
    made = io.BytesIO()
    pl.DataFrame({"rollout": ids, "rewards_defined": [["grade"]] * len(ids), **columns}).write_parquet(made)
    return made.getvalue()


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """Return a function that builds a Mill with all tables finished, with the given rows or files instead of plain ones."""
    place = tmp_path / "secret place"
    place.mkdir()
    (place / "rows.jsonl").write_text('{"question": "Why?"}\n')
    monkeypatch.setenv("PLACE", str(place))

    def make(given=None, entries=ROWS):
        mill = Mill(tmp_path / "results", **entries)
        step = {"step": 1, "epoch": 1.0, "metric": "loss", "value": 2.0}
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
        order = [name for name in mill.config.recipes["test"]]
        for name in sorted(order, key=lambda n: len(list(references.ancestors(mill.config.entries, n)))):
            finish(mill, name, **{**plain.get(without_seed(name), {}), **(given or {}).get(name, {})})
        return mill

    return make


def publish(mill, **how):
    return publishing.publish(mill.config, ["test"], "me/mill", mill.results, **how)


def frame(content):
    return pl.read_parquet(io.BytesIO(content))


# ----------------------------------------------------------------------------------------------------------- sent files


def test_publishing_makes_one_commit_for_each_repository(small, hub):
    """The tables are one dataset and the trained model one model, each in one commit; a scratch base has no repository."""
    assert publish(small) == {TABLES: "sent", "me/mill-sft-cold": "sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert {type for type, _ in hub.repositories} == {"dataset", "model"}
    assert not any(repository["private"] for repository in hub.repositories.values())


def test_published_answers_reproduce_all_tables(small, hub):
    """A download of the dataset is enough: each table but those of weights is derived again, without a call."""
    publish(small, answers=True)
    outcomes = {outcome.name: outcome.state for outcome in reproduction.reproduce(TABLES)}
    assert {name for name, state in outcomes.items() if state == "taken"} == {"base/tiny", "sft/cold"}
    assert {state for state in outcomes.values()} == {"taken", "equal"} and len(outcomes) == len(SMALL)


def test_published_files_are_only_tables_and_weights(small, hub):
    """Tables and weights are sent byte for byte; journals, logs and checkpoints are not sent."""
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
    """Equal repositories get no second commit, and the second run makes no writing request."""
    publish(small)
    hub.asked.clear()
    assert publish(small) == {TABLES: "same", "me/mill-sft-cold": "same"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert {method for method, _ in hub.asked} == {"GET"}


def test_changed_table_is_one_more_commit_of_its_files(finished, hub):
    """Only repositories that depend on the table get a commit, and unchanged files are not sent again."""
    mill = finished()
    publish(mill)
    finish(mill, "scores/both", [score("sft/one", 0.25), score("grpo/two", 0.75, part="Basic")], page="# other\n")
    assert publish(mill) == {TABLES: "sent", "me/mill-sft-one": "sent", "me/mill-grpo-two": "sent"}
    sent = [line["value"]["path"] for line in hub.repositories["dataset", TABLES]["commits"][1]["lines"]]
    assert {"results/scores/both.parquet", "results/scores/both.md", "proofmill.json"} <= set(sent)
    assert "results/sft/one.parquet" not in sent


def test_files_no_longer_published_are_deleted_in_the_same_commit(finished, hub):
    """A repository has the files of the last publication; files added by others stay."""
    mill = finished()
    publish(mill)
    hub.files(TABLES)["LICENSE"] = b"mine"
    assert publish(mill, only=["problems/rows"]) == {TABLES: "sent"}
    kept = {"README.md", "proofmill.json", ".gitattributes", "LICENSE", "results/problems/rows.parquet"}
    assert set(hub.files(TABLES)) == kept
    assert hub.commits()[TABLES] == 2
    assert hub.commits()["me/mill-grpo-two"] == 1


def test_rollouts_are_a_table_of_the_dataset(finished, hub):
    """Rollouts are published next to their table, not with the model; other files next to weights are not published."""
    extra = {
        "training_args.bin": b"x",
        "trainer.log": b"x",
        "checkpoint-3/model.safetensors": b"x",
        "optimizer.pt": b"x",
    }
    mill = finished({"grpo/two": {"files": {**WEIGHTS, **extra, ROLLOUTS: rollouts("r9")}}})
    publish(mill)
    assert set(hub.files("me/mill-grpo-two", "model")) == {*WEIGHTS, "README.md", "proofmill.json", ".gitattributes"}
    assert frame(hub.files(TABLES)["results/grpo/two/rollouts.parquet"])["rollout"].to_list() == ["r9"]


def test_tasks_of_self_play_are_a_table_of_the_dataset(finished, hub):
    """Tasks and rollouts are in the dataset, with their columns on the card; the model's repository has neither."""
    played = {"model": "sft/one", "steps": 1}
    step = {"step": 1, "task": "deduce", "role": "solve", "metric": "accuracy", "value": 0.5}
    made = io.BytesIO()
    pl.DataFrame({"id": ["t1", "t2", "t3"]}).write_parquet(made)
    extra = {ROLLOUTS: rollouts("r1"), BUFFER: made.getvalue()}
    changes = {"selfplay/three": {"rows": [step], "files": {**WEIGHTS, **extra}}}
    publish(finished(changes, {**ROWS, "selfplay/three": played}))
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


def test_base_of_the_hub_is_named_and_not_pushed(finished, hub):
    """The weights of a hub model are not published; the card names the model and its commit."""
    publish(finished())
    assert {id for _, id in hub.repositories} == {TABLES, "me/mill-sft-one", "me/mill-grpo-two"}
    card = ModelCard(hub.files("me/mill-sft-one", "model")["README.md"].decode())
    assert card.data.base_model == "them/small-base" and "a" * 40 in card.text


def test_unknown_key_is_refused(small, hub, monkeypatch):
    """A token that the hub does not know is a HubError, and no repository is created."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        HubError,
        match=r"me/mill-tables: publishing failed \(.*401.*Check that me exists and that HF_TOKEN can write to it",
    ):
        publish(small)
    assert not hub.repositories


@pytest.mark.sampled(3)
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
def test_refused_push_can_be_repeated(small, hub, where, status, headers):
    """A failure at any step is a HubError without a commit, and the same command later sends everything once."""
    hub.refuse = lambda method, path: (status, headers) if path.startswith(where) and method != "GET" else None
    if where.endswith("tables"):
        hub.refuse = lambda method, path: (status, headers) if path == where else None
    with pytest.raises(HubError, match=rf"^me/mill-tables: publishing failed \(.*{status}.*Publish again.*none\.$"):
        publish(small)
    assert not any(hub.commits().values())
    hub.refuse = lambda method, path: None
    assert set(publish(small).values()) == {"sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}


def test_failure_in_the_middle_lists_sent_repositories(finished, hub):
    """The repositories sent before the failure are named and are not sent again."""
    mill = finished()
    hub.refuse = lambda method, path: (500, {}) if path == "/api/models/me/mill-grpo-two/commit/main" else None
    with pytest.raises(HubError, match=r"^me/mill-grpo-two: .*Already sent: me/mill-tables, me/mill-sft-one"):
        publish(mill)
    hub.refuse = lambda method, path: None
    assert publish(mill) == {TABLES: "same", "me/mill-sft-one": "same", "me/mill-grpo-two": "sent"}


def test_commit_with_a_lost_response_is_not_repeated(small, hub):
    """An error after the commit is a HubError; the next run finds the repository up to date."""
    hub.lose = lambda path: (502, b"<html>gateway</html>", {})
    with pytest.raises(HubError, match=r"me/mill-tables: .* accept one commit\. Publish again"):
        publish(small)
    hub.lose = lambda path: None
    assert publish(small) == {TABLES: "same", "me/mill-sft-cold": "sent"}
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}


def test_concurrent_commit_is_not_overwritten(finished, hub):
    """A commit between the check and the push is kept, and publishing fails."""
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


# ------------------------------------------------------------------------------------------------ existing repositories


def test_repository_of_others_is_not_touched(small, hub):
    """A repository with files of others is refused before anything is sent to any repository."""
    hub.create("model", "me/mill-sft-cold", files={"README.md": b"# my own"})
    with pytest.raises(HubError, match=r"me/mill-sft-cold: has files but no proofmill.json"):
        publish(small)
    assert list(hub.repositories) == [("model", "me/mill-sft-cold")]
    hub.create("model", "me/mill-sft-cold")["files"] = {"proofmill.json": b'{"fingerprint": "f", "name": "sft/cold"}'}
    with pytest.raises(HubError, match=r"has files but no proofmill.json"):  # of weights, uploaded manually
        publish(small)


def test_empty_repository_is_filled(small, hub):
    """A repository that was created manually is used."""
    hub.create("dataset", TABLES, private=True, files={".gitattributes": b""})
    publish(small, private=True)
    assert "README.md" in hub.files(TABLES) and hub.repositories["model", "me/mill-sft-cold"]["private"]


def test_private_tables_do_not_go_to_a_public_repository(small, hub):
    """A private publication to an existing public repository is refused."""
    hub.create("dataset", TABLES)
    with pytest.raises(HubError, match="me/mill-tables: already exists and is public; expected a private one"):
        publish(small, private=True)
    assert not any(hub.commits().values())


def test_prefix_has_one_recipe(small, hub):
    """Another recipe does not replace the tables of the first."""
    publish(small)
    other = Config(small.config.entries, small.config.declared, {"other": small.config.recipes["test"]})
    with pytest.raises(HubError, match="me/mill-tables: has test; expected a prefix of its own for other"):
        publishing.publish(other, ["other"], "me/mill", small.results)


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("asked", "how", "expected"),
    [
        ("mill", {}, "--to: found 'mill'; expected NAMESPACE/PREFIX"),
        ("me/a/b", {}, "--to: found 'me/a/b'"),
        ("me/mi--ll", {}, "me/mi--ll-tables: invalid repository name"),
        ("me/mill", {"only": ["sft/clod"]}, "--only sft/clod: no artifact of test; .* Did you mean `sft/cold`"),
    ],
)
def test_wrong_request_is_refused_before_anything_is_sent(small, hub, asked, how, expected):
    """Invalid arguments raise SettingError, and no repository is created."""
    with pytest.raises(SettingError, match=expected):
        publishing.publish(small.config, ["test"], asked, small.results, **how)
    assert not hub.repositories


def test_recipe_with_a_mistake_is_not_published_in_part(finished, hub):
    """A faulty entry raises RecipeError, and no table of the recipe is sent."""
    mill = finished()
    faulty = {**ROWS, "problems/odd": {"source": "arithmetic", "rovs": 3}}
    with pytest.raises(RecipeError, match="unknown key `rovs`"):
        publishing.publish(expand({"test": faulty}, drafts=True), ["test"], "me/mill", mill.results)
    assert not hub.asked


def test_unknown_recipe_is_named(small, hub):
    """The message suggests the nearest name."""
    with pytest.raises(SettingError, match=r"tset: no such recipe; expected one of test. Did you mean `test`"):
        publishing.publish(small.config, ["tset"], "me/mill", small.results)


def test_missing_and_stale_tables_are_named_before_anything_is_sent(finished, hub):
    """The message names missing tables, tables of edited entries, and their descendants, each with its reason."""
    mill = finished()
    mill.table("base/theirs").path.unlink()
    edited = Mill(mill.results, **{**ROWS, "examples/some": {"problems": "problems/rows", "seed": 7}})
    with pytest.raises(TableError) as error:
        publish(edited)
    assert "base/theirs (archived, not restored)" in str(error.value)
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
    """A table with damaged rows is refused before anything is sent."""
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


def test_offline_mode_is_refused(small, hub, monkeypatch):
    """In offline mode nothing is published, and the message names the variable."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingError, match="HF_HUB_OFFLINE: is set"):
        publish(small)
    assert not hub.asked


def test_missing_key_is_refused(small, hub, monkeypatch, tmp_path):
    """The message names the missing variable."""
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(SettingError, match="HF_TOKEN: not set"):
        publish(small)
    assert not hub.asked


# -------------------------------------------------------------------------------------------------------- private texts

SECRET = "q7-a-key-of-a-judge"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("changes", "where"),
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
def test_key_stops_a_publication(finished, hub, monkeypatch, changes, where):
    """A key in any published file stops the publication; the message names place and variable, not the value."""
    monkeypatch.setenv("PROOFMILL_JUDGE_KEY", SECRET)
    mill = finished(changes)
    with pytest.raises(TableError) as error:
        publish(mill)
    assert where in str(error.value) and "the value of PROOFMILL_JUDGE_KEY" in str(error.value)
    assert SECRET not in str(error.value)
    assert not any(hub.commits().values())


@pytest.mark.parametrize("key", [KEY, "hf_" + "Ab3" * 12, "sk-proj-" + "x1" * 15, "ghp_" + "a1" * 18])
def test_key_is_recognized_by_its_form(finished, hub, key):
    """The hub's key and keys of well-known services are recognized without a variable."""
    with pytest.raises(TableError, match=r"problems/rows: column `solution`: has .*expected no keys") as error:
        publish(finished({"problems/rows": {"rows": [problem(solution=f"see {key}.")]}}))
    assert key not in str(error.value)


@pytest.mark.parametrize("column", ["statement", "tags"])
def test_key_at_the_beginning_of_a_text_is_found(finished, hub, column):
    """Whatever the row before ends in, and also if it is a line of a stamp."""
    key = "hf_" + "Ab3" * 12
    in_column = {"statement": key} if column == "statement" else {"tags": ["plain", key]}
    with pytest.raises(TableError, match=f"problems/rows: column `{column}`"):
        publish(finished({"problems/rows": {"rows": [problem(statement="What is 1+1"), problem("b", **in_column)]}}))
    with pytest.raises(TableError, match="problems/rows: the stamp"):
        publish(finished({"problems/rows": {"rows": [problem()], "notices": [f"from\n{key}"]}}))


def test_mathematics_is_not_a_key(finished, hub, monkeypatch):
    """Words that resemble keys, and short values of key variables, do not stop a publication."""
    monkeypatch.setenv("PROOFMILL_LOCAL_KEY", "EMPTY")
    plain = "The EMPTY set, risk-neutral-measures-of-all-kinds, hf_1, sk-1, task-oriented-programming-1."
    mill = finished({"problems/rows": {"rows": [problem(statement=plain)]}})
    assert publish(mill)[TABLES] == "sent"
    assert frame(hub.files(TABLES)["results/problems/rows.parquet"])["statement"].to_list() == [plain]


def test_paths_of_the_machine_are_replaced(finished, hub, monkeypatch):
    """Values of `${VARIABLES}`, the folders of the run and the home are replaced by their names in all files."""
    place, home = os.environ["PLACE"], str(Path.home())
    results = f"{Path(place).parent}/results"
    trace = f"File {place}/rows.jsonl, {home}/x/y.py, {results}/sft/one, and {place}-other is unknown"
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
    assert row["evidence"] == f"File ${{PLACE}}/rows.jsonl, ~/x/y.py, results/sft/one, and {place}-other is unknown"
    assert (row["candidates"], row["tags"], row["statement"]) == (["in ${PLACE}"], ["plain"], "Why?")
    assert list(stamp_of(found[TABLES, "results/problems/rows.parquet"])["sources"]) == ["${PLACE}/rows.jsonl"]
    assert json.loads(found["me/mill-sft-one", "config.json"]) == {"_name_or_path": "results/base/x"}
    assert "${PLACE}/rows.jsonl" in found[TABLES, "README.md"].decode()


def test_path_at_the_beginning_of_a_text_is_replaced(finished, hub):
    """Whatever the row before ends in."""
    place = os.environ["PLACE"]
    rows = [problem(statement="What is 1+1"), problem("b", statement=f"{place}/notes.txt", candidates=["a", place])]
    publish(finished({"problems/rows": {"rows": rows}}))
    row = frame(hub.files(TABLES)["results/problems/rows.parquet"]).to_dicts()[1]
    assert (row["statement"], row["candidates"]) == ("${PLACE}/notes.txt", ["a", "${PLACE}"])


def stamp_of(content):
    found = pl.read_parquet_metadata(io.BytesIO(content)).get("proofmill")
    return found and json.loads(found)


def test_stamp_of_clean_rows_is_cleaned_too(finished, hub):
    """If only the stamp has a path, the table is rewritten with the same rows."""
    mill = finished({"problems/rows": {"rows": [problem()], "notices": [f"from {os.environ['PLACE']}/x"]}})
    publish(mill)
    content = hub.files(TABLES)["results/problems/rows.parquet"]
    assert list(stamp_of(content)["sources"]) == ["${PLACE}/rows.jsonl"]
    assert frame(content).equals(mill.table("problems/rows").scan().collect())
    differing = {key for key, value in mill.table("problems/rows").stamp.items() if stamp_of(content)[key] != value}
    assert differing == {"notices"}


def test_vocabulary_is_never_changed(finished, hub):
    """A token may look like a path, so tokenizer files are sent byte for byte."""
    vocabulary = json.dumps({"vocab": {str(Path.home()): 0}}).encode()
    publish(finished({"sft/one": {"files": {**WEIGHTS, "tokenizer.json": vocabulary}}}))
    assert hub.files("me/mill-sft-one", "model")["tokenizer.json"] == vocabulary


def test_path_without_a_variable_keeps_its_last_part(tmp_path, monkeypatch):
    """Absolute paths, and paths under another value of the variable, are reduced to file names."""
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
    """A local copy of public data is published under its public address."""
    monkeypatch.setenv("PROOFMILL_DATA", str(tmp_path / "mine"))
    copy = tmp_path / "mine/hub/me/set/main/rows.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_text("{}")
    entry = entry_from("problems", {"source": "table", "path": "hub:me/set@main/rows.jsonl"})
    stamp = Private([entry], tmp_path / "results").stamp({"sources": {str(copy): "1"}, "entry": {"path": entry.path}})
    assert stamp == {"sources": {"hub:me/set@main/rows.jsonl": "1"}, "entry": {"path": entry.path}}


def test_variable_inside_a_path_is_not_expanded(tmp_path, monkeypatch):
    """The value of a variable in a path is replaced in stamps and in origins of rows."""
    monkeypatch.setenv("WHO", "alice")
    entry = entry_from("problems", {"source": "table", "path": "of/${WHO}/${WHO}.jsonl"})
    private = Private([entry], tmp_path)
    assert private.stamp({"sources": {"of/alice/alice.jsonl": "1"}})["sources"] == {"of/${WHO}/${WHO}.jsonl": "1"}
    assert (
        private.clean("alice.jsonl:7, of/alice/alice.jsonl, alice") == "${WHO}.jsonl:7, of/${WHO}/${WHO}.jsonl, alice"
    )


PIECES = st.lists(
    st.sampled_from(["/srv/a", "/srv/a/deep", "/home/me", "/", "-", ".", "~", " ", "x", "é", "\n", '"', "ab"])
)


@given(PIECES)
def test_cleaning_equals_the_slow_definition(pieces):
    """At each position the longest complete folder name is replaced; other text is not changed."""
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
    assert private.clean([{"a": text}, 1, None]) == [{"a": slow}, 1, None]


# ------------------------------------------------------------------------------------------------------------- dry runs


def test_dry_run_writes_the_files_and_sends_nothing(finished, hub, tmp_path):
    """The folder has the files of each repository, as the hub receives them."""
    mill = finished()
    assert set(publish(mill, folder=tmp_path / "dry").values()) == {"written"}
    assert not hub.asked
    publish(mill)
    for (_, id), repository in hub.repositories.items():
        sent = {path: content for path, content in repository["files"].items() if path != ".gitattributes"}
        assert snapshot(tmp_path / "dry" / id.partition("/")[2]) == sent


def test_dry_run_needs_neither_hub_nor_key(small, tmp_path, monkeypatch):
    """A dry run works offline, and does not overwrite an existing folder."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    publish(small, folder=tmp_path / "dry")
    assert (tmp_path / "dry" / "mill-tables" / "README.md").exists()
    with pytest.raises(SettingError, match="mill-tables: already exists"):
        publish(small, folder=tmp_path / "dry")


def test_every_configuration_loads(small, tmp_path):
    """`load_dataset(repository, "<kind>--<name>")` returns the rows of that table."""
    publish(small, folder=tmp_path / "dry")
    repository = tmp_path / "dry" / "mill-tables"
    wanted = {name.replace("/", "--"): small.table(name).scan().collect().height for name in SMALL}
    found = {
        config: datasets.load_dataset(str(repository), config, split="train", cache_dir=tmp_path / "cache").num_rows
        for config in datasets.get_dataset_config_names(str(repository))
    }
    assert found == wanted


def test_published_results_are_results(finished, tmp_path):
    """The folder `results` of the dataset is a results folder: rows, stamp and columns can be read."""
    mill = finished({"problems/rows": {"rows": [problem(evidence=os.environ["PLACE"])]}})
    publish(mill, folder=tmp_path / "dry")
    table = Table("problems/rows", tmp_path / "dry" / "mill-tables" / "results")
    assert table.rows("problem", "evidence") == [{"problem": "p", "evidence": "${PLACE}"}]
    assert table.stamp["fingerprint"] == mill.table("problems/rows").stamp["fingerprint"]


def test_table_without_rows_has_a_file_and_no_configuration(finished, tmp_path):
    """An empty table is published without a configuration, and the card says so."""
    publish(finished(), folder=tmp_path / "dry")
    card = DatasetCard.load(tmp_path / "dry" / "mill-tables" / "README.md")
    configs = [config["config_name"] for config in card.data.configs]
    assert "problems--rows" in configs and "grpo--two--rollouts" in configs and "examples--some" not in configs
    assert "Empty tables, which `load_dataset` cannot read: `examples/some`" in card.text
    assert (tmp_path / "dry" / "mill-tables" / "results" / "examples" / "some.parquet").exists()


# ----------------------------------------------------------------------------------------------------------------- cards


@pytest.fixture
def read(tmp_path):
    """Return a function that publishes to a folder and returns the cards by repository name."""

    def cards_of(mill):
        publish(mill, folder=tmp_path / "dry")
        return {
            folder.name: (DatasetCard if folder.name == "mill-tables" else ModelCard).load(folder / "README.md")
            for folder in (tmp_path / "dry").iterdir()
        }

    return cards_of


def test_card_of_tables_has_the_facts_of_stamps(finished, read):
    """The card has rows, outcomes, parents, seeds, cost, tokens, time, fingerprints, commit and versions of each table."""
    mill = finished(
        {"problems/rows": {"rows": [problem(), problem("q", dropped="no-image")], "counts": {"kept": 1, "no-image": 1}}}
    )
    text = read(mill)["mill-tables"].text
    assert (
        "| [`problems/rows`](results/problems/rows.parquet) | 2 | 1 kept, 1 no-image | – | 0 | – | – | 1:23 |" in text
    )
    assert "| 1 kept | `sft/one`, `problems/rows` | 0 | 1,234 | $1.50 | 1:23 |" in text
    for name in mill.config.recipes["test"]:
        stamp = mill.table(name).stamp
        known = (stamp["fingerprint"], stamp["content"], stamp["commit"] or "an unknown commit")
        assert all(f"{fact}" in text for fact in known), name
        assert all(f"{package} {version}" in text for package, version in stamp["versions"].items())
    assert "(results/scores/both.md)" in text and "`grpo/two`](results/grpo/two/rollouts.parquet): 2 rollouts" in text


def test_card_of_tables_explains_every_column(small, read):
    """The card explains each column of each published kind, in the words of the manual."""
    text = read(small)["mill-tables"].text
    for kind in {kind_of(name) for name in SMALL}:
        section = text.split(f"\n### {kind}\n")[1].split("\n### ")[0]
        for column, (dtype, meaning) in COLUMNS[kind].items():
            assert f"| `{column}` | {dtype} | {meaning} |".replace("|", "") in section.replace("\\|", "").replace(
                "|", ""
            )


def test_entries_on_a_card_are_those_of_the_recipe(small, read):
    """The YAML on a card parses to the entries of the recipe."""
    made = read(small)
    for text in (made["mill-tables"].text, made["mill-sft-cold"].text):
        blocks = [
            yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        ]
        found = {name: values for block in blocks for name, values in block.items()}
        assert found
        for name, values in found.items():
            entry = entry_from(kind_of(name), values)
            assert references.canonical(entry) == references.canonical(small.config.entries[name])


def test_fence_is_longer_than_any_inside():
    """An entry that contains a fence cannot end its block."""
    assert cards.fence("a\n````\nb\n", "yaml") == "`````yaml\na\n````\nb\n`````"
    assert cards.fence("a", "yaml") == "```yaml\na\n```"


def test_unknown_facts_are_listed(finished, read):
    """The card claims no license, and lists unknown prices, licenses and parents as unknown."""
    made = read(finished({"grpo/two": {"cost": None}}))
    for card in made.values():
        assert card.data.license is None and "License of" in card.text.split("## Unknown")[1]
    tables = made["mill-tables"].text
    assert "Cost of the calls of `grpo/two`: the price of a called model is declared unknown." in tables
    assert "rows.jsonl` (SHA-256 `" in tables and "unknown license" in tables
    assert "| cost of those calls | unknown |" in made["mill-grpo-two"].text


def test_license_of_a_source_is_found_by_its_digest(finished, read, tmp_path, monkeypatch):
    """data/sources.csv identifies a file by its digest, whatever its local name."""
    mill = finished()
    (digest,) = mill.table("problems/rows").stamp["sources"].values()
    known = tmp_path / "sources.csv"
    known.write_text(f"name,source,file,sha256,license,rows\nA set,https://example.org,x.jsonl,{digest},CC-BY-4.0,1\n")
    monkeypatch.setattr(cards, "SOURCES", known)
    assert f"(SHA-256 `{digest}`): A set (https://example.org), license CC-BY-4.0" in read(mill)["mill-tables"].text


def test_unpublished_parent_is_named(finished, tmp_path):
    """The card lists parents that are not published."""
    publish(finished(), only=["examples/some"], folder=tmp_path / "dry")
    text = (tmp_path / "dry" / "mill-tables" / "README.md").read_text()
    assert "Contents of `problems/rows`: these parent tables are not published." in text


def test_model_card_has_the_scores_of_its_model(finished, read):
    """The card has values with intervals, n and share unscored of its own model, and not of other models."""
    made = read(
        finished(
            {
                "scores/both": {
                    "rows": [
                        score("sft/one", 0.5),
                        score("grpo/two", 0.75),
                        score("grpo/two", 0.25, baseline="sft/one", p_value=0.0004, p_adjusted=0.002),
                        score("grpo/two", None, metric="nothing-scored"),
                    ]
                }
            }
        )
    )
    one, two = (made[name].text.split("## Scores")[1] for name in ("mill-sft-one", "mill-grpo-two"))
    assert "| avg@1 | all | 0.50 [0.40, 0.60] | 4 at 4 problems | 25.0% |" in one and "0.75" not in one
    assert "| avg@1 | all | 0.75 [0.65, 0.85] | 4 at 4 problems | 25.0% |" in two
    assert "| avg@1 minus `sft/one` | all | 0.25 [0.15, 0.35], p < 0.001 (0.002) |" in two
    assert "| nothing-scored | all | – |" in two


def test_model_without_scores_is_reported(small, read):
    """Without a scores table, the card has a sentence instead of numbers."""
    text = read(small)["mill-sft-cold"].text
    assert "No `scores` table is published with it." in text and "Quality: no scores" in text


def test_scores_over_seeds_are_shown_by_their_own_seed(finished, read):
    """The card of a seed has the values of that seed, not those over all seeds."""
    entries = {**ROWS, "scores/seeds": {"repeat": "scores/both", "seeds": [0, 1]}}
    numbers = [score("sft/one", 0.5), score("sft/one", 0.125, "seed 0"), score("sft/one", 0.875, "seed 1")]
    made = read(finished({"scores/both": {"rows": []}, "scores/seeds": {"rows": numbers}}, entries))
    first, second = (made[name].text.split("## Scores")[1] for name in ("mill-sft-one", "mill-sft-one_seed-1"))
    assert "0.12 [" in first and "0.50 [" not in first and "0.88 [" not in first
    assert "0.88 [" in second and "0.50 [" not in second and "0.12 [" not in second


OF_THE_HUB = {**ROWS, "problems/rows": {"source": "hub", "id": "them/bench", "commit": "b" * 40, "subset": "hard"}}
OUT_OF_SEVEN = {"rows": [{**dict.fromkeys(COLUMNS["grades"]), "max_points": 7}]}
GRADED = {f"grades/{model}@rows@greedy": OUT_OF_SEVEN for model in ("sft-one", "grpo-two")}


def test_score_on_a_benchmark_of_the_hub_is_a_result_of_the_model(finished, tmp_path):
    """`.eval_results` has avg@k in percent of the points, with commit, interval and settings; each model has its own."""
    numbers = [score("sft/one", 3.5), score("sft/one", 7.0, "hard"), score("sft/one", 1.0, metric="solve-rate")]
    numbers += [score("grpo/two", 1.4), score("grpo/two", 2.0, baseline="sft/one")]
    publish(finished({"scores/both": {"rows": numbers}, **GRADED}, OF_THE_HUB), folder=tmp_path / "dry")
    (result,) = yaml.safe_load((tmp_path / "dry/mill-sft-one/.eval_results/them--bench.yaml").read_text())
    assert result["dataset"] == {"id": "them/bench", "task_id": "hard", "revision": "b" * 40}
    assert result["value"] == 50.0 and result["source"]["url"].endswith(f"datasets/{TABLES}")
    assert "interval 48.6 to 51.4" in result["notes"] and "25.0% unscored" in result["notes"]
    (result,) = yaml.safe_load((tmp_path / "dry/mill-grpo-two/.eval_results/them--bench.yaml").read_text())
    assert result["value"] == 20.0
    assert [entry.value for entry in parse_eval_result_entries([result])] == [20.0]


@pytest.mark.parametrize("part", [{"rows": 2}, {"every": 2}, {"where": {"year": [2025]}}])
def test_score_on_part_of_a_benchmark_is_no_result_of_it(finished, tmp_path, part):
    """A part of a dataset is not published under the name of a benchmark."""
    entry = {**OF_THE_HUB["problems/rows"], **part}
    publish(finished(GRADED, {**ROWS, "problems/rows": entry}), folder=tmp_path / "dry")
    assert not [*(tmp_path / "dry").rglob(".eval_results")]


def test_score_on_a_file_is_no_result_of_a_benchmark(finished, tmp_path):
    """A file of this machine is no dataset of the hub."""
    publish(finished(GRADED), folder=tmp_path / "dry")
    assert not [*(tmp_path / "dry").rglob(".eval_results")]


def test_score_on_a_filtered_benchmark_is_no_result_of_it(finished, tmp_path):
    """Dropped rows make a table a part of the dataset."""
    some = {"rows": [problem()], "counts": {"kept": 1, "no-image": 1}}
    publish(finished({**GRADED, "problems/rows": some}, OF_THE_HUB), folder=tmp_path / "dry")
    assert not [*(tmp_path / "dry").rglob(".eval_results")]


def test_card_of_a_model_has_its_lineage(finished, read):
    """The lineage ends at the base, and the card's metadata has the dataset."""
    card = read(finished())["mill-grpo-two"]
    assert card.data.datasets == [TABLES] and card.data.tags == ["proofmill", "grpo"]
    lineage = card.text.split("## Lineage")[1].split("## Training")[0]
    assert re.findall(r"^- `([^`]+)`", lineage, re.MULTILINE) == ["grpo/two", "sft/one", "base/theirs"]
    assert "`them/small-base` from the hub at commit" in lineage


# ----------------------------------------------------------------------------------------------- command and end of run


def test_end_of_a_run_publishes_only_if_the_environment_says_so(small, hub, monkeypatch):
    """Without PROOFMILL_PUBLISH no request is made; with it, the recipes among the targets are published."""
    monkeypatch.delenv("PROOFMILL_PUBLISH", raising=False)
    publishing.at_end(["test"], small.results)
    publishing.at_end(["test"], Path("/nowhere"), small.config)
    assert not hub.asked
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    publishing.at_end(["results/sft/cold.parquet"], small.results, small.config)
    assert not hub.asked
    monkeypatch.setenv("PROOFMILL_PUBLISH_PRIVATE", "1")
    publishing.at_end(["test", "results/sft/cold.parquet"], small.results, small.config)
    assert hub.commits() == {TABLES: 1, "me/mill-sft-cold": 1}
    assert all(repository["private"] for repository in hub.repositories.values())


def test_recipes_published_together_are_one_dataset(finished, hub, monkeypatch):
    """The dataset has the tables of all recipes, each once, and the same request later sends nothing."""
    mill = finished()
    names = mill.config.recipes["test"]
    book = Config(mill.config.entries, mill.config.declared, {"a": names[:3], "b": names[2:]})
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    publishing.at_end(["a", "b"], mill.results, book)
    publishing.at_end(["a", "b"], mill.results, book)
    assert {f"results/{name}.parquet" for name in names} <= set(hub.files(TABLES))
    assert set(hub.commits().values()) == {1}


def test_failure_at_the_end_of_a_run_shows_the_command(small, hub, monkeypatch):
    """Rerunning a finished run would not publish, so the message has the command."""
    monkeypatch.setenv("PROOFMILL_PUBLISH", "me/mill")
    hub.refuse = lambda method, path: (500, {}) if path.endswith("/commit/main") else None
    with pytest.raises(HubError, match=r"Already sent: none\. .*run: proofmill publish test --to me/mill$"):
        publishing.at_end(["test"], small.results, small.config)


def test_command_publishes_to_the_endpoint_of_the_environment(finished, tmp_path):
    """`proofmill publish` uses huggingface_hub's variables, and its errors are one line."""
    mill = finished()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"test": {"api/referee": REFEREE, **ROWS}}))
    with serving(FakeHub()) as hub:

        def command(**environment):
            settings = {"HF_ENDPOINT": hub.url, "HF_TOKEN": KEY, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
            return subprocess.run(
                [sys.executable, "-m", "proofmill", "publish", "test", "--to", "me/mill", "--only", "sft/one"],
                cwd=tmp_path,
                env={**os.environ, **settings, **environment},
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
