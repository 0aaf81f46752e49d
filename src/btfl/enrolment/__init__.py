"""New devices from a trained federation, and devices whose model is renewed: numpy only, once there are features.

federation = Federation(global_head, total)                  # what the server keeps
bundle = enrol(federation, features, labels)                 # with labels, many or a handful
bundle = enrol(federation, features)                         # with unlabelled samples
bundle = enrol(federation)                                   # with nothing: the global answer
method = LearnsAlong(federation, Coherent)                   # which then learns shares from the stream
method = renewed(method, new_bundle)                         # a new bundle, the same memory
"""

from btfl.enrolment.along import LearnsAlong
from btfl.enrolment.enrol import HANDFUL, LEVELS, Federation, enrol
from btfl.enrolment.renewal import renewed

__all__ = ["HANDFUL", "LEVELS", "Federation", "LearnsAlong", "enrol", "renewed"]
