"""The policy loss by hand, and its statistics over micro-batches, against sums token by token.

That each estimator's loss is its formula's, with a model and off policy: tests/test_grpo.py and test_asynchronous.py.
"""

import math
from dataclasses import replace
from functools import partial
from typing import get_args, get_type_hints

import pytest
import torch
from accelerate import Accelerator
from torch.nn.utils.rnn import pad_sequence

from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.training.losses.estimator import Step, Tokens
from proofmill.training.losses.policy import Objective, divergence, policy_loss
from proofmill.training.losses.registry import ESTIMATORS, OBJECTIVES
from proofmill.training.losses.sequence_sum import KL_BOUND
from proofmill.training.losses.token_statistics import SUMS, TokenStatistics

CLIPPED = Objective(low=0.2, high=0.3, entropy=0.0)


def tokens(ratios, advantages, weights, entropies=None, reference=None) -> Tokens:
    """Build tokens by the ratios of their probabilities."""
    logprobs = torch.tensor(ratios).log().requires_grad_()
    return Tokens(
        logprobs,
        torch.zeros_like(logprobs),
        torch.tensor(advantages),
        torch.tensor(weights),
        torch.zeros_like(logprobs) if entropies is None else torch.tensor(entropies),
        None if reference is None else torch.tensor(reference),
    )


def test_every_loss_of_an_entry_has_an_estimator():
    """The registries have the names that the entry allows."""
    assert set(OBJECTIVES) == set(get_args(get_type_hints(Grpo)["objective"]))
    assert set(ESTIMATORS) == set(get_args(get_type_hints(Grpo)["loss"]))


@pytest.mark.parametrize(
    ("loss", "divisors"),
    [("grpo", [4, 4, 12]), ("dapo", 7.0), ("bnpo", 6), ("dr_grpo", 40), ("sequence_sum", 4)],
)
def test_divisors_of_a_step_by_hand(loss, divisors):
    """Rollouts of 0, 1 and 3 tokens in a step of 4 rollouts and 6 tokens, with 7 on average and at most 10 tokens each."""
    step = Step(torch.tensor([0, 1, 3]), rollouts=4, tokens=6, mean_tokens=7.0, max_tokens=10)
    found = ESTIMATORS[loss].divisors(step)
    assert (found.tolist() if isinstance(found, torch.Tensor) else found) == divisors


def test_loss_of_clipped_tokens_by_hand():
    """Ratios beyond the clip count with 1.3 at an advantage and 0.8 at a disadvantage, and have no gradient."""
    some = tokens([[1.1, 2.0], [1.1, 0.5]], [[2.0], [-1.0]], [[0.5, 0.5], [0.25, 0.25]])
    loss, _ = policy_loss(some, CLIPPED, 4)
    assert loss.item() == pytest.approx(-(0.5 * 2 * (1.1 + 1.3) + 0.25 * -1 * (1.1 + 0.8)))
    loss.backward()
    assert some.logprobs.grad.flatten().tolist() == pytest.approx([-0.5 * 2 * 1.1, 0, 0.25 * 1.1, 0])


def test_dual_clip_bounds_the_ratio_at_a_disadvantage():
    """A ratio of 9 counts with 3 where the advantage is negative."""
    objective = Objective(low=0.2, high=0.3, entropy=0.0, dual_clip=3.0)
    assert policy_loss(tokens([9.0, 9.0], [1.0, -1.0], [1.0, 1.0]), objective, 2)[0].item() == pytest.approx(3 - 1.3)


def test_weight_of_reinforce_has_no_gradient():
    """The gradient of log p A is weighted by the ratio, up to 1 + high."""
    some = tokens([1.1, 5.0], [2.0, 2.0], [1.0, 1.0])
    objective = Objective(low=0.2, high=0.3, entropy=0.0, objective="reinforce")
    policy_loss(some, objective, 2)[0].backward()
    assert some.logprobs.grad.tolist() == pytest.approx([-2 * 1.1, -2 * 1.3])


@pytest.mark.parametrize(("loss", "bonus"), [("dapo", (3.0 + 1.0) / 8), ("sequence_sum", 0.5 * 3 + 0.25 * 1)])
def test_entropy_is_a_mean_over_the_step_or_a_weighted_sum(loss, bonus):
    """Two trained tokens of a step with eight; a token without weight has no entropy either."""
    some = tokens([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.5, 0.25, 0.0], [3.0, 1.0, 100.0])
    objective = Objective(low=0.2, high=0.3, entropy=0.1, loss=loss)
    assert policy_loss(some, objective, 8)[0].item() == pytest.approx(-0.1 * bonus)


def test_divergence_is_bounded_and_never_negative():
    """Equal log-probabilities have none; with a bound a difference beyond 5 counts as 5."""
    now, reference = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 50.0])
    assert divergence(now, reference, KL_BOUND).tolist() == pytest.approx([0.0, math.e - 2, math.exp(5) - 6])
    assert divergence(now, reference)[2].item() == pytest.approx(math.exp(50) - 51)


def test_objective_is_read_from_both_kinds_of_entries():
    """Without `epsilon-high` both bounds are `epsilon`; self-play has the clipped objective as a mean over tokens."""
    played = Objective.of(Selfplay(model="sft/x", steps=1, epsilon=0.2, dual_clip=3.0, entropy=0.1))
    assert played == Objective(0.2, 0.2, 0.1, "dapo", "clipped", 0.0, 3.0)


# ---------------------------------------------------------------------------------------------------------- statistics

ROWS = [  # ratios, advantages, entropies, divergence by micro-batch; ratios of 0 are padding
    ([[1.0, 2.0, 0.5], [1.5, 0.0, 0.0]], [1.0, -1.0], 0.5),
    ([[0.5, 0.7, 0.0]], [-1.0], 2.0),
    ([[0.0, 0.0, 0.0]], [1.0], 9.0),
]


def statistics_of(rows, flat: bool, kl: float = 0.0) -> dict[str, float]:
    """Return the metrics of a step with these micro-batches."""
    collected = TokenStatistics()
    objective = Objective(low=0.2, high=0.3, entropy=0.0, kl=kl)
    for ratios, advantages, entropy in rows:
        ratios_NT = torch.tensor(ratios)
        weights_NT = (ratios_NT > 0).float() / 7
        columns = [
            ratios_NT.clamp(min=1e-30).log(),
            torch.zeros_like(ratios_NT),
            torch.tensor(advantages)[:, None].expand_as(ratios_NT),
            weights_NT,
            torch.full_like(ratios_NT, entropy),
            ratios_NT.clamp(min=1e-30).log() + 1,
        ]
        if flat:
            columns = [column[weights_NT > 0] for column in columns]
        collected.add(policy_loss(Tokens(*columns), objective, 7)[1])
    return collected.finish(Accelerator(), kl=bool(kl))


@pytest.mark.parametrize("flat", [False, True], ids=["padded", "flat"])
def test_statistics_of_a_step_are_those_of_its_tokens(flat):
    """Six tokens in three micro-batches, one of which has none, by hand."""
    ratios = [1.0, 2.0, 0.5, 1.5, 0.5, 0.7]
    expected = {
        "kl": math.e - 2,
        "entropy": (4 * 0.5 + 2 * 2.0) / 6,
        "clip_ratio/low_mean": 2 / 6,  # 0.5 and 0.7 at a disadvantage
        "clip_ratio/high_mean": 1 / 6,  # 2.0 at an advantage
        "clip_ratio/region_mean": 3 / 6,
        "ratio/mean": sum(ratios) / 6,
        "ratio/max": 2.0,
        "ratio/effective-share": sum(ratios) ** 2 / (6 * sum(ratio**2 for ratio in ratios)),
    }
    if not flat:  # of rollouts with tokens: shares of low-clipped 0, 0, 1 and of high-clipped 1/3, 0, 0
        expected |= {"clip_ratio/low_min": 0.0, "clip_ratio/high_max": 1 / 3}
    assert statistics_of(ROWS, flat, kl=0.1) == pytest.approx(expected)


def test_step_without_trained_tokens_has_no_statistics():
    """There is nothing to average."""
    assert statistics_of(ROWS[2:], flat=False) == statistics_of(ROWS[2:], flat=True) == {}


def test_effective_share_is_one_on_policy_and_falls_with_spread():
    """Equal ratios give 1; one token that outweighs three others gives little more than a quarter."""
    one = statistics_of([([[2.0, 2.0, 2.0, 2.0]], [1.0], 0.0)], flat=True)
    spread = statistics_of([([[100.0, 1.0, 1.0, 1.0]], [1.0], 0.0)], flat=True)
    assert one["ratio/effective-share"] == pytest.approx(1)
    assert spread["ratio/effective-share"] == pytest.approx(103**2 / 4 / 10003)
    assert "kl" not in one


def test_clipped_shares_count_tokens_by_the_sign_of_their_advantage():
    """A small ratio is clipped at a disadvantage alone, a large one at an advantage alone, and an advantage of 0 never."""
    some = tokens([0.5, 0.5, 0.5, 2.0, 2.0, 2.0], [-1.0, 0.0, 0.5, -1.0, 0.0, 0.5], [1.0] * 6)
    _, sums = policy_loss(some, CLIPPED, 6)
    assert [sums[SUMS.index(name)].item() for name in ("low", "high")] == [1, 1]


def test_divergence_from_a_teacher_is_a_mean_over_tokens():
    """The log-probabilities were log 1 when sampled, and the teacher's are -1 and -3."""
    some = replace(tokens([1.0, 1.0, 1.0], [0.0] * 3, [0.5, 0.5, 0.0]), teacher=torch.tensor([-1.0, -3.0, -100.0]))
    collected = TokenStatistics()
    collected.add(policy_loss(some, CLIPPED, 2)[1])
    assert collected.finish(Accelerator(), teacher=True)["teacher/kl"] == pytest.approx(2)


def test_expected_gradient_with_a_teacher_is_that_of_the_reverse_divergence():
    """The loss of every token, weighted by its probability, has the gradient of KL(policy | teacher)."""
    random = partial(torch.randn, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    scores, teacher = random(6).requires_grad_(), torch.log_softmax(random(6), dim=-1)
    logprobs = torch.log_softmax(scores, dim=-1)
    none = torch.zeros_like(teacher)
    every = Tokens(logprobs, logprobs.detach(), none, logprobs.detach().exp(), none, teacher=teacher)
    (found,) = torch.autograd.grad(policy_loss(every, CLIPPED, 1)[0], scores, retain_graph=True)
    (wanted,) = torch.autograd.grad((logprobs.exp() * (logprobs - teacher)).sum(), scores)
    assert torch.allclose(found, wanted, atol=1e-12) and wanted.abs().max() > 0.01


# ------------------------------------------------------------------------------------------------- gradients in float64

LENGTHS, ADVANTAGES, MOST = (1, 4, 3, 5), (1.0, -0.7, 0.4, -1.3), 6


def number_of(value) -> float:
    """Return a number, or the value of a tensor with a gradient."""
    return value.item() if isinstance(value, torch.Tensor) else value


def formula(changes, logprobs, advantages, kinds: Objective, references, teachers) -> torch.Tensor:
    """Return the loss of rollouts one by one, from the papers' formulas; `changes` are log-probabilities minus old ones."""
    low, high = 1 - kinds.low, 1 + kinds.high
    sums = []
    columns = zip(changes, logprobs, advantages, references, teachers, strict=True)
    for change_T, logprob_T, earned, reference_T, teacher_T in columns:
        terms = []
        mean = sum(change_T) / len(change_T)
        for change, logprob, reference, taught in zip(change_T, logprob_T, reference_T, teacher_T, strict=True):
            old = (logprob - change).item()
            advantage = earned + (kinds.teacher_weight * (taught.item() - old) if kinds.teacher_weight else 0)
            ratio = torch.exp(mean if kinds.objective == "gspo" else change)
            bounded = min(max(ratio.item(), low), high)
            if kinds.objective in ("clipped", "gspo"):
                inside = low <= ratio.item() <= high
                term = min(ratio * advantage, (ratio if inside else bounded) * advantage, key=number_of)
                if kinds.dual_clip and advantage < 0:
                    term = max(term, kinds.dual_clip * advantage, key=number_of)
            else:
                weight = bounded if kinds.objective == "cispo" else min(ratio.item(), high)
                term = weight * advantage * logprob
            if kinds.mask_divergence is not None and advantage < 0 and -mean.item() > kinds.mask_divergence:
                term = 0.0
            gap = reference - logprob
            bound = KL_BOUND if kinds.loss == "sequence_sum" else math.inf
            gap = gap if abs(gap.item()) <= bound else gap.detach().clamp(-bound, bound)
            terms.append(term - kinds.kl * (torch.exp(gap) - gap - 1))
        sums.append(sum(terms))
    count, tokens = len(LENGTHS), sum(LENGTHS)
    return -{
        "grpo": sum(part / length for part, length in zip(sums, LENGTHS, strict=True)) / count,
        "dapo": sum(sums) / (tokens + 1),
        "bnpo": sum(sums) / tokens,
        "dr_grpo": sum(sums) / (count * MOST),
        "sequence_sum": sum(sums) / count,
    }[kinds.loss]


OPTIONS: list[dict] = [{}, {"dual_clip": 1.5}, {"mask_divergence": 0.05}, {"kl": 0.1}, {"teacher_weight": 0.3}]


def both_gradients(kinds: Objective, shift: float, flat: bool, precision: torch.dtype = torch.float64):
    """Return loss and gradients of our code, in two micro-batches, and those of the formula in float64.

    `shift` is the deviation of old log-probabilities; `flat` packs the tokens.
    """
    generator = torch.Generator().manual_seed(11)
    random = partial(torch.randn, generator=generator, dtype=torch.float64)
    scores = [random(length, 5) for length in LENGTHS]
    olds = [shift * random(length) for length in LENGTHS]
    gaps, lessons = ([random(length) for length in LENGTHS] for _ in range(2))
    gradients = []
    for ours in (True, False):
        dtype = precision if ours else torch.float64
        weights = [score.to(dtype, copy=True).requires_grad_() for score in scores]
        logprobs = [torch.log_softmax(weight, dim=-1)[:, 0] for weight in weights]
        old = [now.detach() + by.to(dtype) for now, by in zip(logprobs, olds, strict=True)]
        references = [now.detach() + by.to(dtype) for now, by in zip(logprobs, gaps, strict=True)]
        teachers = [now.detach() + by.to(dtype) for now, by in zip(logprobs, lessons, strict=True)]
        if not ours:
            changes = [now - before for now, before in zip(logprobs, old, strict=True)]
            total = formula(changes, logprobs, ADVANTAGES, kinds, references, teachers)
            total.backward()
            gradients.append((total.detach(), [weight.grad for weight in weights]))
            continue
        step = Step(torch.tensor(LENGTHS), len(LENGTHS), sum(LENGTHS), sum(LENGTHS) + 1.0, MOST)
        divisors_N = torch.as_tensor(ESTIMATORS[kinds.loss].divisors(step)).expand(len(LENGTHS)).double()
        total = torch.zeros(())
        for start in (0, 2):
            rows = range(start, start + 2)
            columns = [
                pad_sequence([each[n] for n in rows], batch_first=True)
                for each in (logprobs, old, references, teachers)
            ]
            mask_NT = pad_sequence([torch.ones(LENGTHS[n]) for n in rows], batch_first=True).bool()
            per_row = [torch.tensor([float(values[n]) for n in rows], dtype=dtype)[:, None].expand_as(mask_NT)
                       for values in (ADVANTAGES, divisors_N.reciprocal())]  # fmt: skip
            now, before, reference, taught = columns
            some = [now, before, per_row[0], per_row[1] * mask_NT, torch.zeros_like(now), reference, taught]
            number_NT = torch.arange(2)[:, None].expand_as(mask_NT)
            flat_or_padded = [column[mask_NT] for column in (*some, number_NT)] if flat else [*some, None]
            *six, lesson, numbers = flat_or_padded
            shown = lesson if kinds.teacher_weight else None
            part, _ = policy_loss(Tokens(*six, teacher=shown, rollouts=numbers), kinds, sum(LENGTHS))
            part.backward(retain_graph=True)
            total = total + part.detach()
        gradients.append((total, [weight.grad for weight in weights]))
    return gradients


@pytest.mark.parametrize("flat", [False, True], ids=["padded", "flat"])
@pytest.mark.parametrize("shift", [0.0, 0.4], ids=["on-policy", "stale"])
@pytest.mark.parametrize("objective", [*OBJECTIVES])
@pytest.mark.parametrize("loss", [*ESTIMATORS])
@pytest.mark.parametrize("further", OPTIONS, ids=str)
def test_gradient_is_that_of_the_formula_in_float64(loss, objective, shift, flat, further):
    """Each objective with each estimator, in two micro-batches, on policy and stale: the papers' formulas by autograd."""
    if "dual_clip" in further and objective in ("reinforce", "cispo"):
        further = {}
    kinds = Objective(low=0.2, high=0.3, entropy=0.0, loss=loss, objective=objective, **further)
    (value, found), (wanted_value, wanted) = both_gradients(kinds, shift, flat)
    assert value.item() == pytest.approx(wanted_value.item(), rel=1e-10, abs=1e-12)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    assert any(one.abs().max() > 0 for one in found)
