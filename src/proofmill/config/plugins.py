"""Load plugins: Python files that a configuration lists under `plugins`, with the same records as ours.

    # my_parts.py
    from proofmill.rewards.rewards import Reward, each

    def brief(rollout, words):
        return float(len(rollout.submission.final.split()) <= words)

    REWARDS = {"brief": Reward(each(brief), "1 for an answer of at most `words` words, else 0", {"words": 100})}

A file may define any of the dictionaries SOURCES, FILTERS, SCHEME_FILTERS, EXAMPLE_FILTERS, GRADERS, ATTACKS, REWARDS, METRICS and
SCAFFOLDS, with the same records as ours (see lists.py), and PROMPTS, the path of a folder of Markdown files relative to it.
Its parts are then named, checked and documented like ours.

The identity of every entry that names a part has a digest of the part's code (see runtime/own_code.py). An edit rebuilds the
artifacts that name the part, and no others. The code that runs is the text that was digested.

A plugin is ordinary code and runs outside the sandbox. Every exception while it is read, imported or called is reported as a
RecipeError with its line, including `SystemExit`.
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

from proofmill.config.lists import LISTS
from proofmill.graders.attacks import Attack
from proofmill.graders.program_graders import ProgramGrader
from proofmill.prompts import templates
from proofmill.public_data.locations import local_path
from proofmill.rewards.rewards import Reward
from proofmill.runtime import signals
from proofmill.runtime.own_code import Folder, Module
from proofmill.scaffolds.scaffolds import Scaffold
from proofmill.schema.errors import ProofmillError, RecipeError, short, shorten
from proofmill.schema.registry_items import Named
from proofmill.sources.loaders import Loader

RECORDS: dict[str, type] = {
    **dict.fromkeys(LISTS, Named),
    "sources": Loader,
    "graders": ProgramGrader,
    "attacks": Attack,
    "rewards": Reward,
    "scaffolds": Scaffold,
}
CALLABLES = {(word, "apply") for word in ("filters", "scheme-filters", "example-filters")}  # declared as Any
PROMPTS = "PROMPTS"
MOST_FILES = 10_000  # in a folder of prompts; more indicate a wrong folder


# -------------------------------------------------------------------------------------------------------------- in use


@dataclass(frozen=True)
class Plugin:
    """A plugin file in use."""

    digests: Mapping[tuple[str, str], str]  # by registry and part
    prompts: Path | None = None


_in_use: dict[Path, Plugin] = {}


def use(paths: Iterable[str]) -> None:
    """Register the parts of these files only. Raises RecipeError if a file has a mistake."""
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
    named = {os.path.realpath(path): path for path in map(local_path, paths)}  # removes duplicate paths of a file
    for path in named.values():
        _in_use[path] = _load(path, folders.setdefault(path.parent.resolve(), Folder(path.parent)))


def add(paths: Iterable[str]) -> None:
    """Register the parts of these files next to those in use."""
    use([*map(str, _in_use), *paths])


def list_files() -> tuple[list[str], dict[str, Path]]:
    """Return the names of the plugins in use, and the plugins and the modules that they import by path in their folder."""
    files = {path.name: path for path in _in_use}
    for code in filter(None, _modules.known.values()):
        folder = next(path.parent for path in _in_use if path.parent.resolve() in code.path.resolve().parents)
        files.setdefault(code.path.resolve().relative_to(folder.resolve()).as_posix(), code.path)
    return [path.name for path in _in_use], files


def digest_of(word: str, name: str) -> str | None:
    """Return the digest of a plugin part's code; None for a built-in part."""
    return next((p.digests[word, name] for p in _in_use.values() if (word, name) in p.digests), None)


def _load(path: Path, folder: Folder) -> Plugin:
    code = Module(path, path.stem)
    others = folder.find_imports(code, code.tree)
    with blamed(path, always=True):
        module = _import(code, others)
        parts = [
            (word, name, record)
            for word in LISTS
            for name, record in _read_dictionary(path, module, _dictionary(word)).items()
            if _check(path, word, name, record)
        ]
        prompts = _read_prompts(path, module)
        digests = {(word, name): folder.digest_of(code, _dictionary(word), name) for word, name, _ in parts}
    for word, name, record in parts:
        LISTS[word][name] = record
    if prompts:
        templates.further.append(prompts)
    return Plugin(digests, prompts)


# -------------------------------------------------------------------------------------------------------------- imports


class _Modules(importlib.abc.MetaPathFinder):
    """Finds the modules that plugins import from their folders, including imports at call time."""

    def __init__(self) -> None:
        self.known: dict[str, Module | None] = {}  # None: a namespace package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if (code := self.known.get(name)) is not None:
            return importlib.util.spec_from_file_location(name, code.path, loader=code)
        return ModuleSpec(name, None, is_package=True) if name in self.known else None


_modules = _Modules()
sys.meta_path.insert(0, _modules)


def _import(code: Module, others: Mapping[str, Module]) -> ModuleType:
    """Import a plugin from its file, not from the cache, and make the modules of its folder importable."""
    if code.path.suffix != ".py":
        raise RecipeError(f"{code.path}: not a Python file; expected a `.py` file. Fix `plugins`.")
    for name, other in others.items():
        _require_own_name(name, other)
    spec = importlib.util.spec_from_file_location(code.name, code.path, loader=code)
    assert spec is not None and spec.loader is not None, "a loader is set"
    module = importlib.util.module_from_spec(spec)
    around = {name.rpartition(".")[0] for name in others} - {""}
    _modules.known |= {**dict.fromkeys(around), **others}
    if code.name not in sys.modules:  # for modules that import the plugin itself, and for dataclasses
        _modules.known[code.name] = code
        sys.modules[code.name] = module
    linecache.checkcache()
    spec.loader.exec_module(module)
    return module


def _require_own_name(name: str, code: Module) -> None:
    """Raise RecipeError for a module whose name would shadow another importable module."""
    top = name.partition(".")[0]
    known = top in sys.stdlib_module_names or (top in sys.modules and top not in _modules.known)
    spec = None if known or "." in name else importlib.util.find_spec(name)
    if known or (spec and spec.origin and Path(spec.origin).resolve() != code.path.resolve()):
        raise RecipeError(
            f"{code.path}: another module has the name `{top}`; expected a unique name. Rename the file and its imports."
        )


# -------------------------------------------------------------------------------------------------------------- records


def _dictionary(word: str) -> str:
    """Return the variable of a plugin that holds the items of a list, such as SCHEME_FILTERS."""
    return word.upper().replace("-", "_")


def _read_dictionary(path: Path, module: ModuleType, variable: str) -> dict[str, Any]:
    value = vars(module).get(variable, {})
    if type(value) is not dict:
        raise RecipeError(
            f"{path}: `{variable}` is a {type(value).__name__}; expected a dictionary of parts by name. Fix it."
        )
    return value


def _check(path: Path, word: str, name: Any, record: Any) -> bool:
    """Return True for a valid part. Raises RecipeError for any other."""
    where = f"{path}: `{_dictionary(word)}[{shorten(name)}]`"
    if not issubclass(type(record), RECORDS[word]):
        expected = f"{RECORDS[word].__module__}.{RECORDS[word].__name__}"
        raise RecipeError(f"{where} is a {type(record).__name__}; expected a {expected}.")
    if type(name) is not str or not name.isprintable() or not name or "/" in name or name in LISTS[word]:
        why = "exists already" if type(name) is str and name in LISTS[word] else "is not a valid name"
        raise RecipeError(
            f"{path}: `{short(str(name))}` of {_dictionary(word)} {why}; expected a new name, such as `my-{short(str(name))}`. Rename it."
        )
    for field, hint in typing.get_type_hints(RECORDS[word]).items():
        value = getattr(record, field)
        hint = Callable if (word, field) in CALLABLES else hint
        if not _fits(value, hint):
            raise RecipeError(
                f"{where}: its `{field}` is {shorten(value)}; expected {getattr(hint, '__name__', hint)}."
            )
    return True


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a record's value has its declared type, as far as can be checked without a call."""
    try:
        return type(msgspec.convert(value, hint)) is type(value)
    except msgspec.ValidationError:
        return False


def _read_prompts(path: Path, module: ModuleType) -> Path | None:
    if (named := vars(module).get(PROMPTS)) is None:
        return None
    if not isinstance(named, str | Path) or not (folder := path.parent / named).is_dir():
        wrong = f"{path.parent / named} is not a folder" if isinstance(named, str | Path) else f"is {shorten(named)}"
        raise RecipeError(f"{path}: `PROMPTS` {wrong}; expected a folder of prompts, relative to the file. Fix it.")
    if len(list(islice(folder.rglob("*"), MOST_FILES))) == MOST_FILES:
        raise RecipeError(
            f"{path}: `PROMPTS` {folder} has {MOST_FILES:,} files or more; expected a folder of prompts only. Fix it."
        )
    if ours := {*templates.names()} & {file.stem for file in folder.glob("*.md")}:
        raise RecipeError(
            f"{path}: `PROMPTS` {folder} has `{min(ours)}`, which exists already; expected prompts with new names. Rename "
            "it."
        )
    return folder


# ------------------------------------------------------------------------------------------------------------ mistakes


class blamed:
    """A context that converts every exception of a plugin, and SystemExit, to a RecipeError with the plugin's line.

    With `always`, exceptions without a line of the plugin are converted too.
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
            return  # a signal stopped the job while a part ran
        users = (*self.files, *_in_use, *(code.path for code in _modules.known.values() if code))
        files = {str(path.resolve()) for path in users}
        places = [frame for frame in frames if str(Path(frame.filename).resolve()) in files]
        ended = " ".join("".join(traceback.format_exception_only(error)).split())
        if places:
            place = places[-1]
            expected = "a plugin that can be imported" if self.always else "a part that handles every input"
            raise RecipeError(
                f"{place.filename}:{place.lineno}: `{place.line}` in {place.name} raised {ended}; expected {expected}. "
                "Fix it and rerun."
            ) from error
        if self.always:
            raise RecipeError(
                f"{self.files[0]}: raised {ended}; expected a plugin that can be imported. Fix it."
            ) from error
