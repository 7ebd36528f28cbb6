"""What a trace may say and what it must not: the one place where secrets, places and host names are taken out of text.

Exports hold the environment and the command line of the traced machine. Readers take only what they need, and what
they take passes :func:`redacted` before it becomes a Trace: whatever an output shows has been through here.

Three strengths, each with the text it is for:

- :func:`mask` for any text, names of events too: takes out what is a secret by its form (``hf_...``, ``AKIA...``),
  by the word before it (``API_KEY=...``, ``--token ...``, ``Bearer ...``) or by its place in a URL, and environment
  blocks. ``max_tokens=512`` and paths stay: names are what a trace is about.
- :func:`mask_prose` for messages and names of programs: also cuts absolute paths to their last part and hides hosts.
- :func:`mask_command` for command lines: the same, and whatever follows an option named like a secret.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from profkit.model import Array, Trace

MASK = "***"
ENVIRONMENT = "<environment, not shown>"

# Words that are followed by a secret, whatever it looks like ...
_SECRET = (
    r"passw(?:or)?ds?|passwd|passphrase|pwd|secrets?|credentials?|authorization"
    r"|(?:api|access|account|private|signing|encryption|master)[-_]?keys?"
)
# ... and words that are followed by one if it looks like one: "token: 17" is a token of a text.
_MAYBE = "token|auth|key|signature|sig|cookie|session"
_MAYBE_NAME = rf"(?:(?<![A-Za-z])(?i:{_MAYBE})|(?<=[a-z])(?:Token|Key|Auth)|(?<=[A-Z])(?:TOKEN|KEY|AUTH))(?![A-Za-z])"
_NAME_END = r"(?:[-_.]?[A-Z0-9][\w.-]{0,40}|[-_][\w.-]{0,40})?"
_QUOTED = r'''"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\"[^"\\]*\\"'''
_SEPARATOR = r"""\\?["']?\s*(?:=>|=(?!=)|:(?!:))\s*"""
_WORD = r"""(?:\\u[0-9a-fA-F]{4}|[^\s"'&,;)\]}\\])+"""

_KEYED = re.compile(
    rf"(?P<name>(?i:{_SECRET}){_NAME_END}{_SEPARATOR})(?P<value>{_QUOTED}|(?i:(?:bearer|basic|token)\s+)?{_WORD})"
)
_KEYED_MAYBE = re.compile(rf"(?P<name>{_MAYBE_NAME}{_SEPARATOR})(?P<value>{_QUOTED}|{_WORD})")
_OPTION = re.compile(
    rf"(?P<name>(?<![\w-])--?[\w-]{{0,40}}?(?i:{_SECRET}|token|auth)(?![a-z])[\w-]{{0,40}}[\"']?,?\s+)"
    rf"(?P<value>{_QUOTED}|[^\s-]\S*)"
)
_BEARER = re.compile(r"(?P<name>\b(?i:bearer)\s+)(?P<value>[\w.~+/=-]{8,})")
_LOGIN = re.compile(r"(?<=://)[^/@\s\"']+@")
_FORMS = re.compile(
    r"\bhf_(?:[A-Za-z0-9]{30,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{12,})"
    r"|\bsk-(?=[\w-]*\d)[\w-]{16,}|\b[sr]k_(?:live|test)_\w{10,}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|nvapi-|dckr_pat_|npm_|pypi-|SG\.)(?=[\w.-]*\d)[\w.-]{10,}"
    r"|\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"
    r"|\beyJ[\w-]{8,}(?:\.[\w-]+){0,2}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w.%()]*=")
# Numbers, words of a program and what is masked already are no secrets.
_HARMLESS = re.compile(r"[-+]?\d{1,9}(?:\.\d*)?|true|false|none|null|\*+", re.IGNORECASE)


def _hint(many: str) -> str:
    """What must occur in a text that :func:`mask` changes."""
    return (
        rf"(?i)(passw|passphrase|pwd|secret|key|credential|token|auth|sig|cookie|session)[\w.-]{many}\\?[\"']?\s*[=:]"
        rf"|-[\w-]{many}(passw|passphrase|pwd|secret|key|credential|token|auth)[\w-]{many}[\"']?,?\s"
        r"|bearer\s|://[^/@\s]*@|hf_|sk-|[sr]k_(live|test)|gh[pousr]_|github_pat|glpat-|xox[a-z]-|nvapi-|dckr_pat|npm_"
        r"|pypi-|SG\.|AKIA|ASIA|AROA|AIDA|AIza|ya29|eyJ|PRIVATE KEY|\x00"
    )


# Arrow's RE2 takes linear time for any pattern and finds it in millions of names at once; Python's needs a bound.
_HINT_IN_ARROW = _hint("*")
_HINT = re.compile(_hint("{0,80}"))
# One of these is in every text that the hint fits: to look for words is ten times as fast as to look for the pattern.
_HINT_WORDS = (
    "passw", "passphrase", "pwd", "secret", "key", "credential", "token", "auth", "signature", "sig=", "sig:", "sig ",
    'sig"', "sig'", "cookie", "session", "bearer", "://", "hf_", "sk-", "k_live", "k_test", "ghp_", "gho_", "ghu_",
    "ghs_", "ghr_", "github_pat", "glpat-", "xox", "nvapi-", "dckr_pat", "npm_", "pypi-", "sg.", "akia", "asia", "aroa",
    "aida", "aiza", "ya29", "eyj", "\0",
)  # fmt: skip
_LINES_AT_ONCE = 128

# A path of at least two parts that starts at a word, so that units such as GB/s and fractions stay.
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~*<-])/(?:[^/\s\"'\\,;:()=]+/+)+([^/\s\"'\\,;:()=]*)")
_DRIVE_PATH = re.compile(r"\b[A-Za-z]:(?:\\{1,2}|/)(?:[^\\/\s\"']+(?:\\{1,2}|/))*([^\\/\s\"']*)")

_SECRET_OPTION = re.compile(r"(?i)(token(?!i[sz])|secret|passw|api[-_]?key|access[-_]?key|credential|auth(?!or))")
_COUNT_OPTION = re.compile(r"(?i)tokens?$")
_COMMAND_VALUE = re.compile(r"\b(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|AKIA|nvapi-|eyJ)[\w.-]{8,}")

# Table -> text columns that are prose: names of programs, threads and machines, not of what they did.
_PROSE = {
    "processes": ("name",),
    "tracks": ("label",),
    "counter_names": ("name", "source"),
    "stacks": ("module",),
    "args": ("value",),
}


def mask(text: str) -> str:
    """``text`` with every secret in it as ``***``; an environment block is replaced as a whole."""
    if not may_hold_secret(text):
        return text
    if is_environment(text):
        return ENVIRONMENT
    text = _FORMS.sub(MASK, _LOGIN.sub(f"{MASK}@", text))
    text = _KEYED.sub(_hide_any, _OPTION.sub(_hide_any, text))
    return _BEARER.sub(rf"\g<name>{MASK}", _KEYED_MAYBE.sub(_hide_likely, text))


def _hide_any(match: re.Match[str]) -> str:
    """Masked, but for a count: ``--token 5`` may be one, no password is."""
    counts = match["name"].rstrip(" =:\"',\\").lower().endswith("token") and _HARMLESS.fullmatch(_bare(match))
    return match[0] if counts else _hidden(match)


def _hide_likely(match: re.Match[str]) -> str:
    return _hidden(match) if _is_likely(match["name"], _bare(match)) else match[0]


def _bare(match: re.Match[str]) -> str:
    return match["value"].strip("\"'\\")


def _hidden(match: re.Match[str]) -> str:
    quote = re.match(r"\\?[\"']|", match["value"])
    around = quote[0] if quote else ""
    return f"{match['name']}{around}{MASK}{around}"


def _is_likely(name: str, value: str) -> bool:
    """Whether the value of a token or of a key is a secret by its looks: long, and no word of a language."""
    has_digit = any(char.isdigit() for char in value)
    if re.search(r"(?i)token|auth", name):
        return (has_digit and len(value) >= 8 and not _HARMLESS.fullmatch(value)) or len(value) >= 20
    return has_digit and len(value) >= 16


def may_hold_secret(text: str) -> bool:
    """Whether :func:`mask` may change a text; quick, and True now and then for no reason."""
    return _has_hint_word(text) and _HINT.search(text) is not None


def _has_hint_word(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in _HINT_WORDS)


def with_suspicion(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it may hold a secret; for files of millions of lines, few of which do."""
    rest = iter(lines)
    while block := list(itertools.islice(rest, _LINES_AT_ONCE)):
        look = _has_hint_word("".join(block))
        yield from ((line, look and may_hold_secret(line)) for line in block)


def is_environment(text: str) -> bool:
    """Whether a text is a block of environment variables: NUL-separated, most parts ``NAME=value``."""
    if "\0" not in text:
        return False
    parts = [part for part in text.split("\0") if part]
    named = sum(1 for part in parts if _ASSIGNMENT.match(part))
    return named > 0 and 2 * named >= len(parts)


def hide_paths(text: str) -> str:
    """``text`` with absolute paths cut to their last part."""
    return _DRIVE_PATH.sub(r"\1", _ABSOLUTE_PATH.sub(r"\1", text))


def hide_hosts(text: str, hosts: Iterable[str]) -> str:
    """``text`` with these host names as ``host``; names of one or two letters are too short to be told from words."""
    for host in hosts:
        if len(host) > 2 and host in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "host", text)
    return text


def mask_prose(text: str, hosts: Iterable[str] = ()) -> str:
    """A message or the name of a program without secrets, absolute paths and ``hosts``."""
    return hide_hosts(hide_paths(mask(text)), hosts)


def mask_command(command: Sequence[str]) -> str:
    """A command, as its words, in one line: secrets masked, absolute paths cut to their last part."""
    words: list[str] = []
    secret_next = False
    for word in command:
        name, has_value, value = word.partition("=")
        is_secret = bool(_SECRET_OPTION.search(name)) and not _counts(name, value)
        if secret_next and not word.startswith("-"):
            word = MASK
        elif is_secret and has_value:
            word = f"{name}={MASK}"
        secret_next = is_secret and not has_value and word.startswith("-")
        words.append(hide_paths(mask(_COMMAND_VALUE.sub(MASK, word))))
    return " ".join(words)


def _counts(name: str, value: str) -> bool:
    """``--max-tokens 512`` and ``max_tokens=512`` are no secrets."""
    return re.search(r"(?i)tokens$", name) is not None and (not value or _HARMLESS.fullmatch(value) is not None)


def mask_value(key: str, value: str) -> str:
    """The value of a property: all of it where the key is named like a secret, else what :func:`mask` finds in it."""
    whole = _KEYED.search(f"{key}=x") or (_KEYED_MAYBE.search(f"{key}=x") and _is_likely(key, value))
    return MASK if value and whole else mask(value)


_ENVIRONMENT_KEY = re.compile(
    r'(?i)"(?:[\w.-]*[._-])?env(?:iron(?:ment)?)?(?:[._-]?var(?:iable)?s?)?"\s*:\s*(?=[\[{"])'
)
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def without_environment(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a JSON text, with the value of each key that is named as an environment emptied.

    Only what stands within a value is dropped; nothing else changes, so that digits of times stay as they are.
    """
    depth = 0
    for line in lines:
        if not depth and "env" not in line.lower():
            yield line
            continue
        out, at = [], 0
        while at < len(line):
            if depth:
                depth, at = _skip(line, at, depth)
                continue
            key = _ENVIRONMENT_KEY.search(line, at)
            if key is None:
                out.append(line[at:])
                break
            out.append(line[at : key.end()])
            opening = line[key.end()]
            out.append({"{": "{}", "[": "[]"}.get(opening, '""'))
            if opening == '"':
                text = _JSON_TOKEN.match(line, key.end())
                at = text.end() if text else len(line)
            else:
                depth, at = _skip(line, key.end() + 1, 1)
        if out:
            yield "".join(out)


def _skip(line: str, at: int, depth: int) -> tuple[int, int]:
    """(depth that is left, position behind it) of a bracket that was opened ``depth`` deep before ``at``."""
    for token in _JSON_TOKEN.finditer(line, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if not depth:
            return 0, token.end()
    return depth, len(line)


def redacted(trace: Trace, hosts: Sequence[str] = ()) -> Trace:
    """The trace as it may be shown; ``hosts`` are names of machines that the source gave away.

    Names of machines become ``host 0``, ``host 1``, ...; names that are equal after masking become one.
    """
    known = [*hosts, *(name for name in trace.text("hosts", "hostname") if name)]
    tables = {name: _masked_table(name, table, known) for name, table in trace.tables.items()}
    tables["hosts"] = _numbered_hosts(tables["hosts"])
    if tables["names"] is not trace.tables["names"]:
        tables = _merged_names(tables)
    meta = trace.meta
    shown = {
        field.name: _masked_fact(getattr(meta, field.name), known)
        for field in fields(meta)
        if field.name not in ("path", "source")
    }
    missing = {
        table: {process: mask_prose(reason, known) for process, reason in reasons.items()}
        for table, reasons in trace.missing.items()
    }
    return replace(trace, meta=replace(meta, **shown), tables=tables, missing=missing)


def _masked_fact(value: Any, hosts: Sequence[str]) -> Any:
    """A fact of the capture: a text, texts, or texts by name; numbers as they are."""
    if isinstance(value, str):
        return mask_prose(value, hosts)
    if isinstance(value, tuple):
        return tuple(_masked_fact(item, hosts) for item in value)
    if isinstance(value, dict):
        return {key: _masked_fact(mask_value(key, item), hosts) for key, item in value.items()}
    return value


def _masked_table(name: str, table: pa.Table, hosts: Sequence[str]) -> pa.Table:
    """The table with its text columns masked; the same object where nothing had to be."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if field.type != pa.string():
            continue
        prose = field.name in _PROSE.get(name, ())
        column = _masked_column(table.column(at), hosts if prose else None)
        if column is not table.column(at):
            table = table.set_column(at, field, column)
    return table


def _masked_column(column: pa.ChunkedArray, hosts: Sequence[str] | None) -> pa.ChunkedArray:
    """Only the few texts that may hold a secret are looked at one by one; with ``hosts`` the column is prose."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.greater(pc.binary_length(column), 0)).as_py():
        return column
    if hosts is None:
        suspects = pc.indices_nonzero(pc.match_substring_regex(column, _HINT_IN_ARROW)).to_pylist()
        hide = mask
    else:
        suspects = range(len(column))

        def hide(text: str) -> str:
            return mask_prose(text, hosts)

    seen: dict[str, str] = {}
    changed = {}
    for at, text in zip(suspects, column.take(pa.array(suspects, pa.int64())).to_pylist(), strict=True):
        shown = seen.get(text)
        if shown is None:
            shown = seen[text] = hide(text)
        if shown != text:
            changed[at] = shown
    if not changed:
        return column
    where = pa.chunked_array([_is_one_of(len(column), list(changed))])
    return pc.replace_with_mask(
        column.combine_chunks(), where.combine_chunks(), pa.array(changed.values(), pa.string())
    )


def _is_one_of(length: int, rows: Sequence[int]) -> Array:
    import numpy as np

    out = np.zeros(length, bool)
    out[list(rows)] = True
    return out


def _numbered_hosts(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    at = table.schema.get_field_index("hostname")
    names = [f"host {row}" if name else "" for row, name in enumerate(table.column(at).to_pylist())]
    return table.set_column(at, table.schema.field(at), pa.array(names, pa.string()))


def _merged_names(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Two names that differed in a secret only are one: a row of ``names`` is a distinct text."""
    import numpy as np
    import pyarrow as pa

    from profkit.schema import TABLES

    first: dict[str, int] = {}
    target = [first.setdefault(text, row) for row, text in enumerate(tables["names"].column("text").to_pylist())]
    if len(first) == len(target):
        return dict(tables)
    kept = sorted(first.values())
    position = {row: i for i, row in enumerate(kept)}
    move = np.asarray([position[row] for row in target] + [-1], np.int32)  # the last one: -1 stays -1
    out = dict(tables)
    out["names"] = tables["names"].take(pa.array(kept))
    for name, table in tables.items():
        for column in TABLES[name].columns:
            if column.unit == "row of names" and table.num_rows:
                at = table.schema.get_field_index(column.name)
                codes: Any = move[table.column(at).to_numpy()]
                table = table.set_column(at, table.schema.field(at), pa.array(codes))
        if name != "names":
            out[name] = table
    return out
