"""What is known of the language model that a traced program ran: the base of MBU and MFU. Never guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Llm:
    """``parameters`` counts all of them, ``active`` those that a token uses (mixture of experts)."""

    name: str
    parameters: int
    active: int
    bytes_per_parameter: float
