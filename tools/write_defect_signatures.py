"""Write `golden/signatures.json`: what each switchable defect of the reference server makes fail.

    python tools/write_defect_signatures.py [DEFECT ...]

With ids of defects only these are computed, and the others stay as they are in the file.
A signature has the failing checks, their scenarios and the kinds of messages. It is computed with the ids of prompts (`ids`).
Where the token counts alone give other failures, it is computed with them too (`counts`). It takes ten minutes on two cores.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from harmony_conformance.causes.signatures import SIGNATURES, FailureKey, failures_of, read_signatures, write_signatures
from harmony_conformance.golden.scenario import has_only_rows
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.judge_run import judge_all
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.prompt_evidence import without_prompt_ids
from harmony_conformance.selftest.selftest import judge_defect_run, remember_correct_run, run_correct_server

ROOT = Path(__file__).parents[1]
ROWS = frozenset(scenario.name for scenario in load_scenarios() if has_only_rows(scenario))
"""Names of the scenarios of hand-written rows."""


def compute_signature(defect: str) -> dict[str, frozenset[FailureKey]]:
    """Return the failures of a defect by evidence level."""
    series, plan, results, _ = judge_defect_run(defect)
    by_ids = failures_of(results)
    # the rows are run apart, and no prompt of theirs is judged: without prompt ids they fail alike
    of_rows = (result for result in results if result.scenario in ROWS)
    by_counts = failures_of((*judge_all(map(without_prompt_ids, series), plan), *of_rows))
    return {"ids": by_ids} if by_counts == by_ids else {"ids": by_ids, "counts": by_counts}


def main() -> int:
    """Compute the signatures of all defects, or of those in the arguments, and write the file."""
    names = sys.argv[1:] or list(DEFECTS)
    if unknown := [name for name in names if name not in DEFECTS]:
        sys.exit(f"invalid DEFECT: expected an id of `serve --list-defects`, got {unknown[0]!r}")
    _, digests = run_correct_server()
    with ProcessPoolExecutor(None, process_context(), initializer=remember_correct_run, initargs=(digests,)) as pool:
        computed = dict(zip(names, pool.map(compute_signature, names), strict=True))
    known = {**read_signatures(), **computed} if sys.argv[1:] else computed
    computed = {name: known[name] for name in DEFECTS}
    (ROOT / "golden" / SIGNATURES).write_text(write_signatures(computed), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
