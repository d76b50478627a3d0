"""One row of `sft` is a number logged at a training step; the trained weights are next to the table.

Supervised fine-tuning with TRL's SFTTrainer.

Differences from TRL:
1. An example longer than `max-length` stops the stage, or is left out and counted; TRL would cut it silently.
2. Labels select the trained tokens for any chat template; TRL finds the assistant's turns only in templates it knows.
3. The examples held out by `evaluate-share` share no problem with the training examples.
4. A chat template has to render what it is given: an example of which a message, a call of a tool or a function is
   missing from what is rendered, or of which nothing is learned, stops the stage. TRL would learn the rest.
5. Only the template writes control tokens: what the tokenizer would read as one in a message is escaped.
6. Checkpoints lie outside declared outputs and are found again by the table's fingerprint: a killed job resumes.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from proofmill.artifacts.jobs import Job, run
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.runtime.progress import log
from proofmill.schema.entries.model_entries import Sft
from proofmill.schema.errors import TableError
from proofmill.text.messages import find_unrendered, from_row, tools_from

IGNORED = -100  # the label of a token that is not learned (torch's cross entropy)


def main(entry: Sft, job: Job) -> None:
    from trl import SFTConfig

    from proofmill.training import checkpoints, micro_batches, run
    from proofmill.training.sft_trainer import SftTrainer

    checkpoints.settle(job)
    rows = micro_batches.split(entry, job, entry.batch_size, entry.max_length)
    config = SFTConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        per_device_eval_batch_size=rows["per_device_train_batch_size"],
        eval_strategy="steps" if entry.evaluate or entry.evaluate_share else "no",
        eval_steps=entry.evaluate_every,
        max_steps=entry.steps or -1,
        num_train_epochs=entry.epochs or 1,
        max_length=entry.max_length,
        packing=entry.packing,
    )
    model, tokenizer = run.load(job, entry)
    learned, evaluated, counts = examples_of(entry, job, tokenizer)
    micro_batches.check_context(entry.model, model, longest(learned, evaluated), "an example has")
    config.eos_token = end_of_turn(job, model, tokenizer, learned[0]["labels"])
    trainer = SftTrainer(
        model=model, args=config, train_dataset=learned, eval_dataset=evaluated, processing_class=tokenizer
    )
    if entry.continues:
        checkpoints.go_on_from(job, entry.continues, entry.evaluate_every)
    seconds = run.train(trainer, job, entry.last_step)
    weights = run.save(trainer, tokenizer, job)
    counts = {"steps": trainer.state.global_step, **counts}
    job.finish(list(run.steps(trainer)), counts, weights, training_seconds=seconds)
    checkpoints.save_state(job)


# ------------------------------------------------------------------------------------------------------------- examples


def examples_of(entry: Sft, job: Job, tokenizer: Any) -> tuple[Any, Any, dict[str, int]]:
    """Return training and evaluation examples (None without any) as token ids and labels, and counts for the stamp."""
    rows = job.parent(entry.examples).rows("example", "problem", "messages", "tools")
    apart = draw([row["problem"] for row in rows], entry.evaluate_share, entry.seed, entry.examples)
    encoder = Encoder(tokenizer, entry.train_on, entry.model)
    learned, long = fitting(entry, job, entry.examples, encoder, [r for r in rows if r["problem"] not in apart])
    evaluated, counts = None, {}
    if entry.evaluate or apart:
        others = job.parent(entry.evaluate).rows("example", "messages", "tools") if entry.evaluate else []
        others += [row for row in rows if row["problem"] in apart]
        evaluated, longer = fitting(entry, job, entry.evaluate or entry.examples, encoder, others)
        counts, long = {"evaluated": len(evaluated)}, long + longer
    return learned, evaluated, counts | ({"too long": long} if entry.too_long == "drop" else {})


def longest(*tables: Any) -> int:
    """Return the tokens of the longest example."""
    import pyarrow.compute as pc

    batches = (batch for table in tables if table is not None for batch in table.with_format("arrow").iter(1000))
    return max(pc.max(pc.list_value_length(batch["input_ids"])).as_py() for batch in batches)


def draw(problems: Sequence[str], share: float, seed: int, where: str) -> set[str]:
    """Draw problems by the seed until they hold at least this share of all rows.

    A problem is evaluated with all of its examples or none. Raises TableError when no problem is left to learn.
    """
    rows, chosen, taken = Counter(problems), set(), 0
    for problem in random.Random(seed).sample(sorted(rows), len(rows)):
        if taken >= share * len(problems) - 1e-9:
            break
        chosen.add(problem)
        taken += rows[problem]
    if chosen and len(chosen) == len(rows):
        raise TableError(
            f"{where}: its {len(problems):,} examples are of {len(rows)} problems, all of which `evaluate-share` would take; "
            "expected some to learn. Lower it, or name other examples in `evaluate`."
        )
    return chosen


def fitting(entry: Sft, job: Job, where: str, encoder: "Encoder", rows: list[dict]) -> tuple[Any, int]:
    """Return the examples of `where` that are no longer than `max-length`, and the number of longer ones.

    Raises TableError when one is longer and `too-long` is `error`, or when all are; and when the chat template leaves
    out a part of one.
    """
    import pyarrow.compute as pc
    from datasets import Dataset, Features, List, Value

    ids = List(Value("int32"))
    columns = Features({"input_ids": ids, "labels": ids})
    data = Dataset.from_list([{"messages": row["messages"], "tools": row["tools"]} for row in rows])
    encoder.lost = []
    data = data.map(
        lambda row: encoder([from_row(message) for message in row["messages"]], tools_from(row["tools"])),
        remove_columns=["messages", "tools"],
        features=columns,
    )
    if lost := [(row["example"], what) for row, what in zip(rows, encoder.lost, strict=True) if what]:
        example, what = lost[0]
        raise TableError(
            f"{where}: of {len(lost):,} of {len(rows):,} examples the chat template of {entry.model} leaves out a part, such as "
            f"{what} in `{example}`; expected all of it in what is learned. Set `chat-template` of {entry.model} to a file that "
            "renders it, or remove them from the examples (`keep: [no-tools]` drops those with tools)."
        )
    if encoder.escaped and processes.rank() == 0:
        log(
            job.name,
            f"{where}: {encoder.escaped:,} of {len(rows):,} examples write control tokens of {entry.model}, which are learned as text",
        )
    lengths = pc.list_value_length(data.data.column("input_ids")).to_pylist()
    fits = [index for index, length in enumerate(lengths) if length <= entry.max_length]
    if len(fits) == len(lengths):
        return data, 0
    longer = (
        f"{where}: {len(lengths) - len(fits):,} of {len(lengths):,} examples are longer than `max-length` {entry.max_length} "
        f"(the longest has {max(lengths):,} tokens)"
    )
    if entry.too_long == "error" or not fits:
        raise TableError(f"{longer}; expected none to be cut. Raise `max-length`, or drop them in the examples.")
    if processes.rank() == 0:
        log(job.name, f"{longer}: left out")
    return data.select(fits), len(lengths) - len(fits)


# -------------------------------------------------------------------------------------------------------- trained tokens


class Encoder:
    """Encodes a conversation in its chat template as token ids and labels: the id of a trained token, else IGNORED.

    `train-on` is one of:
    `answer`: the tokens that the assistant's last message adds to its prompt, with the end of its turn; what follows it
    is left out.
    `assistant`: those of every turn of the assistant. They are found by the template's own tags (`{% generation %}`), or
    as the tokens that each turn adds to the conversation before it. If a template renders a turn differently when others
    follow, TRL's version of the template is used, if there is one.
    `all`: all tokens.
    """

    def __init__(self, tokenizer: Any, learn: str, model: str):
        self.tokenizer, self.learn, self.model = tokenizer, learn, model
        self.tokens = ControlTokens(tokenizer)
        self.marked = tokenizer.chat_template if _has_masks(tokenizer) and learn == "assistant" else None
        self.escaped = 0  # conversations that write control tokens
        self.lost: list[str | None] = []  # what was not rendered of each conversation
        self.template: str | None = None  # what has rendered the last one; None for the tokenizer's own
        self.tools: list[dict] | None = None

    def __call__(self, messages: list[dict], tools: list[dict] | None = None) -> dict[str, list[int]]:
        escaped, self.tools = self.tokens.escape(messages), self.tokens.escape_inside(tools)
        self.escaped += (escaped, self.tools) != (messages, tools)
        messages = _to_last_answer(escaped) if self.learn == "answer" else escaped
        self.template = self.marked
        try:
            ids, mask = self._by_masks(messages, self.marked) if self.marked else self._by_turns(messages)
            labels = [i if learned else IGNORED for i, learned in zip(ids, mask, strict=True)]
            self.lost.append(self._find_lost(messages, labels))
        except TemplateError as error:
            self.lost.append(f"all of it ({error})")
            return {"input_ids": [], "labels": []}
        return {"input_ids": ids, "labels": labels}

    def _find_lost(self, messages: list[dict], labels: list[int]) -> str | None:
        """Return what the template leaves out of a conversation, or that nothing of it is learned; None for neither."""
        rendered = self._apply(messages, self.template, tokenize=False)
        learned = self.tokenizer.decode([id for id in labels if id != IGNORED], skip_special_tokens=True)
        nothing = None if learned.strip() else "all that is to be learned"
        return find_unrendered(messages, self.tools, rendered, self.learn == "answer") or nothing

    def _by_masks(self, messages: list[dict], template: str) -> tuple[list[int], list[int]]:
        encoded = self._apply(messages, template, return_dict=True, return_assistant_tokens_mask=True)
        return encoded["input_ids"], encoded["assistant_masks"]

    def _by_turns(self, messages: list[dict]) -> tuple[list[int], list[int]]:
        ids = self._render(messages)
        mask = [int(self.learn == "all")] * len(ids)
        try:
            for start, end in self._turns(messages, ids):
                mask[start:end] = [1] * (end - start)
        except TableError:
            if self.learn != "assistant" or (training := _training_template(self.tokenizer)) is None:
                raise
            self.template = training
            return self._by_masks(messages, training)
        return ids, mask

    def _turns(self, messages: list[dict], ids: list[int]) -> list[tuple[int, int]]:
        """Return the start and end of each trained turn among the ids."""
        if self.learn == "all":
            return []
        if self.learn == "answer":
            return [(self._start(messages[:-1], ids), len(ids))]
        turns = []
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                prefix = self._render(messages[: index + 1])
                self._check(prefix, ids)
                turns.append((self._start(messages[:index], prefix), len(prefix)))
        return turns

    def _start(self, before: list[dict], ids: list[int]) -> int:
        """Return the length of the prompt among the ids. Some templates write its end differently once an answer follows."""
        prompt = self._render(before, ask=True)
        if (start := _count_shared(prompt, ids)) < len(prompt):
            self._check(self._render(before), ids)
        return start

    def _check(self, part: list[int], ids: list[int]) -> None:
        """Raise TableError if the ids do not begin with this part."""
        if _count_shared(part, ids) < len(part):
            raise TableError(
                f"{self.model}: its chat template writes a message in another way when others follow; expected the same, or "
                "`{% generation %}` around the trained text (`train-on: assistant`). Add these tags to the template."
            )

    def _render(self, messages: list[dict], ask: bool = False) -> list[int]:
        if not messages:  # the assistant begins the conversation
            return []
        return self._apply(messages, add_generation_prompt=ask, return_dict=True)["input_ids"]

    def _apply(self, messages: list[dict], template: str | None = None, **options: Any) -> Any:
        """Apply a chat template; the tokenizer's own by default. Raises TemplateError where it fails."""
        try:
            return self.tokenizer.apply_chat_template(messages, tools=self.tools, chat_template=template, **options)
        except (TypeError, ValueError, LookupError) as error:  # of what it does with a value
            raise TemplateError(str(error)) from error


def _to_last_answer(messages: list[dict]) -> list[dict]:
    """Return the conversation up to the assistant's last message; all of it without one."""
    last = max((number for number, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    return messages[: last + 1] or messages


def _has_masks(tokenizer: Any) -> bool:
    """Return whether the tokenizer's own template tags the assistant's turns."""
    from trl.chat_template_utils import has_generation_markers

    return has_generation_markers(tokenizer.chat_template)


def _training_template(tokenizer: Any) -> str | None:
    """Return TRL's version of the template, which tags turns and renders each in one way; None for an unknown template."""
    from trl.chat_template_utils import get_training_chat_template

    try:
        return get_training_chat_template(tokenizer)
    except ValueError:
        return None


def _count_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    differing = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def end_of_turn(job: Job, model: Any, tokenizer: Any, labels: list[int]) -> str | None:
    """Return the token that ends trained turns and must become a stop token; None if it is one, or there is no such token."""
    ends = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
    learned = [i for i in labels if i != IGNORED]
    last = next((i for i in reversed(learned) if tokenizer.decode([i]).strip()), None)
    if last in ends:
        return None
    if last in tokenizer.get_added_vocab().values():
        return tokenizer.convert_ids_to_tokens(last)
    if processes.rank() == 0:
        log(job.name, "what is learned ends with no token of its own: the model will not learn to stop")
    return None


if __name__ == "__main__":
    run(main)
