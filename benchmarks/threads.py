"""Generate threads in the form of the AoPS forum's API, in any number: the corpus of scale.py.

    python benchmarks/threads.py 1000 > threads.jsonl

Thread n is the same in every run and does not depend on other threads. Sizes are realistic (two to five posts, 3 to 13
kB with the forum's data about each post). Of 100 threads about 6 repeat an earlier problem in another LaTeX spelling, 5
in nearly the same words, 3 in another language; 3 have broken LaTeX, 3 an image, 2 are adverts or questions about the
forum, 1 is a heading, 2 have no first post, and one in five has no solution. The statements look like problems but have
no meaning.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator

NAMES = ("Alice", "Bogdan", "Chen", "Dmitri", "Emi", "Farid", "Giulia", "Hana", "Ivo", "Jun", "Katya", "Lars", "Minh")
THINGS = ("stones", "lamps", "coins", "cards", "bottles", "knights", "towns", "students", "beads", "boxes", "frogs")
PLACES = ("around a circle", "in a row", "on a board", "in the cells of a grid", "at the vertices of a polygon",
          "on the sides of a table", "in two piles", "along a river", "on an infinite strip", "inside a square")  # fmt: skip
MOVES = ("removes", "turns over", "swaps", "doubles", "paints", "moves", "joins", "divides", "hides", "exchanges")
LINES = ("bisector", "altitude", "median", "tangent", "perpendicular", "radical axis", "Euler line", "diameter")
POINTS = ("incenter", "orthocenter", "circumcenter", "centroid", "excenter", "Miquel point", "foot of the altitude")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CONSTRUCTIONS = (
    "In triangle ${x}{y}{z}$ let ${u}$ be the {center}.", "The {line} from ${x}$ meets ${y}{z}$ at ${u}$.",
    "Let ${x}$ be a point on the circle $\\omega$ through ${y}$, ${z}$ and ${u}$.", "Points ${x}$, ${y}$ lie on the {line} of ${z}{u}$.",
    "Suppose that $\\angle {x}{y}{z} = \\angle {u}{v}{w}$.", "The lines ${x}{y}$ and ${z}{u}$ intersect at ${v}$ inside the circle.",
    "The reflection of ${x}$ in the {line} of ${y}{z}$ is ${u}$.", "Circle $({x}{y}{z})$ is tangent to ${u}{v}$ at ${w}$.",
    "A {line} of the quadrilateral ${x}{y}{z}{u}$ passes through its {center} ${v}$.", "Denote by ${x}'$ the {center} of ${y}{z}{u}$.",
    "Choose ${x}$ so that ${y}{x} = {x}{z}$ and ${u}{x} \\perp {v}{w}$.", "Let ${x}{y}{z}{u}{v}$ be a pentagon with right angles at ${x}$, ${z}$.",
)  # fmt: skip
CLAIMS = (
    "is parallel to",
    "bisects",
    "is as long as",
    "is tangent to the circle with diameter",
    "meets the midpoint of",
)
CONDITIONS = ("for infinitely many primes", "for all large indices", "whenever the index is a square", "for no prime",
              "at least once in every period", "for every divisor", "except at finitely many places",
              "whatever the order of the terms", "in each residue class", "after finitely many steps")  # fmt: skip
ASKED = ("Prove that", "Show that", "Prove that", "Show that", "Find all pairs for which", "Determine when")
OTHER_LANGUAGES = (
    "Demuestre que para todo entero positivo $n$ el número $%s$ es divisible por $%s$ si y solo si $%s$ lo es.",
    "Montrer que pour tout entier $n$ le nombre $%s$ est multiple de $%s$ dès que $%s$ l'est aussi.",
    "设 $n$ 为正整数，证明 $%s$ 能被 $%s$ 整除当且仅当 $%s$ 也能被它整除。",
    "Cho số nguyên dương $n$. Chứng minh rằng $%s$ chia hết cho $%s$ khi và chỉ khi $%s$ cũng vậy.",
)  # fmt: skip
TALK = ("Nice problem!", "Any ideas?", "bump", "This was on our local olympiad.", "Thanks, that is a great idea.",
        "Can anyone post a solution?", "See here: https://artofproblemsolving.com/community/c6h%d", "Too easy.")  # fmt: skip
STEPS = (
    "Suppose that $%s \\le %s$; then $%s = %s$ as well.", "Reducing modulo $%s$ we get $%s \\equiv %s \\pmod{%s}$.",
    "By the induction hypothesis $%s$ divides $%s$, so that $%s > %s$.", "Note that $\\frac{%s}{%s} < \\frac{%s}{%s}$.",
    "Hence $\\angle ABC = \\angle %s$ and the points $%s$, $%s$, $%s$ lie on a circle.",
    "\\[ %s + %s \\ge 2\\sqrt{%s \\cdot %s} \\]", "It follows that $%s - %s$ and $%s + %s$ have the same parity.",
)  # fmt: skip


def term(rng: random.Random) -> str:
    letter, power, number = rng.choice("abcmnpqxyz"), rng.randint(2, 9), rng.randint(2, 2_000)
    return rng.choice(
        (
            f"{letter}^{power}",
            f"{letter}^{power}+{number}",
            f"{number}{letter}",
            f"{letter}_{{{power}}}",
            f"({letter}+{power})^{{{power + 1}}}",
            f"{number}^{letter}-{power}",
            f"\\sqrt{{{letter}+{number}}}",
            f"{letter}{rng.choice('rstuvw')}",
        )
    )


def _numbers(rng: random.Random) -> str:
    return (
        f"Let $p > {rng.randint(2, 99)}$ be a prime and let $a_1, a_2, \\ldots$ be integers with $a_{{n+1}} = {term(rng)} + "
        f"{term(rng)}$. {rng.choice(ASKED)} ${term(rng)}$ divides ${term(rng)}$ {rng.choice(CONDITIONS)}."
    )


def _geometry(rng: random.Random) -> str:
    sentences = [
        sentence.format(
            line=rng.choice(LINES),
            center=rng.choice(POINTS),
            **dict(zip("xyzuvw", rng.sample(LETTERS, 6), strict=True)),
        )
        for sentence in rng.sample(CONSTRUCTIONS, rng.randint(2, 5))
    ]
    asked = f"{rng.choice(ASKED)} ${''.join(rng.sample(LETTERS, 2))}$ {rng.choice(CLAIMS)} ${''.join(rng.sample(LETTERS, 2))}$."
    return " ".join([*sentences, asked])


def _inequality(rng: random.Random) -> str:
    return (
        f"Let $a, b, c$ be positive real numbers such that ${term(rng)} + {term(rng)} = {rng.randint(1, 30)}$. "
        f"{rng.choice(ASKED)}\n\\[ \\frac{{{term(rng)}}}{{{term(rng)}}} + \\frac{{{term(rng)}}}{{b+c}} \\ge {rng.randint(1, 60)} \\]"
    )


def _game(rng: random.Random) -> str:
    one, two = rng.sample(NAMES, 2)
    return (
        f"{one} and {two} have {rng.randint(3, 3_000)} {rng.choice(THINGS)} {rng.choice(PLACES)}. In each turn {one} "
        f"{rng.choice(MOVES)} {rng.randint(2, 40)} {rng.choice(THINGS)}, and {two} {rng.choice(MOVES)} those "
        f"{rng.choice(PLACES)}. {rng.choice(ASKED)} {rng.choice((one, two))} can always leave ${term(rng)}$ {rng.choice(THINGS)}."
    )


def _function(rng: random.Random) -> str:
    return (
        f"Find all functions $f : \\mathbb{{R}} \\to \\mathbb{{R}}$ such that $f({term(rng)}) + f({term(rng)}) = {term(rng)}"
        f" f(y) + {term(rng)}$ for all real $x$, $y$. Then show that $f({rng.randint(2, 2_000)})$ is unique."
    )


SHAPES: tuple[Callable[[random.Random], str], ...] = (_numbers, _geometry, _inequality, _game, _function)


def posed(n: int) -> str:
    """Return the original statement of thread n."""
    rng = random.Random(n)
    return rng.choice(SHAPES)(rng)


def _spelled(text: str) -> str:
    """Return the problem in another LaTeX spelling."""
    return text.replace("\\frac", "\\dfrac").replace("$.", "$ .").replace(" \\ge ", " \\geq ").replace("Prove", "prove")


def _reworded(text: str, rng: random.Random) -> str:
    """Return the problem in nearly the same words."""
    changed = text.replace("positive real numbers", "positive reals").replace("Show that", "Prove that")
    return f"{changed}{rng.choice((' Thanks.', ' (own)', ' Good luck!'))}"


def statement(n: int, rng: random.Random) -> str:
    """Return the first post of thread n."""
    kind = rng.random()
    earlier = rng.randrange(n) if n else 0
    if kind < 0.06:
        return _spelled(posed(earlier))
    if kind < 0.11:
        return _reworded(posed(earlier), rng)
    if kind < 0.14:
        return rng.choice(OTHER_LANGUAGES) % (term(rng), term(rng), term(rng))
    text = posed(n)
    if kind < 0.17:
        return text.replace("$", "", 1).replace("}", "", 1)  # broken: a formula without its beginning
    if kind < 0.20:
        return f"{text}\n[img]https://example.org/{n}.png[/img]"
    if kind < 0.21:
        return f"Buy now at https://shop.example.org/{n} with discount code SUM{n % 97}"
    if kind < 0.22:
        return f"How do I install LaTeX in my browser? My avatar {n} is gone too."
    if kind < 0.23:
        return f"Problem {n % 10}"
    return f"{text}\n[i]Proposed by {rng.choice(NAMES)}[/i]" if kind < 0.4 else text


def solution(rng: random.Random) -> str:
    lines = [
        line % tuple(term(rng) for _ in range(line.count("%s")))
        for line in rng.choices(STEPS, k=rng.choice((4, 6, 10, 20, 60)))
    ]
    return "\n".join([*lines, rng.choice(("$\\blacksquare$", "Q.E.D.", "We are done."))])


def post(n: int, number: int, text: str, rng: random.Random) -> dict:
    """Return a post with the forum's data about it."""
    return {
        "post_id": 100 * n + number, "topic_id": n, "poster_id": 0, "post_canonical": text, "username": f"user{number}",
        "reported": False, "is_thanked": False, "is_nothanked": False, "attachment": False,
        "thanks_received": rng.randrange(6), "nothanks_received": 0, "thankers": None, "deleted": rng.random() < 0.02,
        "post_number": number, "post_time": 1_100_000_000 + rng.randrange(600_000_000), "num_edits": rng.randrange(3),
        "post_format": "bbcode", "last_edit_time": 0, "last_editor_username": f"user{number}", "last_edit_reason": "",
        "admin": False, "avatar": "", "num_posts": rng.randrange(4_000), "editable": False, "deletable": False,
        "show_from_start": True, "show_from_end": True,
    }  # fmt: skip


def thread(n: int) -> dict:
    """Return thread n in the form of the forum's API."""
    rng = random.Random(f"thread {n}")
    first = statement(n, rng)
    texts = [first] if rng.random() < 0.98 else []
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        kind = rng.random()
        talk = rng.choice(TALK)
        quoted = f"[quote=user1]{first}[/quote]\n" if kind > 0.9 else ""
        texts.append(f"{quoted}{talk % n if '%d' in talk else talk}" if kind < 0.35 else quoted + solution(rng))
    tags = [
        {"tag_id": 1, "tag_text": tag} for tag in rng.sample(("algebra", "geometry", "inequalities", "function"), 2)
    ]
    response = {
        "new_topic_settings": {"topic_id": n, "num_watchers": 1, "watchers_avatars": "", "watchers_usernames": ""},
        "initialization_time": 1_671_679_749,
        "posts": [post(n, number, text, rng) for number, text in enumerate(texts, 1)],
        "tags": tags,
        "time_in_script": 0.1,
    }
    return {"topic_id": n, "response": {"response": response}}


def lines(count: int) -> Iterator[str]:
    """Yield the first `count` threads as JSON Lines."""
    for n in range(count):
        yield f"{json.dumps(thread(n))}\n"


if __name__ == "__main__":
    sys.stdout.writelines(lines(int(sys.argv[1])))
