"""A corpus of innocent answers: what a model may rightly say, of every kind that could be mistaken for a leak.

`corpus()` gives the same cases on the same Python and packages: texts are read from what is installed and from this repository, everything else is made
from seeded templates. Each case belongs to a stratum and to one of two parts: patterns may be tuned on `tuning`, never on `held out`; some strata are
held out whole.
"""

from innocent.case import HELD_OUT, TUNING, Call, Case
from innocent.strata import STRATA, corpus

__all__ = ["HELD_OUT", "STRATA", "TUNING", "Call", "Case", "corpus"]
