"""Re-times a trace as a graph of dependencies: what would the recorded window be, had something taken less time?

``build_model`` reads the constraints from a trace, ``replay`` computes all times under them, ``how_far`` says how far
the model can be trusted, :mod:`edits` and the fixes of :mod:`profkit.analysis.fixes` change it.
"""

from profkit.analysis.replay.build import build_model
from profkit.analysis.replay.model import Model, Times
from profkit.analysis.replay.solve import replay
from profkit.analysis.replay.trust import Trust, how_far

__all__ = ["Model", "Times", "Trust", "build_model", "how_far", "replay"]
