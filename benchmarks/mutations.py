"""Count the small faults in the code that the tests notice.

    python benchmarks/mutations.py 1                          # 60 mutations of seed 1, one after another
    python benchmarks/mutations.py 1 --workers 2 --count 60
    python benchmarks/mutations.py 1 --count 4 --folders schema text

A mutation changes one line of src/proofmill: a comparison at its boundary, a number by one, `and` for `or`, a condition
negated, a branch that is never taken, a statement or an error dropped, a file that is not synced. The seed spreads them
over the folders and over these operators. Each is applied in a temporary copy of the tree, never in the tree. Then
tests run, until one fails: tests/FOLDER/test_MODULE.py, tests/FOLDER, or tests/test_KIND.py for a kind of artifact, the
other files that import the module, and the tests of the modules that import it. Tests with the marker `long` do not
run, and tests that fail without a mutation do not count. A mutation is noticed if a test fails, or if the tests take
five times as long as without it.

Each result is a line of mutations-SEED.jsonl (`--results`). An interrupted run resumes from there, and a mutation whose
line has changed meanwhile is tried again. The exit code is 1 if under 90 % are noticed (`--least`).
"""

import argparse
import ast
import dataclasses
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/proofmill")
KINDS = "kinds"  # the modules at the top of the package
FAST = "not long and not pipeline and not vllm and not slurm and not browser"
BOUNDARY = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
SYNC = re.compile(r"\b(fsync|fdatasync|sync|sync_\w+|flush)$")
# Tests of a folder that are in other folders.
ELSEWHERE = {"cli": ["tests/test_command.py", "tests/analysis", "tests/planning"], "schema": ["tests/config"]}
LEAST_SECONDS = 60.0  # a mutation is not stopped before


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One changed line."""

    path: str
    line: int
    operator: str
    before: str
    after: str

    @property
    def folder(self) -> str:
        parts = Path(self.path).relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else KINDS

    def apply(self, tree: Path, back: bool = False) -> None:
        """Change the line in a tree, or change it back."""
        path = tree / self.path
        lines = path.read_text(encoding="utf-8").split("\n")
        old, new = (self.after, self.before) if back else (self.before, self.after)
        assert lines[self.line - 1] == old, f"{self.path}:{self.line} is not what it was"
        lines[self.line - 1] = new
        path.write_text("\n".join(lines), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- operators


class Finder(ast.NodeVisitor):
    """All mutations of a module, each within one line."""

    def __init__(self, path: str, text: str):
        self.path, self.lines = path, text.split("\n")
        self.found: list[Mutation] = []
        self.visit(ast.parse(text))

    def add(self, operator: str, node: ast.expr | ast.stmt, new: str, begin: int | None = None, end: int | None = None):
        """Replace a node, or the columns between two offsets in bytes, if it is on one line."""
        if node.lineno == node.end_lineno:
            before = self.lines[node.lineno - 1]
            raw = before.encode()
            begin, end = (node.col_offset if begin is None else begin), (node.end_col_offset if end is None else end)
            after = (raw[:begin] + new.encode() + raw[end:]).decode()
            if after != before:
                self.found.append(Mutation(self.path, node.lineno, operator, before, after))

    def source(self, node: ast.expr | ast.stmt) -> str:
        return self.lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()

    def between(self, operator: str, whole: ast.expr, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator between two operands."""
        if left.end_lineno == right.lineno == whole.lineno == whole.end_lineno:
            raw = self.lines[whole.lineno - 1].encode()
            gap = raw[left.end_col_offset : right.col_offset].decode()
            changed = re.sub(rf"(?<![\w<>=!]){re.escape(old)}(?![\w<>=])", new, gap, count=1)
            self.add(operator, whole, changed, left.end_col_offset, right.col_offset)

    def visit_Compare(self, node):
        if len(node.ops) == 1:
            self.between("comparison", node, node.left, node.comparators[0], *BOUNDARY[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.between("and, or", node, node.values[0], node.values[1], old, new)
        self.generic_visit(node)

    def visit_Constant(self, node):
        if type(node.value) is int:
            self.add("off by one", node, str(node.value + 1))

    def tested(self, node):
        if node.test.lineno == node.test.end_lineno:
            self.add("negated condition", node.test, f"not ({self.source(node.test)})")
        self.generic_visit(node)

    def visit_If(self, node):
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            if node.test.lineno == node.test.end_lineno:
                self.add("dropped branch", node.test, f"False and ({self.source(node.test)})")
            self.tested(node)

    visit_While = visit_IfExp = tested

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            self.add("removed sync" if SYNC.search(called) else "dropped statement", node, "pass")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Raise(self, node):
        self.add("dropped error", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self.add("dropped statement", node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node):  # types are no behavior
        if node.value:
            self.visit(node.value)

    def visit_arguments(self, node):
        for default in (*node.defaults, *node.kw_defaults):
            if default:
                self.visit(default)

    def visit_FunctionDef(self, node):
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef


def mutations(path: str, text: str) -> list[Mutation]:
    return Finder(path, text).found


def picked(tree: Path, seed: int, count: int, folders: list[str]) -> list[Mutation]:
    """Draw mutations from the folders in turn, each of an operator that is drawn first; no line twice."""
    every: dict[str, dict[str, list[Mutation]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((tree / PACKAGE).rglob("*.py")):
        for mutation in mutations(str(path.relative_to(tree)), path.read_text(encoding="utf-8")):
            every[mutation.folder][mutation.operator].append(mutation)
    if unknown := set(folders) - set(every):
        sys.exit(f"no folder {', '.join(sorted(unknown))}; expected some of {', '.join(sorted(every))}")
    draw = random.Random(seed)
    order = sorted(folders or every)
    draw.shuffle(order)
    found: list[Mutation] = []
    lines = set()
    while len(found) < count and any(every[folder] for folder in order):
        for folder in order[: count - len(found)]:
            while every[folder]:
                operator = draw.choice(sorted(every[folder]))
                some = every[folder][operator]
                mutation = some.pop(draw.randrange(len(some)))
                if not some:
                    del every[folder][operator]
                if (mutation.path, mutation.line) not in lines:
                    lines.add((mutation.path, mutation.line))
                    found.append(mutation)
                    break
    return found


# -------------------------------------------------------------------------------------------------------------- tests


def test_sets(tree: Path, path: str) -> list[list[str]]:
    """Return the tests for a module, in the order in which they run."""
    *folders, name = Path(path).relative_to(PACKAGE).with_suffix("").parts
    module = ".".join(folders) if name == "__init__" else ".".join([*folders, name])
    stem = name.strip("_")
    own = f"tests/{'/'.join([*folders, ''])}test_{stem}.py"
    sets = [[own]] if (tree / own).is_file() else []
    if folders and (tree / "tests" / folders[0]).is_dir():
        sets.append([f"tests/{folders[0]}"])
    if folders and folders[0] in ELSEWHERE:
        sets.append(ELSEWHERE[folders[0]])
    if folders[1:] == ["entries"]:  # grpo_entry.py is checked by test_grpo.py
        sets.append([str(p.relative_to(tree)) for p in sorted(tree.glob(f"tests/test_{stem.partition('_')[0]}*.py"))])
    # Others import the module, or run it as a command.
    named = re.compile(
        rf"proofmill\.{re.escape(module)}\b|from proofmill\.?{re.escape('.'.join(folders))} import .*\b{stem}\b"
        rf'|"proofmill", "{stem}"'
    )
    seen = tuple(f"{test}/" if not test.endswith(".py") else test for some in sets for test in some)
    files = (str(path.relative_to(tree)) for path in sorted((tree / "tests").rglob("test_*.py")))
    others = [f for f in files if not f.startswith(seen) and named.search((tree / f).read_text(encoding="utf-8"))]
    known = {*others, *(test for some in sets for test in some)}
    return [some for some in (*sets, others, [test for test in users(tree, named) if test not in known]) if some]


def users(tree: Path, named: re.Pattern) -> list[str]:
    """Return the tests of the modules that import a module: tests/FOLDER/test_USER.py."""
    paths = (path.relative_to(tree / PACKAGE) for path in sorted((tree / PACKAGE).rglob("*.py")))
    importing = (path for path in paths if named.search((tree / PACKAGE / path).read_text(encoding="utf-8")))
    tests = (Path("tests") / path.parent / f"test_{path.stem.strip('_')}.py" for path in importing)
    return [str(test) for test in tests if (tree / test).is_file()]


class Copy:
    """A copy of the tree, in which one mutation at a time is tried."""

    def __init__(self, folder: Path):
        self.tree = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for command in (["init", "-q"], ["add", "-A"]):  # some tests ask git which files there are
            subprocess.run(["git", *command], cwd=folder, check=True)

    def run(self, tests: list[str], without: list[str], timeout: float | None, *options: str) -> tuple[int, str]:
        """Return the exit code of pytest and what it said; the code is -1 if it took too long."""
        data = os.environ.get("PROOFMILL_DATA", ROOT.parent / "shared/data")
        environment = {**os.environ, "PYTHONPATH": str(self.tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"PROOFMILL_DATA": str(data), "PROOFMILL_TEST_ROOM": "0", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", FAST, *options, *tests]
        for test in without:
            command += ["--deselect" if "::" in test else "--ignore", test]
        process = subprocess.Popen(
            command, cwd=self.tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return -1, ""
        return process.returncode, said


def failures(said: str) -> list[str]:
    """Return the tests that failed, from pytest's summary."""
    found = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", said, re.MULTILINE)
    return sorted(set(found))


class Trials:
    """Mutations that are tried, with what is known from an earlier run."""

    def __init__(self, results: Path):
        self.results, self.lock = results, Lock()
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        known = [json.loads(line) for line in lines]
        self.known = {self.key(row): row for row in known if "operator" in row}
        self.baselines = {tuple(row["tests"]): row for row in known if "failed" in row}

    @staticmethod
    def key(row: dict) -> tuple:
        return tuple(row[field.name] for field in dataclasses.fields(Mutation))

    def keep(self, row: dict) -> dict:
        with self.lock, open(self.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def baseline(self, copy: Copy, tests: list[str]) -> dict:
        """Return what the tests do without a mutation: their seconds, and those that fail."""
        if tuple(tests) not in self.baselines:
            begun = time.monotonic()
            code, said = copy.run(tests, [], None, "-rfE", "--continue-on-collection-errors")
            row = {
                "tests": tests,
                "failed": failures(said),
                "code": code,
                "seconds": round(time.monotonic() - begun, 1),
            }
            self.baselines[tuple(tests)] = self.keep(row)
        return self.baselines[tuple(tests)]

    def tried(self, copy: Copy, mutation: Mutation) -> dict:
        """Return the outcome of a mutation: which test noticed it, or none."""
        row = dataclasses.asdict(mutation)
        if known := self.known.get(self.key(row)):
            return known
        begun, verdict, by = time.monotonic(), "survived", ""
        for tests in test_sets(copy.tree, mutation.path):
            before = self.baseline(copy, tests)
            if before["code"] not in (0, 1):  # pytest itself failed, or found no test
                continue
            timeout = max(LEAST_SECONDS, 5 * before["seconds"])
            mutation.apply(copy.tree)
            try:
                code, said = copy.run(tests, before["failed"], timeout, "-x", "-rfE")
            finally:
                mutation.apply(copy.tree, back=True)
            if code not in (0, 5):
                verdict, by = "noticed", "took too long" if code < 0 else (failures(said) or ["nothing could run"])[0]
                break
        return self.keep(row | {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - begun, 1)})


# ------------------------------------------------------------------------------------------------------------- report


def lines_of(row: dict) -> Iterator[str]:
    yield f"{row['verdict']:9} {row['seconds']:6.0f} s  {row['operator']:17}  {row['path']}:{row['line']}  {row['by']}"
    if row["verdict"] == "survived":
        yield f"    - {row['before'].strip()}"
        yield f"    + {row['after'].strip()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--folders", nargs="+", default=[], help=f"of src/proofmill; `{KINDS}` is its top; all by default"
    )
    parser.add_argument("--workers", type=int, default=1, help="mutations tried side by side")
    parser.add_argument("--least", type=float, default=0.9, help="the share that must be noticed")
    parser.add_argument("--results", type=Path, help="mutations-SEED.jsonl by default")
    parser.add_argument("--list", action="store_true", help="print the mutations and try none")
    arguments = parser.parse_args()
    chosen = picked(ROOT, arguments.seed, arguments.count, arguments.folders)
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.operator:17}  {mutation.path}:{mutation.line}\n    - {mutation.before.strip()}")
            print(f"    + {mutation.after.strip()}")
        return
    trials = Trials(arguments.results or Path(f"mutations-{arguments.seed}.jsonl"))
    copies: queue.Queue[Copy] = queue.Queue()
    rows = []

    def tried(mutation: Mutation) -> dict:
        copy = copies.get()
        try:
            return trials.tried(copy, mutation)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="mutations-") as place, ThreadPoolExecutor(arguments.workers) as pool:
        for number in range(arguments.workers):
            copies.put(Copy(Path(place) / str(number) / "proofmill"))
        for row in pool.map(tried, chosen):
            rows.append(row)
            print(*lines_of(row), sep="\n", flush=True)
    noticed = Counter(row["operator"] for row in rows if row["verdict"] == "noticed")
    print()
    for operator, number in sorted(Counter(row["operator"] for row in rows).items()):
        print(f"{operator:17}  {noticed[operator]:3} of {number:3} noticed")
    print(f"{'all':17}  {noticed.total():3} of {len(rows):3} noticed, in {sum(row['seconds'] for row in rows):,.0f} s")
    sys.exit(noticed.total() < arguments.least * len(rows))


if __name__ == "__main__":
    main()
