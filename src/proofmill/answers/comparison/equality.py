"""Compare an answer with the gold answer, form by form. Raises `Unreadable` if a formula cannot be parsed.

These may be missing or written differently: a unit, a counted noun or a percent sign after a number; the name before
`=`; brackets around several values; the order of values in a list or set. These may not: a base, a word that adds
meaning, a value that the gold answer has twice, an end of an interval, the name if both have one.
"""

import re
from fractions import Fraction
from functools import partial

from proofmill.answers.comparison import families, identities
from proofmill.answers.comparison.quantities import compare_quantities
from proofmill.answers.comparison.relations import compare_relations, list_values
from proofmill.answers.comparison.sets import are_named_once, compare_sets, find_cuts, list_named, match_members
from proofmill.answers.comparison.values import Unclear, equal_values, expression
from proofmill.answers.reading import formulas, units
from proofmill.answers.reading.forms import (
    Clock,
    CongruenceAnswer,
    Family,
    Form,
    Formula,
    InBase,
    Interval,
    Labeled,
    NamedSet,
    Number,
    Operation,
    Qualified,
    Quantity,
    Ratio,
    Relation,
    Several,
    Words,
    formulas_in,
)
from proofmill.answers.reading.parse import readings


def unread(text: str) -> str | None:
    """Return the part of an answer's normal form that cannot be parsed or has no value, if any."""
    forms = readings(text)
    if not forms:
        return text
    parts = [formula.latex for formula in formulas_in(forms[0])]
    return next((latex for latex in parts if formulas.parse(latex) is None or formulas.is_undefined(latex)), None)


def doubt(gold: Form, answer: Form) -> str:
    """Return a remark for readers of the verdict on why two equal answers may differ; empty without doubts."""
    if isinstance(gold, Quantity) != isinstance(answer, Quantity):
        return "doubtful: only one of the two has a unit"
    if isinstance(gold, Number) and isinstance(answer, Number):
        if gold.percent != answer.percent:
            return "doubtful: only one of the two is a percentage"
        if gold.value != answer.value:
            return "doubtful: one is rounded from the other"
    if isinstance(gold, Family) or isinstance(answer, Family) or families.are_renamed(gold, answer, sure=True):
        return "doubtful: letters that stand for any number differ"
    if isinstance(gold, Relation) != isinstance(answer, Relation) and not find_cuts(gold, answer):
        return "doubtful: only one of the two has a name before its value"
    if isinstance(gold, Labeled) != isinstance(answer, Labeled):
        return "doubtful: only one of the two has a label"
    return ""


def equal(gold: Form, answer: Form) -> bool:
    """Return whether two answers are equal."""
    if gold == answer and not isinstance(gold, Formula):
        return True
    if (_is_set(gold) or _is_set(answer)) and find_cuts(gold, answer):
        return compare_sets(gold, answer, equal)
    for kind, compare in _COMPARED:
        if isinstance(gold, kind) or isinstance(answer, kind):
            return compare(gold, answer)
    return equal_values(gold, answer) or families.are_renamed(gold, answer)


def may_agree(gold: Form, answer: Form) -> str:
    """Return why two answers that are not equal may still be; empty if they surely differ."""
    for form in (gold, answer):
        members = form.members if isinstance(form, Several) and form.kind == "list" else ()
        conditions = [isinstance(m, Qualified) or (isinstance(m, Relation) and m.signs != ("=",)) for m in members]
        if any(conditions) and not isinstance(members[0], Relation | Qualified):
            return "a value and a condition"
        if any(isinstance(one, Words) and " " in one.text for one in members):
            return "words that are not understood"
    if families.have_other_constants(gold, answer):
        return "constants may have other names"
    if _has_cases(gold) != _has_cases(answer) and families.has_letters(gold) and families.has_letters(answer):
        return "cases"
    if _has_residues(gold) != _has_residues(answer) and families.has_letters(gold) and families.has_letters(answer):
        return "" if isinstance(gold, CongruenceAnswer) or isinstance(answer, CongruenceAnswer) else "a condition"
    return ""


def _has_residues(form: Form) -> bool:
    return isinstance(form, Several) and any(isinstance(one, CongruenceAnswer) for one in form.members)


def _has_cases(form: Form) -> bool:
    """Return whether a form is a set of values with their conditions, also behind a name."""
    if isinstance(form, Relation):
        return _has_cases(form.sides[-1])
    members = form.members if isinstance(form, Several) and form.kind == "set" else ()
    return any(
        isinstance(one, Several)
        and one.kind == "tuple"
        and isinstance(one.members[-1], Relation | CongruenceAnswer | Qualified)
        for one in members
    )


def _is_set(form: Form) -> bool:
    """Return whether a form may be a set of real numbers without another form next to it, also as several inequalities."""
    members = form.members if isinstance(form, Several) and form.kind == "list" and form.members else (form,)
    return isinstance(form, Interval | NamedSet | Operation) or all(
        isinstance(one, Relation) and one.signs != ("=",) for one in members
    )


def _compare_label(gold: Form, answer: Form) -> bool:
    """Compare an answer with a label: `(B) 12` equals B, and equals 12."""
    if isinstance(gold, Labeled) and isinstance(answer, Labeled):
        return gold.label == answer.label and equal(gold.value, answer.value)
    labeled, other = (gold, answer) if isinstance(gold, Labeled) else (answer, gold)
    assert isinstance(labeled, Labeled), "one of them is"
    if isinstance(other, Formula) and len(other.latex) == 1 and other.latex.isupper():
        if isinstance(labeled.value, Words) and len(labeled.value.text.split()) > 1:
            raise Unclear("words after the label may deny it")
        return other.latex == labeled.label
    return equal(labeled.value, other)


def _compare_qualified(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Qualified) and isinstance(answer, Qualified):
        if not equal(gold.value, answer.value):
            return False
        if _plain(gold.words) == _plain(answer.words):
            return True
        if set(_plain(gold.words)) & set(_plain(answer.words)) or not _tells(gold.words, answer.words):
            raise Unclear("words next to the value are not understood")
        return False
    qualified, other = (gold, answer) if isinstance(gold, Qualified) else (answer, gold)
    assert isinstance(qualified, Qualified), "one of them is"
    if isinstance(other, Words):
        raise Unclear("words that are not understood")
    if not isinstance(other, Number | Formula | Quantity) and not isinstance(qualified.value, Number):
        raise Unclear("words next to the value are not understood")
    if not _tells(qualified.words) and equal(qualified.value, other):
        raise Unclear("words next to the value are not understood")
    return False


_TELLING = {
    "or", "not", "more", "less", "fewer", "greater", "least", "most", "odd", "even", "prime", "positive", "negative",
}  # fmt: skip


def _tells(*texts: str) -> bool:
    """Return whether all texts have words that surely make another answer."""
    return all(_TELLING & set(text.split()) for text in texts)


def _plain(words: str) -> list[str]:
    return [
        units.singular(word)
        for word in words.replace(",", " ").split()
        if word not in ("the", "a", "an", "is", "are", "on", "it")
    ]


def _congruences(gold: Form, answer: Form) -> bool:
    if not (isinstance(gold, CongruenceAnswer) and isinstance(answer, CongruenceAnswer)):
        congruence, other = (gold, answer) if isinstance(gold, CongruenceAnswer) else (answer, gold)
        assert isinstance(congruence, CongruenceAnswer), "one of them is"
        residue, modulus = congruence.residue, congruence.modulus
        if isinstance(other, Words):
            raise Unclear("words that are not understood")
        if _has_residues(other):
            return families.have_same_residues(gold, answer)
        if isinstance(other, Number) and isinstance(residue, Number) and isinstance(modulus, Number):
            if congruence.name is None and modulus.value and residue.value % modulus.value == other.value:
                raise Unclear("a remainder, or all numbers that leave it")
            return False
        return families.is_progression(congruence, other)
    if not equal(gold.modulus, answer.modulus):
        return False
    if None not in (gold.name, answer.name) and gold.name != answer.name:
        return False
    one, other, modulus = gold.residue, answer.residue, gold.modulus
    if isinstance(one, Number) and isinstance(other, Number) and isinstance(modulus, Number) and modulus.value:
        return ((one.value - other.value) / modulus.value).denominator == 1
    return equal(one, other)


def _bases(gold: Form, answer: Form) -> bool:
    if isinstance(gold, InBase) and isinstance(answer, InBase):
        return gold == answer
    number, other = (gold, answer) if isinstance(gold, InBase) else (answer, gold)
    assert isinstance(number, InBase), "one of them is"
    if isinstance(other, Number) and other.value == int(number.digits, number.base):
        raise Unclear("only one of the two names a base")
    return False


def _clocks(gold: Form, answer: Form) -> bool:
    """Compare times of day. If no half of the day is known, `10:15` may also be a ratio."""
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        if gold.half and answer.half:
            return _seconds(gold) == _seconds(answer)
        if gold.half or answer.half:
            known, other = (gold, answer) if gold.half else (answer, gold)
            return _seconds(known) == _seconds(other) or _pad(known) == _pad(other)
        if _pad(gold) == _pad(answer) or gold.sure or answer.sure:
            return _pad(gold) == _pad(answer)
    clock, other_form = (gold, answer) if isinstance(gold, Clock) else (answer, gold)
    assert isinstance(clock, Clock), "one of them is"
    if isinstance(other_form, Relation):
        return any(_clocks(clock, side) for side in list_values(other_form, equal))
    if clock.sure:
        return False
    if isinstance(other_form, Ratio):
        return _ratios(_ratio(clock), other_form)
    value = _ratio(other_form) if isinstance(other_form, Clock) else other_form
    if isinstance(value, Ratio | Number | Formula) and 0 not in clock.numbers and _ratios(_ratio(clock), value):
        raise Unclear("a time of day, or a ratio")
    return False


def _ratio(clock: Clock) -> Ratio:
    return Ratio(tuple(Number(Fraction(number)) for number in clock.numbers))


def _pad(clock: Clock) -> tuple[int, ...]:
    return (*clock.numbers, 0, 0)[:3]


def _seconds(clock: Clock) -> int:
    hours, minutes, seconds = _pad(clock)
    return ((hours % 12 + 12 * (clock.half == "pm") if clock.half else hours) * 60 + minutes) * 60 + seconds


def _ratios(gold: Form, answer: Form) -> bool:
    """Compare ratios part by part, up to a common factor; one of two parts is also the value of its fraction."""
    if isinstance(gold, Ratio) and isinstance(answer, Ratio):
        one, other = ([expression(part) for part in ratio.parts] for ratio in (gold, answer))
        if len(one) != len(other) or one[0] == 0 or other[0] == 0:
            return gold == answer
        return all(identities.same(a * other[0], b * one[0]) for a, b in zip(one, other, strict=True))
    ratio, value = (gold, answer) if isinstance(gold, Ratio) else (answer, gold)
    assert isinstance(ratio, Ratio), "one of them is"
    if isinstance(value, Relation):
        return any(_ratios(ratio, side) for side in list_values(value, equal))
    if len(ratio.parts) != 2 or not isinstance(value, Number | Formula):
        return False
    first, second = map(expression, ratio.parts)
    return second != 0 and identities.same(first / second, expression(value))


def _words(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Words) and isinstance(answer, Words):
        one, other = _plain(gold.text), _plain(answer.text)
        if one == other or any(_says(a, b) for a, b in ((one, other), (other, one))):
            return True
        if one[0] == other[0] == "date" and len(one) == len(other):
            return False
        names = [sorted(re.split(r",? and |, ", words.text)) for words in (gold, answer)]
        listed = names[0] == names[1] and not any(" " in name for name in names[0])
        if listed or (len(one) == 2 and sorted(one) == sorted(other)):
            return True  # `Bob and Carol`, `the triangle is isosceles`
        if set(one) <= set(other) or set(other) <= set(one) or max(len(one), len(other)) > 3:
            raise Unclear("words that are not understood")
        return False
    words, other_form = (gold, answer) if isinstance(gold, Words) else (answer, gold)
    assert isinstance(words, Words), "one of them is"
    if isinstance(other_form, Formula):
        if other_form.latex.isalpha() and other_form.latex.lower() == words.text:
            return True
        expression(other_form)  # raises Unreadable, because an unparsable answer must not count as wrong
    if len(words.text.split()) > 1 and words.text != "does not exist" and not words.text.startswith("date"):
        raise Unclear("words that are not understood")
    return False


_TURNING = {"not", "no", "t", "never", "impossible", "but", "unless", "except", "only", "yes"}


def _says(word: list[str], sentence: list[str]) -> bool:
    """Return whether a sentence begins with this yes or no, and does not take it back: `yes, it is possible`."""
    own = {"not", "t", "impossible", "never", "no"} if word == ["no"] else set()
    return word in (["yes"], ["no"]) and sentence[:1] == word and not (_TURNING - own) & {*sentence[1:]}


def _several(gold: Form, answer: Form) -> bool:
    if not (isinstance(gold, Several) and isinstance(answer, Several)):
        one, other = (gold, answer) if isinstance(gold, Several) else (answer, gold)
        assert isinstance(one, Several), "one of them is"
        if isinstance(other, Formula) and re.fullmatch("[A-J]{2,}", other.latex):  # several choices, `ACD`
            chosen = [member.latex for member in one.members if isinstance(member, Formula)]
            return one.kind != "tuple" and sorted(chosen) == sorted({*other.latex}) and len(chosen) == len(one.members)
        if isinstance(other, Formula) and one.kind == "tuple" and "matrix" in other.latex:
            entries = expression(other)
            if 1 not in getattr(entries, "shape", ()) or len(entries) != len(one.members):
                return False
            return all(
                identities.same(entry, expression(part)) for entry, part in zip(entries, one.members, strict=True)
            )
        if len(one.members) == 1 and isinstance(one.members[0], Words | Several):
            return False
        if len(one.members) == 1 and one.kind == "set" and isinstance(other, Formula):
            if equal(one.members[0], other):
                raise Unclear("braces may enclose a set or a fractional part")
            return False
        repeats = one is answer and one.kind == "list"
        return (len(one.members) == 1 or repeats) and all(
            equal(*((member, other) if one is gold else (other, member))) for member in one.members
        )
    gold, answer = _in_order(gold, answer), _in_order(answer, gold)
    kinds = {gold.kind, answer.kind}
    if kinds == {"set", "tuple"} or (len(kinds) == 2 and "either" in kinds):
        return False
    if "tuple" in kinds:
        return len(gold.members) == len(answer.members) and all(map(equal, gold.members, answer.members))
    if are_named_once(gold, answer) or are_named_once(answer, gold):
        if len(gold.members) == len(answer.members) and all(map(equal, gold.members, answer.members)):
            return True
        if match_members(gold.members, answer.members, equal):
            raise Unclear("the order of the named values")
        return False
    return match_members(gold.members, answer.members, equal)


def _in_order(one: Several, other: Several) -> Several:
    """Return named values, `y=3, x=2`, as a tuple in the order of their names, if the other ones have no names."""
    named = list_named(one)
    names = [name for name, _ in named]
    if one.kind == "set" or other.kind != "tuple" or not all(names) or all(name for name, _ in list_named(other)):
        return one
    if len({*names}) < len(names):
        return one
    order = sorted(names)
    if order != names and not ({*names} <= {*"xyzw"} or {*names} <= {*"abcde"}):
        raise Unclear("the order of the named values")
    values = dict(named)
    return Several("tuple", tuple(values[name] for name in order))


_COMPARED = (
    (Family, partial(families.compare_families, equal=equal)),
    (Labeled, _compare_label),
    (Qualified, _compare_qualified),
    (Quantity, partial(compare_quantities, equal=equal)),
    (CongruenceAnswer, _congruences),
    (InBase, _bases),
    (Clock, _clocks),
    (Ratio, _ratios),
    (Operation | NamedSet, partial(compare_sets, equal=equal)),
    (Relation, partial(compare_relations, equal=equal)),
    (Words, _words),
    (Interval, partial(compare_sets, equal=equal)),
    (Several, _several),
)
