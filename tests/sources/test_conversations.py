"""Foreign conversations: every stored form, rejected records, and reasons for nothing to train on."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from dirty import dirty_records
from proofmill.schema.errors import ProofmillError, TableError
from proofmill.sources import conversations, files
from proofmill.text.messages import from_row, to_row

ASKED, SAID = "What is 2 + 2?", "It is 4."
TALK = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]
SHARED = [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SAID}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
CALLING = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4", "name": "add"},
    {"role": "assistant", "content": SAID, "reasoning_content": "Easy."},
]


def read(record, **columns):
    return conversations.read("f.jsonl:1", record, columns)


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"messages": TALK}, {}),
        ({"messages": json.dumps(TALK)}, {}),
        ({"conversations": SHARED}, {}),
        ({"conversations": TALK, "id": 3}, {}),
        ({"messages": SHARED}, {}),
        ({"dialog": SHARED}, {"conversations": "dialog"}),
        ({"prompt": ASKED, "completion": SAID}, {}),
        ({"prompt": TALK[:1], "completion": TALK[1:]}, {}),
        ({"prompt": TALK[:1], "completion": TALK[1]}, {}),
        ({"question": ASKED, "answer": SAID}, {"prompt": "question", "completion": "answer"}),
        ({"prompt": "x", "messages": TALK}, {}),
        ({"messages": None, "prompt": ASKED, "completion": SAID}, {}),
        ({"messages": [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in TALK]}, {}),
    ],
)
def test_forms_are_one_conversation(record, columns):
    """Every form of a question and its answer becomes the same two messages."""
    found = read(record, **columns)
    assert (found.messages, found.tools, found.fault) == (TALK, None, None)


def test_system_prompts_turns_tools_and_calls_are_kept():
    """All keys of a message are kept, and arguments written as JSON become the object that templates need."""
    assert read({"messages": CALLING, "tools": [TOOL]}).messages == CALLING
    written = {**CALL, "function": {"name": "add", "arguments": '{"a": 2}'}}
    messages = [{**m, "tool_calls": [written]} if "tool_calls" in m else m for m in CALLING]
    found = read({"messages": messages, "tools": json.dumps([TOOL])})
    assert (found.messages, found.tools) == (CALLING, [TOOL])
    assert [from_row(to_row(message)) for message in found.messages] == CALLING


def test_tools_of_shared_conversations_are_calls():
    """ShareGPT's `function_call` and `observation` are a call and its result; `system` is a column there."""
    call = {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2}}'}
    shared = [SHARED[0], call, {"from": "observation", "value": "4"}, SHARED[1]]
    found = read({"conversations": shared, "system": "Add.", "tools": json.dumps([TOOL])})
    assert [message["role"] for message in found.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[2] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert found.tools == [TOOL]


def test_parquet_gives_messages_no_keys_of_others(tmp_path):
    """If a column holds all keys of all messages, keys that a message lacks are null and dropped."""
    path = tmp_path / "chat.parquet"
    parquet.write_table(pa.Table.from_pylist([{"messages": CALLING, "tools": [TOOL]}, {"messages": TALK}]), path)
    found = [conversations.read(where, record, {}) for where, record in files.read(path)]
    assert [talk.messages for talk in found] == [CALLING, TALK]
    assert [talk.tools for talk in found] == [
        [{**TOOL, "function": {"name": "add", "parameters": {"type": "object"}}}],
        None,
    ]


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "empty"),
        (None, "empty"),
        ([{"role": "user", "content": " "}, {"role": "assistant", "content": None}], "empty"),
        (TALK[:1], "no-assistant"),
        ([TALK[0], {"role": "assistant", "content": ""}], "no-assistant"),
        ([*TALK, {"role": "narrator", "content": "x"}], "unknown-role"),
        ([{"role": None, "content": "x"}, TALK[1]], "unknown-role"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "x"}]}, TALK[1]], "not-text"),
        ([*TALK, TALK[0]], None),
        (TALK[1:], None),
        ([TALK[0], {"role": "assistant", "tool_calls": [CALL]}], None),
    ],
)
def test_conversation_without_anything_to_learn_says_why(messages, fault):
    """The reason is one of FAULTS; a conversation with assistant text or a call has none."""
    assert read({"messages": messages}).fault == fault
    assert fault is None or fault in conversations.FAULTS


@pytest.mark.parametrize(
    ("record", "columns", "message"),
    [
        ({"text": "x"}, {}, r"f.jsonl:1: no conversation among the columns text; expected `messages`"),
        ({"messages": 3}, {}, r"f.jsonl:1: `messages` is a number \(3\); expected a list of records"),
        (
            {"messages": "hello"},
            {},
            r"f.jsonl:1: `messages` is a text but not JSON \(.*\); expected a list of messages",
        ),
        ({"messages": ["hello"]}, {}, r"f.jsonl:1: `messages` is a list .*; expected a list of records"),
        ({"messages": [{"content": "x"}]}, {}, r"f.jsonl:1: `messages`, message 1: no column `role` among content"),
        ({"messages": [{"role": 1, "content": "x"}]}, {}, r"message 1: `role` is a number \(1\); expected text"),
        ({"messages": [{"role": "user", "content": 4}]}, {}, r"message 1: `content` is a number \(4\); expected text"),
        ({"prompt": 1, "completion": "x"}, {}, r"f.jsonl:1: `prompt` is a number"),
        ({"question": "x", "answr": "y"}, {"prompt": "question", "completion": "answer"}, r"Did you mean `answr`\?"),
        ({"messages": TALK, "tools": "{"}, {}, r"f.jsonl:1: `tools` is a text but not JSON"),
        ({"messages": TALK, "tools": ["add"]}, {}, r"f.jsonl:1: a function is a text \('add'\); expected an object"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"x": 1}]}]}, {}, r"message 1: a tool call has no `name`"),
        ({"messages": [{"from": "function_call", "value": "x"}]}, {}, r"message 1: `value` is a text but not JSON"),
        (
            {"messages": [{"from": "function_call", "value": 3}]},
            {},
            r"message 1: `value` is a number \(3\); expected the JSON of a call",
        ),
        (
            {"messages": TALK, "given_grade": "7"},
            {"grade": "given_grade"},
            r"f.jsonl:1: `given_grade` is a text \('7'\); expected a number",
        ),
    ],
)
def test_record_that_is_no_conversation_is_refused_with_its_place(record, columns, message):
    """One sentence has the file, the line, the message and the value."""
    with pytest.raises(TableError, match=message):
        read(record, **columns)


def test_dirty_record_is_a_conversation_or_one_message(tmp_path):
    """Any value in any place of a record, or a missing one, gives a conversation or an error with its place."""
    path, refused = tmp_path / "dirty.jsonl", 0
    for record in dirty_records({"messages": CALLING, "tools": [TOOL], "system": "x"}):
        path.write_text(json.dumps(record))
        try:
            found = [conversations.read(where, read, {}) for where, read in files.read(path)]
            assert [from_row(to_row(message)) for message in found[0].messages] == found[0].messages
        except ProofmillError as error:
            refused += 1
            assert str(error).startswith(f"{path}:1: ") and "; expected " in str(error), record
    assert refused > 20
