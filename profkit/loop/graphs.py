"""The decoding step as a CUDA graph: hundreds of launches become one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP_STEPS = 3
"""Passes before the capture: libraries set themselves up on first use, which a capture forbids."""

Step = Callable[[Tensor, Tensor], Tensor]


def capture_step(step: Step, tokens: Tensor, positions: Tensor) -> Step:
    """``step`` recorded once and replayed at each call, for the shapes of ``tokens`` and ``positions``.

    The result is the same tensor at each call: read it before the next. Ranges inside ``step`` are left when the
    capture ends; they do not come again at a replay. What the passes before the capture write to the cache is
    overwritten by the prefill of whoever gets the slot.
    """
    static_tokens, static_positions = tokens.clone(), positions.clone()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            step(static_tokens, static_positions)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(static_tokens, static_positions)

    def replay(tokens: Tensor, positions: Tensor) -> Tensor:
        static_tokens.copy_(tokens)
        static_positions.copy_(positions)
        graph.replay()
        return result

    return replay
