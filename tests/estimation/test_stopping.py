"""Rules over problems: the order of the problems, when they end, and several comparisons under one error rate."""

import random
from types import SimpleNamespace

import pytest

from proofmill.estimation.stopping import Signs, Width, forecast, groups_of, name_rule


def entry(**fields):
    return SimpleNamespace(**{"attempts": 4, "error": 0.05, "seed": 0, "against": [], **fields})


def test_problems_come_in_a_random_order_of_the_seed_alone():
    """Every problem comes once; the order depends on seed and ids, not on the order of the table."""
    problems = [{"problem": f"p{n}"} for n in range(100)]
    groups = list(groups_of(entry(until="sign"), problems))
    order = [row["problem"] for group in groups for row in group]
    assert sorted(order) == sorted(row["problem"] for row in problems) and order != sorted(order)
    assert [len(group) for group in groups][:4] == [16, 4, 5, 7] and len(groups) < 12
    shuffled = random.Random(1).sample(problems, 100)
    assert order == [row["problem"] for group in groups_of(entry(until={"width": 0.1}), shuffled) for row in group]
    assert order != [row["problem"] for group in groups_of(entry(until="sign", seed=1), problems) for row in group]


def test_a_rule_at_each_problem_needs_no_order():
    """Attempts until a pass rate is known are asked at all problems at once."""
    problems = [{"problem": "b"}, {"problem": "a"}]
    assert list(groups_of(entry(until={"pass-rate": [0, 0.9]}), problems)) == [problems]


def test_several_signs_share_one_error():
    """Two comparisons need more than one: Holm's least p must be half as large. All of them must be known."""
    ours = {str(n): 1.0 if n < 16 else 0.0 for n in range(32)}
    behind, equal = {str(n): 0.0 for n in range(32)}, dict(ours)
    assert Signs({"grades/a": behind}, 0.05).end(ours) == "higher than grades/a"
    assert Signs({"grades/a": ours}, 0.05).end(behind) == "lower than grades/a"
    assert Signs({"grades/a": behind, "grades/b": equal}, 0.05).end(ours) is None
    one, both = Signs({"grades/a": behind}, 0.05), Signs({"grades/a": behind, "grades/b": behind}, 0.05)
    needed = [next(n for n in range(33) if rule.end({str(k): 1.0 for k in range(n)})) for rule in (one, both)]
    assert both.end(ours) == "higher than grades/a, higher than grades/b" and needed[0] < needed[1]


def test_false_signs_of_several_comparisons_are_rare():
    """With three equal models, any sign within 120 problems is found in at most 5 % of the runs."""
    chance, false = random.Random(4), 0
    for _ in range(100):
        models = [{str(n): float(chance.random() < 0.5) for n in range(120)} for _ in range(4)]
        ours, rules = models[0], [Signs({f"grades/{n}": theirs}, 0.05 / 3) for n, theirs in enumerate(models[1:])]
        false += any(rule.end(dict(list(ours.items())[:n])) for rule in rules for n in (16, 25, 40, 63, 99, 120))
    assert false <= 5


def test_problems_that_another_table_lacks_do_not_count():
    """Only problems that both have graded are compared."""
    ours, theirs = dict.fromkeys(map(str, range(40)), 1.0), dict.fromkeys(map(str, range(3)), 0.0)
    assert Signs({"grades/a": theirs}, 0.05).end(ours) is None and Signs({"grades/a": {}}, 0.05).end(ours) is None


def test_a_width_is_reached():
    """The rule ends with the interval that it has reached."""
    shares = {str(n): float(n % 10 == 0) for n in range(400)}
    assert Width(0.2, 0.05).end(shares).startswith("the mean is between 0.0") and Width(0.01, 0.05).end(shares) is None
    assert Width(0.2, 0.05).end({}) is None


@pytest.mark.parametrize(
    ("until", "name", "said"),
    [
        ({"width": 0.3}, "width", "problems to expect, by the share that is solved: "),
        ("sign", "sign", "problems to expect if the grades of 40% differ, by the difference: "),
        ({"pass-rate": [0, 0.9]}, "pass-rate", "attempts to expect at a problem, by its pass rate: 4 at 0, "),
        (None, None, None),
    ],
)
def test_forecasts(until, name, said):
    """Each rule has its forecast; larger differences need fewer problems."""
    assert name_rule(until) == name
    if said:
        sentence = forecast(entry(until=until, against=["grades/a"] if until == "sign" else []), 500)
        assert sentence.startswith(said)
        if until == "sign":
            numbers = [int(part.split(" at ")[0]) for part in sentence.removeprefix(said).split(" (")[0].split(", ")]
            assert numbers == sorted(numbers, reverse=True) and numbers[-1] < 50 < numbers[0]
