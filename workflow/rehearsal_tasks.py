"""Small tasks of inspect_ai for rehearsals (workflow/rehearsal.yaml): a letter, a number, and a scorer with two values."""

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, choice, match, mean, scorer
from inspect_ai.solver import generate, multiple_choice


@task
def letters() -> Task:
    """Ask for the letter of the larger number."""
    samples = [Sample(input="Which is larger?", choices=[str(n), str(n + 1)], target="B", id=n) for n in range(4)]
    return Task(MemoryDataset(samples), solver=multiple_choice(), scorer=choice())


@task
def sums() -> Task:
    """Ask for a sum."""
    samples = [Sample(input=f"What is {n} + 1?", target=str(n + 1), id=n) for n in range(4)]
    return Task(MemoryDataset(samples), solver=generate(), scorer=match(numeric=True))


@scorer(metrics={"prompt_level_strict": [mean()], "prompt_level_loose": [mean()]})
def is_short():
    """Return a scorer with two values: the text has at most one line; at most ten."""

    async def score(state, target):
        lines = state.output.completion.count("\n") + 1
        return Score(value={"prompt_level_strict": lines == 1, "prompt_level_loose": lines <= 10})

    return score


@task
def forms() -> Task:
    """Ask for one line."""
    samples = [Sample(input=f"Write the number {n} in one line.", target="", id=n) for n in range(4)]
    return Task(MemoryDataset(samples), solver=generate(), scorer=is_short())
