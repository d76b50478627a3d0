"""Provide what the checks of entries need from higher folders, and the checks that several kinds share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proofmill.schema.fields import GRADER_PROMPT
from proofmill.schema.names import kind_of

# Fields that a judge's prompt may show (graders/judges.py).
SHOWN = ("statement", "proof", "scheme", "reference", "answer", "judgement")


@dataclass(frozen=True)
class Context:
    """The inputs of a check in addition to its entry. config/reference_checks.py creates it."""

    entries: Mapping[Any, Any]  # by name; only those that could be read
    lists: Mapping[str, Mapping[str, Any]]  # config/lists.py
    among: Callable[..., str]  # text/suggestions.py
    prompt: Callable[[str], Any]  # prompts/templates.py, with the next two
    prompt_fault: Callable[[str], str | None]
    text_fault: Callable[[str], str | None]
    graders_of: Callable[[str, str | None, Mapping[str, Any]], list[Any]]  # graders/escalation.py, with the next two
    then_of: Callable[[Any, Mapping[str, Any]], Any]
    max_points: Callable[[Any], int]
    address_fault: Callable[[str], str | None]  # public_data/registry.py
    referee_fault: Callable[[Any], str | None]  # synthetic/referee.py
    price_of: Callable[[Any], Any]  # calls/prices.py
    conversation_columns: tuple[str, ...]  # sources/conversations.py
    kernels: Any  # the module metrics/kernels.py
    kernel_of: Callable[[str], Any]  # metrics/metrics.py
    score_faults: tuple[Callable[[Any], Iterator[str]], ...]  # metrics/averages.py, budgets.py, claims.py, published.py

    def is_known(self, prompt: str | None) -> bool:
        """Return whether a prompt can be read; None is the default, which can."""
        return prompt is None or self.prompt_fault(prompt) is None

    def rubric(self, prompt: str | None) -> Any:
        """Return a judge's prompt, or the default one."""
        return self.prompt(prompt or GRADER_PROMPT)

    def root_of(self, model: Any) -> Any:
        """Return the `base` that a model was trained from; None if an entry between them could not be read."""
        seen = []
        while (entry := self.entries.get(model)) is not None and model not in seen:
            seen.append(model)
            model = getattr(entry, "model", None) or getattr(entry, "source", "")
            if "/" not in model:
                return entry
        return None

    def chain(self, grader: str, prompt: str | None = None) -> list[Any]:
        """Return a grader and those that it escalates to."""
        return self.graders_of(grader, prompt, self.entries)

    def asking_faults(self, field: str, name: str | None, shown: tuple[str, ...] = ("statement",)) -> Iterator[str]:
        """Yield a fault if a prompt needs fields other than `shown`. A solver receives the statement only."""
        if name is None or not self.is_known(name):
            return
        prompt = self.prompt(name)
        if more := {*prompt.needs, *prompt.optional} - {*shown}:
            yield f"`{field}` is `{name}`, which has the fields {', '.join(sorted(more))}; expected a prompt with only {', '.join(shown)}."

    def sampling_faults(self, model: str, sampling: Any) -> Iterator[str]:
        """Yield sampling settings that the model's `extra-body` set too, or that its protocol does not have."""
        options = getattr(self.entries.get(model), "extra_body", {})
        for name, unset in (("top_p", 1), ("top_k", None), ("min_p", None), ("stop", [])):
            if name in options and (value := getattr(sampling, name)) != unset:
                key = name.replace("_", "-")
                yield f"`{key}` is {value} and the `extra-body` of {model} sets `{name}`, too; expected only one of them. Remove one."
        if sampling.stop and getattr(self.entries.get(model), "protocol", "chat") == "responses":
            yield f"`stop` is set and the protocol of {model} is `responses`, which has no such field; expected `protocol: chat`. Set it, or remove `stop`."

    def grading_faults(
        self, name: str | None, prompt: str | None, schemes: Any, field: str = "grader-prompt"
    ) -> Iterator[str]:
        """Yield faults of a grader and its prompt. `schemes` is the entry's field, or True if every prompt gets a scheme.

        Unknown names are left to other checks.
        """
        programs = self.lists["graders"]
        if name is None or name not in (*self.entries, *programs) or not self.is_known(prompt):
            return
        if prompt and kind_of(name) != "api":
            yield f"`{field}` is set and `{name}` has its own; expected one of them. Remove `{field}`."
        if not self.terminates(name):
            return
        for grader in self.chain(name, prompt):
            if grader.judges[0] in programs or not self.is_known(grader.prompt):
                continue
            rubric = self.rubric(grader.prompt)
            yield from self.judging_faults(grader.prompt, schemes)
            if rubric.verdict is None:
                return
            if kind_of(name) == "api" and "reference" in rubric.needs:
                yield f"prompt `{rubric.name}` needs the reference solution; expected a `grader/<name>` with `show-reference: true`."

    def judging_faults(self, prompt: str | None, schemes: Any) -> Iterator[str]:
        """Yield faults of a prompt that a judge grades by; `schemes` is as in `grading_faults`."""
        rubric = self.rubric(prompt)
        if more := {*rubric.needs, *rubric.optional} - {*SHOWN}:
            yield f"prompt `{rubric.name}` has the fields {', '.join(sorted(more))}; expected a judge's prompt with only {', '.join(SHOWN)}."
        if rubric.verdict is None:
            yield f"prompt `{rubric.name}` declares no verdict; expected a prompt with `verdict` in its header."
            return
        if "judgement" in rubric.needs:
            yield (
                f"prompt `{rubric.name}` needs a judgement, which may be missing or unparsable; expected `optional: "
                "[judgement]` in its header."
            )
        if "scheme" in rubric.needs and not schemes:
            yield f"prompt `{rubric.name}` needs a scheme and `schemes` is not set; expected schemes/<name>. Set it."

    def terminates(self, name: str) -> bool:
        """Return whether the chain of `escalate-to` exists and has no cycle."""
        seen: set[str] = set()
        while kind_of(name) == "grader":
            if name in seen or name not in self.entries:
                return False
            seen.add(name)
            if (then := self.entries[name].escalate_to) is None:
                return True
            name = then
        return name in (*self.entries, *self.lists["graders"])

    def source_of(self, name: str) -> str | None:
        """Return the loader at the start of a chain of problems tables; None for an unknown name or a cycle."""
        seen: set[str] = set()
        while "/" in name:
            if name in seen or name not in self.entries:
                return None
            seen.add(name)
            name = self.entries[name].source
        return name
