"""The method of the paper, a file for each step: likelihood (DLE), memory (HBU), evidence (CBU), expectation (DPI).

Nothing here knows about federation, datasets or files; numpy and scipy are all it needs.
"""

from btfl.bayes.expectation import expected_weight
from btfl.bayes.likelihood import DiscretisedLikelihood
from btfl.bayes.settings import BayesianSettings

__all__ = ["BayesianSettings", "DiscretisedLikelihood", "expected_weight"]
