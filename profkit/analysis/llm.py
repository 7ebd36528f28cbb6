"""What is known of the language model that a traced program ran: the base of MBU and MFU. Never guessed.

From ``--model``: a preset (llm_presets.toml), or a file: a Hugging Face ``config.json``, or JSON with ``parameters``,
``active_parameters``, ``bytes_per_parameter`` and, if known, ``kv_bytes_per_token``. From the trace: a range or a mark
called ``profkit::model#PRESET``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from profkit import text
from profkit.errors import UsageError
from profkit.model import Trace

LARGEST_FILE = 1_000_000
"""Bytes: a config.json has some thousand."""
_COUNTED = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
_MOE = ("mixtral", "qwen3_moe")
_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_NAMED = re.compile(r"^(?:profkit::)?model#(.{1,200})$", re.DOTALL)


@dataclass(frozen=True)
class Llm:
    """``parameters`` counts all of them, ``active`` those that a token uses (mixture of experts)."""

    name: str
    parameters: int
    active: int
    bytes_per_parameter: float
    """On average over all of them."""
    read_bytes: int = -1
    """What one pass for one token reads of the weights: without the rows of the input embedding, which it looks up."""
    multiplied: int = -1
    """Active parameters of the layers alone: a prefill multiplies each token with them, and only its last one with the
    head."""
    kv_bytes_per_token: int = -1
    arithmetic: str = ""
    """16bit or fp8: which peak its matrix products have; empty where the weights do not tell."""
    source: str = ""


@cache
def presets() -> dict[str, Any]:
    """Configurations by name, as llm_presets.toml has them."""
    return tomllib.loads(files("profkit.analysis").joinpath("llm_presets.toml").read_text("utf-8"))


def read_llm(words: str) -> Llm:
    """The model that ``--model`` says. Raises UsageError for what is neither a preset nor a file that tells it."""
    name = words.strip().lower()
    if name in presets():
        return of_config(presets()[name], name, f"preset {name}")
    path = Path(words)
    if not path.is_file():
        raise UsageError(f"--model takes a file or a preset ({', '.join(sorted(presets()))}), not {text.clip(words)!r}")
    if path.stat().st_size > LARGEST_FILE:
        raise UsageError(f"{path.name} is too large for a config.json")
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path.name} holds no configuration of a model")
    given = config.get("_name_or_path") or config.get("name")
    name = given if isinstance(given, str) and given else path.parent.name or path.stem
    return of_config(config, text.clip(name, 80), path.name)


def of_trace(trace: Trace) -> Llm | None:
    """The model that a range or a mark of the trace names, if it is a preset; None where none or several are named."""
    texts = trace.tables["names"].column("text")
    rows = np.flatnonzero(pc.match_substring_regex(texts, r"^(profkit::)?model#").to_numpy(zero_copy_only=False))
    used = set(rows.tolist()) & set(np.unique(trace.array("spans", "name")).tolist()) if len(rows) else set()
    found = {match[1].strip().lower() for row in used if (match := _NAMED.match(trace.name(row)))}
    if len(found) != 1 or (name := found.pop()) not in presets():
        return None
    return of_config(presets()[name], name, f"preset {name}, named in the trace")


def of_config(config: Mapping[str, Any], name: str, source: str) -> Llm:
    """The model of a configuration. Raises UsageError for one that does not tell all that is needed."""
    if "parameters" in config:
        return _stated(config, name, source)
    kind = config.get("model_type")
    if kind not in _COUNTED:
        raise UsageError(
            f"{source}: parameters of model_type {text.clip(str(kind), 40)!r} are not counted, only of "
            f"{', '.join(_COUNTED)}; "
            'give {"parameters": N, "active_parameters": N, "bytes_per_parameter": 2} instead'
        )
    dtype = str(config.get("torch_dtype") or config.get("dtype") or "")
    wide = _BYTES.get(dtype)
    if wide is None:
        raise UsageError(f"{source}: torch_dtype is not one of {', '.join(_BYTES)}: bytes of a parameter are not known")
    get = _Numbers(config, source)
    width, layers = get("hidden_size"), get("num_hidden_layers")
    heads = get("num_attention_heads")
    kv_heads = get("num_key_value_heads", heads)
    head_dim = get("head_dim", width // heads)
    table = get("vocab_size") * width
    tied = bool(config.get("tie_word_embeddings", False))
    attention, small = _attention(config, kind, width, heads * head_dim, kv_heads * head_dim, head_dim)
    experts, used, router = _mlp(config, kind, get, width)
    linear, active = layers * (attention + experts), layers * (attention + used)
    small = layers * (small + router + 2 * width) + width
    narrow, arithmetic = _quantised(config, wide, source)
    return Llm(
        name=name,
        parameters=linear + small + table * (1 if tied else 2),
        active=active + small + table * (1 if tied else 2),
        bytes_per_parameter=(linear * narrow + (small + table * (1 if tied else 2)) * wide)
        / (linear + small + table * (1 if tied else 2)),
        read_bytes=round(active * narrow + (small + table) * wide),
        multiplied=active + layers * router,
        kv_bytes_per_token=round(2 * layers * kv_heads * head_dim * wide),
        arithmetic=arithmetic,
        source=source,
    )


def _stated(config: Mapping[str, Any], name: str, source: str) -> Llm:
    """A model of which the numbers are given."""
    get = _Numbers(config, source)
    parameters = get("parameters")
    active = get("active_parameters", parameters)
    each = config.get("bytes_per_parameter")
    if isinstance(each, bool) or not isinstance(each, int | float) or not 0.1 <= each <= 8:
        raise UsageError(f"{source}: bytes_per_parameter is a number from 0.1 to 8, not {each!r}")
    return Llm(
        name=name,
        parameters=parameters,
        active=active,
        bytes_per_parameter=float(each),
        read_bytes=round(active * each),
        multiplied=active,
        kv_bytes_per_token=get("kv_bytes_per_token", -1),
        arithmetic="16bit" if each == 2 else "",
        source=source,
    )


class _Numbers:
    """Positive integers of a configuration."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self._config, self._source = config, source

    def __call__(self, key: str, otherwise: int | None = None) -> int:
        value = self._config.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 50:
            raise UsageError(f"{self._source}: {key} is a positive whole number, not {value!r}")
        return value


def _attention(config: Mapping[str, Any], kind: str, width: int, q: int, kv: int, head_dim: int) -> tuple[int, int]:
    """(parameters of the matrices of a layer's attention, of its biases and norms)."""
    small = 0
    if kind == "qwen2" or config.get("attention_bias"):
        small += q + 2 * kv + (width if kind != "qwen2" else 0)
    if kind in ("qwen3", "qwen3_moe"):
        small += 2 * head_dim
    return 2 * width * q + 2 * width * kv, small


def _mlp(config: Mapping[str, Any], kind: str, get: _Numbers, width: int) -> tuple[int, int, int]:
    """(parameters of a layer's experts or its one MLP, of those that a token uses, of the router)."""
    if kind not in _MOE:
        if config.get("mlp_bias"):
            raise UsageError("an MLP with biases is not counted")
        one = 3 * width * get("intermediate_size")
        return one, one, 0
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise UsageError("a model of which only some layers have experts is not counted")
    count = get("num_local_experts" if kind == "mixtral" else "num_experts")
    one = 3 * width * get("intermediate_size" if kind == "mixtral" else "moe_intermediate_size")
    return count * one, min(get("num_experts_per_tok"), count) * one, width * count


def _quantised(config: Mapping[str, Any], wide: float, source: str) -> tuple[float, str]:
    """(bytes of a parameter of the layers' matrices, which peak their products have)."""
    how = config.get("quantization_config")
    if not how:
        return wide, "16bit" if wide == 2 else ""
    method = how.get("quant_method") if isinstance(how, dict) else None
    if method == "fp8":
        return 1.0, "fp8"
    bits = how.get("bits") if method in ("awq", "gptq") else None
    group = how.get("group_size", 128) if bits else None
    if bits not in (2, 3, 4, 8) or not isinstance(group, int):
        raise UsageError(f"{source}: bytes of weights quantised by {text.clip(str(method), 40)!r} are not known")
    scales = (2 + bits / 8) / group if group > 0 else 0.0
    return bits / 8 + scales, "16bit" if wide == 2 else ""
