"""Code of users: which modules of a folder a file imports, and when its digest changes."""

import pytest

from proofmill.runtime.own_code import Folder
from proofmill.schema.errors import RecipeError

FILES = {
    "main.py": "import one\nfrom pack import *\nPARTS = {'a': one.A, 'b': 2}\n",
    "one.py": "import two\nA = 1\n",
    "two.py": "import one\nfrom pack.inner import deep\n",  # a cycle
    "pack/__init__.py": "from . import sub\n",
    "pack/sub.py": "B = 1\n",
    "pack/other.py": "C = 1\n",
    "pack/inner/__init__.py": "",
    "pack/inner/deep.py": "from ..sub import B\n",
    "unused.py": "D = 1\n",
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder of modules that import each other."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Folder(tmp_path)


def test_imports_are_found_transitively_and_once(folder):
    """Cycles end, a star reads all submodules, and packages of an imported module count."""
    main = folder.module("main")
    found = folder.find_imports(main, main.tree)
    assert list(found) == ["one", "pack", "pack.inner", "pack.inner.deep", "pack.other", "pack.sub", "two"]
    assert list(folder.find_imports(folder.module("pack.sub"), folder.module("pack.sub").tree)) == []


def test_module_that_is_not_in_the_folder_is_none(folder):
    """Modules of Python and an empty name are no modules of the folder."""
    assert [folder.module(name) for name in ("os", "", "pack.none")] == [None] * 3
    assert folder.module("pack").path.name == "__init__.py"


def test_digest_is_of_one_part_and_its_imports(folder, tmp_path):
    """An edit in an imported module changes the digest of the part that uses it, and of no other part."""
    main = folder.module("main")
    before = {key: folder.digest_of(main, "PARTS", key) for key in "ab"}
    assert before["a"] != before["b"] and Folder(tmp_path).digest_of(main, "PARTS", "a") == before["a"]
    (tmp_path / "unused.py").write_text("D = 2\n", encoding="utf-8")
    assert Folder(tmp_path).digest_of(main, "PARTS", "a") == before["a"]
    (tmp_path / "pack/sub.py").write_text("B = 2\n", encoding="utf-8")
    assert Folder(tmp_path).digest_of(main, "PARTS", "a") != before["a"]


@pytest.mark.parametrize(
    "line", ["name = 'a'\n__import__(name)", "import importlib\nimportlib.import_module('a' + 'b')"]
)
def test_import_that_cannot_be_resolved_is_refused(folder, tmp_path, line):
    """The message names file and line, and what to write instead."""
    (tmp_path / "odd.py").write_text(f"{line}\n", encoding="utf-8")
    odd = folder.module("odd")
    with pytest.raises(RecipeError, match=r"odd\.py:2: `\w+` imports a module that cannot be resolved"):
        folder.find_imports(odd, odd.tree)
