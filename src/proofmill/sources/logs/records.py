"""Read attempts and settings from the records of evaluation programs.

From: logs that inspect_ai 0.3.285, lm-eval 0.4.13, lighteval 0.13.0 and verifiers 0.2.1 and 0.4.0 wrote, and
`rollout_collection.py` of NeMo-Gym 0.4.0 with the rollouts in its package.

Differences from the programs' own averages:
1. A failed call, a response that the server withheld and an invalidated sample are unscored. verifiers logs reward 0.
2. Attempts count equally within a problem, whatever reducer (`epochs_reducer`, `pass@k`) the run was summarized with.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proofmill.schema.errors import TableError, list_names, shorten
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, StopReason
from proofmill.sources import inspect_logs
from proofmill.sources.graded_proofs import STATEMENT
from proofmill.sources.record_fields import word

Row = Mapping[str, Any]
# Settings that are compared, with their names in the programs. Of several names, the first that is set holds.
SETTINGS = {
    "model": ("model_name", "model"), "task": ("task", "task_name", "env_id"), "dataset": ("dataset_path",),
    "solver": ("solver",), "prompt": ("prompt",), "grader": ("grader",), "few-shot": ("num_fewshot",),
    "max-tokens": ("max_tokens", "max_output_tokens", "max_gen_toks", "max_new_tokens", "generation_size"),
    "temperature": ("temperature",), "top-p": ("top_p",), "seed": ("seed",), "reasoning-effort": ("reasoning_effort",),
    "stop": ("until", "stop_seqs", "stop_sequences"), "system": ("system_message", "system_instruction", "instruction"),
    "samples": ("num_samples",), "limit": ("limit",), "reducer": ("epochs_reducer",), "status": ("status",),
}  # fmt: skip
WITHOUT_REFUSALS = ("lm-eval", "lighteval", "verifiers")  # programs that do not record refusals


class LoggedAttempt(NamedTuple):
    """An attempt with its scores by metric. None is what the log does not record; `attempt` is then by order.

    `sent` is the request. `part` is the filter of lm-eval: each has its own records. Later `settings` override earlier.
    """

    problem: str
    attempt: Any
    statement: str | None
    sent: str | None
    scores: Row
    settings: tuple
    reason: Reason = Reason.OK
    stop_reason: StopReason | None = None
    part: str = ""


def select_settings(*groups: Any) -> dict[str, Any]:
    """Return the settings in SETTINGS."""
    merged = {name: value for group in map(_object, groups) for name, value in group.items() if value not in (None, [])}
    return {ours: merged[name] for ours, theirs in SETTINGS.items() for name in theirs[::-1] if name in merged}


def _object(value: Any) -> Row:
    return value if isinstance(value, Mapping) else {}


def _at(value: Any, *path: str) -> Any:
    """Return a nested value, or None."""
    for key in path:
        value = _object(value).get(key)
    return value


def _join(messages: Any, *roles: str) -> str | None:
    """Return the texts before the first answer, by default of all roles; None without any."""
    texts = [messages] if isinstance(messages, str) else []
    for message in map(_object, messages if isinstance(messages, list) else ()):
        if message.get("role") == "assistant":
            break
        content = message.get("content") if message.get("role") in (roles or (message.get("role"),)) else []
        for part in content if isinstance(content, list) else [content]:
            texts.append(str(_at(part, "text") or _at(part, "type") or part))
    return "\n\n".join(texts) or None


def _stop(is_truncated: Any) -> StopReason | None:
    return None if is_truncated is None else StopReason.LENGTH if is_truncated else StopReason.END


def _read_inspect(where: str, sample: Row, _: Row) -> LoggedAttempt:
    scores, made = inspect_logs.read_values(where, sample), inspect_logs.read_attempt(where, sample, None, None)
    failed = Reason.ERROR if sample.get("error") and not scores else Reason.OK
    log, task = sample["log"], sample["eval"]
    own = {"model": task.get("model"), "task": task["task"], "dataset_path": _at(task, "dataset", "name")}
    own |= {"status": log.get("status"), "solver": [step.get("solver") for step in _at(log, "plan", "steps") or ()]}
    return LoggedAttempt(
        str(sample.get("id")),
        sample.get("epoch"),
        inspect_logs.read_statement(where, sample),
        _join(sample.get("messages")),
        scores,
        (task.get("config"), task.get("model_generate_config"), _at(log, "plan", "config"), own),
        Reason.INVALIDATED if sample.get("invalidation") else made.reason or failed,
        made.stop_reason,
    )


def _read_lm_eval(where: str, record: Row, results: Row) -> LoggedAttempt:
    part, document = record.get("filter") or "none", record["doc"]
    scores = {name if part == "none" else f"{name},{part}": record.get(name) for name in record["metrics"]}
    texts = [document[name] for name in STATEMENT if isinstance(_at(document, name), str)]
    asked = texts[0] if texts else json.dumps(document, sort_keys=True, default=str)
    task = Path(where).stem.removeprefix("samples_").rpartition("_")[0]
    own, sent = _object(_at(results, "configs", task)), _at(record, "arguments", "gen_args_0", "arg_1")
    settings = (own, own.get("generation_kwargs"), sent, results.get("config"), results, {"task": task or None})
    id, sent = word(where, record, "doc_id") or "", record.get("prompt_hash")
    return LoggedAttempt(id, 0, asked, sent, scores, settings, part=part)


def _read_lighteval(where: str, record: Row, results: Row) -> LoggedAttempt:
    document, response = record["doc"], record["model_response"]
    longest = max((len(tokens) for tokens in response.get("output_tokens") or ()), default=0)
    stop = _stop(longest >= document["generation_size"]) if longest and document.get("generation_size") else None
    model, id = _at(results, "config_general", "model_config"), word(where, document, "id") or ""
    asked, sent, scores = document.get("query"), _join(response.get("input")), _object(record["metric"])
    return LoggedAttempt(
        id, 0, asked, sent, scores, (document, model, _at(model, "generation_parameters")), stop_reason=stop
    )


def _read_verifiers(where: str, record: Row, metadata: Row) -> LoggedAttempt:
    scores, prompt = {**_object(record.get("metrics")), "reward": record["reward"]}, record["prompt"]
    reason, stop = Reason.ERROR if record.get("error") else Reason.OK, _stop(record.get("is_truncated"))
    settings, id = (metadata, metadata.get("sampling_args")), word(where, record, "example_id") or ""
    return LoggedAttempt(id, None, _join(prompt, "user"), _join(prompt), scores, settings, reason, stop)


_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")


def _read_episode(where: str, episode: Row, _: Row) -> LoggedAttempt:
    """Return an episode of verifiers 0.4. It has no reward if scoring did not run."""
    if len(episode["traces"]) > 1:
        raise TableError(f"{where}: traces of several agents; expected one trace in each episode.")
    trace, data = [*episode["traces"], {}][0], _object(_at(episode, "task", "data"))
    rewards = {name: _object(reward) for name, reward in _object(trace.get("rewards")).items()}
    scores = {**_object(trace.get("metrics")), **{f"reward.{name}": one.get("score") for name, one in rewards.items()}}
    if rewards and all(rewards.values()):
        scores["reward"] = sum(reward["score"] * reward.get("weight", 1) for reward in rewards.values())
    ends = [call.get("finish_reason") for call in trace.get("calls") or () if not call.get("error")]
    stop = _stop(trace.get("stop_condition") in _LIMITS or ends[-1] == "length") if ends else None
    id = next((data[name] for name in ("id", "idx") if data.get(name) is not None), _at(episode, "task", "key"))
    prompt, agent = data.get("prompt"), _at(trace, "agent", "config")
    settings = ({"task": _at(episode, "env", "id")}, agent, _at(agent, "sampling"))
    sent, reason = f"{data.get('system_prompt')}\n{_join(prompt)}", Reason.OK if trace.get("ok") else Reason.ERROR
    return LoggedAttempt(str(id), None, _join(prompt, "user"), sent, scores, settings, reason, stop)


def _read_nemo_gym(where: str, record: Row, _: Row) -> LoggedAttempt:
    response, request = _object(record["response"]), record["responses_create_params"]
    limit, asked = _at(response, "incomplete_details", "reason"), _join(request.get("input"), "user")
    parts = [part for item in response.get("output") or () for part in item.get("content") or ()]
    is_refused = limit == "content_filter" or any(_at(part, "type") == "refusal" for part in parts)
    is_failed = response.get("status") == "failed" or "_ng_failure_class" in record
    reason = Reason.REFUSED if is_refused else Reason.ERROR if is_failed else Reason.OK
    scores = {name: value for name, value in record.items() if isinstance(value, float | int) and name[0] != "_"}
    stop = _stop(limit == "max_output_tokens") if response.get("status") else None
    settings = (request, {"task": _at(record, "agent_ref", "name"), "model": response.get("model")})
    id, attempt = record.get("_ng_task_index", digest(asked)), record.get("_ng_rollout_index")
    return LoggedAttempt(str(id), attempt, asked, _join(request.get("input")), scores, settings, reason, stop)


_COLUMNS = ("problem", "attempt", "statement", "reason", "stop_reason", "max_points", "model", "task")


def _read_table(where: str, record: Row, _: Row) -> LoggedAttempt:
    """Return the row of a table with `problem`; all columns but _COLUMNS may be metrics."""
    id, attempt, asked, reason, stop = (word(where, record, c) or None if c in record else None for c in _COLUMNS[:5])
    scores = {name: value for name, value in record.items() if name not in _COLUMNS}
    if id is None:
        raise TableError(f"{where}: no `problem`; expected the id of a problem. Fix or remove the row.")
    for column, value, values in (("reason", reason, [*Reason]), ("stop_reason", stop, [*StopReason])):
        if value and value not in values:
            raise TableError(
                f"{where}: `{column}` is {shorten(value)}; expected one of {list_names(values)}. Fix the row."
            )
    settings, ended = ({name: record.get(name) for name in _COLUMNS},), StopReason(stop) if stop else None
    return LoggedAttempt(id, attempt, asked, None, scores, settings, Reason(reason or Reason.OK), ended)


# By the keys of their records.
PROGRAMS: dict[tuple[str, ...], tuple[str, Callable[[str, Row, Row], LoggedAttempt]]] = {
    ("id", "eval", "log"): ("inspect_ai", _read_inspect),
    ("doc_id", "doc", "metrics"): ("lm-eval", _read_lm_eval),
    ("doc", "metric", "model_response"): ("lighteval", _read_lighteval),
    ("responses_create_params", "response", "reward"): ("NeMo-Gym", _read_nemo_gym),
    ("example_id", "prompt", "completion", "reward"): ("verifiers", _read_verifiers),
    ("task", "traces"): ("verifiers", _read_episode),
    ("problem",): ("table", _read_table),
}
