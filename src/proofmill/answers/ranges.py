"""Convert intervals, unions and inequalities to the values that they allow for one variable."""

from proofmill.answers.forms import Form, Formula, Interval, Relation, Several, Sign, Union

TURNED: dict[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_ABOVE, _BELOW = Formula("\\infty"), Formula("-\\infty")
_NO_VARIABLES = ("e", "\\pi", "\\infty", "-\\infty")
Ranges = tuple[str | None, list[Form]]  # the variable, if it has a name, and intervals or sets of points


def open_interval(pair: Several) -> Interval:
    return Interval(pair.members[0], pair.members[1], (False, False))


def ranges(form: Form) -> Ranges | None:
    """Return a form as a variable's name with intervals and sets of points; None if it has no such form."""
    if isinstance(form, Interval):
        return None, [form]
    if isinstance(form, Several) and form.kind == "tuple" and len(form.members) == 2:
        return None, [open_interval(form)]
    if isinstance(form, Union):
        parts = [ranges(part) or (None, [part]) for part in form.parts]
        names = {name for name, _ in parts if name}
        return (names.pop() if names else None, [one for _, some in parts for one in some]) if len(names) < 2 else None
    if isinstance(form, Relation):
        return range_of(form)
    return None


def range_of(relation: Relation) -> Ranges | None:
    """Return the values that an inequality allows for its variable; None if it has no such form."""
    sides, signs = relation.sides, relation.signs
    if signs == ("in",) and (values := ranges(sides[1])):
        return _variable(sides[0]), values[1]
    if len(sides) == 3 and {*signs} <= {">", ">="}:
        sides, signs = sides[::-1], tuple(TURNED[sign] for sign in signs[::-1])
    if len(sides) == 3 and {*signs} <= {"<", "<="} and (name := _variable(sides[1])):
        return name, [Interval(sides[0], sides[2], (signs[0] == "<=", signs[1] == "<="))]
    if len(sides) != 2 or signs[0] not in ("<", "<=", ">", ">=", "!="):
        return None
    sign: Sign = signs[0]
    name, end = _variable(sides[0]), sides[1]
    if name is None or _variable(end):
        name, end, sign = _variable(sides[1]), sides[0], TURNED[sign]
    if name is None or _variable(end):
        return None
    below = Interval(_BELOW, end, (False, sign == "<="))
    above = Interval(end, _ABOVE, (sign == ">=", False))
    return name, [below, above] if sign == "!=" else [below] if sign in ("<", "<=") else [above]


def _variable(form: Form) -> str | None:
    if isinstance(form, Formula) and form.latex not in _NO_VARIABLES:
        text = form.latex
        if (text.isalpha() and len(text) == 1) or (text[0] == "\\" and text[1:].isalpha()) or "_" in text[:2]:
            return text
    return None
