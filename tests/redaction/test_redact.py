"""What counts as a secret, and what does not: names of ranges and kernels stay as they are."""

from __future__ import annotations

import pytest

from profkit import redact
from profkit.builder import Builder
from profkit.model import RunMeta
from profkit.testing import build_trace, kernel, span

HEX = "0123456789abcdef0123456789abcdef"
HF = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"HF_TOKEN={HF}", "HF_TOKEN=***"),
        (f"loads with {HF}, then", "loads with ***, then"),
        ("--api-key abc --port 80", "--api-key *** --port 80"),
        ("--token=abcdef12 x", "--token=*** x"),
        ("--password 1234", "--password ***"),
        ("Authorization: Bearer abc.def.ghi123", "Authorization: ***"),
        ("bearer abcdef.ghijkl", "bearer ***"),
        ("curl -H 'X-Api-Key: zzz'", "curl -H 'X-Api-Key: ***'"),
        ("https://bob:pw@h/x", "https://***@h/x"),
        ("https://h/x?sig=abcdef0123456789abcd&x=1", "https://h/x?sig=***&x=1"),
        ('{"password": "a b c", "k": 1}', '{"password": "***", "k": 1}'),
        ('"{\\"api_key\\": \\"abc\\"}"', '"{\\"api_key\\": \\"***\\"}"'),
        ("AWS AKIAIOSFODNN7EXAMPLE", "AWS ***"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = ***"),
        ("OPENAI_API_KEY: sk-proj-abcdefgh12345678abcd", "OPENAI_API_KEY: ***"),
        ("key sk-proj-abcdefgh12345678abcd", "key ***"),
        (f"cache_key={HEX}", "cache_key=***"),
        ("hfToken=abcdefgh123", "hfToken=***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x", "*** x"),
        ("HOME=/root\0HF_TOKEN=x\0PATH=/bin\0", redact.ENVIRONMENT),
    ],
)
def test_secrets_are_masked_once_and_for_all(text: str, masked: str) -> None:
    assert redact.mask(text) == masked
    assert redact.mask(masked) == masked
    assert redact.may_hold_secret(text)


@pytest.mark.parametrize(
    "name",
    [
        "prefill max_tokens=512 num_tokens: 12345678",
        "decode token: 17",
        "sample token=5",
        "sample token='hello'",
        "quant per_token: fp8",
        "--max-tokens 512",
        "TOKENIZERS_PARALLELISM=false",
        "hf_transformers_generate",
        "task-12345678, disk-sk-learn-transformers",
        "void sort<Key = unsigned int, Value = unsigned long>(int)",
        "std::secret::api_key::read(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(...)>",
        "secretary: Bob",
        "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py(1511): _call_impl",
        "name\0with\0zeros",
        "",
    ],
)
def test_names_stay(name: str) -> None:
    assert redact.mask(name) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/usr/bin/python3 of ann", "python3 of ann"),
        ("wrote C:\\Users\\ann\\run.nsys-rep", "wrote run.nsys-rep"),
        ("11 GB/s, 1/2, and/or", "11 GB/s, 1/2, and/or"),
        ("node gpu-node-7.cluster failed, gpu-node-77 did not", "node host.cluster failed, gpu-node-77 did not"),
    ],
)
def test_prose_shows_no_place(text: str, shown: str) -> None:
    assert redact.mask_prose(text, ["gpu-node-7"]) == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["serve.py", "--max-tokens", "512", "max_tokens=16"], "serve.py --max-tokens 512 max_tokens=16"),
        (["x", "--auth", "ann:pw", "--author", "ann"], "x --auth *** --author ann"),
        (["env", "WANDB_API_KEY=" + HEX, "x"], "env WANDB_API_KEY=*** x"),
        (["bash", "-c", "login --password 'a b' && run"], "bash -c login --password '***' && run"),
    ],
)  # fmt: skip
def test_commands(command: list[str], shown: str) -> None:
    assert redact.mask_command(command) == shown


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("db_password", "two words", "***"),
        ("HF_TOKEN", HF, "***"),
        ("tokens", "512", "512"),
        ("token", "512", "512"),
        ("stream", "7", "7"),
        ("api_key", "", ""),
    ],
)
def test_values_by_their_key(key: str, value: str, shown: str) -> None:
    assert redact.mask_value(key, value) == shown


def test_environments_leave_a_json_text() -> None:
    lines = [
        '{"env": {"A": "b",\n',
        '  "B": {"x": "}"}}, "ts": 1.50, "environ": ["a"], "system.env": "A=b", "envelope": "x",\n',
        ' "metadata.system.env": {}, "environment_variables": {"S": "t"}, "n": [{"env": {"Q": 1}, "m": 2}]}\n',
    ]
    assert "".join(redact.without_environment(lines)) == (
        '{"env": {}, "ts": 1.50, "environ": [], "system.env": "", "envelope": "x",\n'
        ' "metadata.system.env": {}, "environment_variables": {}, "n": [{"env": {}, "m": 2}]}\n'
    )


def test_lines_are_suspected_one_by_one() -> None:
    lines = ["x"] * 200 + ["password: y"] + ["z"] * 200
    assert [i for i, (_, suspect) in enumerate(redact.with_suspicion(lines)) if suspect] == [200]
    assert [line for line, _ in redact.with_suspicion(lines)] == lines


@pytest.mark.parametrize(
    "text", ["-" * 20_000 + "token", "password=" * 5_000, "--token " * 5_000, "/a" * 20_000, "eyJ" + "a." * 20_000]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """Each of these would take minutes with a pattern that looks back and forth."""
    redact.mask_prose(text)


def test_names_that_become_equal_are_one_name() -> None:
    trace = build_trace(
        span("fetch password=one", 0, 10), span("fetch password=two", 20, 10), span("decode", 40, 10), kernel(0, 5)
    )
    assert trace.names.count("fetch password=***") == 1
    first, second, third = trace.array("spans", "name").tolist()
    assert (first, trace.name(first), trace.name(third)) == (second, "fetch password=***", "decode")
    assert trace.array("spans", "domain").tolist() == [-1, -1, -1]
    assert trace.name(int(trace.array("kernels", "name")[0])) == "gemm"


def test_dimensions_and_facts_of_a_capture() -> None:
    builder = Builder()
    builder.host_names = ["gpu-node-7"]
    builder.dimension("hosts", "h", hostname="gpu-node-7", clock="session")
    builder.dimension("processes", 1, name="/opt/ann/venv/bin/python --api-key abc", pid=7)
    builder.miss("kernels", "nsys says: no access to /var/lib/ann/x on gpu-node-7")
    builder.warnings.append("cannot reach https://ann:pw@gpu-node-7/x")
    extra = {"HF_TOKEN": HF, "place": "/home/ann/x"}
    trace = builder.finish(RunMeta(source="built", command="/bin/sh -c x --token abc", captured=("A",), extra=extra))
    assert trace.text("hosts", "hostname") == ["host 0"]
    assert trace.text("processes", "name") == ["python --api-key ***"]
    assert trace.why_missing("kernels") == "nsys says: no access to x on host"
    assert trace.meta.warnings == ("cannot reach https://***@host/x",)
    assert trace.meta.command == "sh -c x --token ***"
    assert trace.meta.captured == ("A",)
    assert dict(trace.meta.extra) == {"HF_TOKEN": "***", "place": "x"}
