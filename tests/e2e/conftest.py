"""Typing commands in a folder of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sfumato import cli
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from support.typed import ROWS, SPEC, Ended, Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Type a command in a folder that holds a spec, its table and a ledger of (2, 1e-6)."""
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC, encoding="utf-8")
    Path("people.csv").write_text(ROWS, encoding="utf-8")
    Ledger.create("budget.db", total=Budget.approx(2, "1e-6"))

    def typed(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["sfumato", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, *capsys.readouterr())

    return typed
