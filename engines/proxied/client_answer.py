"""Answers as a client receives them, read from the objects of the official `openai` client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClientAnswer:
    """An answer: the texts, the calls, and the end, which is a finish reason, a status or an error."""

    reasoning: str = ""
    answer: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    end: str = ""

    @property
    def is_blocked(self) -> bool:
        return self.end.startswith("blocked")

    @property
    def meaning(self) -> tuple[str, str, list[tuple[str, object]]]:
        """The answer without its end, which differs by API, and with parsed arguments."""
        return self.reasoning, self.answer, [(name, json.loads(arguments or "null")) for name, arguments in self.calls]


def blocked(code: object) -> str:
    return "blocked" if code == "blocked_by_policy" else f"error {code}"


def of_chat(answer: dict[str, Any]) -> ClientAnswer:
    choice = answer["choices"][0]
    message = choice["message"]
    return ClientAnswer(
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        answer=message.get("content") or "",
        calls=tuple(
            (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        ),
        end=choice["finish_reason"],
    )


def add_chunk(answer_so_far: dict[str, Any], chunk: dict[str, Any]) -> None:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        answer_so_far["reasoning"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
        answer_so_far["answer"] += delta.get("content") or ""
        answer_so_far["end"] = choice.get("finish_reason") or answer_so_far["end"]
        for call in delta.get("tool_calls") or ():
            held = answer_so_far["calls"].setdefault(call["index"], ["", ""])
            held[0] += (call.get("function") or {}).get("name") or ""
            held[1] += (call.get("function") or {}).get("arguments") or ""


def of_response(answer: dict[str, Any]) -> ClientAnswer:
    texts: dict[str, str] = {"reasoning": "", "message": ""}
    calls: list[tuple[str, str]] = []
    for item in answer["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        elif item["type"] in texts:
            texts[item["type"]] += "".join(part.get("text") or "" for part in item.get("content") or ())
    return ClientAnswer(reasoning=texts["reasoning"], answer=texts["message"], calls=tuple(calls), end=answer["status"])


def add_event(answer_so_far: dict[str, Any], event: dict[str, Any]) -> None:
    match event["type"]:
        case "response.reasoning_text.delta":
            answer_so_far["reasoning"] += event["delta"]
        case "response.output_text.delta":
            answer_so_far["answer"] += event["delta"]
        case "response.output_item.done" if event["item"]["type"] == "function_call":
            answer_so_far["calls"][len(answer_so_far["calls"])] = [event["item"]["name"], event["item"]["arguments"]]
        case "response.completed" | "response.incomplete" | "response.failed":
            answer_so_far["end"] = event["response"]["status"]
        case "error":
            answer_so_far["end"] = f"{blocked(event['code'])} in the stream"
