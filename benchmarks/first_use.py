"""Seconds of CPU time from nothing imported to the first token, in a fresh process: `first_use.py CONTENDER`.

`first_use.py --commands [FILE]` prints the CPU time of `harmony-conformance COMMAND --help` for each command, the start of Python included.
FILE receives the figures as JSON.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5


def ours():
    import harmony_ref

    return harmony_ref.encode("a")


def bare():
    import tiktoken

    return tiktoken.get_encoding("o200k_harmony").encode_ordinary("a")


def library():
    import openai_harmony

    return openai_harmony.load_harmony_encoding("HarmonyGptOss").encode("a", disallowed_special=())


def compat():
    from harmony_ref import compat

    return compat.load_harmony_encoding("HarmonyGptOss").encode("a", disallowed_special=())


CONTENDERS = {function.__name__: function for function in (ours, bare, library, compat)}


def help_seconds(words):
    """Return the median CPU time of `harmony-conformance WORDS --help` in fresh processes, with modules that are compiled."""
    import resource

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "harmony_conformance", *words, "--help"]
    spent = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(spent[1:])  # the first one compiles


def commands():
    from harmony_conformance.cli.main import all_commands

    return {" ".join(words): round(help_seconds(words), 3) for words in ((), *((one.name,) for one in all_commands()))}


if __name__ == "__main__" and sys.argv[1] == "--commands":
    figures = {"load": os.getloadavg()[0], "seconds": commands()}
    print(json.dumps(figures, indent=1))
    if sys.argv[2:]:
        Path(sys.argv[2]).write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
elif __name__ == "__main__":
    first = CONTENDERS[sys.argv[1]]
    start = time.process_time()
    assert first() == [64]
    print(json.dumps(time.process_time() - start))
