"""Measure all contenders in turn on the same inputs, and write the results: `side_by_side.py --out DIR`.

Each contender is a separate process. In every round each task is run by one contender after the other, so that other load on the machine
affects all equally. A round repeats a task for a minimum time. Before the measurement, all contenders must agree on each input.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import workloads

from harmony_ref import tokens
from harmony_ref.tokenizer import vocabulary

HERE = Path(__file__).parent
OSS_PYTHON = HERE.parent / ".benchmarks" / "oss-harmony" / "bin" / "python"
CONTENDERS = {
    "ours": ("ours", sys.executable),
    "compat": ("compat", sys.executable),
    "openai-harmony": ("library", sys.executable),
    "oss-harmony": ("library", OSS_PYTHON),
    "tiktoken": ("bare", sys.executable),
    "parts": ("parts", sys.executable),
}
"""The module of each contender, and the Python of its environment."""

LARGE_ONLY = ("ours", "openai-harmony", "tiktoken")
"""Contenders that take part where the work is larger than in the tables: the others would take minutes."""

SHA1_OF_URL = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""The name of o200k_base.tiktoken in tiktoken's cache."""


class Contender:
    """A worker and its tasks."""

    def __init__(self, name: str, inputs: Path, environment: dict[str, str], *, long_enough: float) -> None:
        module, python = CONTENDERS[name]
        self.name = name
        self._process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), module, str(inputs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.tasks = set(self._ask({}))
        self._times: dict[str, int] = {}
        self._long_enough = long_enough

    def digest(self, task: str) -> str:
        return self._ask({"task": task})

    def seconds(self, task: str) -> float:
        """Return the mean time of a run, over enough runs for the minimum time."""
        if not self._long_enough:
            self._times[task] = 1
        if task not in self._times:
            once = min(self._ask({"task": task, "times": 1}) for _ in range(2))
            self._times[task] = max(1, round(self._long_enough / max(once, 1e-7)))
        times = self._times[task]
        return self._ask({"task": task, "times": times}) / times

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended while it was asked {question}")
        return json.loads(answer)


def takes_part(contender: Contender, task: str) -> bool:
    size = task.rpartition(", ")[2]
    large = size.isdigit() and int(size) > workloads.TABLE_SIZE
    return task in contender.tasks and (not large or contender.name in LARGE_ONLY)


def agree(contenders: list[Contender], tasks: list[str]) -> None:
    """Return True if all contenders give the same result for the same task. tiktoken alone is excluded."""
    for task in tasks:
        made = {one.name: one.digest(task) for one in contenders if takes_part(one, task) and one.name != "tiktoken"}
        if len(set(made.values())) > 1:
            raise SystemExit(f"the contenders do not make the same of {task!r}: {made}")


def first_use(environment: dict[str, str], names: list[str]) -> dict[str, float]:
    found = {}
    for name in names:
        module, python = CONTENDERS[name]
        if module == "parts":
            continue
        script = [str(python), str(HERE / "first_use.py"), module]
        found[name] = json.loads(subprocess.run(script, env=environment, check=True, capture_output=True).stdout)
    return found


def machine(environment: dict[str, str], names: list[str]) -> dict[str, object]:
    """Return the facts on which the figures depend, without names of the machine or its owner."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    packages = ("harmony-conformance", "openai-harmony", "tiktoken", "pydantic")
    versions = {name: importlib.metadata.version(name) for name in packages}
    if "oss-harmony" in names:
        asked = "import importlib.metadata as m; print(m.version('oss-harmony'))"
        answer = subprocess.run([str(OSS_PYTHON), "-c", asked], env=environment, check=True, capture_output=True)
        versions["oss-harmony"] = answer.stdout.decode().strip()
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": versions,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").split("\n") if Path(path).exists() else []


def spread(values: list[float]) -> dict[str, float | list[float]]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}


def measure(folder: Path, *, rounds: int, largest: int, long_enough: float) -> dict[str, object]:
    vocabulary_file = folder / "o200k_base.tiktoken"
    vocabulary_file.write_bytes(vocabulary.read_vocabulary_file())
    (folder / SHA1_OF_URL).write_bytes(vocabulary.read_vocabulary_file())
    environment = {**os.environ, "TIKTOKEN_ENCODINGS_BASE": str(folder), "TIKTOKEN_CACHE_DIR": str(folder)}
    encoding = tokens.encoding()
    inputs = workloads.inputs(encoding.encode_ordinary, encoding.decode, largest=largest)
    path = folder / "inputs.json"
    path.write_text(json.dumps(asdict(inputs)), "utf-8")

    names = [name for name, (_, python) in CONTENDERS.items() if Path(python).exists()]
    about = machine(environment, names)
    contenders = [Contender(name, path, environment, long_enough=long_enough) for name in names]
    tasks = sorted(set().union(*(one.tasks for one in contenders)))
    agree(contenders, tasks)
    found: dict[str, dict[str, list[float]]] = {task: {} for task in ["first use", *tasks]}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name, seconds in first_use(environment, names).items():
            found["first use"].setdefault(name, []).append(seconds)
        for task in tasks:
            for one in contenders:
                if takes_part(one, task):
                    found[task].setdefault(one.name, []).append(one.seconds(task))
    for one in contenders:
        one.close()
    sizes = {name: len(run) for name, run in [*inputs.completions.items(), *inputs.streams.items()]}
    return {
        "machine": about,
        "rounds": rounds,
        "tokens": {**sizes, **_prompt_sizes(inputs)},
        "seconds": {task: {name: spread(values) for name, values in by.items()} for task, by in found.items()},
    }


def _prompt_sizes(inputs: workloads.Inputs) -> dict[str, int]:
    from harmony_ref import Conversation, render_conversation_for_completion

    return {
        name: len(render_conversation_for_completion(Conversation.from_dict({"messages": messages})))
        for name, messages in inputs.conversations.items()
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--out", type=Path, default=HERE / "results")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--largest", type=int, default=workloads.SIZES[-1], help="tokens of the largest input")
    arguments.add_argument("--long-enough", type=float, default=0.03, help="seconds of a measurement, at least")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), rounds=options.rounds, largest=options.largest, long_enough=options.long_enough)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, sort_keys=True)
    (options.out / "side_by_side.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
