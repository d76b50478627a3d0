"""The first tier: pydantic-monty, an interpreter of Python in Rust, for programs in which it is known to be Python.

    with Monty(workers=2, seconds=10, megabytes=512) as monty:
        monty.value("def f(x): return x + 1", "f(2)", 10_000)  # 3, or None: Python itself must decide

Monty has no files, network or processes, and lacks much of Python; what it has sometimes differs, silently: `map` gives a
list, sets have another order, regular expressions another dialect. So only programs of a closed list of constructs are
given to it (`is_plain`), and only a value that it finds in little time counts: whatever else comes of a program is found
again by CPython.
"""

import ast
import contextlib
import math
import resource
import time
import warnings
from collections.abc import Iterator
from typing import Any

from proofmill.sandbox import values
from proofmill.schema.errors import SandboxError

BRIEF = 0.25  # seconds: loops are slower here than in CPython, which decides about what takes longer
LONGEST = 4096  # characters of a program
_FORBIDDEN = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)

# ----------------------------------------------------------------------------------------------------- what it may be given

_NODES = (
    ast.Module, ast.Expression, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Assert, ast.Nonlocal, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.List, ast.Tuple, ast.ListComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred,
    ast.Name, ast.Import, ast.ImportFrom, ast.alias, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_MODULES = {"math", "typing"}
_LAZY = {"enumerate", "filter", "map", "reversed", "zip"}  # these give lists in Monty
_WHOLE = {"dict", "join", "list", "max", "min", "sorted", "sum", "tuple"}  # these read all they are given
_BUILTINS = {  # of CPython, in which Monty is the same
    *_LAZY, *_WHOLE, "abs", "all", "any", "bool", "chr", "divmod", "float", "int", "isinstance", "len", "ord", "pow",
    "print", "range", "str",
}  # fmt: skip
_CHANGES = {  # methods that change what they belong to
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update",
}  # fmt: skip
_ATTRIBUTES = {
    *_CHANGES, "copy", "count", "endswith", "find", "get", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace",
    "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
    "rindex", "rpartition", "rsplit", "rstrip", "split", "startswith", "strip", "upper", "values", "zfill",
    # of modules
    "ceil", "comb", "floor", "gcd", "isqrt", "pi", "sqrt", "Any", "Dict", "List", "Optional", "Tuple", "Union",
}  # fmt: skip
_PLAIN = (str, int, float, type(None))  # constants


def is_plain(program: str, call: str) -> bool:
    """Whether a program and a call are of the constructs that Monty runs as CPython does.

    Plain text, functions and loops over numbers, text, lists and mappings; no sets, classes, generators, handlers of
    exceptions, nor anything whose value depends on chance, time or addresses.
    """
    if not call or len(program) + len(call) > LONGEST or not (program.isascii() and call.isascii()):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trees = ast.parse(program), ast.parse(call.strip(), mode="eval")
            compile(trees[0], "<program>", "exec", dont_inherit=True)  # what Python refuses, Monty may run
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {name for node in nodes for name in _bound(node)}
    read = {id(node) for node in nodes for node in _read_whole(node)}
    return all(_is_plain(node, own, read) for node in nodes) and not _changes_what_is_read(nodes)


def _is_plain(node: ast.AST, own: set[str], read: set[int]) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, _PLAIN)
        case ast.Name(id=name):
            return (name in _BUILTINS or name in own) and not (name in _LAZY and id(node) not in read)
        case ast.Attribute(attr=name):
            return name in _ATTRIBUTES
        case ast.Import(names=names):
            return all(alias.name in _MODULES for alias in names)
        case ast.ImportFrom(module=module, names=names):
            return module in _MODULES and all(alias.name in _ATTRIBUTES for alias in names)
        case ast.FunctionDef(decorator_list=decorators):
            return not decorators
        case ast.GeneratorExp():
            return id(node) in read
        case ast.comprehension(is_async=is_async):
            return not is_async
        case ast.Compare(ops=signs, comparators=others):
            return not any(
                isinstance(sign, (ast.Is, ast.IsNot)) and not (isinstance(other, ast.Constant) and other.value is None)
                for sign, other in zip(signs, others, strict=True)
            )
    return isinstance(node, _NODES)


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to something; a built-in function that gets another meaning is not allowed."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name


def _read_whole(node: ast.AST) -> Iterator[ast.AST]:
    """What is read to its end where it is made: generators, and the names of functions that give iterators."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=items) if name in _WHOLE:
            found = items
        case ast.For(iter=items) | ast.comprehension(iter=items):
            found = [items]
        case _:
            return
    for item in found:
        if isinstance(item, ast.GeneratorExp):
            yield item
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Name):
            yield item.func


def _changes_what_is_read(nodes: list[ast.AST]) -> bool:
    """Whether a loop over `enumerate(x)` or the like may change x, of which Monty has made a list beforehand.

    What is changed there must be new in the program (a list that it writes), and not what is read.
    """
    loops = [
        n for n in nodes if isinstance(n, ast.For) and isinstance(n.iter, ast.Call) and _name(n.iter.func) in _LAZY
    ]
    if not loops:
        return False
    old = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Assign) and not isinstance(
            node.value, (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        ):
            old |= {name for target in node.targets for part in ast.walk(target) for name in _bound(part)}
        elif isinstance(node, (ast.For, ast.comprehension)):
            old |= {name for part in ast.walk(node.target) for name in _bound(part)}
    for loop in loops:
        read = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
        for node in (node for part in loop.body for node in ast.walk(part)):
            match node:
                case ast.Subscript(value=changed, ctx=ast.Store()):
                    pass
                case ast.Call(func=ast.Attribute(value=changed, attr=name)) if name in _CHANGES:
                    pass
                case ast.AugAssign(target=changed):
                    if isinstance(changed, ast.Name) and changed.id not in read:
                        continue
                case ast.Call(func=ast.Name(id=name)) if name not in _BUILTINS:  # it may change anything
                    return True
                case _:
                    continue
            if _name(changed) in read | old or not isinstance(changed, ast.Name):
                return True
    return False


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


# ------------------------------------------------------------------------------------------------------------ the workers


class Monty:
    """A context manager with worker processes, which may be used from as many threads."""

    def __init__(self, workers: int, seconds: float, megabytes: float):
        self.workers, self.brief = workers, min(BRIEF, seconds)
        self.limits = {
            "max_feed_duration_secs": self.brief,
            "max_memory": int(megabytes * 1e6),
            "max_recursion_depth": 900,
        }

    def __enter__(self) -> "Monty":
        try:
            import pydantic_monty

            self._monty = pydantic_monty
            self._pool: Any = pydantic_monty.Monty(
                min_processes=self.workers, max_processes=self.workers, request_timeout=8 * self.brief + 1
            ).__enter__()
        except (ImportError, OSError, RuntimeError) as error:
            raise SandboxError(
                f"sandbox: pydantic-monty does not start ({error}); expected its module and its program `monty`. "
                "Install pydantic-monty, pydantic-monty-client and pydantic-monty-runtime as envs/cpu.txt has them."
            ) from None
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.__exit__(None, None, None)

    def value(self, program: str, call: str, longest: int) -> str | None:
        """The value of the call as values.write writes it; None where Monty does not find it."""
        source = f"{program}\n_value = ({call.strip()}\n)\nf'{{_value!r}}'[:{longest + 1}]"
        try:
            with self._pool.checkout(limits=self.limits, assert_message_annotations=False) as session:
                confine(session.worker_pid, self.brief)
                text = session.feed_run(source, print_callback=_unheard)
            return values.write(values.parse(text, longest)) if isinstance(text, str) else None
        except (self._monty.MontyError, ProcessLookupError, ValueError):
            return None


def _unheard(stream: str, text: str) -> None:
    """What is printed is not the value of a call."""


def confine(worker: int, seconds: float) -> None:
    """Limit a worker: it can open and start nothing, and compute for `seconds` more, rounded up to whole ones."""
    for limit in _FORBIDDEN:
        resource.prlimit(worker, limit, (0, 0))
    _, most = resource.prlimit(worker, resource.RLIMIT_CPU)
    now = time.clock_gettime((~worker << 3) | 2)  # the id of another process's clock: clock_getcpuclockid(3)
    end = math.ceil(now + seconds) + 1
    with contextlib.suppress(ValueError):  # the limit of the whole process is lower
        resource.prlimit(worker, resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))
