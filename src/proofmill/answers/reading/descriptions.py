"""Describe in words how an answer was read."""

from proofmill.answers.reading import forms
from proofmill.answers.reading.forms import Form

_ENDS = {True: "included", False: "excluded"}


def describe(form: Form) -> str:
    """Return a form in words: `list of 2: number 1/2; formula \\sqrt{2}`."""
    match form:
        case forms.Number(value, _, percent):
            return f"number {value}{' percent' if percent else ''}"
        case forms.Formula(latex):
            return f"formula {latex}"
        case forms.Words(text):
            return f"words: {text}"
        case forms.Several(kind, members):
            return f"{kind} of {len(members)}: {'; '.join(map(describe, members))}"
        case forms.Interval(low, high, closed):
            return f"interval from {describe(low)} ({_ENDS[closed[0]]}) to {describe(high)} ({_ENDS[closed[1]]})"
        case forms.NamedSet(name, part):
            return f"the numbers of {name}{' that are ' + part if part else ''}"
        case forms.Operation(sign, parts):
            return f"{sign} of {', '.join(f'[{describe(part)}]' for part in parts)}"
        case forms.Relation(sides, signs, name):
            first, *rest = map(describe, sides)
            chain = "".join(f" {sign} {side}" for sign, side in zip(signs, rest, strict=True))
            return f"relation: {name or first}{chain}"
        case forms.CongruenceAnswer(name, residue, modulus):
            return f"{name or 'numbers'} congruent to {describe(residue)} modulo {describe(modulus)}"
        case forms.Quantity(value, unit):
            return f"{describe(value)} with the unit {unit}"
        case forms.Qualified(value, words):
            return f"{describe(value)} with the words: {words}"
        case forms.InBase(digits, base):
            return f"digits {digits} in base {base}"
        case forms.Clock(numbers, half):
            return f"time or ratio {':'.join(f'{number:02}' for number in numbers)} {half}".strip()
        case forms.Ratio(parts):
            return f"ratio of {', '.join(map(describe, parts))}"
        case forms.Family(value, letters, kind):
            return f"{describe(value)} for any {', '.join(letters)}{' of ' + kind if kind else ''}"
        case forms.Labeled(label, value):
            return f"option {label}: {describe(value)}"
