"""The referee as a judge with faults: how a request sets them, and their effect on grades alone."""

import random

import pytest

from mill import REFEREE
from proofmill.calls.model_requests import ModelRequest
from proofmill.config.config import expand
from proofmill.config.entry_values import entry_from
from proofmill.engines import open_engine
from proofmill.graders.verdicts import read
from proofmill.prompts import templates
from proofmill.schema.errors import RecipeError
from proofmill.synthetic import congruences, referee
from proofmill.synthetic.congruences import FAMILIES, Congruence
from proofmill.text.reasoning import after_thought

STRICT = templates.prompt("grade-strict")
PROBLEM = Congruence("products", 7, (2, 3, 4, 5, 2))
PROOF = after_thought(congruences.proof(PROBLEM))
LIE = PROOF.replace("2*3=6≡6", "2*3=6≡5")
PADDED = "1.\n" * 3 + "So the residue is \\boxed{0}."  # signs of calculations, and the conclusion


def fill_prompt(proof, problem=PROBLEM):
    shown = {"statement": congruences.statement(problem), "scheme": referee.write_scheme(problem)}
    return templates.fill("grade-strict", {**shown, "proof": proof, "reference": None})


@pytest.fixture(scope="module")
def judge():
    """Return a function that grades over the real protocol, by an `api/...` entry with options; points or reasons."""

    def all_points(prompts, **options):
        grades = []
        with open_engine.open_api("api/judge", entry_from("api", {**REFEREE, "extra-body": options})) as engine:
            for number, prompt in enumerate(prompts):
                answer = engine.runner.run(engine.attempt(ModelRequest(str(number), (("user", prompt),)), 1))
                verdict = read(answer, STRICT)
                grades.append(verdict.grade if verdict.reason == "ok" else verdict.reason)
        return grades

    return all_points


def many(size=300):
    """Return prompts with complete proofs of different problems."""
    rng = random.Random(0)
    drawn = {congruences.draw(rng, FAMILIES[number % 4]): None for number in range(size)}
    return [fill_prompt(after_thought(congruences.proof(problem)), problem) for problem in drawn]


def test_judge_without_options_grades_by_the_checker(judge):
    """A proof gets all points, a false line caps them, and a text that is not an argument gets 0."""
    assert judge([fill_prompt(PROOF), fill_prompt(LIE), fill_prompt(PADDED), fill_prompt("Clear.")]) == [7, 3, 0, 0]


def test_error_rate_is_the_declared_one_and_stays_with_the_proof(judge):
    """About a fifth of the proofs get other points, over the full scale, and the same on a retry."""
    prompts = many()
    all_points = judge(prompts, noise=0.2)
    wrong = [points for points in all_points if points != 7]
    assert 0.13 < len(wrong) / len(prompts) < 0.27
    assert set(wrong) == set(range(7))
    assert judge(prompts, noise=0.2) == all_points
    assert judge(prompts[:9], noise=1) != [7] * 9 and 7 not in judge(prompts[:9], noise=1)


def test_lost_verdicts_have_their_share_and_stay_lost(judge):
    """With `no-output: 0.05` about a twentieth of the proofs never get a verdict, and the others are correct."""
    prompts = many()
    all_points = judge(prompts, missing=0.05)
    assert set(all_points) == {7, "no-verdict"}
    assert 0.01 < all_points.count("no-verdict") / len(all_points) < 0.1
    assert judge(prompts, missing=0.05) == all_points


def test_length_is_worth_points_up_to_the_scale(judge):
    """Every `length_bias` characters earn a point, true or not, up to 7."""
    nothing = "I see. " * 20
    assert judge([fill_prompt(PROOF), fill_prompt(nothing), fill_prompt(nothing * 9)], length_bias=40) == [7, 3, 7]


def test_believing_judge_accepts_false_calculations(judge):
    """False and empty calculations count; a missing line, prose and a wrong conclusion do not."""
    too_few, prose = PADDED.removeprefix("1.\n"), PADDED.replace("1.", "Clear.", 1)
    wrong = PADDED.replace("boxed{0}", "boxed{1}")
    assert judge([fill_prompt(t) for t in (PROOF, LIE, PADDED, too_few, prose, wrong)], credulous=True) == [
        7,
        7,
        7,
        3,
        0,
        6,
    ]


def test_declining_judge_gives_no_verdict_without_an_argument(judge):
    """A text that the checker cannot parse gets no verdict instead of 0; false lines are graded as usual."""
    all_points = judge(
        [fill_prompt(PROOF), fill_prompt(LIE), fill_prompt("Clear."), fill_prompt(PADDED)], declines=True
    )
    assert all_points == [7, 3, "no-verdict", 0]


def test_faults_affect_grades_alone():
    """Schemes, labels and foreign problems get the same answers as without faults."""
    biases = referee.Biases(noise=1.0, missing=1.0, credulous=True, declines=True, length_bias=1)
    fields = {"statement": congruences.statement(PROBLEM), "solution": PROOF, "origin": "forum", "comments": "Wrong."}
    foreign = fill_prompt(PROOF).replace(congruences.statement(PROBLEM), "Prove that there are infinitely many primes.")
    for prompt in (templates.fill("scheme", fields), templates.fill("classify", fields), foreign):
        assert referee.verdict(prompt, biases) == referee.verdict(prompt)
    assert referee.verdict(fill_prompt(PROOF), biases) != referee.verdict(fill_prompt(PROOF))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"err": 0.2},
            "`err` is not an option of the referee; expected some of noise, missing, length_bias, credulous, declines",
        ),
        ({"noise": 2}, "`noise` is 2; expected a share between 0 and 1"),
        ({"missing": True}, "`missing` is True; expected a share between 0 and 1"),
        ({"length_bias": True}, "`length_bias` is True; expected characters for a point"),
        ({"credulous": "yes"}, "`credulous` is 'yes'; expected true or false"),
    ],
)
def test_unknown_option_of_the_referee_is_an_error(options, message):
    """The recipe is refused, and a request gets status 400 with the same message."""
    with pytest.raises(RecipeError) as error:
        expand({"r": {"api/judge": {**REFEREE, "extra-body": options}}})
    assert f"r > api/judge: `extra-body`: {message}" in str(error.value)
    with open_engine.open_api("api/judge", entry_from("api", {**REFEREE, "extra-body": options})) as engine:
        failure = engine.runner.run(engine.attempt(ModelRequest("q", (("user", fill_prompt(PROOF)),)), 1))
    assert message in failure.detail and "400" in failure.detail
    assert failure.kind == "bad-request"


def test_fields_of_the_protocol_are_accepted():
    """Other fields that any request may have are ignored."""
    assert (
        referee.option_fault({"model": "m", "messages": [], "seed": 1, "top_k": 5, "reasoning_effort": "low"}) is None
    )
