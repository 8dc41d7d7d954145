"""What a run compared, counted per property and printed at its end."""

import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fuzz_budget


def pytest_report_header():
    return fuzz_budget.DESCRIPTION


def pytest_terminal_summary(terminalreporter):
    counted, kinds = defaultdict(Counter), defaultdict(Counter)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == fuzz_budget.COUNTS and report.when == "call":
                    counted[value["property"]].update(value["counts"])
                    kinds[value["property"]].update(value["kinds"])
    if not counted:
        return
    terminalreporter.section("compared with openai-harmony 0.0.8")
    terminalreporter.write_line(fuzz_budget.DESCRIPTION)
    terminalreporter.write_line(f"{'examples':>9} {'distinct':>9} {'answers':>9} {'differ':>6}  property")
    for name, counts in counted.items():
        terminalreporter.write_line(row_of(counts, name))
    terminalreporter.write_line(row_of(sum(counted.values(), Counter()), "all"))
    reasons = {
        reason: count for counts in counted.values() for reason, count in counts.items() if reason not in COLUMNS
    }
    for reason in sorted(reasons):
        total = sum(counts[reason] for counts in counted.values())
        terminalreporter.write_line(f"{total:>9} answers differ as explained: {reason}")
    for name, found in kinds.items() if terminalreporter.verbosity > 0 else ():
        terminalreporter.write_line(f"{name}:")
        for kind, count in sorted(found.items()):
            terminalreporter.write_line(f"  {100 * count / counted[name]['examples']:6.2f} %  {kind}")


COLUMNS = ("examples", "distinct", "answers", "differences")


def row_of(counts, name):
    return f"{counts['examples']:>9} {counts['distinct']:>9} {counts['answers']:>9} {counts['differences']:>6}  {name}"
