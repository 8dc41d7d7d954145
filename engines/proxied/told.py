"""What a client was told, out of the objects of the official `openai` client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the client was told: the texts, the calls, and how it ended (the finish reason or status, else the error)."""

    reasoning: str = ""
    answer: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    end: str = ""

    @property
    def is_blocked(self) -> bool:
        return self.end.startswith("blocked")

    @property
    def meaning(self) -> tuple[str, str, list[tuple[str, object]]]:
        """Without how it ended, which each API has its own words for; arguments as what they say."""
        return self.reasoning, self.answer, [(name, json.loads(arguments or "null")) for name, arguments in self.calls]


def blocked(code: object) -> str:
    return "blocked" if code == "blocked_by_policy" else f"error {code}"


def of_chat(answer: dict[str, Any]) -> Told:
    choice = answer["choices"][0]
    message = choice["message"]
    return Told(
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        answer=message.get("content") or "",
        calls=tuple(
            (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        ),
        end=choice["finish_reason"],
    )


def hear_chunk(heard: dict[str, Any], chunk: dict[str, Any]) -> None:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        heard["reasoning"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
        heard["answer"] += delta.get("content") or ""
        heard["end"] = choice.get("finish_reason") or heard["end"]
        for call in delta.get("tool_calls") or ():
            held = heard["calls"].setdefault(call["index"], ["", ""])
            held[0] += (call.get("function") or {}).get("name") or ""
            held[1] += (call.get("function") or {}).get("arguments") or ""


def of_response(answer: dict[str, Any]) -> Told:
    texts: dict[str, str] = {"reasoning": "", "message": ""}
    calls: list[tuple[str, str]] = []
    for item in answer["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        elif item["type"] in texts:
            texts[item["type"]] += "".join(part.get("text") or "" for part in item.get("content") or ())
    return Told(reasoning=texts["reasoning"], answer=texts["message"], calls=tuple(calls), end=answer["status"])


def hear_event(heard: dict[str, Any], event: dict[str, Any]) -> None:
    match event["type"]:
        case "response.reasoning_text.delta":
            heard["reasoning"] += event["delta"]
        case "response.output_text.delta":
            heard["answer"] += event["delta"]
        case "response.output_item.done" if event["item"]["type"] == "function_call":
            heard["calls"][len(heard["calls"])] = [event["item"]["name"], event["item"]["arguments"]]
        case "response.completed" | "response.incomplete" | "response.failed":
            heard["end"] = event["response"]["status"]
        case "error":
            heard["end"] = f"{blocked(event['code'])} in the stream"
