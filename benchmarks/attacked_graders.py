"""Attack public graders of final answers, and print the table of docs/attacks.md.

    python benchmarks/attacked_graders.py --python verifiers=V/bin/python lm-eval=L/bin/python inspect=I/bin/python

Each grader is called as its own project calls it, in an environment with that project (or in this one, for TRL and ours).
Environments: `pip install verifiers==0.4.0`; `pip install inspect_ai==0.3.285 sympy`; `pip install --no-deps
lm_eval==0.4.13` with datasets, math-verify, latex2sympy2_extended and antlr4-python3-runtime 4.11. A grader without an
environment is left out.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Rewards = Iterable[float | None]
HERE = Path(__file__).resolve()
GRADERS = {  # name: (environment, function of this file, whether it takes conversations)
    "proofmill, `final-answer`": ("", "proofmill_final_answer", False),
    "proofmill, `final-answer-flexible`": ("", "proofmill_flexible", False),
    "TRL 1.16, `accuracy_reward`": ("", "trl_accuracy", True),
    "TRL 1.16, `reasoning_accuracy_reward`": ("", "trl_reasoning_accuracy", True),
    "verifiers 0.4.0, `verify_boxed_math_answer`": ("verifiers", "verifiers_boxed", False),
    "lm-eval 0.4.13, `hendrycks_math`": ("lm-eval", "lm_eval_hendrycks", False),
    "lm-eval 0.4.13, `minerva_math`, exact": ("lm-eval", "lm_eval_minerva", False),
    "lm-eval 0.4.13, `minerva_math`, math_verify": ("lm-eval", "lm_eval_minerva_verify", False),
}
SHOWN = ("answer-fragments", "multiple-boxes", "small-integers", "restated", "flipped-sign", "padding", "reference")


def _programs(name: str, texts: list[str], answers: list[str]) -> Rewards:
    from proofmill.graders.program_graders import PROGRAMS
    from proofmill.graders.submissions import Submission

    with PROGRAMS[name].open() as check:
        submissions = [Submission("", answer, None, text) for text, answer in zip(texts, answers, strict=True)]
        return [verdict.grade for verdict in check(submissions)]


def proofmill_final_answer(completions: list[str], answer: list[str]) -> Rewards:
    """Grade by our comparison of boxed answers."""
    return _programs("final-answer", completions, answer)


def proofmill_flexible(completions: list[str], answer: list[str]) -> Rewards:
    """Grade by our comparison of the last value."""
    return _programs("final-answer-flexible", completions, answer)


def trl_accuracy(completions: Any, answer: list[str]) -> Rewards:
    """Grade by TRL's reward, with the answer as LaTeX."""
    from trl.rewards import accuracy_reward

    return accuracy_reward(completions=completions, solution=[f"${text}$" for text in answer])


def trl_reasoning_accuracy(completions: Any, answer: list[str]) -> Rewards:
    """Grade by TRL's reward for reasoning models; the texts have no reasoning, so each is an answer."""
    from trl.rewards import reasoning_accuracy_reward

    with_thought = [[{**talk[0], "content": f"</think>{talk[0]['content']}"}] for talk in completions]
    return reasoning_accuracy_reward(completions=with_thought, solution=[f"${text}$" for text in answer])


def verifiers_boxed(completions: list[str], answer: list[str]) -> Rewards:
    """Grade by the helper that verifiers' math tasks use."""
    from verifiers.v1.utils.score import verify_boxed_math_answer

    return [verify_boxed_math_answer(text, gold) for text, gold in zip(completions, answer, strict=True)]


def _lm_eval(task: str, key: str, texts: list[str], answers: list[str]) -> Rewards:
    import importlib.util
    import runpy

    (folder,) = importlib.util.find_spec("lm_eval").submodule_search_locations
    process = runpy.run_path(f"{folder}/tasks/{task}/utils.py")["process_results"]
    docs = [{"answer": gold, "solution": f"$\\boxed{{{gold}}}$"} for gold in answers]
    return [float(process(doc, [text])[key]) for doc, text in zip(docs, texts, strict=True)]


def lm_eval_hendrycks(completions: list[str], answer: list[str]) -> Rewards:
    """Grade as the task hendrycks_math."""
    return _lm_eval("hendrycks_math", "exact_match", completions, answer)


def lm_eval_minerva(completions: list[str], answer: list[str]) -> Rewards:
    """Grade as the task minerva_math, by strings and SymPy."""
    return _lm_eval("minerva_math", "exact_match", completions, answer)


def lm_eval_minerva_verify(completions: list[str], answer: list[str]) -> Rewards:
    """Grade as the task minerva_math, by math-verify."""
    return _lm_eval("minerva_math", "math_verify", completions, answer)


def main() -> None:
    """Print a line for each grader."""
    from proofmill.graders import foreign_graders as attacked
    from proofmill.schema.errors import ProofmillError

    parser = argparse.ArgumentParser(description="Attack public graders.")
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PATH", help="interpreters of the environments")
    pythons = dict(pair.split("=", 1) for pair in parser.parse_args().python)
    print(f"| grader | {' | '.join(f'`{name}`' for name in SHOWN)} | unscored |")
    print("|---" * (len(SHOWN) + 2) + "|")
    for name, (where, function, talk) in GRADERS.items():
        if where and where not in pythons:
            continue
        results = attacked.attack_reward(f"{HERE}:{function}", pythons.get(where), None, 8, talk)
        _print(name, results)
    if "inspect" in pythons:
        os.environ["PROOFMILL_INSPECT_PYTHON"] = pythons["inspect"]
        for scorer in ("math", "match", "includes"):
            try:
                _print(
                    f"inspect_ai 0.3.285, `{scorer}`",
                    attacked.attack_task(f"by_{scorer}", HERE.with_name("attacked_tasks.py"), 8),
                )
            except ProofmillError as error:
                print(f"inspect_ai, `{scorer}`: {error}", file=sys.stderr)


def _print(name: str, results: list[Any]) -> None:
    shares = {result.attack: "-" if result.share is None else f"{result.share:.2f}" for result in results}
    texts = sum(result.problems for result in results)
    unscored = sum(sum(result.reasons.values()) for result in results)
    print(
        f"| {name} | {' | '.join(shares.get(attack, '') for attack in SHOWN)} | {unscored if texts else 'all'} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
