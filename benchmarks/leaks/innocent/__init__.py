"""Corpus of innocent answers: correct output of every kind that could be mistaken for a leak.

`corpus()` returns the same cases on the same Python and packages. Texts come from installed packages and this repository; the rest comes
from seeded templates. Each case belongs to a stratum and to one of two parts. Patterns may be tuned on `tuning`, never on `held out`.
Some strata are held out completely.
"""

from innocent.case import HELD_OUT, TUNING, Call, Case
from innocent.strata import STRATA, corpus

__all__ = ["HELD_OUT", "STRATA", "TUNING", "Call", "Case", "corpus"]
