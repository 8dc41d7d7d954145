"""The clients that are recorded: packages, licences, command lines, configuration and the names of their tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".engines" / "clients"
PACKAGES = INSTALLED / "npm" / "node_modules"
PYTHON = str(INSTALLED / "venv" / "bin" / "python")
MODEL = "gpt-oss-reference"
_DUMMY_KEY = "not-a-secret"
_CODEX = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
_READ_FILES = "Show me a.txt and b.txt."
_WEATHER = "What is the weather in Paris and Rome?"
_TWO_CITIES = ({"city": "Paris"}, {"city": "Rome"})


@dataclass(frozen=True, kw_only=True)
class RecordedClient:
    """A client that is started against the reference server.

    Attributes:
        title: Its name in sentences.
        package: Registry and name of its package.
        keeps_texts: True if its licence allows its texts to be published; they are shortened nevertheless.
        api: API that it speaks, as `--api` names it.
        command: Command line. `{url}` is the server's URL; `{prompt}` the question.
        environment: Variables, with the same placeholders.
        files: Files of its home folder by path, with the same placeholders.
        tool: Name of the tool that the scripts call.
        arguments: Arguments of the two calls.
        headers: Names of its constant headers that are part of the recording.
        websocket_setting: End of its configuration file for WebSockets. Empty: it has none.
    """

    title: str
    package: str
    licence: str
    keeps_texts: bool
    api: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    prompt: str = _WEATHER
    tool: str = "get_weather"
    arguments: tuple[Mapping[str, str], Mapping[str, str]] = _TWO_CITIES
    headers: tuple[str, ...] = ("user-agent",)
    websocket_setting: str = ""


def _shell(member: str, **others: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return {member: "cat a.txt", **others}, {member: "cat b.txt", **others}


_OPENCODE = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "share": "disabled",
    "provider": {
        "reference": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "reference",
            "options": {"baseURL": "{url}/v1", "apiKey": _DUMMY_KEY},
            "models": {MODEL: {"name": MODEL, "reasoning": True, "tool_call": True}},
        }
    },
}
CLIENTS: Mapping[str, RecordedClient] = {
    "codex": RecordedClient(
        title="Codex",
        package="npm @openai/codex",
        licence="Apache-2.0",
        keeps_texts=True,
        api="responses",
        command=(
            str(PACKAGES / _CODEX),
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{prompt}"),
        ),
        environment={"CODEX_HOME": "{home}/.codex"},
        files={
            ".codex/config.toml": f'model = "{MODEL}"\nmodel_provider = "reference"\n\n[model_providers.reference]\n'
            'name = "reference"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        },
        prompt=_READ_FILES,
        tool="exec_command",
        arguments=_shell("cmd"),
        headers=("user-agent", "originator", "x-codex-beta-features", "openai-beta"),
        websocket_setting="supports_websockets = true\n",
    ),
    "claude-code": RecordedClient(
        title="Claude Code",
        package="npm @anthropic-ai/claude-code",
        licence="proprietary; only names, types and structure are kept",
        keeps_texts=False,
        api="messages",
        command=(
            str(PACKAGES / "@anthropic-ai/claude-code-linux-x64/claude"),
            *("-p", "{prompt}", "--allowedTools", "Bash"),
        ),
        environment={
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": _DUMMY_KEY,
            "ANTHROPIC_MODEL": MODEL,
            "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        },
        prompt=_READ_FILES,
        tool="Bash",
        arguments=_shell("command", description="Show a file"),
        headers=("user-agent", "anthropic-beta", "anthropic-version", "x-app"),
    ),
    "opencode": RecordedClient(
        title="opencode",
        package="npm opencode-ai",
        licence="MIT",
        keeps_texts=True,
        api="chat",
        command=(
            str(PACKAGES / "opencode-linux-x64-baseline/bin/opencode"),
            *("run", "--auto", "--model", f"reference/{MODEL}", "{prompt}"),
        ),
        environment={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files={".config/opencode/opencode.json": json.dumps(_OPENCODE)},
        prompt=_READ_FILES,
        tool="bash",
        arguments=_shell("command", description="Show a file"),
    ),
    "openai-agents": RecordedClient(
        title="OpenAI Agents SDK",
        package="PyPI openai-agents",
        licence="MIT",
        keeps_texts=True,
        api="responses",
        command=(PYTHON, str(HERE / "openai_agents_client.py"), "{url}/v1", MODEL, "{prompt}"),
        environment={"OPENAI_API_KEY": _DUMMY_KEY},
    ),
    "langchain": RecordedClient(
        title="LangChain",
        package="PyPI langchain-openai",
        licence="MIT",
        keeps_texts=True,
        api="chat",
        command=(PYTHON, str(HERE / "langchain_client.py"), "{url}/v1", MODEL, "{prompt}"),
        environment={"OPENAI_API_KEY": _DUMMY_KEY},
    ),
    "vercel-ai": RecordedClient(
        title="Vercel AI SDK",
        package="npm @ai-sdk/openai-compatible",
        licence="Apache-2.0",
        keeps_texts=True,
        api="chat",
        command=("node", str(HERE / "vercel_ai_client.mjs"), str(PACKAGES), "{url}/v1", MODEL, "{prompt}"),
    ),
}
"""Each client by the name that `run --client` takes."""
