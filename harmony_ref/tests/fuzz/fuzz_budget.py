"""How much is tried, and with which seed.

HARMONY_FUZZ_EXAMPLES  random inputs over all properties
HARMONY_FUZZ_SEED      any integer; the same seed and number give the same inputs, whatever runs beside them
HARMONY_FUZZ_FAILURES  folder for inputs that were answered differently
"""

import os
from hashlib import sha256
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("HARMONY_FUZZ_EXAMPLES", "1500"))
SEED = int(os.environ.get("HARMONY_FUZZ_SEED", "0"))
FAILURES = Path(os.environ.get("HARMONY_FUZZ_FAILURES", "runs/fuzz"))
COUNTS = "compared with the oracle"
DESCRIPTION = f"fuzz: HARMONY_FUZZ_SEED={SEED} HARMONY_FUZZ_EXAMPLES={EXAMPLES}"
SHARD = 2500
"""Examples of one test, so that two processes share the work and none comes near the time limit."""


def shards_of(share, of):
    """The number of examples of each shard of a property that has so many shares of all."""
    whole = -(-EXAMPLES * share // of)
    count = -(-whole // SHARD)
    return [whole // count + (number < whole % count) for number in range(count)]


def seed_of(name, shard):
    return int.from_bytes(sha256(f"{SEED}/{name}/{shard}".encode()).digest()[:8])


def trying(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
