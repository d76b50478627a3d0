"""Preferences: scores of a judge or a reward model for texts without a correct answer (DeepSeek-R1, section 2.3.4).

Differences from the original:
1. A judge's answer is read like any verdict: an unreadable one gives no reward, rather than the lowest.
2. The recipe says what a preference sees: the summary alone (helpfulness), or the reasoning too (harmlessness).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from proofmill.artifacts.jobs import Job
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.prompts import chat_templates, escapes
from proofmill.prompts.escapes import ControlTokens
from proofmill.schema.errors import TableError

AT_ONCE = 8  # texts in one forward pass of a reward model


class PreferenceModel(Protocol):
    def __call__(self, submissions: Sequence[Submission]) -> list[float | None]:
        """Return a score for each submission; None if unknown."""
        ...


def select_input(submission: Submission, sees: str) -> Submission:
    """Return the part of a submission that a preference reads: `summary` is the text after the reasoning, `all` is the full text."""
    return submission if sees == "summary" else replace(submission, reasoning="")


class JudgedPreference:
    """A judge's grade as a share of all points."""

    def __init__(self, grader: SubmissionGrader, sees: str):
        self.grader, self.sees = grader, sees

    def __call__(self, submissions: Sequence[Submission]) -> list[float | None]:
        verdicts = self.grader([select_input(submission, self.sees) for submission in submissions], quiet=True)
        return [None if verdict.grade is None else verdict.grade / verdict.max_points for verdict in verdicts]


class ModelPreference:
    """The single score of a sequence-classification model for a conversation; TableError if it gives several."""

    def __init__(self, job: Job, model: str, sees: str):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        folder = job.parent(model).weights()
        self.sees = sees
        self.tokenizer = chat_templates.require_template(AutoTokenizer.from_pretrained(folder), model)
        self.tokens = ControlTokens(self.tokenizer)
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32").eval()
        if self.model.config.num_labels != 1:
            raise TableError(
                f"{model}: its classifier gives {self.model.config.num_labels} scores per text; expected a reward model that gives one "
                "(`num_labels` 1)."
            )
        pad = self.model.config.get_text_config().pad_token_id  # the score is that of the last other token
        self.at_once = 1 if pad is None else AT_ONCE
        self.tokenizer.pad_token_id = self.tokenizer.pad_token_id if pad is None else pad

    def __call__(self, submissions: Sequence[Submission]) -> list[float | None]:
        import torch

        if torch.cuda.is_available():
            self.model.cuda()
        visible = [select_input(submission, self.sees) for submission in submissions]
        values: list[float | None] = []
        for start in range(0, len(visible), self.at_once):
            texts = [self._text(submission) for submission in visible[start : start + self.at_once]]
            inputs = self.tokenizer(
                texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
            )
            with torch.inference_mode():
                values += self.model(**inputs.to(self.model.device)).logits[:, 0].tolist()
        return values

    def _text(self, submission: Submission) -> Any:
        messages = [("user", submission.statement), ("assistant", submission.final)]
        # Neither text may end its turn and speak for the other role.
        talk = [{"role": role, "content": escapes.without_control_tokens(text)} for role, text in messages]
        return self.tokenizer.apply_chat_template(self.tokens.escape(talk), tokenize=False)
