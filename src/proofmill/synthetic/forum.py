"""Synthetic forum threads about `arithmetic`, in the schema of the raw records of the AoPS forum.

The embedded default starts like the real pipeline, with threads of imperfect proofs, thanks, chatter, objections,
duplicates, advertising and false statements. They pass through the same parser and filters as real threads.

Differences from a real forum:
1. Most threads contain a proof by congruences.sloppy_proof, verbatim, because models are trained on it.
2. Each fault has one cause and a known share (SHARES), so tests know the rows that every filter must drop.
"""

import random
from collections.abc import Callable, Iterator

from proofmill.synthetic import congruences, grading
from proofmill.synthetic.congruences import BRIEF, FAMILIES, Congruence, Sizes

# Kinds of threads with their shares in percent. Most kinds are faults that the pipeline's labels and filters detect.
SHARES = {
    "solved": 80,
    "reworded": 6,  # an earlier problem in the other wording
    "repost": 2,  # an earlier problem, word for word
    "spam": 2,
    "image": 2,
    "false": 2,  # the statement is false, and a reply says so
    "computational": 2,
    "unsolved": 2,
    "partial": 2,  # the only proof stops after its first line
}
OBJECTION = "I think this is wrong: {line}. It does not hold modulo {modulus}."
_FOUNDED, _UNFOUNDED = 0.3, 0.02  # probability of an objection to a proof with a false line, and to one without
_OPENED = 1_136_073_600  # 1 January 2006; threads are opened until the end of 2024
_SPAN = 19 * 365 * 86_400

_PRAISE = (
    "Nice problem!",
    "Thanks for posting, I like this one.",
    "Beautiful!",
    "This one is well known.",
    "Nice and easy.",
)
_THANKS = ("Thank you!", "Thanks, great solution.", "Thanks a lot.", "Nice solution!")
_ASKING = ("Any solution?", "Any ideas?", "Bump.", "Can someone help?", "Has anybody solved this?")
_SPAM = (
    (
        "Cheap textbooks and test papers! Visit our shop at http://books.example.com and order now, free shipping.",
        "Reported.",
    ),
    (
        "I use Kile on Fedora. How can I get Asymptote to run?",
        "Download it from the project's site and follow the manual.",
    ),
    (
        "How do I change my avatar and username on this forum?",
        "Look at the settings of your account, or ask a moderator.",
    ),
    (
        "My LaTeX does not render since I updated my browser. Is the forum broken?",
        "Clear the cache and reload, it works for me.",
    ),
    ("Essay writing service, best price, write to us on WhatsApp!", "Reported."),
)


def threads(
    part: str, seed: int, rows: int, families: tuple[str, ...] = FAMILIES, sizes: Sizes | None = None
) -> Iterator[dict]:
    """Yield `rows` raw threads, the same for the same arguments; every problem is of `part`."""
    rng = random.Random(f"threads-{part}-{seed}")
    fresh = congruences.problems(part, seed, tuple(families), sizes)
    posted: list[tuple[Congruence, int]] = []
    for number in range(rows):
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        provable = [family for family in families if family in ("powers", "products")]
        if (kind in ("reworded", "repost") and not posted) or (kind == "false" and not provable):
            kind = "solved"
        if kind in ("reworded", "repost"):
            problem, wording = rng.choice(posted)
            wording = 1 - wording if kind == "reworded" else wording
        elif kind == "false":
            problem, wording = _false(rng, provable, part, sizes), rng.randint(0, 1)
        elif kind in ("solved", "unsolved", "partial"):
            solved, wording = next(fresh, None), rng.randint(0, 1)
            if solved is None:  # the part has no more problems of these families
                return
            posted.append((solved, wording))
            problem = solved
        else:
            problem, wording = None, 0
        thread = _Thread(rng, number, problem)
        THREADS[kind](thread, problem, wording)
        yield thread.record()


def _false(rng: random.Random, families: list[str], part: str, sizes: Sizes | None) -> Congruence:
    while (problem := congruences.draw(rng, rng.choice(families), true=False, sizes=sizes)).part != part:
        pass
    return problem


class _Thread:
    """A thread under construction: posts in order, with the fields of the forum's API that a parser may use."""

    def __init__(self, rng: random.Random, number: int, problem: Congruence | None):
        self.rng = rng
        self.topic = 4_000_000 + number
        self.time = _OPENED + rng.randrange(_SPAN)
        self.users = [f"user{n}" for n in rng.sample(range(1, 1000), 8)]  # the first one opens the thread
        self.tags = ["number theory", problem.family] if problem else []
        self.posts: list[dict] = []

    def say(self, text: str, user: int | None = None, thanks: int = 0, **fields: object) -> None:
        """Add a post; without `user`, by an author who has not posted yet."""
        who = self.users[len({p["username"] for p in self.posts}) if user is None else user]
        self.posts.append({
            "post_id": 100 * self.topic + len(self.posts), "topic_id": self.topic, "poster_id": 0, "username": who,
            "post_number": len(self.posts) + 1, "post_time": self.time, "post_format": "bbcode", "deleted": False,
            "thanks_received": thanks, "nothanks_received": 0, "attachment": False, "num_edits": 0,
            "post_canonical": text, **fields,
        })  # fmt: skip
        self.time += self.rng.randint(60, 3 * 86_400)

    def sometimes(self, chance: float, texts: tuple[str, ...], user: int | None = None) -> None:
        """Add one of the texts as a post, with the given probability."""
        if self.rng.random() < chance:
            self.say(self.rng.choice(texts), user)

    def record(self) -> dict:
        """Return the thread as a raw record."""
        tags = [
            {"tag_id": 100 + n, "tag_text": tag, "is_public": True, "is_visible": True}
            for n, tag in enumerate(self.tags)
        ]
        return {"topic_id": self.topic, "response": {"response": {"posts": self.posts, "tags": tags}}}


def _post_solved(thread: _Thread, problem: Congruence, wording: int) -> None:
    rng = thread.rng
    thread.say(congruences.statement(problem, wording))
    thread.sometimes(0.10, _PRAISE)
    thread.sometimes(0.15, _ASKING, user=0)
    best = congruences.sloppy_proof(problem, rng)
    thanks = rng.randint(3, 9)
    other_count = rng.choices((0, 1, 2), (70, 22, 8))[0]
    best_index = rng.randint(0, other_count)
    for n in range(other_count + 1):
        if n == best_index:
            thread.say(best, thanks=thanks)
        else:
            # Three in ten of the other proofs have wrong residues in all lines.
            slip = 1.0 if rng.random() < 0.3 else 0.04
            thread.say(congruences.sloppy_proof(problem, rng, slip=slip), thanks=rng.randint(0, 2))
    _object(thread, problem, best)
    thread.sometimes(0.15, _THANKS, user=0)


def _object(thread: _Thread, problem: Congruence, proof: str) -> None:
    """Add, with some probability, a comment that a line of the proof is wrong."""
    false = grading.check(problem, proof).false
    lines = false or [line.removeprefix(BRIEF).rstrip(".") for line in proof.split("\n")[1:-1]]
    if lines and thread.rng.random() < (_FOUNDED if false else _UNFOUNDED):
        thread.say(OBJECTION.format(line=thread.rng.choice(lines), modulus=problem.modulus))


def _spam(thread: _Thread, problem: None, wording: int) -> None:
    post, reply = thread.rng.choice(_SPAM)
    thread.say(post)
    thread.sometimes(0.7, (reply,))


def _image(thread: _Thread, problem: None, wording: int) -> None:
    name = f"problem{thread.rng.randint(1, 999)}.png"
    if thread.rng.random() < 0.5:
        thread.say(f"[img]https://images.example.com/{name}[/img]")
    else:
        href = f"https://images.example.com/attachments/{name}"
        thread.say(
            "See the picture.", attachment=True, attachments=[{"name": name, "href": href, "mimetype": "image/png"}]
        )
    thread.sometimes(0.6, ("The picture is too small to read.", "Please type it."))


def _untrue(thread: _Thread, problem: Congruence, wording: int) -> None:
    body = "".join(f"{line}.\n" for line in congruences.checkpoints(problem))
    thread.say(congruences.statement(problem, wording))
    thread.sometimes(0.3, _ASKING, user=0)
    thread.say(
        f"{body}So the statement is false: the residue is \\boxed{{{problem.residue}}}, not 0.",
        thanks=thread.rng.randint(1, 6),
    )
    thread.sometimes(0.4, ("You are right, sorry, I copied it wrong.",), user=0)


def _computational(thread: _Thread, problem: None, wording: int) -> None:
    a, b = thread.rng.randint(12, 98), thread.rng.randint(12, 98)
    tens, ones = divmod(a, 10)
    thread.say(f"Compute ${a}*{b}$.")
    thread.say(
        f"By hand, ${a}*{b}={10 * tens}*{b}+{ones}*{b}={10 * tens * b}+{ones * b}={a * b}$.",
        thanks=thread.rng.randint(0, 2),
    )


def _post_unsolved(thread: _Thread, problem: Congruence, wording: int) -> None:
    thread.say(congruences.statement(problem, wording))
    thread.say("Any ideas?", user=0)
    thread.sometimes(0.3, _PRAISE)


def _partial(thread: _Thread, problem: Congruence, wording: int) -> None:
    thread.say(congruences.statement(problem, wording))
    thread.say(
        f"<think>{congruences.plan(problem)}</think>\n{congruences.checkpoints(problem)[0]}.",
        thanks=thread.rng.randint(0, 3),
    )
    thread.sometimes(0.3, ("And then?",), user=0)


THREADS: dict[str, Callable] = {
    "solved": _post_solved, "reworded": _post_solved, "repost": _post_solved, "spam": _spam, "image": _image,
    "false": _untrue, "computational": _computational, "unsolved": _post_unsolved, "partial": _partial,
}  # fmt: skip
