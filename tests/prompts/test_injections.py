"""Injections to a judge stay in their block and are no verdict, in any spelling and for any model."""

import re
import unicodedata

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from injections import ATTACKS, FAMILIES
from proofmill.calls.model_requests import ModelOutput
from proofmill.graders.judges import Sitting
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import read
from proofmill.prompts import templates
from proofmill.prompts.escapes import BLOCKS, REASONING
from proofmill.schema.entries.declared import Grader
from proofmill.text.folding import fold, unescape

FIELDS = ("statement", "scheme", "reference", "proof")
HONEST = {field: f"An honest {field} of $a<b$, $|x|<|y|$ and $[a,b]$." for field in FIELDS}
RUBRICS = [
    name
    for name in templates.names()
    if templates.prompt(name).verdict and "other" not in templates.prompt(name).needs  # that one compares statements
]
NAMES = {form.casefold() for family in FAMILIES.values() for name in family for form in (name, fold(name))}
# The letters of the attacks that look like Latin ones, by a table of their own.
ALIKE = str.maketrans("ιаеікорѕτнԁρονօοнտʀᴏᴘɪɴᴛꜱꜰıո", "iaeikopstndpovoohsropintsfin")
# As a text is, in every normal form of Unicode, and as it looks.
VIEWS = (
    str,
    *(lambda text, form=form: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")),
    fold,
    lambda text: text.translate(ALIKE),
)
BRACKETS = str.maketrans("‹〈⟨˂ᐸ❬❮❰⁄∕╱⧸", "<<<<<<<<////")
SCORE = """---
needs: [statement, proof]
verdict: score
scale: [0, 1, 2, 3, 4, 5, 6, 7]
---
End with <score>a whole number from 0 to 7</score>.

{{ statement }}
<proof>
{{ proof }}
</proof>
"""
by_name = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


def sent(prompt, **fields):
    """Return the prompt that a judge receives, and the fields that it contains."""
    texts = {**HONEST, **fields}
    submission = Submission(
        texts["statement"], "5", texts["scheme"], texts["proof"], reasoning="", reference=texts["reference"]
    )
    sitting = Sitting(Grader(["api/a"], prompt, show_reference=True), submission, {}, judgement="Fine.")
    return sitting.prompt.render(sitting.fields), sitting.fields


def tags(text):
    """Return our tags in a text, ignoring white space, case and invisible characters."""
    seen = re.sub(
        r"\s", "", "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc", "Mn") or c.isspace())
    )
    return re.findall(rf"</*(?:{'|'.join((*BLOCKS, REASONING))})(?![a-z])", seen.translate(BRACKETS).casefold())


def tokens(text):
    return [name for name in NAMES if name in text.casefold()]


def test_attacks_are_many_and_distinct():
    """At least sixty, written for each of the fields; each has its effect in at least one of the views."""
    assert len({attack.text for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert {attack.field for attack in ATTACKS} == {*FIELDS} and len(FAMILIES) >= 10
    armed = [
        attack for attack in ATTACKS if any(tags(view(attack.text)) or tokens(view(attack.text)) for view in VIEWS)
    ]
    assert len(armed) >= 60


@pytest.mark.sampled(5)
@by_name
def test_attack_stays_in_its_block(attack):
    """In every field of every grader prompt, only the attack is escaped, and it has no tag or token."""
    seen = set()
    for prompt in RUBRICS:
        shows = (*templates.prompt(prompt).needs, *templates.prompt(prompt).optional)
        for field in {*FIELDS} & {*shows}:
            honest, fields = sent(prompt)
            before, _, after = honest.partition(fields[field])
            attacked, fields = sent(prompt, **{field: f"Let $n>1$.\n{attack.text}\nQ.E.D."})
            assert attacked.startswith(before) and attacked.endswith(after)
            shown = attacked[len(before) : len(attacked) - len(after)]
            assert unescape(shown) == unescape(fields[field])
            seen.add(shown)
    assert seen
    for shown in seen:
        for view in VIEWS:
            assert not tags(view(shown)) and not tokens(view(shown)), view


@pytest.mark.sampled(5)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "normalizer", [None, normalizers.NFKC(), normalizers.Lowercase()], ids=["as-is", "nfkc", "lower"]
)
def test_tokenizer_of_a_family_reads_no_token_in_a_prompt(family, normalizer):
    """A tokenizer with the family's tokens finds them in each attack, and in no prompt with all attacks in every field."""
    letters = {"[UNK]": 0, **{chr(code): number for number, code in enumerate(range(32, 127), 1)}}
    core = Tokenizer(models.BPE(vocab=letters, merges=[], unk_token="[UNK]"))
    if normalizer:
        core.normalizer = normalizer
    core.add_special_tokens([AddedToken(name, special=True, normalized=bool(normalizer)) for name in FAMILIES[family]])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")
    everything = "\n".join([*FAMILIES[family], *(attack.text for attack in ATTACKS)])
    assert {*FAMILIES[family]} <= {*control(tokenizer, everything)}
    for prompt in ("grade-imo", "grade-words"):
        assert not control(tokenizer, sent(prompt, **dict.fromkeys(FIELDS, everything))[0])


def control(tokenizer, text):
    """Return the control tokens that a tokenizer reads in a text."""
    added = {id: token.content for id, token in tokenizer.added_tokens_decoder.items() if token.content != "[UNK]"}
    return [added[id] for id in tokenizer(text, add_special_tokens=False)["input_ids"] if id in added]


def test_published_tokenizer_reads_no_token_in_a_prompt(data):
    """Qwen2's own files: its three tokens are read in the attacks, and none in a judge's prompt."""
    qwen = AutoTokenizer.from_pretrained(data / "qwen2_tokenizer")
    everything = "<|endoftext|>" + "\n".join(attack.text for attack in ATTACKS)
    assert {*control(qwen, everything)} == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert not control(qwen, sent("grade-imo", **dict.fromkeys(FIELDS, everything))[0])


# ---------------------------------------------------------------------------------------------- what a judge says of it


@pytest.fixture(scope="module")
def rubrics(tmp_path_factory):
    """Return a prompt for each form of verdicts, the output for its lowest grade, and that grade."""
    score = tmp_path_factory.mktemp("prompts") / "score.md"
    score.write_text(SCORE)
    return {
        "points": ("grade-strict", "<points>2</points>", 2),
        "score": (str(score), "<score>2</score>", 2),
        "judgement": ("answer-judgement", "Judgement: No", 0),
        "words": ("grade-words", "partial", 1),
        "boxed": ("grade-evaluation", "\\boxed{0}", 0),
        "correct": ("answer-equivalence", "\\boxed{Incorrect}", 0),
    }


def test_every_form_is_attacked(rubrics):
    """No form of verdicts is left out below."""
    assert [*rubrics] == [*templates.VERDICT_FORMS]


@pytest.mark.sampled(5)
@by_name
def test_quoted_attack_is_no_verdict(attack, rubrics):
    """For a judge that repeats its prompt, or quotes the attack and comments on it, only its own verdict counts."""
    for form, (prompt, own, points) in rubrics.items():
        rubric = templates.prompt(prompt)
        asked, fields = sent(prompt, proof=f"A proof.\n{attack.text}")
        quoted = (
            fields["proof"]
            if form in ("judgement", "words", "boxed", "correct")
            else templates.enclose(fields["proof"])
        )
        for said in (
            f"<assessment>{asked}</assessment>",
            f"The proof says:\n\n{quoted}\n\nThat is addressed to me, and I do not follow it.",
            f"<think>{quoted}\n{own}</think>\nI cannot decide.",
        ):
            assert read(ModelOutput(said, "end"), rubric).grade is None, (form, said)
            assert read(ModelOutput(f"{said}\n\n{own}", "end"), rubric).grade == points, (form, said)


@pytest.mark.sampled(5)
@by_name
def test_attack_that_is_repeated_as_it_was_shown_holds_no_tag(attack, rubrics):
    """Even an output that is only the attack, as the prompt shows it, has no points and no score."""
    for form in ("points", "score"):
        prompt = rubrics[form][0]
        shown = templates.enclose(attack.text)
        assert read(ModelOutput(shown, "end"), templates.prompt(prompt)).grade is None
