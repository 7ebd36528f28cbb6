"""The shape of the project: imports point left only, importing profkit is cheap, every column says what it is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.cli import Command
from profkit.errors import ProfkitError
from profkit.plugins import discover
from profkit.rules import HEADINGS, Rule
from profkit.schema import TABLES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "profkit"

# A later stage imports an earlier one, never the reverse. Modules that are not named here serve all stages.
LINE = ("capture", "ingest", "analysis", "rules", "report", "view", "cli")
STAGE_OF = {
    "stats": "rules",
    "reports": "report",
    "headline": "rules",
    "judge": "rules",
    "api": "rules",
    "show": "report",
    "timeline": "analysis",
    "samples": "analysis",
    "loop": "report",
}
HEAVY = ("torch", "dash", "plotly", "duckdb", "triton")


def _modules() -> dict[str, Path]:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "reports").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    out = {}
    for file in files:
        relative = file.relative_to(PACKAGE if file.is_relative_to(PACKAGE) else ROOT)
        out[".".join(("profkit", *relative.with_suffix("").parts)).removesuffix(".__init__")] = file
    return out


def _stage(module: str) -> str | None:
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else ""
    name = STAGE_OF.get(name, name)
    return name if name in LINE else None


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "profkit"}


def test_imports_point_left_only() -> None:
    wrong = []
    for module, file in _modules().items():
        mine = _stage(module)
        for imported in _imports(file):
            theirs = _stage(imported)
            if mine and theirs and LINE.index(theirs) > LINE.index(mine) and theirs != "cli":
                wrong.append(f"{module} ({mine}) imports {imported} ({theirs})")
    assert not wrong


def test_view_and_report_do_not_know_each_other() -> None:
    for module, file in _modules().items():
        stages = {_stage(imported) for imported in _imports(file)}
        assert not (_stage(module) == "report" and "view" in stages), module
        assert not (_stage(module) == "view" and "report" in stages), module


@pytest.mark.parametrize(
    "statement", ["import profkit", "import profkit; profkit.stage", "import profkit; profkit.check"]
)
def test_importing_profkit_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint(sorted(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_of_every_command_loads_no_tables_and_shows_an_example() -> None:
    commands = discover("profkit.cli", "COMMAND", Command)
    assert {"check", "stats", "trace", "report", "doctor", "loop", "rules"} <= set(commands)
    for command in commands.values():
        code = (
            "import sys\nfrom profkit.cli import main\n"
            f"assert main([{command.name!r}, '--help']) == 0\n"
            "assert not {'pyarrow', 'pandas', 'torch', 'numpy'} & set(sys.modules), sorted(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Example: profkit" in done.stdout


def test_every_column_has_a_sentence_and_names_its_unit() -> None:
    for table in TABLES.values():
        assert table.doc.endswith("."), table.name
        for column in table.columns:
            assert len(column.doc) > 3, f"{table.name}.{column.name}"
            if column.unit in ("ns", "bytes"):
                assert column.name.endswith(f"_{column.unit}") or column.name == column.unit, column.name
        assert not any(field.nullable for field in table.schema)


def test_discover_refuses_what_is_no_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, content in {
        "none": {"a.py": "X = 1"},
        "twice": {"a.py": "X = 'same'", "b.py": "X = 'same'"},
        "good": {"a.py": "X = 'one'", "_helper.py": ""},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for file, text in content.items():
            (tmp_path / name / file).write_text(text)
    with pytest.raises(ProfkitError, match=r"none\.a has no X of type str"):
        discover("none", "X", str, key="__doc__")
    with pytest.raises(ProfkitError, match=r"twice\.b and twice\.a both define X"):
        discover("twice", "X", str, key="__doc__")
    assert list(discover("good", "X", str, key="__doc__").values()) == ["one"]


def test_each_rule_has_its_page() -> None:
    import inspect

    for rule in discover("profkit.rules", "RULE", Rule, key="code").values():
        page = inspect.getdoc(inspect.getmodule(rule.check)) or ""
        at = [page.find(f"\n{heading}\n") for heading in HEADINGS]
        assert page.startswith(f"{rule.code} "), rule.code
        assert at == sorted(at), f"{rule.code}: headings out of order"
        assert min(at) > 0, f"{rule.code}: a heading is missing"
