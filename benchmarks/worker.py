"""Run one contender in its own process and environment: `worker.py CONTENDER INPUTS`.

Reads one JSON object per line and answers each.

    {}                   the names of the tasks
    {"task"}             a digest of the task's result
    {"task", "times"}    the CPU seconds of that number of runs
"""

import gc
import hashlib
import importlib
import json
import sys
import time
from pathlib import Path

from workloads import Inputs


def digest(value) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def seconds(task, times: int) -> float:
    gc.collect()
    start = time.process_time()
    for _ in range(times):
        task()
    return time.process_time() - start


def main(contender: str, path: str) -> None:
    inputs = Inputs(**json.loads(Path(path).read_text("utf-8")))
    tasks = importlib.import_module(f"contenders.{contender}").tasks(inputs)
    for line in sys.stdin:
        match json.loads(line):
            case {"task": name, "times": times}:
                answer = seconds(tasks[name], times)
            case {"task": name}:
                answer = digest(tasks[name]())
            case _:
                answer = list(tasks)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
