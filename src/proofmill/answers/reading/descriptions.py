"""Describe in words how an answer was read."""

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
)

_ENDS = {True: "included", False: "excluded"}


def describe(form: Form) -> str:
    """Return a form in words: `list of 2: number 1/2; formula \\sqrt{2}`."""
    match form:
        case Number(value, _, percent):
            return f"number {value}{' percent' if percent else ''}"
        case Formula(latex):
            return f"formula {latex}"
        case Words(text):
            return f"words: {text}"
        case Several(kind, members):
            return f"{kind} of {len(members)}: {'; '.join(map(describe, members))}"
        case Interval(low, high, closed):
            return f"interval from {describe(low)} ({_ENDS[closed[0]]}) to {describe(high)} ({_ENDS[closed[1]]})"
        case NamedSet(name, part):
            return f"the numbers of {name}{' that are ' + part if part else ''}"
        case Operation(sign, parts):
            return f"{sign} of {', '.join(f'[{describe(part)}]' for part in parts)}"
        case Relation(sides, signs, name):
            first, *rest = map(describe, sides)
            chain = "".join(f" {sign} {side}" for sign, side in zip(signs, rest, strict=True))
            return f"relation: {name or first}{chain}"
        case CongruenceAnswer(name, residue, modulus):
            return f"{name or 'numbers'} congruent to {describe(residue)} modulo {describe(modulus)}"
        case Quantity(value, unit):
            return f"{describe(value)} with the unit {unit}"
        case Qualified(value, words):
            return f"{describe(value)} with the words: {words}"
        case InBase(digits, base):
            return f"digits {digits} in base {base}"
        case Clock(numbers, half):
            return f"time or ratio {':'.join(f'{number:02}' for number in numbers)} {half}".strip()
        case Ratio(parts):
            return f"ratio of {', '.join(map(describe, parts))}"
        case Family(value, letters, kind):
            return f"{describe(value)} for any {', '.join(letters)}{' of ' + kind if kind else ''}"
        case Labeled(label, value):
            return f"option {label}: {describe(value)}"
