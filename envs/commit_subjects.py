"""Check the subjects of new commits: `python envs/commit_subjects.py [RANGE]`, for example `v1.0..HEAD`.

A subject begins with a verb in its base form (tests/verbs.txt, or MORE below), has at most 72 characters and no period
at its end. Without a range, the commits since origin/main are checked, else those since the last tag, else the last 20.

Only commits whose parents all have this file are checked, and no merges. This excludes the history from before the
check, branches that began in it, and the first commits of a shallow clone, whose parents are unknown.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = "envs/commit_subjects.py"
LONGEST = 72
LAST = 20  # commits that are checked if there is neither a branch nor a tag to begin with
MORE = """
    bump cache catch cite claim clarify deprecate derive detect disable document enable ensure exclude explain fold
    fit introduce link multiply pair pin port prevent reformat regenerate reorder repair rephrase require reuse reword say shard share
    simplify
    speed spell state teach tell tighten time translate trim try tune unpin upgrade wrap
"""


def git(*words: str, folder: Path) -> str:
    """Run git in a folder and return its output; empty if it fails, for example for a name that is unknown."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def default_range(folder: Path) -> list[str]:
    """Return arguments for `git rev-list`: since origin/main, since the last tag, or the last commits."""
    head = git("rev-parse", "HEAD", folder=folder)
    tag = git("describe", "--tags", "--abbrev=0", folder=folder)
    bases = [git("merge-base", "HEAD", "origin/main", folder=folder)]
    if tag:
        bases.append(git("rev-parse", f"{tag}^{{commit}}", folder=folder))
    for base in bases:
        if base and base != head:
            return [f"{base}..HEAD"]
    return [f"--max-count={LAST}", "HEAD"] if head else []


def commits(revisions: list[str], folder: Path) -> list[tuple[str, str]]:
    """Return abbreviated hash and subject of the commits to be checked, the newest first."""
    listed = git("log", "--no-merges", "--format=%h%x09%P%x09%s", *revisions, "--", folder=folder) if revisions else ""
    rows = [line.split("\t", 2) for line in listed.splitlines()]
    return [
        (commit, subject)
        for commit, parents, subject in rows
        if parents and all(git("cat-file", "-t", f"{parent}:{SCRIPT}", folder=folder) for parent in parents.split())
    ]


def verbs() -> set[str]:
    """Return the verbs that may begin a subject."""
    lines = (ROOT / "tests/verbs.txt").read_text(encoding="utf-8").splitlines()
    return {word for line in [*lines, MORE] if not line.startswith("#") for word in line.split()}


def faults(subject: str, known: set[str]) -> list[str]:
    """Return what is wrong with a subject, each with what to do."""
    first = subject.split(" ", 1)[0].rstrip(",")
    found = []
    if first.lower() not in known:
        found.append(
            f"begins with {first!r}; expected a verb in its base form, such as Fix or Add (tests/verbs.txt and {SCRIPT} list them)"
        )
    elif not first[0].isupper():
        found.append(f"begins with {first!r}; expected a capital letter")
    if len(subject) > LONGEST:
        found.append(f"has {len(subject)} characters; expected at most {LONGEST}")
    if subject.endswith("."):
        found.append("ends with a period; remove it")
    return found


def main(arguments: list[str], folder: Path = ROOT) -> int:
    """Print the faults of all subjects; return 1 if there are any."""
    if arguments and not git("rev-list", "--max-count=1", *arguments, folder=folder):
        print(
            f"{' '.join(arguments)}: git knows no commits in this range; expected for example v1.0..HEAD",
            file=sys.stderr,
        )
        return 1
    known = verbs()
    checked = commits(arguments or default_range(folder), folder)
    wrong = [f"{commit} {subject!r} {fault}" for commit, subject in checked for fault in faults(subject, known)]
    print("\n".join([*wrong, f"{len(checked)} commit subjects checked, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
