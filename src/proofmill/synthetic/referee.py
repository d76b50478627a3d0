"""The referee: a program that judges the `arithmetic` family through the protocol of remote judges.

It classifies threads, compares statements and answers, writes grading schemes, grades proofs, summarizes reasoning and
rates replies. If a rubric has no scheme, it grades by the one that it would write.
It receives the same prompts and writes the same forms as a language model; prompts, parsers, journal and client are the
real ones. It knows only this family, and returns UNKNOWN for other problems.

It solves a problem only if the id of the requested model begins with `referee-teacher`. It then writes the family's proof
for a prompt that shows only a problem. If the id begins with `referee-critic`, it acts as the judge of scaffolds
(_referee_critic.py).

On request its verdicts have faults (_referee_biases.py), and it fails like a remote server (_referee_faults.py). The job
that needs it starts and stops it (engines/open_engine.py).
"""

import argparse
import hmac
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from proofmill.answers import extraction
from proofmill.synthetic import _referee_biases, _referee_critic, _referee_faults, congruences, grading
from proofmill.synthetic._referee_biases import UNBIASED, Biases
from proofmill.synthetic._referee_faults import Unreliable
from proofmill.synthetic.congruences import BRIEF, Congruence
from proofmill.synthetic.grading import FALSE_LINE_CAP
from proofmill.text.folding import unescape

OBJECTION = re.compile(r"\b(wrong|mistake|error|incorrect|disagree|false)\b", re.IGNORECASE)
PRICED = re.compile(r"^\d+\. \((\d{1,9}) pts?, (?:main|routine)\)", re.MULTILINE)
CAP = re.compile(r"cap at (\d)/7", re.IGNORECASE)
OFFERED = re.compile(r"^<points>(\d) out of 7</points>$", re.MULTILINE)  # in a prompt: the only points that it accepts
POINTS = re.compile(r"<points>(\d)</points>")
UNKNOWN = "This problem is not of a kind I know, so I give no verdict."
TEACHER, CRITIC = "referee-teacher", "referee-critic"
KEY = "PROOFMILL_REFEREE_SERVER_KEY"  # the variable with the required key; without one, requests need no key
SHORT = 400  # characters; the longest proof of the family has fewer than 150
EXCERPT = 200  # characters kept of a reasoning that establishes nothing


# ------------------------------------------------------------------------------------------------------------- verdicts


def verdict(prompt: str, biases: Biases = UNBIASED) -> str:
    """Return the referee's answer to a prompt, whose blocks decide the task."""
    block = blocks(prompt)
    if "problem" not in block:
        return UNKNOWN
    if "other" in block:
        return compare(_find_stated(block["problem"]), _find_stated(block["other"]))
    problem = congruences.read(block["problem"])
    if "reasoning" in block:
        return sum_up(problem, block.get("summary", ""), block["reasoning"])
    if "reply" in block:
        return prefer(problem, block["reply"])
    if "proof" in block:
        reference, is_shown, _ = prompt.partition("<answer>\n")[2].partition("\n</answer>")
        if is_shown and problem is not None:  # `proof` is a final answer, to be compared with the reference answer
            return f"\\boxed{{{'Correct' if block['proof'].strip() == reference.strip() else 'Incorrect'}}}"
        if "scheme" not in block and "<points>" not in prompt:
            return block["proof"]  # the prompt asks to neutralize the style, and the proof is neutral already
        scheme = block.get("scheme", write_scheme(problem))
        text = biases.verdict(prompt, problem, block["proof"], lambda proof: grade(problem, scheme, proof))
        return _as_offered(text, [int(points) for points in OFFERED.findall(prompt)])
    if "comments" in block:
        return classify(problem, block.get("solution", ""), block["comments"])
    return write_scheme(problem) if "solution" in block else UNKNOWN


def blocks(prompt: str) -> dict[str, str]:
    """Return the content of each block of a prompt."""
    names = ("problem", "solution", "comments", "scheme", "proof", "summary", "reasoning", "reply", "other", "verdict")
    shown = {}
    for name in names:
        content, closed, _ = prompt.partition(f"<{name}>\n")[2].partition(f"\n</{name}>")
        if closed:  # unescaped, because outside of the prompt it cannot be mistaken for a tag
            shown[name] = unescape(content)
    return shown


def compare(one: Congruence | None, other: Congruence | None) -> str:
    """Return a verdict: 1 point if two statements are the same congruence, with terms in any order, else 0 or UNKNOWN."""
    if one is None or other is None:
        return UNKNOWN
    same = one.content == other.content
    return f"<assessment>{'No' if same else 'Some'} number differs.</assessment>\n<points>{int(same)}</points>"


def classify(problem: Congruence | None, solution: str, comments: str) -> str:
    """Return six labels, like a superficial reader who checks that a proof is complete, but not its residues."""
    is_complete = problem is not None and not grading.check(problem, solution).fault
    labels = {
        "incomplete": not is_complete,
        "difficulty": len(congruences.checkpoints(problem)) if problem else 1,
        "gaps": is_complete and "≡" not in solution,
        "wrong": problem is not None and problem.asks_for_proof and problem.residue != 0,
        "disagreement": OBJECTION.search(comments) is not None,
        "computational": problem is None,
    }
    return f"```json\n{json.dumps(labels)}\n```"


def write_scheme(problem: Congruence | None) -> str:
    """Write the family's grading scheme for this problem, in the three sections of every scheme."""
    if problem is None:
        return UNKNOWN
    lines = "\n".join(f"   - {line}" for line in congruences.checkpoints(problem))
    proviso = f" It earns nothing without {'all the lines' if problem.asks_for_proof else 'any of the lines'}."
    return f"""Checkpoints (7 pts total)
1. (5 pts, main) Each of these lines in this order, or its equal, points in proportion and rounded down:
{lines}
2. (1 pt, routine) The proof is complete and no line of it is false.
3. (1 pt, routine) The conclusion puts the residue {problem.residue} in a box.{proviso}
Total (max 7): 5 + 1 + 1 = 7

Zero-credit items
- A restatement of the problem, or a plan without a calculation.
- A true line that the argument does not use.

Deductions
- cap at {FALSE_LINE_CAP}/7: a false line.
- cap at 0/7: no conclusion in one box at the end, or other text than lines of calculation before it.
- cap at 0/7: more lines than the argument needs, or its lines out of order."""


def grade(problem: Congruence | None, scheme: str, proof: str) -> str:
    """Grade a proof by the points that its scheme names; return UNKNOWN if the scheme cannot be parsed."""
    prices, cap = [int(p) for p in PRICED.findall(scheme)], CAP.search(scheme)
    if problem is None or len(prices) != 3 or cap is None:
        return UNKNOWN
    checked = grading.check(problem, proof, answer_only=True)
    points = checked.points(prices[0], prices[1], prices[2], cap=int(cap[1]))
    listed = "\n".join(f"{i}. {text}" for i, text in enumerate(checked.faults(), 1))
    return (
        f"<assessment>{checked.valid} of {checked.needed} lines established.</assessment>\n<errors>{listed}</errors>\n"
        f"<points>{points}</points>"
    )


def _as_offered(text: str, offered: list[int]) -> str:
    """Round the points of a verdict down to one that the prompt offers, if it lists them."""

    def round_down(match: re.Match[str]) -> str:
        return (
            f"<points>{max((points for points in offered if points <= int(match[1])), default=min(offered))}</points>"
        )

    return POINTS.sub(round_down, text) if offered else text


def prefer(problem: Congruence | None, text: str) -> str:
    """Rate a reply by what a program can check: it is not empty, has no false line, ends in a box, is short."""
    last = text.strip().removesuffix("</answer>").rstrip().rpartition("\n")[2]
    if text.strip() in ("", "(none)"):
        return "<assessment>It says nothing.</assessment>\n<points>0</points>"
    facts = {
        "It has no line that I know to be false.": not _false(problem, text),
        "Its last line has a box.": bool(extraction.find_boxes(last)),
        "It is short.": len(text) <= SHORT,
    }
    assessment = " ".join(["It says something.", *(fact for fact, holds in facts.items() if holds)])
    return f"<assessment>{assessment}</assessment>\n<points>{1 + 2 * sum(facts.values())}</points>"


# ------------------------------------------------------------------------------------------------------------- reasoning


def sum_up(problem: Congruence | None, summary: str, reasoning: str) -> str:
    """Collect the true calculations of the earlier summary and the reasoning; without any, quote the reasoning."""
    calculations = [line.strip() for line in f"{summary}\n{reasoning}".split("\n") if "≡" in line]
    true = [line for line in dict.fromkeys(calculations) if problem and not _false(problem, line)]
    if true:
        return "\n".join(["I have established:", *true])
    other_lines = " ".join(line.strip() for line in reasoning.split("\n") if not _false(problem, line))
    return f"I have established nothing yet. I thought: {other_lines[:EXCERPT].strip()}"


def _false(problem: Congruence | None, text: str) -> list[str]:
    """Return the lines of a text with a congruence that is not true; empty for problems outside the family."""
    lines = [line.removeprefix(BRIEF) for line in text.split("\n") if "≡" in line]
    return [line for line in lines if problem and not grading.is_true(problem, line)]


def teach(prompt: str) -> str | None:
    """Return the proof for a prompt to solve a problem of the family, UNKNOWN for others; None if it needs a verdict."""
    block = blocks(prompt)
    if not set(block) <= {"problem", "summary"}:
        return None
    problem = _find_stated(block.get("problem", prompt))
    return congruences.proof(problem) if problem else UNKNOWN


def _find_stated(text: str) -> Congruence | None:
    """Return the first problem of the family in the lines of a text; None without one."""
    lines = (line.removeprefix("User: ") for line in text.split("\n"))
    return next(filter(None, map(congruences.read, lines)), None)


# --------------------------------------------------------------------------------------------------------- the protocol


def reply(model: str, prompt: str, biases: Biases = UNBIASED) -> str:
    """Return the output of the model with this id."""
    if model.startswith(CRITIC):
        return _referee_critic.criticize(prompt) or UNKNOWN
    return (teach(prompt) if model.startswith(TEACHER) else None) or verdict(prompt, biases)


def reply_as(model: str, prompt: str, options: Mapping[str, Any]) -> str:
    """Return the output to a request with these further fields. Raises ValueError for a wrong one."""
    return reply(model, prompt, _referee_biases.of_request(options))


def option_fault(options: Mapping[str, Any]) -> str | None:
    """Return the fault of the fields of a request to the referee; None without one."""
    try:
        _referee_biases.of_request(options)
    except ValueError as error:
        return str(error)
    return None


def application():
    """Build the web application: Chat Completions and the list of models."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    key = os.environ.get(KEY)

    async def complete(request):
        if lacks_key(request):
            return JSONResponse({"error": {"message": "wrong key", "type": "authentication"}}, status_code=401)
        body = json.loads(await request.body())
        prompt = body["messages"][0]["content"]  # in later rounds the answer repeats the first
        if fault := option_fault(body):
            return JSONResponse({"error": {"message": fault, "type": "invalid_request_error"}}, status_code=400)
        text = reply_as(body["model"], prompt, body)
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(text) // 4,
        }  # about four characters per token
        return JSONResponse(
            {
                "id": "referee",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
                "usage": {**usage, "total_tokens": sum(usage.values())},
            }
        )

    def lacks_key(request):
        return key is not None and not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {key}")

    async def models(request):
        if lacks_key(request):
            return JSONResponse({"error": {"message": "wrong key", "type": "authentication"}}, status_code=401)
        return JSONResponse({"object": "list", "data": [{"id": "referee", "object": "model"}]})

    return Starlette(
        routes=[Route("/v1/chat/completions", complete, methods=["POST"]), Route("/v1/models", models, methods=["GET"])]
    )


def main() -> None:
    """Serve until killed, and print the address."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m proofmill.synthetic.referee", description="Serve the referee.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one (default: 0); the URL is printed")
    parser.add_argument(
        "--faults",
        default=os.environ.get("PROOFMILL_REFEREE_FAULTS"),
        help="schedule of faults: JSON, or a file of JSON (default: from PROOFMILL_REFEREE_FAULTS)",
    )
    options = parser.parse_args()
    server = application()
    if options.faults:
        server = Unreliable(server, _referee_faults.read(options.faults))
    config = uvicorn.Config(server, host=options.host, port=options.port, log_level="error", lifespan="off")
    socket = config.bind_socket()
    socket.listen(2048)  # a client may connect as soon as it reads the address
    print(f"http://{options.host}:{socket.getsockname()[1]}/v1", flush=True)
    uvicorn.Server(config).run(sockets=[socket])


if __name__ == "__main__":
    main()
