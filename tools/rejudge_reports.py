"""Judge the recordings in `reports/` again with the checks of today, and write their reports and `MATRIX.md`.

    python tools/rejudge_reports.py [--out FOLDER] [REPORT ...]

With `--out`, the reports are written to another folder, and `reports/` stays as it is.
A recording is packed by gzip, `report.jsonl` by xz, which makes it three times smaller.
Pages and JUnit files are not stored: `harmony-conformance report FOLDER --format html|junit` writes one.
"""

from __future__ import annotations

import gzip
import lzma
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from harmony_conformance.cli.main import main as run_command
from harmony_conformance.errors import Exit
from harmony_conformance.report.files import HTML_REPORT, REPORT
from harmony_conformance.runner.shared_run import EXCHANGES

REPORTS = Path(__file__).parents[1] / "reports"
_VLLM = ("--model", "gpt-oss-tiny", "--script", "vllm")
_TELEPROMPTER = ("--model", "gpt-oss-teleprompter", "--script", "teleprompter")
_LLAMA = (*_TELEPROMPTER, "--extra-body", '{"top_k": 1}')
_RENDER = ("--model", "gpt-oss-tiny", "--script", "derender")
_RESPONSES = ("--api", "responses")
_MESSAGES = ("--api", "messages")
_SCHEMAS = (
    "answer_schema",
    "client_strings",
    "markers_in_the_request",
    "rows_structured",
    "rows_structured_otherwise",
    "structured_answer",
)
_OLLAMA = (
    *_TELEPROMPTER,
    *(word for name in _SCHEMAS for word in ("--skip", f"errors.valid_request_is_answered@{name}")),
)
_TGI_SKIPPED = ("rows_*", "broken_*", "call_*", "json_to_the_letter", "arguments_as_written")
_TGI = (*_TELEPROMPTER, *(word for name in _TGI_SKIPPED for word in ("--skip", name)))
_TGI_CHAT = ("tool_choice", "wrong_requests", "several_choices", "json_answer")
_CHOSEN = """rows_[abcnot]* answer_about_harmony content_forms forbidden_call instructions json_beyond_parsers json_to_the_letter
markers_in_the_request odd_function_names parallel_results preamble_and_call preamble_in_history prompt_accounting results results_without_a_call
several_choices stop_strings tool_choice tool_round_trip tool_schemas two_calls_in_one_turn unknown_effort reasoning_by_*"""
_PARSERS = (
    *_TELEPROMPTER,
    "--skip",
    "structured.*",
    *(word for name in _CHOSEN.split() for word in ("--select", name)),
)
_LMDEPLOY = (*_PARSERS, "--skip", "stop_strings", "--select", "*_by_count")
_DYNAMO = (*_PARSERS, "--skip", "several_choices", "--select", "*_by_count")
_ROUTER = (*_TELEPROMPTER, "--api", "all", "--skip", "structured.*")
_LITELLM: tuple[str, ...] = ("--model", "gpt-oss-reference", "--script", "reference", "--api", "all")
_UNSEEN = ("rows_*", "broken_*", "call_header_forms", "completions_*")
_LITELLM = (*_LITELLM, *(word for name in _UNSEEN for word in ("--skip", name)))
_OF_THE_SERVER = (
    "channels.content_is_the_answer@arguments_as_written",
    "responses.calls_of_tools_are_items@responses_agent_tools",
    *(
        f"tool_calls.calls_arrive@{name}"
        for name in (
            *("arguments_as_written", "cut_in_arguments", "empty_arguments_replayed"),
            *("json_beyond_parsers", "json_to_the_letter"),
        )
    ),
)
"""Options that skip what Messages cannot carry behind LiteLLM, and what the server there changes."""
REPORT_RUNS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "dynamo-parsers-1.6.1": ("dynamo 1.6.1", "openai:http://127.0.0.1:18570/v1", _DYNAMO),
    "gpt-oss-0.0.9-responses": (
        "gpt-oss 0.0.9",
        "openai:http://127.0.0.1:18440/v1",
        ("--model", "gpt-oss-120b", "--script", "teleprompter", *_RESPONSES),
    ),
    **{
        f"litellm-1.106.12-before-{behind}": (
            "litellm 1.106.12",
            "litellm:http://127.0.0.1:18460/v1",
            (*_LITELLM, *more),
        )
        for behind, more in (
            ("chat", ()),
            ("messages", tuple(word for pair in _OF_THE_SERVER for word in ("--skip", pair))),
            ("responses", ()),
        )
    },
    "llama.cpp-b11549": ("llamacpp b11549", "llamacpp:http://127.0.0.1:18420/v1", _LLAMA),
    "llama.cpp-b11549-responses": ("llamacpp b11549", "llamacpp:http://127.0.0.1:18420/v1", (*_LLAMA, *_RESPONSES)),
    "llama.cpp-b11549-messages": ("llamacpp b11549", "llamacpp:http://127.0.0.1:18420/v1", (*_LLAMA, *_MESSAGES)),
    "llama.cpp-b7551": ("llamacpp b7551", "llamacpp:http://127.0.0.1:18420/v1", _LLAMA),
    "lmdeploy-parsers-0.18.0": ("lmdeploy 0.18.0", "openai:http://127.0.0.1:18590/v1", _LMDEPLOY),
    "ollama-0.12.11": ("ollama 0.12.11", "ollama:http://127.0.0.1:18450/v1", _TELEPROMPTER),
    "ollama-0.34.4": ("ollama 0.34.4", "ollama:http://127.0.0.1:18450/v1", _OLLAMA),
    "ollama-0.34.4-messages": ("ollama 0.34.4", "ollama:http://127.0.0.1:18450/v1", (*_OLLAMA, *_MESSAGES)),
    "sglang-router-0.3.2": ("smg 0.3.2", "openai:http://127.0.0.1:18600/v1", _ROUTER),
    "sglang-parsers-0.5.23": ("sglang 0.5.23", "sglang:http://127.0.0.1:18560/v1", _PARSERS),
    "smg-1.13.0": ("smg 1.13.0", "openai:http://127.0.0.1:18600/v1", _ROUTER),
    "tgi-3.3.7": ("tgi 3.3.7", "tgi:http://127.0.0.1:18480/v1", (*_TGI, "--api", "tgi")),
    "tgi-3.3.7-chat": (
        "tgi 3.3.7",
        "tgi:http://127.0.0.1:18480/v1",
        (*_TGI, *(word for name in _TGI_CHAT for word in ("--select", name))),
    ),
    "transformers-5.23.0": ("transformers 5.23.0", "transformers:http://127.0.0.1:18430/v1", _TELEPROMPTER),
    "transformers-5.23.0-responses": (
        "transformers 5.23.0",
        "transformers:http://127.0.0.1:18430/v1",
        (*_TELEPROMPTER, *_RESPONSES),
    ),
    "vllm-0.11.0": ("vllm 0.11.0", "vllm:http://127.0.0.1:18400/v1", _VLLM),
    "vllm-0.11.0-responses": ("vllm 0.11.0", "vllm:http://127.0.0.1:18400/v1", (*_VLLM, *_RESPONSES)),
    "vllm-0.32.0": ("vllm 0.32.0", "vllm:http://127.0.0.1:18400/v1", _VLLM),
    "vllm-0.32.0-responses": ("vllm 0.32.0", "vllm:http://127.0.0.1:18400/v1", (*_VLLM, *_RESPONSES)),
    "vllm-0.32.0-messages": (
        "vllm 0.32.0",
        "vllm:http://127.0.0.1:18400/v1",
        (*_VLLM, *_MESSAGES, "--skip", "channels.no_marker_leak@messages_parameters"),
    ),
    "vllm-0.33.0-render": ("vllm 0.33.0", "vllm:http://127.0.0.1:18402/v1", _RENDER),
    "vllm-0.33.0-render-responses": ("vllm 0.33.0", "vllm:http://127.0.0.1:18402/v1", (*_RENDER, *_RESPONSES)),
    "vllm-rs-parsers-0.33.0": ("vllm-rs 0.33.0", "vllm:http://127.0.0.1:18580/v1", _PARSERS),
}
"""Engine with version, target and options of the run of each report, by its folder."""


def rejudge(report: str, reports: Path = REPORTS) -> int:
    """Judge the recording of a report again and write the report to a folder of `reports`. Return the exit code of the run."""
    engine, target, options = REPORT_RUNS[report]
    folder = reports / report
    folder.mkdir(parents=True, exist_ok=True)
    for name in (EXCHANGES, REPORT):
        pack(folder / name)
    recording = REPORTS / report / f"{EXCHANGES}.gz"
    with TemporaryDirectory() as out:
        code = run_command(
            ["run", f"replay:{recording}", *options, "--engine", engine, "--recorded-target", target, "--out", out]
        )
        if code not in (Exit.CONFORMS, Exit.DIVERGES):
            return code
        (folder / HTML_REPORT).unlink(missing_ok=True)
        for name in ("report.md", REPORT):
            (folder / name).write_bytes((Path(out) / name).read_bytes())
        pack(folder / REPORT)
    return Exit.CONFORMS


def pack(file: Path) -> None:
    """Replace a file by its compressed form, which depends on the content alone."""
    if file.is_file():
        data, name = file.read_bytes(), file.name
        is_report = name == REPORT
        packed = lzma.compress(data, preset=9) if is_report else gzip.compress(data, 9, mtime=0)
        file.with_name(f"{name}.{'xz' if is_report else 'gz'}").write_bytes(packed)
        file.unlink()


def main() -> int:
    """Judge the named reports, or all."""
    parser = ArgumentParser()
    parser.add_argument("reports", nargs="*", choices=[*REPORT_RUNS, []], metavar="REPORT")
    parser.add_argument("--out", type=Path, default=REPORTS, metavar="FOLDER")
    options = parser.parse_args()
    code = max(rejudge(report, options.out) for report in options.reports or REPORT_RUNS)
    writer = Path(__file__).with_name("write_matrix.py")
    subprocess.run([sys.executable, writer, options.out], check=True)  # noqa: S603 - a tool of this folder
    return code


if __name__ == "__main__":
    sys.exit(main())
