"""Pages and lines with one of each thing: no `1 requests`."""

import json
import re

from harmony_conformance.cli.main import main
from harmony_conformance.load.load import OfferedLoad
from harmony_conformance.load.load_file import read_loads

NOUNS = (
    "answers causes checks clients counts days differences entries events exchanges failures files findings folders lines loads objectives"
    " percentiles prompts records requests results retries runs scenarios tasks times tokens tries values variants vectors"
)
WRONG = re.compile(rf"(?<![\d.,:+-])\b1 (?:(?:[a-z]+|MUST|SHOULD) ){{0,2}}(?:{NOUNS.replace(' ', '|')})\b")
MARKUP = re.compile(r"<(style|script)>.*?</\1>|<[^>]*>", re.DOTALL)
DEFECT = "reference:defect=output-unparsed"
QUICK = ("--select", "simple_answer", "--latency", "1")
ANSWER = {
    "index": 0,
    "finish_reason": "stop",
    "message": {"role": "assistant", "content": "<|channel|>final<|message|>Hi"},
}
LINE = {
    "created": 1_760_000_000,
    "request": {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]},
    "response": {"id": "1", "object": "chat.completion", "created": 1_760_000_000, "model": "m", "choices": [ANSWER]},
}


COMMANDS = {
    "run": ["run", DEFECT, *QUICK, "--verbose", "--out", "bad"],
    "incomplete run": ["run", "reference", *QUICK, "--max-requests", "1", "--out", "incomplete"],
    "other run": ["run", "reference", *QUICK, "--out", "good"],
    "baseline": ["run", DEFECT, *QUICK, "--baseline-write", "baseline.toml", "--out", "expected"],
    "dry run": ["run", "reference", "--select", "simple_answer", "--dry-run"],
    "compare": ["compare", "good", "bad"],
    "comparison.html": ["compare", "good", "bad", "--format", "html"],
    "matrix": ["matrix", "bad"],
    "matrix.html": ["matrix", "bad", "--format", "html"],
    "load": [
        "load",
        "reference",
        *[
            "--clients",
            "1",
            "--requests",
            "1",
            "--warm-up",
            "0",
            "--output-tokens",
            "1",
            "--slo",
            "ttft_p50=60s",
            "--out",
            "load",
        ],
    ],
    "load of a rate": [
        "load",
        "reference",
        *["--rate", "1", "--requests", "1", "--warm-up", "0", "--output-tokens", "1", "--out", "rate"],
    ],
    "dry load": [
        "load",
        "reference",
        *["--rate", "1", "--requests", "1", "--warm-up", "0", "--output-tokens", "1", "--dry-run"],
    ],
    "rates": ["rates", "reference", *["--task", "arithmetic*", "--tries", "1", "--out", "rates"]],
    "few rates": [
        "rates",
        "reference",
        *["--task", "arithmetic*", "--tries", "2", "--max-requests", "1", "--out", "few"],
    ],
    "dry rates": ["rates", "reference", *["--task", "arithmetic*", "--tries", "1", "--dry-run"]],
    "audit": ["audit", "log.jsonl", "--out", "audit"],
    "audit of a run": ["audit", "bad/exchanges.jsonl"],
}


def test_counts_agree_with_their_nouns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(LINE)}\n{{\n", encoding="utf-8")
    texts = {}
    for name, words in COMMANDS.items():
        code = main(words)
        shown = capsys.readouterr()
        assert code in (0, 1, 2), (name, shown.err)
        texts[name] = shown.out + shown.err
    pages = [*tmp_path.rglob("*.md"), *tmp_path.rglob("*.html")]
    texts |= {str(page.relative_to(tmp_path)): page.read_text("utf-8") for page in pages}
    assert {"load/load.html", "bad/report.md", "bad/report.html", "audit/report.html"} <= texts.keys()
    wrong = {name: [one[0] for one in WRONG.finditer(MARKUP.sub("", text))] for name, text in texts.items()}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_loads_of_older_files_have_the_names_of_this_version(tmp_path):
    loads = [
        OfferedLoad(requests=1, **pace, input_tokens=1, output_tokens=1) for pace in ({"clients": 1}, {"rate": 1.0})
    ]
    assert [load.name for load in loads] == ["1 client, 1 to 1 token", "1 request/s, 1 to 1 token"]
    older = ["1 clients, 1 to 1 tokens", "1 requests/s, 1 to 1 tokens", "11 clients, 1 to 21 tokens"]
    file = tmp_path / "load.json"
    file.write_text(json.dumps({"loads": [{"load": name, "metrics": {}} for name in older]}), encoding="utf-8")
    assert [load["load"] for load in read_loads(file)] == [*(load.name for load in loads), older[-1]]
