"""`proofmill verify`: compare a final answer with a reference answer, and show how both were read."""

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    parser.add_argument("gold", help="reference answer: bare, in dollars, in a box, or at the end of a solution")
    parser.add_argument("answer", help="answer, or a full response with a box or `####`; `-` reads standard input")


def run(options: argparse.Namespace) -> None:
    """Print the verdict, its reason, and both readings."""
    from proofmill.answers.extraction import extract, normal, of_gold
    from proofmill.answers.reading.descriptions import describe
    from proofmill.answers.reading.parse import readings
    from proofmill.answers.verifier import Verifier

    text = sys.stdin.read() if options.answer == "-" else options.answer
    if extract(text) is None:
        text = f"\\boxed{{{text.strip()}}}"
    with Verifier(1) as verifier:
        (check,) = verifier.check([(options.gold, text)])
    verdict = {"correct": "right", "wrong": "wrong"}.get(check.status, f"unscored ({check.status})")
    print(f"{verdict}: {check.detail}" if check.detail else verdict)
    for name, answer in (("reference", of_gold(options.gold)), ("answer", check.answer or "")):
        forms = [describe(form) for form in readings(normal(answer))]
        print(f"  {name:<9} {answer.strip()}\n  {'':<9} {', or '.join(forms) or 'not read'}")
