"""A user's own parts: Python files that a configuration lists under `plugins`, with the same records as ours.

    # my_parts.py
    from proofmill.rewards.rewards import Reward, each

    def brief(rollout, words):
        return float(len(rollout.submission.final.split()) <= words)

    REWARDS = {"brief": Reward(each(brief), "1 for an answer of at most `words` words, else 0", {"words": 100})}

A file may have any of SOURCES, FILTERS, DEMANDS, SELECTORS, GRADERS, ATTACKS, REWARDS and MEASURES, each a dictionary like ours of that
name (lists.py says where they stand), and PROMPTS, a folder of Markdown files beside it. Its parts are then named, checked and
documented like ours.

The identity of every entry that names a part has a digest of the part (runtime/own_code.py says of what). So an edit rebuilds
what names the part, and nothing else. What runs is the text that was read for the digest.

A plugin is ordinary code of the user and runs in no sandbox. Whatever goes wrong while it is read, imported or called is a
RecipeError with its line: an exit is no success.
"""

import importlib.abc
import importlib.util
import linecache
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import msgspec

from proofmill.graders.attacks import Attack
from proofmill.graders.programs import Program
from proofmill.prompts import templates
from proofmill.recipes.lists import LISTS
from proofmill.rewards.rewards import Reward
from proofmill.runtime import signals
from proofmill.runtime.own_code import Folder, Module
from proofmill.runtime.paths import local_path
from proofmill.scaffolds.scaffolds import Scaffold
from proofmill.schema.errors import ProofmillError, RecipeError, short, shown
from proofmill.schema.named import Named
from proofmill.sources.loaders import Source

RECORDS: dict[str, type] = {
    **dict.fromkeys(LISTS, Named),
    "sources": Source,
    "graders": Program,
    "attacks": Attack,
    "rewards": Reward,
    "scaffolds": Scaffold,
}
CALLED = {(word, "apply") for word in ("filters", "demands", "selectors")}  # declared as anything
PROMPTS = "PROMPTS"
MOST_FILES = 10_000  # below a folder of prompts: one of a whole disk is a mistake


# -------------------------------------------------------------------------------------------------------------- in use


@dataclass(frozen=True)
class Plugin:
    """A file whose parts are in use."""

    digests: Mapping[tuple[str, str], str]  # by list and part
    prompts: Path | None = None


_in_use: dict[Path, Plugin] = {}


def use(paths: Iterable[str]) -> None:
    """Make the parts of these files known, and those of no others. Raises RecipeError where a file is faulty."""
    for plugin in _in_use.values():
        for word, name in plugin.digests:
            del LISTS[word][name]
        if plugin.prompts:
            templates.further.remove(plugin.prompts)
    _in_use.clear()
    for name in _modules.known:
        sys.modules.pop(name, None)
    _modules.known.clear()
    folders: dict[Path, Folder] = {}
    named = {os.path.realpath(path): path for path in map(local_path, paths)}  # one file may be named in two ways
    for path in named.values():
        _in_use[path] = _loaded(path, folders.setdefault(path.parent.resolve(), Folder(path.parent)))


def digest_of(word: str, name: str) -> str | None:
    """Return a digest of the code of a user's part; None for one of ours."""
    return next((p.digests[word, name] for p in _in_use.values() if (word, name) in p.digests), None)


def _loaded(path: Path, folder: Folder) -> Plugin:
    code = Module(path, path.stem)
    others = folder.reached(code, code.tree)
    with blamed(path, always=True):
        module = _imported(code, others)
        parts = [
            (word, name, record)
            for word in LISTS
            for name, record in _dictionary(path, module, word.upper()).items()
            if _check(path, word, name, record)
        ]
        prompts = _prompts(path, module)
        digests = {(word, name): folder.digest_of(code, word.upper(), name) for word, name, _ in parts}
    for word, name, record in parts:
        LISTS[word][name] = record
    if prompts:
        templates.further.append(prompts)
    return Plugin(digests, prompts)


# -------------------------------------------------------------------------------------------------------------- imports


class _Modules(importlib.abc.MetaPathFinder):
    """Finds the modules of plugins' folders that their texts import, also when a part imports one late."""

    def __init__(self) -> None:
        self.known: dict[str, Module | None] = {}  # None: a folder of modules without __init__.py

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if (code := self.known.get(name)) is not None:
            return importlib.util.spec_from_file_location(name, code.path, loader=code)
        return ModuleSpec(name, None, is_package=True) if name in self.known else None


_modules = _Modules()
sys.meta_path.insert(0, _modules)


def _imported(code: Module, others: Mapping[str, Module]) -> ModuleType:
    """Import a plugin again. The modules of its folder that it reaches can be imported from now on."""
    if code.path.suffix != ".py":
        raise RecipeError(f"{code.path}: no Python file; expected a Python file of your own parts (`plugins`), `.py`.")
    for name, other in others.items():
        _require_own_name(name, other)
    spec = importlib.util.spec_from_file_location(code.name, code.path, loader=code)
    assert spec is not None and spec.loader is not None, "a loader is given"
    module = importlib.util.module_from_spec(spec)
    around = {name.rpartition(".")[0] for name in others} - {""}
    _modules.known |= {**dict.fromkeys(around), **others}
    if code.name not in sys.modules:  # modules that import the plugin itself, and dataclasses, find it there
        _modules.known[code.name] = code
        sys.modules[code.name] = module
    linecache.checkcache()
    spec.loader.exec_module(module)
    return module


def _require_own_name(name: str, code: Module) -> None:
    """Raise RecipeError for a module that is called like another that can be imported here: it would take its place."""
    top = name.partition(".")[0]
    known = top in sys.stdlib_module_names or (top in sys.modules and top not in _modules.known)
    spec = None if known or "." in name else importlib.util.find_spec(name)
    if known or (spec and spec.origin and Path(spec.origin).resolve() != code.path.resolve()):
        raise RecipeError(
            f"{code.path}: another module is called `{top}`; expected a name of its own beside a plugin. Rename it and its imports."
        )


# -------------------------------------------------------------------------------------------------------------- records


def _dictionary(path: Path, module: ModuleType, variable: str) -> dict[str, Any]:
    value = vars(module).get(variable, {})
    if type(value) is not dict:
        raise RecipeError(f"{path}: `{variable}` is a {type(value).__name__}; expected a dictionary of parts by name.")
    return value


def _check(path: Path, word: str, name: Any, record: Any) -> bool:
    """Return True. Raises RecipeError for a record that is no part that can be taken."""
    where = f"{path}: `{word.upper()}[{shown(name)}]`"
    if not issubclass(type(record), RECORDS[word]):
        expected = f"{RECORDS[word].__module__}.{RECORDS[word].__name__}"
        raise RecipeError(f"{where} is a {type(record).__name__}; expected a {expected}.")
    if type(name) is not str or not name.isprintable() or not name or "/" in name or name in LISTS[word]:
        why = "is there already" if type(name) is str and name in LISTS[word] else "is no name"
        raise RecipeError(
            f"{path}: `{short(str(name))}` of {word.upper()} {why}; expected a name of its own, such as `my-{short(str(name))}`."
        )
    for field, hint in typing.get_type_hints(RECORDS[word]).items():
        value = getattr(record, field)
        hint = Callable if (word, field) in CALLED else hint
        if not _fits(value, hint):
            raise RecipeError(f"{where}: its `{field}` is {shown(value)}; expected {getattr(hint, '__name__', hint)}.")
    return True


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a record is of its declared type, as far as that can be seen without calling it."""
    try:
        return type(msgspec.convert(value, hint)) is type(value)
    except msgspec.ValidationError:
        return False


def _prompts(path: Path, module: ModuleType) -> Path | None:
    if (named := vars(module).get(PROMPTS)) is None:
        return None
    if not isinstance(named, str | Path) or not (folder := path.parent / named).is_dir():
        found = f"{path.parent / named} is no folder" if isinstance(named, str | Path) else f"is {shown(named)}"
        raise RecipeError(f"{path}: `PROMPTS` {found}; expected a folder of prompts beside the file.")
    if len(list(islice(folder.rglob("*"), MOST_FILES))) == MOST_FILES:
        raise RecipeError(f"{path}: `PROMPTS` {folder} has {MOST_FILES:,} files or more; expected a folder of prompts.")
    if ours := {*templates.names()} & {file.stem for file in folder.glob("*.md")}:
        raise RecipeError(
            f"{path}: `PROMPTS` {folder} has `{min(ours)}`, which is there already; expected a folder of prompts with names of "
            "their own."
        )
    return folder


# ------------------------------------------------------------------------------------------------------------ mistakes


class blamed:
    """Turn whatever a user's file raises inside, an exit too, into a RecipeError with the file's own line.

    With `always` the file is to blame where no line of it is to be found.
    """

    def __init__(self, *files: Path, always: bool = False):
        self.files, self.always = files, always

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, ProofmillError | KeyboardInterrupt):
            return
        frames = traceback.extract_tb(trace)
        if isinstance(error, SystemExit) and frames[-1].filename == signals.__file__:
            return  # a signal stops the job while a part runs
        users = (*self.files, *_in_use, *(code.path for code in _modules.known.values() if code))
        files = {str(path.resolve()) for path in users}
        places = [frame for frame in frames if str(Path(frame.filename).resolve()) in files]
        ended = " ".join("".join(traceback.format_exception_only(error)).split())
        if places:
            place = places[-1]
            raise RecipeError(
                f"{place.filename}:{place.lineno}: `{place.line}` in {place.name} ended in {ended}; expected a part that works "
                "for everything it is given. Fix it and run again."
            ) from error
        if self.always:
            raise RecipeError(
                f"{self.files[0]}: ended in {ended}; expected a file of your own parts. Fix it."
            ) from error
