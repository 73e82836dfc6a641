"""The scripted model itself, over real HTTP in each of its protocols, also as one file in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.server import free_port, until
from tests.models.archive import archive
from tests.models.script import ScriptError, dump, parse, sample, script
from tests.models.server import ScriptedModel

PLAN = script(
    {"think": "Let me see.", "say": "I look.", "calls": [{"tool": "read", "input": {"path": "/a"}}]},
    {"expect": "apple", "capture": {"fruit": r"an (\w+)"}, "say": "It is an ${fruit}: ${result}."},
)


class Wire:
    """One conversation of two turns in the words of a protocol: the request, and what was said and called in the answer."""

    path = ""

    def body(self, result: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def read(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        raise NotImplementedError

    def joined(self, events: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
        raise NotImplementedError


class Anthropic(Wire):
    path = "/v1/messages"

    def body(self, result: str | None) -> dict[str, Any]:
        messages: list[Any] = [{"role": "user", "content": "what is it?"}]
        if result is not None:
            called = {"type": "tool_use", "id": "c1", "name": "mcp__fs__read", "input": {"path": "/a"}}
            told = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": result}]}
            messages += [{"role": "assistant", "content": [called]}, {"role": "user", "content": [told]}]
        return {
            "model": "m",
            "max_tokens": 10,
            "messages": messages,
            "tools": [{"name": "mcp__fs__read"}, {"name": "mcp__fs__multi_read"}],
        }

    def read(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        said = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        return said, next((block for block in answer["content"] if block["type"] == "tool_use"), None)

    def joined(self, events: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        said = "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")
        given = "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
        return said, {"name": "mcp__fs__read", "input": json.loads(given)} if given else None


class Chat(Wire):
    path = "/v1/chat/completions"

    def body(self, result: str | None) -> dict[str, Any]:
        messages: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is it?"}]
        if result is not None:
            function = {"name": "mcp__fs__read", "arguments": '{"path": "/a"}'}
            messages.append({"role": "assistant", "content": "I look."})
            messages.append(
                {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
            )
            messages.append({"role": "tool", "tool_call_id": "c1", "content": result})
        tools = [{"type": "function", "function": {"name": "mcp__fs__read"}}]
        return {"model": "m", "messages": messages, "tools": tools}

    def read(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        message = answer["choices"][0]["message"]
        return message["content"], self._call(message.get("tool_calls", []))

    def joined(self, events: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        said = "".join(delta.get("content") or "" for delta in deltas)
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        if not calls:
            return said, None
        arguments = "".join(call["function"].get("arguments", "") for call in calls)
        return said, self._call([{"function": {**calls[0]["function"], "arguments": arguments}}])

    def _call(self, calls: list[Any]) -> dict[str, Any] | None:
        if not calls:
            return None
        function = calls[0]["function"]
        return {"name": function["name"], "input": json.loads(function["arguments"])}


class Responses(Wire):
    path = "/v1/responses"

    def body(self, result: str | None) -> dict[str, Any]:
        items: list[Any] = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what is it?"}]}
        ]
        if result is not None:
            items.append({"type": "reasoning", "id": "r", "summary": []})
            called = {"type": "function_call", "call_id": "c1", "name": "mcp__fs__read", "arguments": '{"path": "/a"}'}
            items += [called, {"type": "function_call_output", "call_id": "c1", "output": result}]
        return {"model": "m", "input": items, "tools": [{"type": "function", "name": "mcp__fs__read"}]}

    def read(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        said = "".join(item["content"][0]["text"] for item in answer["output"] if item["type"] == "message")
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        return said, {"name": calls[0]["name"], "input": json.loads(calls[0]["arguments"])} if calls else None

    def joined(self, events: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        assert events[-1]["type"] == "response.completed"
        whole = self.read(events[-1]["response"])
        assert whole[0] == said
        return whole


class Gemini(Wire):
    path = "/v1beta/models/m:generateContent"

    def body(self, result: str | None) -> dict[str, Any]:
        contents: list[Any] = [{"role": "user", "parts": [{"text": "what is it?"}]}]
        if result is not None:
            called = {"functionCall": {"name": "mcp__fs__read", "args": {"path": "/a"}}}
            told = {"functionResponse": {"name": "mcp__fs__read", "response": {"output": result}}}
            contents += [{"role": "model", "parts": [called]}, {"role": "user", "parts": [told]}]
        return {"contents": contents, "tools": [{"functionDeclarations": [{"name": "mcp__fs__read"}]}]}

    def read(self, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        parts = answer["candidates"][0]["content"]["parts"]
        said = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        return said, {"name": calls[0]["name"], "input": calls[0]["args"]} if calls else None

    def joined(self, events: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        assert events[-1]["candidates"][0]["finishReason"] == "STOP"
        return self.read({"candidates": [{"content": {"parts": parts}}]})


WIRES = [Anthropic(), Chat(), Responses(), Gemini()]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(PLAN) as model:
        yield model


def ask(
    model: ScriptedModel, wire: Wire, result: str | None = None, *, streamed: bool
) -> tuple[str, dict[str, Any] | None]:
    body = wire.body(result)
    path = wire.path
    if streamed and path.endswith(":generateContent"):
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    elif streamed:
        body["stream"] = True
    answer = httpx.post(model.url + path, json=body, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    if not streamed:
        return wire.read(answer.json())
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return wire.joined([json.loads(line) for line in lines if line != "[DONE]"])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: type(wire).__name__)
def test_a_conversation_follows_the_script_in_every_protocol(model: ScriptedModel, wire: Wire, streamed: bool) -> None:
    said, call = ask(model, wire, streamed=streamed)
    assert said == "I look."
    assert call is not None, "the tool was found by the end of its name"
    assert (call["name"], call["input"]) == ("mcp__fs__read", {"path": "/a"})
    assert ask(model, wire, "an apple", streamed=streamed) == ("It is an apple: an apple.", None)
    assert model.problems == []
    assert [result.text for result in model.results] == ["an apple"]
    assert [asked.turn for asked in model.asked] == [0, 1]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: type(wire).__name__)
def test_a_result_that_the_script_does_not_expect_is_told(model: ScriptedModel, wire: Wire) -> None:
    said, call = ask(model, wire, "a pear", streamed=False)
    assert "expects results like 'apple'" in said
    assert call is None
    assert len(model.problems) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: type(wire).__name__)
def test_failures_come_as_often_as_the_script_says(wire: Wire) -> None:
    with ScriptedModel(script({"fail": {"status": 429, "times": 2, "retry_after_s": 1}, "say": "at last"})) as model:
        for _ in range(2):
            answer = httpx.post(model.url + wire.path, json=wire.body(None), trust_env=False)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert "scripted failure" in answer.json()["error"]["message"]
        assert ask(model, wire, streamed=False) == ("at last", None)


def test_a_cut_stream_ends_in_the_middle() -> None:
    with ScriptedModel(script({"say": "half of it", "cut": True})) as model:
        body = {**Anthropic().body(None), "stream": True}
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{model.url}/v1/messages", json=body, trust_env=False)


def test_side_questions_get_an_answer_and_do_not_move_the_script(model: ScriptedModel) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    title = {"messages": [{"role": "user", "content": "a title for: what is it?"}], "model": "m"}
    wanted = {**title, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    with httpx.Client(base_url=model.url, trust_env=False) as client:
        assert client.post("/v1/chat/completions", json=title).json()["choices"][0]["message"]["content"] == "ok"
        said = client.post("/v1/chat/completions", json=wanted).json()["choices"][0]["message"]["content"]
        assert json.loads(said) == {"score": 1}
        assert client.post("/v1/messages/count_tokens", json=title).json()["input_tokens"] > 0
        assert client.get("/v1/models").json()["data"]
        assert client.head("/").status_code == 200
        assert client.post("/v1/unknown", json={}).status_code == 404
    assert ask(model, Chat(), streamed=False)[0] == "I look."


def test_scenes_are_chosen_by_the_prompt_and_begin_anew_with_each(model: ScriptedModel) -> None:
    model.replace(
        parse(
            {
                "scenes": [
                    {"when": "^sum", "turns": ["one"], "chat": True},
                    {"when": "^end", "turns": ["two"], "chat": True},
                ]
            }
        )
    )
    body = {"model": "m", "messages": [{"role": "user", "content": "sum it"}]}
    with httpx.Client(base_url=model.url, trust_env=False) as client:
        assert client.post("/v1/messages", json=body).json()["content"][0]["text"] == "one"
        body["messages"] += [{"role": "assistant", "content": "one"}, {"role": "user", "content": "end it"}]  # type: ignore[operator]
        assert client.post("/v1/messages", json=body).json()["content"][0]["text"] == "two"


def test_mistakes_in_scripts_are_named() -> None:
    with pytest.raises(ScriptError, match="no \\['sya'\\]"):
        script({"sya": "typo"})
    with pytest.raises(ScriptError, match="a call is"):
        script({"calls": [{"name": "read"}]})
    with pytest.raises(ScriptError, match="an object"):
        parse(["fine", 3])
    assert parse(json.loads(dump(PLAN))) == PLAN
    assert sample({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}) == ["a", "a"]


def test_as_one_file_it_runs_where_nothing_else_of_ours_is(tmp_path: Path) -> None:
    (tmp_path / "model.pyz").write_bytes(archive())
    (tmp_path / "script.json").write_text(dump(PLAN))
    port = free_port()
    argv = [sys.executable, "-I", "-S", "model.pyz", "script.json", "--port", str(port)]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            until(lambda: _answers(client), 30, "the model's start")
            body = Anthropic().body("an apple")
            assert client.post("/v1/messages", json=body).json()["content"][-1]["text"].startswith("It is an apple")
            state = client.get("/_/state?bodies").json()
            assert (state["problems"], state["tools"]) == ([], ["mcp__fs__multi_read", "mcp__fs__read"])
            assert state["requests"][0]["body"] == body
            assert client.put("/_/script", json=[{"sya": 1}]).status_code == 400
            assert client.put("/_/script", json=["other"]).status_code == 200
            assert client.get("/_/state").json()["requests"] == []
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/v1/models").status_code == 200
    except httpx.TransportError:
        return False
