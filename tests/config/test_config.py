"""Test reading, checking and expanding the configuration."""

import json
from dataclasses import fields
from datetime import date

import pytest

from mill import MAINS, REFEREE, ROOT
from proofmill.artifacts import jobs
from proofmill.artifacts.tables import Table
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.config.entry_values import entry_from
from proofmill.config.identity import arguments, identity_of, prompts_of
from proofmill.prompts import templates
from proofmill.prompts.templates import PROMPTS
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import is_public
from proofmill.schema import references
from proofmill.schema.entries.declared import Api
from proofmill.schema.entries.problem_entries import Labels, Schemes
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.entries.scores_entry import Sampling
from proofmill.schema.errors import RecipeError, SettingError
from proofmill.schema.kinds import ENTRY_TYPES, KINDS

BENCH = {"source": "arithmetic", "split": "test", "rows": 4}
LEARNING = {
    "problems/p": {"source": "arithmetic", "rows": 4},
    "base/b": {"source": "scratch", "problems": "problems/p"},
    "examples/c": {"problems": "problems/p"},
}


def mistake(**entries) -> str:
    """Return the error message for a configuration with these entries."""
    with pytest.raises(RecipeError) as refused:
        expand({"r": entries})
    return str(refused.value)


def test_project_configuration_is_correct():
    """The shipped config.yaml is valid, alone and with each overlay."""
    overlays = ["workflow/rehearsal.yaml", "benchmarks/verifier-attacks.yaml", "benchmarks/verifier-trials.yaml"]
    for files in (["config.yaml"], *(["config.yaml", overlay] for overlay in overlays)):
        book = expand(yaml_files.read(*(ROOT / file for file in files)))
        assert next(iter(book.recipes)) == "nano"


def test_address_and_key_in_an_entry_are_answered_with_their_variables():
    """Connection keys in an entry are refused, with the environment variable to use instead. The API key is not repeated."""
    api = {"id": "m", "price": "unknown", "base-url": "https://host/v1", "api_key": "sk-secret"}
    text = mistake(**{"api/my-judge": api})
    assert "r > api/my-judge: `base-url` is not a key of an entry" in text and "PROOFMILL_MY_JUDGE_URL=https://" in text
    assert "`api-key`" in text and "PROOFMILL_MY_JUDGE_KEY=" in text and "secret" not in text


def test_unknown_key_names_the_nearest():
    """A mistyped key is refused, with a suggestion."""
    text = mistake(**{"problems/x": {"source": "arithmetic", "rovs": 3}})
    assert "r > problems/x: unknown key `rovs`" in text
    assert "Did you mean `rows`?" in text


def test_unknown_reference_names_the_nearest():
    """A reference to an unknown entry is refused, with a suggestion."""
    text = mistake(**{"problems/train": BENCH, "examples/x": {"problems": "problems/trian"}})
    assert "refers to `problems/trian`, which no recipe declares" in text
    assert "Did you mean `problems/train`?" in text


def test_reference_of_the_wrong_kind_is_refused():
    """A field that takes examples does not take problems."""
    text = mistake(**{"problems/x": BENCH, "base/b": {"source": "scratch", "problems": "problems/x"},
                      "sft/x": {"model": "base/b", "examples": "problems/x", "steps": 1}})  # fmt: skip
    assert "`examples` is `problems/x`; expected examples" in text


def test_unknown_filter_names_the_nearest():
    """A mistyped filter is refused, with a suggestion."""
    assert "Did you mean `has-solution`?" in mistake(**{"problems/x": {**BENCH, "keep": ["has-solutions"]}})


def test_filter_argument_of_the_wrong_shape_is_refused():
    """A filter that needs bounds is refused without them."""
    assert "`statement-length` has the argument None" in mistake(
        **{"problems/x": {**BENCH, "keep": ["statement-length"]}}
    )


def test_wrong_type_says_what_was_found():
    """A text in a number field is refused with the expected type."""
    assert "`rows` is 'many'; expected a valid integer" in mistake(**{"problems/x": {**BENCH, "rows": "many"}})


def test_missing_key_is_named():
    """A missing required field is reported with its meaning."""
    assert "`source` is missing; expected a value. Source (listed below)" in mistake(**{"problems/x": {}})


def test_unknown_kind_is_refused():
    """An unknown kind is refused with the nearest one."""
    assert "Did you mean `problems`?" in mistake(**{"problem/x": BENCH})


def test_unknown_prompt_names_the_known_ones():
    """An unknown prompt name is refused."""
    text = mistake(**{"api/referee": REFEREE, "problems/x": BENCH,
                      "labels/x": {"problems": "problems/x", "model": "api/referee", "prompt": "clasify"}})  # fmt: skip
    assert "Did you mean `classify`?" in text


def test_cycle_is_shown():
    """Entries that depend on each other are refused, and the cycle is printed."""
    text = mistake(**{"problems/a": {"source": "problems/b"}, "problems/b": {"source": "problems/a"}})
    assert "references form a cycle" in text
    assert "problems/a" in text and "problems/b" in text


def test_entry_declared_in_two_recipes_is_refused():
    """A name cannot be declared in two recipes."""
    with pytest.raises(RecipeError, match="also declared in `one`"):
        expand({"one": {"problems/x": BENCH}, "two": {"problems/x": BENCH}})


def test_key_written_twice_in_a_file_is_refused(tmp_path):
    """A duplicate key is refused."""
    (tmp_path / "c.yaml").write_text("nano:\n  problems/x: {source: arithmetic}\n  problems/x: {source: gsm8k}\n")
    with pytest.raises(RecipeError, match=r"c.yaml:3: `problems/x` is declared twice \(first in line 2\)"):
        yaml_files.read(tmp_path / "c.yaml")


@pytest.mark.parametrize("content", [b"nano: [", b"\xff\xfe\x00", b"- a\n- b\n"])
def test_file_that_is_no_configuration_is_refused(tmp_path, content):
    """Broken YAML, broken text and a list instead of a mapping are refused with the file's name."""
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(RecipeError, match=r"c\.yaml"):
        yaml_files.read(tmp_path / "c.yaml")


def test_all_mistakes_are_shown_at_once():
    """Three mistakes in two entries give three lines."""
    text = mistake(
        **{"problems/a": {"source": "arithmetic", "rovs": 1, "rows": "x"}, "examples/b": {"problems": "problems/c"}}
    )
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"source": "gsm8k"}, "needs id or path"),
        ({"source": "hub", "id": "a/b"}, "`id` is set and `commit` is not"),
        ({"source": "arithmetic", "columns": {"statement": "x"}}, "`columns` is not read by source `arithmetic`"),
        ({**BENCH, "keep": ["complete"]}, "needs `labels`"),
        ({**BENCH, "keep": [{"pass-rate": [0, 1]}]}, "needs `grades`"),
        ({**BENCH, "keep": [{"origin": ["aops", ""]}]}, "`origin` has the argument ['aops', '']"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(entry, expected):
    """Conflicting or missing fields are reported when the configuration is read."""
    assert expected in mistake(**{"problems/x": entry})


def test_examples_without_exactly_one_source_are_refused():
    """Examples need exactly one source."""
    assert "expected exactly one of" in mistake(**{"examples/x": {}})


def test_mixture_shares_must_add_up():
    """Shares of a mixture must add up to 1."""
    text = mistake(
        **{"problems/p": BENCH, "examples/a": {"problems": "problems/p"}, "examples/x": {"mix": {"examples/a": 0.5}}}
    )
    assert "add up to 0.5; expected 1" in text


def scored(**more) -> dict:
    return {
        "api/referee": REFEREE,
        "problems/train": {"source": "arithmetic", "rows": 4},
        "problems/bench": BENCH,
        "base/b": {"source": "scratch", "problems": "problems/train"},
        "examples/c": {"problems": "problems/train"},
        "sft/c": {"model": "base/b", "examples": "examples/c", "steps": 3},
        "scores/s": {"models": ["sft/c"], "problems": ["problems/bench"], "grader": "arithmetic",
                     "sampling": {"sampled": {"attempts": 2}, "greedy": {"temperature": 0}}, "metrics": ["avg-at-k"]},
        **more,
    }  # fmt: skip


def test_scores_expand_into_derived_entries():
    """Models x benchmarks x sampling settings become responses and grades with `@` in their names."""
    book = expand({"r": scored()})
    derived = {name for name in book.entries if "@" in name}
    expected = {f"{kind}/sft-c@bench@{way}" for kind in ("responses", "grades") for way in ("sampled", "greedy")}
    assert expected == derived
    assert book.entries["responses/sft-c@bench@sampled"].attempts == 2
    assert set(book.recipes["r"]) >= {"scores/s", *expected}


def test_repeat_trains_anew_and_keeps_the_data():
    """Another seed gives other weights and responses for the same problems."""
    book = expand({"r": scored(), "again": {"with": ["r"], "scores/seeds": {"repeat": "scores/s", "seeds": [0, 1]}}})
    assert book.entries["sft/c@seed-1"].seed == 1
    assert book.entries["sft/c@seed-1"].model == "base/b@seed-1"
    assert "problems/bench@seed-1" not in book.entries
    grades = book.entries["scores/seeds"].grades
    assert "grades/sft-c@bench@greedy" in grades and "grades/sft-c@bench@greedy@seed-1" in grades
    assert len(grades) == 4


def test_repeat_judges_each_seed_by_its_own_verifier():
    """A judge that is trained is trained again, with its grader; a remote judge stays the same, and targets name no judge."""
    own = {"weights": "sft/c", "price": {"input": 0, "output": 0}, "temperature": 0}
    prover = {"model": "base/b", "problems": "problems/train", "rewards": {"grade": 1}, "unscored": "drop", "steps": 2}
    entries = scored(
        **{
            "api/own": own,
            "grader/own": {"judges": ["api/own"], "prompt": "grade-by-reference", "show-reference": True},
            "grader/far": {"judges": ["api/referee"], "prompt": "grade-by-reference", "show-reference": True},
            "grpo/own": {**prover, "grader": "grader/own", "audit": "grader/far"},
        }
    )
    entries["scores/s"] = {**entries["scores/s"], "models": ["grpo/own"]}
    book = expand({"r": {**entries, "scores/seeds": {"repeat": "scores/s", "seeds": [0, 1]}}})
    trained = book.entries["grpo/own@seed-1"]
    assert (trained.grader, trained.audit) == ("grader/own@seed-1", "grader/far")
    assert book.declared["grader/own@seed-1"].judges == ["api/own@seed-1"]
    assert book.declared["api/own@seed-1"].weights == "sft/c@seed-1"
    assert book.entries["sft/c@seed-1"].seed == 1
    assert not [name for name in book.recipes["r"] if name.startswith(("api/", "grader/"))]


PROBLEMS = {"source": "arithmetic", "rows": 3}


def test_shared_block_belongs_to_the_recipes_that_need_it():
    """A recipe lists the artifacts that it needs from shared blocks, and no others. A block is not a target."""
    shared = {"data": {"problems/a": PROBLEMS, "problems/b": PROBLEMS}}
    book = expand({"shared": shared, "r": {"with": ["data"], "examples/x": {"problems": "problems/a"}}})
    assert book.recipes == {"r": ["problems/a", "examples/x"]}
    assert set(book.entries) == {"problems/a", "problems/b", "examples/x"}


def test_block_goes_with_what_its_blocks_go_with():
    """`with` is transitive."""
    shared = {"data": {"problems/a": PROBLEMS}, "texts": {"with": ["data"], "examples/x": {"problems": "problems/a"}}}
    book = expand({"shared": shared, "r": {"with": ["texts"], "examples/y": {"problems": "problems/a"}}})
    assert book.recipes["r"] == ["problems/a", "examples/y"]


def test_recipe_that_leans_on_another_unseen_is_refused():
    """A reference across recipes without `with` is refused, with the line to add."""
    with pytest.raises(RecipeError) as error:
        expand({"r": {"problems/a": PROBLEMS}, "s": {"examples/x": {"problems": "problems/a"}}})
    assert "s > examples/x: refers to `problems/a` of the recipe `r`; expected `with: [r]` in s. Add it." in str(
        error.value
    )


def test_entry_like_another_has_its_fields():
    """`like` copies fields, own fields override them, chains work, and null restores a default."""
    one = {"problems": "problems/a", "prompt": "think-answer", "seed": 3}
    entries = {
        "problems/a": PROBLEMS,
        "examples/one": one,
        "examples/two": {"like": "examples/one", "seed": 4},
        "examples/three": {"like": "examples/two", "prompt": None},
    }
    book = expand({"r": entries})
    two, three = book.entries["examples/two"], book.entries["examples/three"]
    assert (two.prompt, two.seed, three.prompt, three.seed) == ("think-answer", 4, "solve", 4)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (
            {"r": {"problems/a": {"like": "problems/b"}}},
            r"r > problems/a: `like` is `problems/b`; expected another entry",
        ),
        ({"r": {"problems/a": {"like": "problems/a"}}}, r"`like` is `problems/a`; expected another entry of its kind"),
        (
            {"r": {"problems/a": {"like": "problems/b"}, "problems/b": {"like": "problems/a"}}},
            r"`like` is `problems/.`; expected another entry of its kind",
        ),
        (
            {"r": {"problems/a": PROBLEMS, "examples/x": {"like": "problems/a"}}},
            r"`like` is `problems/a`; expected another",
        ),
        (
            {"r": {"problems/a": PROBLEMS, "examples/x": {"like": ["problems/a"]}}},
            r"expected another entry of its kind",
        ),
        (
            {"r": {"problems/a": PROBLEMS}, "s": {"problems/b": {"like": "problems/a"}}},
            r"s > problems/b: refers to `problems/a` of the recipe `r`; expected `with: \[r\]`",
        ),
        ({"r": {"with": "s", "problems/a": PROBLEMS}}, r"r: `with` names s; expected some of"),
        ({"r": {"with": ["s"], "problems/a": PROBLEMS}}, r"r: `with` names `s`; expected some of"),
        ({"r": {"with": [["s"]], "problems/a": PROBLEMS}}, r"r: `with` names `\['s'\]`; expected some of"),
        ({"shared": ["r"], "r": {"problems/a": PROBLEMS}}, r"shared: found \['r'\]; expected a mapping of blocks"),
        (
            {"shared": {"r": {}}, "r": {"problems/a": PROBLEMS}},
            r"r: is the name of a recipe and of a shared block; expected different names",
        ),
        (
            {"shared": {"d": {"problems/a": PROBLEMS}}, "r": {"problems/a": PROBLEMS}},
            r"r > problems/a: also declared in `d`; expected each name once",
        ),
    ],
)
def test_mistake_between_blocks_is_named(config, fault):
    """References between recipes, shared blocks and entries are checked."""
    with pytest.raises(RecipeError, match=fault):
        expand(config)


def test_two_scores_that_mean_different_samplings_by_one_name_are_refused():
    """A sampling setting cannot have two definitions for the same model and benchmark."""
    entries = scored()
    other = {**entries["scores/s"], "sampling": {"sampled": {"attempts": 3}}}
    with pytest.raises(RecipeError, match="has two different definitions"):
        expand({"r": {**entries, "scores/t": other}})


def test_canonical_entry_does_not_depend_on_how_it_is_written():
    """Key order, dashes and explicit defaults do not change an entry's identity."""
    one = entry_from("sft", {"model": "base/b", "examples": "examples/c", "steps": 3, "learning-rate": 1e-3})
    two = entry_from(
        "sft", {"learning_rate": 0.001, "steps": 3, "examples": "examples/c", "model": "base/b", "batch-size": 8}
    )
    assert references.canonical(one) == references.canonical(two)


def test_identity_survives_the_way_to_a_job():
    """An entry survives a round trip through JSON."""
    book = expand({"r": scored()})
    for entry in book.entries.values():
        given = json.loads(identity_of(entry, book.declared))
        assert entry == entry_from(next(k for k, c in KINDS.items() if c.entry is type(entry)), given["entry"])


@pytest.mark.parametrize("text", ["é-" * 200_000, "x y" * 200_000, "a\n" * 100_000])
def test_identity_that_is_too_long_for_an_argument_is_several(text):
    """The arguments join to the identity, fit Linux's limit, and none looks like a flag."""
    identity = json.dumps({"entry": text}, ensure_ascii=False)
    pieces = arguments(identity)
    assert "".join(pieces) == identity and len(pieces) > 5
    assert all(0 < len(piece.encode()) < 128 * 1024 and not piece.startswith("-") for piece in pieces)
    assert arguments('{"entry": {}}') == '{"entry": {}}'


def test_identity_changes_with_a_prompt(monkeypatch, tmp_path):
    """Editing a prompt changes the identity of the artifacts that use it, and of no others."""
    entries = scored(**{"labels/l": {"problems": "problems/train", "model": "api/referee"}})
    book = expand({"r": entries})
    before = {name: identity_of(entry, book.declared) for name, entry in book.entries.items()}
    for file in PROMPTS.glob("*.md"):
        (tmp_path / file.name).write_text(file.read_text() + ("\nBe strict." if file.stem == "classify" else ""))
    monkeypatch.setattr(templates, "PROMPTS", tmp_path)
    changed = {name for name, entry in book.entries.items() if identity_of(entry, book.declared) != before[name]}
    assert {"labels/l"} == changed


def test_what_a_prompt_says_about_itself_is_no_part_of_it(monkeypatch, tmp_path):
    """Editing the description of a prompt does not change identities."""
    text = "---\nabout: {}\nneeds: [statement]\n---\nAsk {{{{ statement }}}}"
    for name, about in (("old", "once"), ("new", "explained")):
        (tmp_path / f"{name}.md").write_text(text.format(about))
    monkeypatch.setattr(templates, "PROMPTS", tmp_path)
    assert templates.prompt("old").digest == templates.prompt("new").digest
    assert templates.fill("new", {"statement": "s"}) == "Ask s"


def test_overlay_replaces_values_and_merges_mappings():
    """The rehearsal overlay changes only the fields it sets."""
    merged = yaml_files.overlay({"n": {"a": {"x": 1, "y": [1]}}}, {"n": {"a": {"y": [2]}}})
    assert merged == {"n": {"a": {"x": 1, "y": [2]}}}


SIZES = {
    "sft": {"batch_size", "epochs", "steps", "last_step", "max_length", "precision"},
    "grpo": {
        *(
            "mini_batches",
            "group_size",
            "problems_per_step",
            "steps",
            "reference_sync_steps",
            "max_tokens",
            "precision",
            "log_every",
        ),
        *("audit_every", "audit_rows", "evaluate_every", "evaluate_attempts"),
    },
    "selfplay": {
        *(
            "attempts",
            "batch_size",
            "inputs",
            "references",
            "max_seed_tasks",
            "steps",
            "max_prompt_tokens",
            "max_tokens",
            "precision",
        ),
        *("prompt_set", "seed_tasks"),  # workflow/rehearsal.yaml says why
    },
    "responses": {"attempts", "max_tokens", "scaffold"},
    "grades": set(),
}


def is_published(name: str | None) -> bool:
    """Return whether the text of a prompt is at a public address, so that it would have to be downloaded."""
    return name is not None and is_public(templates.prompt(name).address or "")


def test_rehearsal_changes_sizes_and_sources_alone():
    """A rehearsal keeps the recipe's filters, rewards, losses and graders, and its prompts unless others published them.

    It uses no weights from the hub.
    """
    entries, rehearsed = (
        expand(yaml_files.read("config.yaml", *more)).entries for more in ([], ["workflow/rehearsal.yaml"])
    )
    for name in entries.keys() & rehearsed.keys():
        kind, before, after = name.partition("/")[0], entries[name], rehearsed[name]
        changed = {f.name for f in fields(after) if getattr(before, f.name) != getattr(after, f.name)}
        downloaded = {f for f in changed if f.endswith("prompt") and is_published(getattr(before, f))}
        assert changed - downloaded <= SIZES.get(kind, changed - {"keep", "decontaminate"}), name
        assert kind != "base" or after.source not in ("hub", "gguf", "tokenizer"), name


@pytest.mark.parametrize(("known", "problems"), [("proofs", "proofs"), ("lists", "smol-sort")])
def test_rehearsed_model_knows_small_proofs_and_lists(known, problems):
    """The tiny model of the rehearsal is trained on these problems, or it would solve none and its rewards never vary."""
    entries = expand(yaml_files.read("config.yaml", "workflow/rehearsal.yaml")).entries
    assert entries[f"problems/rehearsal-known-{known}"] == entries[f"problems/{problems}"]
    assert entries[f"examples/rehearsal-known-{known}"].problems == f"problems/rehearsal-known-{known}"
    assert f"examples/rehearsal-known-{known}" in entries["examples/rehearsal-mixed"].mix


def test_path_without_its_variable_says_what_to_set(monkeypatch):
    """An unset variable in a path is an error, not an empty string."""
    monkeypatch.delenv("PROOFMILL_NOWHERE", raising=False)
    with pytest.raises(SettingError, match="export PROOFMILL_NOWHERE="):
        local_path("${PROOFMILL_NOWHERE}/x")


def test_every_field_has_a_sentence():
    """Every field has a sentence for the manual."""
    for cls in (*ENTRY_TYPES.values(), Sampling):
        assert all(f.default.description for f in fields(cls))


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        (
            "grades/x",
            {"responses": "responses/r", "grader": "api/referee"},
            "needs a scheme and `schemes` is not set",
        ),
        ("examples/x", {"problems": "problems/train", "rows": 5}, "found `rows` without `mix`"),
        ("examples/x", {"mix": {"examples/c": 1.0}, "keep": ["finished"]}, "found `keep` with `mix`"),
        ("problems/x", {**BENCH, "keep": [{"year": [2020, 1990]}]}, "`year` has the argument"),
        ("problems/x", {**BENCH, "keep": [{"dated": ["2025-12-31", "2025-01-01"]}]}, "`dated` has the argument"),
        ("problems/x", {**BENCH, "keep": [{"dated": ["2025-02-30", "2025-12-31"]}]}, "`dated` has the argument"),
        ("problems/x", {**BENCH, "keep": [{"not-near-duplicate": 0}]}, "`not-near-duplicate` has the argument"),
        ("problems/x", {**BENCH, "keep": [{"year": [1, 2], "origin": ["a"]}]}, "an item with 2 names"),
        ("problems/x", {"source": "math", "path": "m.jsonl", "choices": ["a", "b"]}, "`choices` is not read by source"),
        ("problems/x", {**BENCH, "date": "15.2.2025"}, "`date` is '15.2.2025'; expected a valid date"),
        (
            "scores/x",
            {**scored()["scores/s"], "released": {"sft/d": date(2025, 2, 15)}},
            "`released` names `sft/d`; expected one of sft/c",
        ),
        (
            "scores/x",
            {"problems": ["problems/bench"], "metrics": ["avg-at-k"]},
            "measures responses; expected",
        ),
        ("scores/x", {"repeat": "scores/s", "seeds": [1, 1]}, "expected each seed once"),
        ("scores/x", {"repeat": "scores/s", "seeds": [-1]}, "greater than or equal to 0"),
        ("sft/x", {"model": "base/b", "examples": "examples/c", "steps": 1, "strange": 1}, "unknown key `strange`"),
        ("api/x", {"id": "x", "price": {"inputs": 1, "outputs": 2}}, "price"),
        ("base/x", {"source": "tokenizer", "path": "there", "rope-theta": 3e5}, "`tokenizer` has no weights"),
        ("base/x", {"source": "folder", "path": "there", "rope-theta": 0}, "greater than 0"),
    ],
)
def test_entry_that_would_fail_late_is_refused_early(name, entry, expected):
    """Mistakes that would stop a stage late are refused when the configuration is read."""
    responses = {"responses/r": {"problems": "problems/bench", "model": "sft/c"}}
    assert expected in mistake(**scored(**responses, **{name: entry}))


def test_sampling_with_an_unknown_prompt_is_refused():
    """A prompt in a sampling setting is checked like any other."""
    entries = scored()
    entries["scores/s"] = {**entries["scores/s"], "sampling": {"greedy": {"prompt": "sovle"}}}
    assert "Did you mean `solve`?" in mistake(**entries)


@pytest.mark.parametrize(
    ("rows", "says"),
    [(40, "4 rows are kept; 40 are published (a card)"), (41, "; expected a tenth of them to ten times as many")],
)
def test_published_number_of_rows_changes_nothing_and_is_compared(tmp_path, capsys, rows, says):
    """The job compares its rows with the published number, in its log and in the stamp; far fewer are remarked on."""
    entry = {"source": "arithmetic", "rows": 4}
    with_number = {**entry, "published-rows": {"rows": rows, "source": "a card"}}
    plain, counted = (expand({"r": {"problems/x": each}}) for each in (entry, with_number))
    one, two = (identity_of(book.entries["problems/x"], {}) for book in (plain, counted))
    assert one == two
    jobs.make(MAINS["problems"], "problems/x", two, tmp_path, counted.terms)
    (notice,) = Table("problems/x", tmp_path).stamp["notices"]
    assert says in notice and notice in capsys.readouterr().err
    assert ("expected" in notice) == (rows > 40)


def test_day_of_a_shutdown_changes_nothing_and_needs_a_source():
    """A model's end does not change the identity; without a dated source it is refused."""
    api = {"id": "a", "price": "unknown"}
    ended = {"retired": date(2026, 3, 9), "checked": "https://example.org/deprecations, 2026-11-23"}
    entry = Labels(problems="problems/x", model="api/a")
    assert identity_of(entry, {"api/a": Api(**api)}) == identity_of(entry, {"api/a": Api(**api, **ended)})
    labels = {"problems/x": BENCH, "labels/x": {"problems": "problems/x", "model": "api/a"}}
    assert "`checked` is ''; expected its source with a date" in mistake(
        **labels, **{"api/a": {**api, "retired": date(2026, 3, 9)}}
    )
    assert "`retired` is not; expected the day" in mistake(**labels, **{"api/a": {**api, "replaced-by": "b"}})


def test_comment_on_a_price_changes_nothing():
    """The source of a price does not change the identity; the price does."""
    entry = Labels(problems="problems/x", model="api/a")
    price = {"input": 1.0, "output": 2.0}
    apis = [Api(id="a", price=price, price_source=text) for text in ("a page", "another page")]
    one, two = (identity_of(entry, {"api/a": api}) for api in apis)
    assert one == two
    assert one != identity_of(entry, {"api/a": Api(id="a", price={**price, "input": 2.0})})


def test_way_to_a_server_changes_nothing_and_reaches_the_job(tmp_path):
    """`omit` and `max-tokens-field` do not change identities; jobs receive them as settings."""
    way = {"omit": ["seed", "top_p"], "max-tokens-field": "max_completion_tokens"}
    api = {"id": "a", "price": {"input": 0, "output": 0}}
    entries = {"problems/x": BENCH, "labels/x": {"problems": "problems/x", "model": "api/a"}}
    books = [expand({"r": {**entries, "api/a": {**api, **more}}}) for more in ({}, way)]
    one, two = (identity_of(book.entries["labels/x"], book.declared) for book in books)
    assert one == two and json.loads(one)["declared"]["api/a"]["omit"] == []
    told = []
    for book in books:
        jobs.make(MAINS["problems"], "problems/x", identity_of(book.entries["problems/x"], {}), tmp_path, book.terms)
        jobs.make(lambda _, job: told.append(job.declared["api/a"]), "labels/x", one, tmp_path, book.terms)
    assert [(api.omit, api.max_tokens_field) for api in told] == [
        ([], "max_tokens"),
        (["seed", "top_p"], "max_completion_tokens"),
    ]


def test_omit_of_a_temperature_that_is_asked_for_is_refused():
    """A setting of an entry cannot be in `omit`."""
    api = {"id": "a", "price": {"input": 0, "output": 0}, "omit": ["temperature"]}
    assert "`omit` has `temperature`, and `temperature` is 0.6" in mistake(**{"api/a": {**api, "temperature": 0.6}})
    expand({"r": {"api/a": {**api, "temperature": 1}}})


def test_limit_of_unscored_rollouts_changes_nothing_and_reaches_the_job():
    """`max-unscored` does not change the identity, so that a training resumes with another limit. Jobs receive it as a setting."""
    training = {
        "model": "base/b",
        "problems": "problems/x",
        "grader": "arithmetic",
        "rewards": {"grade": 1},
        "steps": 1,
    }
    entries = {"problems/x": BENCH, "base/b": {"source": "scratch", "problems": "problems/x"}}
    one, two = (
        expand({"r": {**entries, "grpo/x": {**training, "unscored": "drop", "max-unscored": share}}})
        for share in (0.1, 0.5)
    )
    assert identity_of(one.entries["grpo/x"], {}) == identity_of(two.entries["grpo/x"], {})
    assert [json.loads(book.terms)["max_unscored"] for book in (one, two)] == [{"grpo/x": 0.1}, {"grpo/x": 0.5}]


def test_prompt_that_is_not_asked_is_no_part_of_an_entry():
    """Program graders and copied guidelines make no calls."""
    by_program = Grades(responses="responses/r", grader="arithmetic")
    assert prompts_of(by_program, {}) == {}
    assert prompts_of(Schemes(problems="problems/x"), {}) == {}
    assert list(prompts_of(Grades(responses="r", grader="api/a"), {})) == ["grade-strict"]


def test_tables_behind_the_parents_are_read_too():
    """Grades read the problems of their responses, and scores those of their grades. These are inputs too."""
    book = expand({"r": scored()})
    assert references.reads("scores", book.entries["scores/s"], book.entries.get) == [
        "sft/c",
        "problems/bench",
        *(f"grades/sft-c@bench@{way}" for way in ("sampled", "greedy")),
        *(f"responses/sft-c@bench@{way}" for way in ("sampled", "greedy")),
    ]


def test_null_takes_a_field_back():
    """`null` in an overlay restores the default, also of a list or mapping."""
    entry = entry_from("problems", {"source": "arithmetic", "path": None, "columns": None, "keep": None, "rows": 3})
    assert (entry.path, entry.columns, entry.keep) == (None, {}, [])
    with pytest.raises(RecipeError, match="`source` is missing"):
        entry_from("problems", {"source": None})


def test_repeat_takes_over_all_that_it_does_not_say():
    """`repeat` inherits thresholds and limits of the repeated entry, and its own fields override them."""
    entries = scored()
    entries["scores/s"] = {**entries["scores/s"], "success-threshold": 0.8, "max-unscored": 0.5, "confidence": 0.9}
    book = expand({"r": {**entries, "scores/all": {"repeat": "scores/s", "seeds": [0, 1], "confidence": 0.99}}})
    made = book.entries["scores/all"]
    assert (made.success_threshold, made.max_unscored, made.confidence) == (0.8, 0.5, 0.99)
    assert made.metrics == book.entries["scores/s"].metrics and made.models == []
    assert len(made.grades) == 2 * len(book.entries["scores/s"].grades)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"metrics": [{"pass-at-k": 9}]},
            "metric `pass-at-k` needs 9 attempts, and no setting of `sampling` has them",
        ),
        (
            {"sampling": {"greedy": {"prompt": "grade-strict"}}},
            "has the fields proof, reference, scheme; expected a prompt with only statement",
        ),
    ],
)
def test_scores_that_would_be_empty_are_refused_before_they_are_paid_for(change, message):
    """Metrics with too many attempts and solver prompts with a scheme are refused."""
    entries = scored()
    entries["scores/s"] = {**entries["scores/s"], **change}
    assert message in mistake(**entries)


# --------------------------------------------------------------------------------------------------- numbers and names

API = {"id": "m", "price": "unknown"}


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"budget": float("nan")}, "budget: found nan; expected a finite number."),
        ({"budget": float("inf")}, "budget: found inf; expected a finite number."),
        ({"budget": -1}, "budget: found -1; expected a number of dollars"),
        ({"r": {"api/m": {**API, "temperature": float("inf")}}}, "r > api/m > temperature: found inf; expected"),
        (
            {"r": {"api/m": {**API, "extra-body": {"top_k": [float("nan")]}}}},
            "r > api/m > extra-body > top_k > 1: found nan",
        ),
        (
            {"r": {"problems/x": {**BENCH, "rows": 10**20}}},
            "r > problems/x > rows: found 100000000000000000000; expected",
        ),
        (
            {"r": {"problems/x": {**BENCH, "seed": -(2**63)}}},
            "r > problems/x > seed: found -9223372036854775808; expected",
        ),
    ],
)
def test_number_that_nothing_can_be_computed_with_is_refused(config, fault):
    """Numbers must be finite and fit 64 bits everywhere; the message names the place."""
    with pytest.raises(RecipeError) as refused:
        expand(config)
    assert fault in str(refused.value)


def test_numbers_as_people_write_them_are_numbers(tmp_path):
    """`1e-5`, a text in YAML 1.1, is read as a number in fields, in mappings of names, in arguments, and as an integer."""
    (tmp_path / "c.yaml").write_text(
        """
budget: 1e1
r:
  problems/x: {source: arithmetic, rows: 1e2, keep: [{statement-length: [1e1, 2.5E3]}]}
  base/x: {source: scratch, problems: problems/x, initializer-range: 8e-2}
  api/x: {id: x, price: {input: 1e-1, output: .5e0}, price-source: "x, 2026-01-01"}
  grpo/x: {model: base/x, problems: problems/x, grader: final-answer, unscored: drop, steps: 4, learning-rate: 1e-6, kl: 2.5E3,
           rewards: {grade: 1e0, overlong: {weight: 5e-1, buffer: 64}}}
  scores/x: {models: [grpo/x], problems: [problems/x], grader: final-answer, metrics: [avg-at-k],
             sampling: {s: {temperature: 7e-1, max-tokens: 1e3}}}
"""
    )
    book = expand(yaml_files.read(tmp_path / "c.yaml"))
    grpo, scores = book.entries["grpo/x"], book.entries["scores/x"]
    assert (grpo.learning_rate, grpo.kl) == (1e-6, 2500.0)
    assert grpo.rewards == {"grade": 1.0, "overlong": {"weight": 0.5, "buffer": 64}}
    assert book.entries["problems/x"].keep == [{"statement-length": [10.0, 2500.0]}]
    assert (book.entries["problems/x"].rows, book.entries["base/x"].initializer_range) == (100, 0.08)
    assert book.declared["api/x"].price == {"input": 0.1, "output": 0.5}
    assert (scores.sampling["s"].temperature, scores.sampling["s"].max_tokens) == (0.7, 1000)
    assert book.budget == 10.0


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"learning-rate": "fast"}, "`learning-rate` is 'fast'; expected a valid number."),
        ({"learning-rate": "1e999"}, "`learning-rate` is '1e999'; expected a valid number."),
        ({"learning-rate": "-1e-5"}, "`learning-rate` is -1e-05; expected a number greater than 0."),
        ({"learning-rate": True}, "`learning-rate` is True; expected a valid number."),
        ({"steps": "1.5e0"}, "`steps` is '1.5e0'; expected a valid integer."),
        ({"steps": 2.0}, "`steps` is 2.0; expected a valid integer."),
        ({"examples": "1e5"}, "`examples` is `1e5`; expected"),
    ],
)
def test_text_that_is_no_number_is_refused(fields, fault):
    """Other texts are not converted to numbers."""
    assert fault in mistake(
        **{**LEARNING, "sft/x": {"model": "base/b", "examples": "examples/c", "steps": 3, **fields}}
    )


@pytest.mark.parametrize("field", ["keep", "rewards", "sampling", "mix", "columns"])
@pytest.mark.parametrize("value", ["1e-5", ["1e-5"], {"1e-5": "1e-5"}, {"x": None}, None, 3, "itself"])
def test_field_with_names_may_hold_anything(field, value):
    """Any value in a field of registry items gives mistakes or is accepted, including an alias that contains itself."""
    if value == "itself":
        value = []
        value.append(value)
    kind = {"keep": "problems", "rewards": "grpo", "sampling": "scores"}.get(field, "examples")
    try:
        expand({"r": {f"{kind}/x": {field: value}}})
    except RecipeError as error:
        assert f"r > {kind}/x: " in str(error)


def test_seeds_and_continue_in_the_wrong_place_are_answered():
    """`seeds` and `continue` in the wrong kind are refused, with what to write instead."""
    given = {"model": "base/b", "examples": "examples/c", "steps": 3, "seeds": [0, 1]}
    assert "`scores/seeds: {repeat: scores/<name>, seeds: [0, 1, 2]}`" in mistake(**{**LEARNING, "sft/x": given})
    assert "Only an `sft` can continue another" in mistake(**{"grpo/x": {"continue": "grpo/y", "steps": 3}})


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("problems/My_Data", "after `problems/`, a letter or digit first. Rename it to `problems/my-data`."),
        ("sft/a b", "Rename it to `sft/a-b`."),
        ("sft/_", "Rename it."),
    ],
)
def test_name_with_other_characters_is_answered_with_a_right_one(name, answer):
    """An invalid name is refused with a valid one."""
    assert answer in mistake(**{name: BENCH})


def test_overlay_takes_a_reward_back():
    """Mappings are merged, and `null` removes a name from them."""
    grpo = {"model": "base/b", "problems": "problems/p", "grader": "final-answer", "unscored": "drop", "steps": 1}
    under = {"r": {**LEARNING, "grpo/x": {**grpo, "rewards": {"grade": 1, "format": 0.1}}}}
    over = {"r": {"grpo/x": {"rewards": {"length-kimi": 1, "format": None}}}}
    assert expand(yaml_files.overlay(under, over)).entries["grpo/x"].rewards == {"grade": 1, "length-kimi": 1}


@pytest.mark.parametrize("name", [1, None, "", "a b", "a/b", "1", "-n", "a\n", "problems"])
def test_recipe_with_a_name_that_is_no_target_is_refused(name):
    """An invalid recipe name, or one that is a kind, is refused."""
    with pytest.raises(RecipeError, match=r"has the name .+; expected letters"):
        expand({name: {"problems/x": BENCH}})


@pytest.mark.parametrize("name", ["problems/x\n", "problems/X", "problems/\x1b[31m"])
def test_entry_with_a_name_that_is_none_is_refused_in_one_line(name):
    """Names are lower case, and messages are one line for any name."""
    assert "expected lower-case letters, digits" in mistake(**{name: BENCH}) and mistake(**{name: BENCH}).isprintable()


def test_entry_whose_files_would_be_those_of_another_is_refused():
    """A name that ends like a file of another artifact is refused."""
    base = {"source": "scratch", "problems": "problems/b"}
    text = mistake(**{"problems/b": BENCH, "base/x": base, "base/x.parquet": base})
    assert (
        text
        == "r > base/x.parquet: ends in `.parquet`, like files of other artifacts; expected another ending. Rename it."
    )


def test_derived_name_that_is_too_long_for_a_file_is_refused():
    """A derived name that is too long for a file is refused."""
    model, bench = (f"{kind}/{kind}-{'-'.join(map(str, range(35)))}" for kind in ("sft", "problems"))
    entries = scored(**{model: scored()["sft/c"], bench: BENCH})
    entries["scores/s"] = {**entries["scores/s"], "models": [model], "problems": [bench]}
    assert "expected at most 200. Shorten it, or the names that it is derived from." in mistake(**entries)


@pytest.mark.parametrize("way", ["", "a/b", "a\n", "a@b", "seed-1"])
def test_way_of_sampling_that_is_no_name_is_refused(way):
    """An invalid name of a sampling setting is refused."""
    entries = scored()
    entries["scores/s"] = {**entries["scores/s"], "sampling": {way: {}}}
    assert "is not a valid name; expected letters, digits" in mistake(**entries)


@pytest.mark.parametrize("field", ["max_tokens", "n", "stream", "messages", "model", "seed", "temperature", "logprobs"])
def test_option_that_overrules_what_an_entry_says_is_refused(field):
    """`extra-body` cannot set request fields that an entry or the protocol sets."""
    text = mistake(**{"api/m": {**API, "extra-body": {field: 1, "top_k": 20}}})
    assert text.startswith(
        f"r > api/m: `extra-body` sets `{field}`, which an entry or the protocol sets; expected other"
    )


def test_option_that_sets_the_nucleus_of_an_entry_is_refused():
    """`top_p` cannot be both in the options of a model and in an entry that calls it."""
    entries = {"api/m": {**API, "extra-body": {"top_p": 0.8}}, "problems/x": BENCH}
    asked = {"problems": "problems/x", "model": "api/m"}
    expand({"r": {**entries, "responses/x": asked}})
    text = mistake(**entries, **{"responses/x": {**asked, "top-p": 0.9}})
    assert (
        text
        == "r > responses/x: `top-p` is 0.9 and the `extra-body` of api/m sets `top_p`, too; expected only one of them. Remove one."
    )
    scores = {
        **scored()["scores/s"],
        "models": ["api/m"],
        "problems": ["problems/x"],
        "sampling": {"w": {"top_p": 0.9}},
    }
    assert "sampling `w`: `top-p` is 0.9 and" in mistake(**entries, **{"api/referee": REFEREE, "scores/s": scores})


def test_delimiter_of_no_characters_is_refused():
    """An empty delimiter is refused."""
    assert "`reasoning-end.0` is ''; expected" in mistake(**{"api/m": {**API, "reasoning-end": [""]}}).replace(
        "String", ""
    )


# --------------------------------------------------------------------------------------------------------------- drafts

DRAFT = {
    "api/referee": REFEREE,
    "problems/x": BENCH,
    "problems/y": {"source": "arithmetic", "rovs": 3},
    "examples/x": {"problems": "problems/x"},
    "examples/y": {"problems": "problems/y"},
    "base/y": {"source": "scratch", "problems": "problems/x"},
    "sft/y": {"model": "base/y", "examples": "examples/y", "steps": 1},
}


def test_entry_with_a_mistake_stops_only_what_needs_it():
    """Other entries are kept; a target with the faulty entry reports its mistake once."""
    book = expand({"r": DRAFT, "other": {"problems/z": BENCH}}, drafts=True)
    assert set(book.entries) == {"problems/x", "examples/x", "base/y", "problems/z"}
    assert book.list_target("examples/x") == ["examples/x"] and book.list_target("other") == ["problems/z"]
    assert set(book.faults) == {"problems/y", "examples/y", "sft/y", "r"}
    for target in ("sft/y", "results/sft/y.parquet", "r"):
        with pytest.raises(RecipeError) as refused:
            book.list_target(target)
        assert str(refused.value).count("unknown key `rovs`") == 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize(
    ("entries", "left_out"),
    [
        ({"problems/My_Data": BENCH}, set()),
        ({"api/x": {"id": "x"}, "labels/x": {"problems": "problems/x", "model": "api/x"}}, {"labels/x"}),
        ({"examples/x": {"like": "examples/nope"}}, {"examples/x"}),
        ({"scores/x": {"models": ["sft/nope"], "metrics": ["avg-at-k"]}}, {"scores/x"}),
    ],
    ids=["name", "behind-a-model", "like", "scores"],
)
def test_drafts_of_every_sort_are_left_out(entries, left_out):
    """Entries that need an invalid entry are left out too."""
    book = expand({"r": {"problems/x": BENCH, **entries}}, drafts=True)
    assert set(book.entries) == {"problems/x"} and "r" in book.faults
    assert left_out <= set(book.faults)


@pytest.mark.parametrize(
    "config", [{"budget": "much"}, {"results": "a b"}, {"results": ""}, {"s": 3}, {"r": DRAFT, "s": 3}]
)
def test_mistake_of_the_whole_is_no_draft(config):
    """Mistakes outside of entries are refused for every target."""
    with pytest.raises(RecipeError, match="expected"):
        expand({"q": {"problems/q": BENCH}, **config}, drafts=True)


def test_circle_of_drafts_is_refused():
    """A cycle is found in addition to another mistake."""
    circle = {"problems/a": {"source": "problems/b"}, "problems/b": {"source": "problems/a"}}
    with pytest.raises(RecipeError, match="references form a cycle"):
        expand({"r": {**DRAFT, **circle}}, drafts=True)


@pytest.mark.parametrize(
    ("metrics", "meant"),
    [
        (["pass@k", "avg"], "names `pass@k` and `avg`; expected one of"),
        (["pass@k", "avg"], "Did you mean `pass-at-k`, `avg-at-k`?"),
        (["avg@2"], "Did you mean `avg-at-k`?"),
        (["pass@8"], "Did you mean `{pass-at-k: 8}`?"),
        (["maj@8"], "Did you mean `{majority-at-k: 8}`?"),
        ([{"pass@k": 4}], "Did you mean `pass-at-k`?"),
    ],
)
def test_metrics_as_the_page_spells_them_are_answered_with_ours(metrics, meant):
    """`avg@2` suggests `avg-at-k`, and the list of all metrics is printed once."""
    entries = scored()
    said = mistake(**entries | {"scores/s": {**entries["scores/s"], "metrics": metrics}})
    assert meant in said and said.count("expected one of ") == said.count(", bias, ") == 1


def test_attempts_are_asked_as_their_model_and_grader_need():
    """By default, a remote model has its own limit and a prompt that fits the grader; a model trained here has that of its training."""
    entries = scored(**{"api/long": {"id": "x", "price": "unknown", "max-tokens": 9000}})
    solvers = {"models": ["api/long", "base/b"]}

    def asked(**more):
        measured = {**entries, "scores/s": {**entries["scores/s"], "schemes": [], **solvers, "compare": [], **more}}
        book = expand({"r": {**measured, "responses/own": {"problems": "problems/bench", "model": "api/long"}}})
        found = {n: (e.prompt, e.max_tokens) for n, e in book.entries.items() if n.startswith("responses/")}
        assert found.pop("responses/own") == ("solve-any", 9000)
        return set(found.values())

    sampling = {"sampling": {"s": {"attempts": 1}}, "metrics": ["avg-at-k"]}
    local = ("solve", 128)
    for grader, prompt in (
        ("final-answer", "answer"),
        ("tests", "solve-code"),
        ("rules", "solve-any"),
        ("arithmetic", "solve-any"),
    ):
        assert asked(**sampling, grader=grader) == {local, (prompt, 9000)}
    assert asked(**sampling, grader="api/long", **{"grader-prompt": "grade-imo"}) == {local, ("prove", 9000)}
    assert asked(**sampling, grader="api/long", **{"grader-prompt": "answer-equivalence"}) == {local, ("answer", 9000)}
    own = {"sampling": {"s": {"attempts": 1, "prompt": "solve", "max-tokens": 64}}, "metrics": ["avg-at-k"]}
    assert asked(**own, grader="final-answer") == {("solve", 64)}


@pytest.mark.parametrize(
    ("api", "sampling", "fault"),
    [
        ({"extra-body": {"top_k": 5}}, {"top-k": 3}, "`top-k` is 3 and the `extra-body` of api/long sets `top_k`"),
        (
            {"extra-body": {"stop": ["x"]}},
            {"stop": ["a"]},
            "`stop` is ['a'] and the `extra-body` of api/long sets `stop`",
        ),
        (
            {"protocol": "responses"},
            {"stop": ["a"]},
            "the protocol of api/long is `responses`, which has no such field",
        ),
        ({}, {"stop": [""]}, "`stop"),
        ({}, {"min-p": 0.0}, "`min-p` is 0.0"),
        ({}, {"top-k": 0}, "`top-k` is 0"),
        ({}, {"system": "no/such.md"}, "`system` is no/such.md: No such file"),
    ],
)
def test_sampling_that_a_model_cannot_have_is_refused(api, sampling, fault):
    """Sampling settings that the model's options or protocol exclude, and invalid values, are refused."""
    entry = {"problems": "problems/bench", "model": "api/long", **sampling}
    assert fault in mistake(**{"api/long": {"id": "x", "price": "unknown", **api}, "responses/x": entry, **scored()})


# ------------------------------------------------------------------------------------------------ the results folder


def in_results(path):
    return expand({"results": str(path), "r": {"problems/x": {"source": "arithmetic", "rows": 1}}})


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/etc", "results: `/etc` has other files; expected a new or empty folder, or one of an earlier run"),
        ("/usr", "results: `/usr` has other files"),
        ("/etc/passwd", "results: `/etc/passwd` cannot be read as a folder"),
        ("/dev/null/x", "results: `/dev/null/x` cannot be read as a folder"),
    ],
)
def test_place_that_is_not_for_results_is_refused(path, fault):
    """A system folder, a file, and a path below a file cannot be the results folder."""
    with pytest.raises(RecipeError, match=fault):
        in_results(path)


def test_new_empty_and_earlier_results_are_taken(tmp_path):
    """A new folder, one with only hidden files, and one with a run's files can be the results folder."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/.gitkeep").touch()
    for kind in ("problems", "calls", "human"):
        (tmp_path / f"earlier-{kind}" / kind).mkdir(parents=True)
        (tmp_path / f"earlier-{kind}/notes.txt").touch()
        assert in_results(tmp_path / f"earlier-{kind}").entries
    assert in_results(tmp_path / "new").entries and in_results(tmp_path / "empty").entries


DERIVED = {
    **LEARNING,
    "scores/s": {"models": ["base/b"], "problems": ["problems/p"], "grader": "arithmetic", "metrics": ["avg-at-k"]},
    "examples/own": {"grades": "grades/base-b@p@greedy", "keep": ["solved"]},
    "sft/own": {"model": "base/b", "examples": "examples/own", "steps": 1},
}
DERIVED["scores/s"]["sampling"] = {"greedy": {"temperature": 0}}


def test_names_that_scores_adds_can_be_referred_to_and_are_targets():
    """Another entry reads them, also of a shared block; they are targets, and ancestors of what reads them."""
    config = expand({"r": DERIVED})
    assert config.list_target("responses/base-b@p@greedy") == ["responses/base-b@p@greedy"]
    assert "responses/base-b@p@greedy" in references.ancestors(config.entries, "sft/own")
    own = {name: DERIVED[name] for name in ("examples/own", "sft/own")}
    rest = {name: entry for name, entry in DERIVED.items() if name not in own}
    assert "sft/own" in expand({"shared": {"block": rest}, "r": {"with": ["block"], **own}}).recipes["r"]
    with pytest.raises(
        RecipeError, match=r"refers to `grades/base-b@p@greedy` of the recipe `other`; expected `with: "
    ):
        expand({"other": rest, "r": own})


def test_names_that_scores_adds_have_the_mistakes_of_scores():
    """A circle through them is found, and an entry that reads them is left out with its `scores`."""
    circle = {**DERIVED, "scores/s": {**DERIVED["scores/s"], "models": ["base/b", "sft/own"]}}
    circle["examples/own"] = {"grades": "grades/sft-own@p@greedy"}
    assert "references form a cycle" in mistake(**circle)
    faulty = {**DERIVED, "scores/s": {**DERIVED["scores/s"], "metrics": ["avg"]}}
    config = expand({"r": faulty}, drafts=True)
    assert "sft/own" not in config.entries and "`metrics` names `avg`" in config.faults["sft/own"]
