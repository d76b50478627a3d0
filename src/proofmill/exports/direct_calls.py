"""Call the judges of an exported grader: one request over the OpenAI protocol, with retries, by the standard library.

The environment has address and key of `api/<name>`, as in a run (PROOFMILL_<NAME>_URL, PROOFMILL_<NAME>_KEY). A call
that fails is an output with its reason, so its submission is unscored.

Differences from calls of the pipeline (engines/remote.py):
1. Nothing is journaled and no budget applies: the framework decides how often something is graded.
2. It needs no client library, whose version another framework may have fixed.
3. The referee, a program, replies in this process if it has no address.
"""

import json
import time
import urllib.error
import urllib.request
from typing import Any

from proofmill.calls.model_requests import PATHS, ModelOutput, ModelRequest, body_of, split_reasoning, why_none
from proofmill.calls.pacing import backoff
from proofmill.engines import replies
from proofmill.runtime import environment
from proofmill.schema.reasons import Reason, StopReason
from proofmill.synthetic import referee

TRIES = 6
AGAIN = (408, 409, 425, 429)  # and 5xx: a later call may succeed
TIMEOUT = 600.0  # seconds, or PROOFMILL_CALL_TIMEOUT


def ask(name: str, api: Any, request: ModelRequest) -> ModelOutput:
    """Return the output of a judge, or the failure after TRIES tries. Raises SettingError if it has no address."""
    if api.program == "referee" and not environment.has_address(name):
        text = referee.reply_as(api.id, request.messages[0][1], api.extra_body)
        return ModelOutput(text, StopReason.END)
    url = f"{environment.address(name).rstrip('/')}/{PATHS.get(api.protocol, api.protocol)}"
    messages = [{"role": role, "content": content} for role, content in request.messages]
    body = {"model": api.id, **body_of(api, request, messages)} | api.extra_body
    kept = {field: value for field, value in body.items() if field not in api.omit}
    for attempt in range(1, TRIES + 1):
        outcome = _try(url, environment.key(name), kept, api, request)
        if outcome is not None:
            return outcome
        if attempt < TRIES:
            time.sleep(backoff(attempt) / 2)
    return ModelOutput("", StopReason.ERROR, Reason.PROVIDER, tries=TRIES)


def _try(url: str, key: str, body: dict[str, Any], api: Any, request: ModelRequest) -> ModelOutput | None:
    """Return an output, a final failure, or None if another try may succeed."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    posted = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(posted, timeout=environment.seconds("PROOFMILL_CALL_TIMEOUT", TIMEOUT)) as response:
            reply = replies.read(response.read(), api.protocol, request)
    except urllib.error.HTTPError as error:
        again = error.code in AGAIN or error.code >= 500
        return None if again else ModelOutput("", StopReason.ERROR, Reason.PROVIDER, detail=f"HTTP {error.code}")
    except (OSError, replies.UnreadableReply, replies.ErrorReply):
        return None
    output = ModelOutput(
        reply.text,
        reply.stop_reason,
        reply.reason,
        reply.reasoning,
        finish_reason=reply.finish_reason,
        model=reply.model,
    )
    output = split_reasoning(output, api.reasoning_end)
    return None if output.failed or why_none(output) == Reason.NO_OUTPUT else output
