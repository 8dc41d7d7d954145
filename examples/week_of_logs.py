"""A week of logs, audited every night: `week_of_logs.py [FOLDER]`.

The logs are made here: 300 exchanges a day. From the fifth day on, a deployed build returns one answer in twenty with its thought in front.
Each night `audit --incremental` judges the new file. At the end `compare` sets the last three days against the first four.
Exit code: 0 if the comparison names the leak.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

FIRST_DAY = datetime(2026, 11, 2, tzinfo=UTC)
DAYS, BAD_FROM, EXCHANGES = 7, 4, 300
CITIES = ("Oslo", "Lima", "Kyoto", "Accra", "Quito")
COMMAND = (sys.executable, "-m", "harmony_conformance")


def exchange(day: int, number: int, rng: random.Random) -> dict:
    city = rng.choice(CITIES)
    content, thought = f"In {city} it is about {rng.randint(-5, 30)} degrees.", f"The user asks about {city}."
    is_leak = day >= BAD_FROM and rng.random() < 1 / 20
    message = {"role": "assistant", "content": content, "reasoning": thought}
    if is_leak:
        message = {"role": "assistant", "content": f"analysis{thought}assistantfinal{content}"}
    return {
        "started": (FIRST_DAY + timedelta(days=day, minutes=number)).isoformat(),
        "request": {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": f"How warm is it in {city}?"}]},
        "response": {
            "id": f"chatcmpl-{day}-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-oss-20b",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        },
    }


def main() -> int:
    folder = Path(sys.argv[1] if sys.argv[1:] else "runs/week")
    logs, out, rng = folder / "logs", folder / "audit", random.Random(1)
    logs.mkdir(parents=True, exist_ok=True)
    for day in range(DAYS):
        lines = (json.dumps(exchange(day, number, rng)) + "\n" for number in range(EXCHANGES))
        date = (FIRST_DAY + timedelta(days=day)).date()
        (logs / f"{date}.jsonl").write_text("".join(lines), "utf-8")
        audit = [*COMMAND, "audit", logs, "--out", out, "--incremental", "--fail-on", "never", "--workers", "1"]
        done = subprocess.run(audit, capture_output=True, text=True, check=True)
        print(f"{date}: {done.stdout.strip().splitlines()[-1]}")
    periods = (f"{FIRST_DAY.date()}..2026-11-05", "2026-11-06..2026-11-08")
    compare = [*COMMAND, "compare", *(f"{out}@{period}" for period in periods)]
    compared = subprocess.run(compare, capture_output=True, text=True, check=False)
    print(compared.stdout + compared.stderr)
    return 0 if compared.returncode == 1 and "channels.no_channel_words" in compared.stdout else 1


if __name__ == "__main__":
    sys.exit(main())
