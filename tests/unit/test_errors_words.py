"""Messages can be read, whatever was given."""

from __future__ import annotations

from dataclasses import fields

import pytest

import sfumato as sf
from sfumato import cli
from sfumato.studio.paying import Job


def test_what_was_given_is_cut_where_nobody_reads_it() -> None:
    """Mutants: 5,000 characters of a bad value on a screen; a message of which nothing is left to read."""
    domain = sf.Domain({"sex": sf.Categories(["f", "m"], outside="other", missing="other")})
    for given in ("x" * 5_000, "x y " * 2_000):
        with pytest.raises(sf.SfumatoError) as refused:
            sf.predicates(domain, [f"sex == '{given}'"])
        assert len(str(refused.value)) < 3_100
        assert "sex" in str(refused.value)
    short = "a" * 399
    assert str(sf.errors.InvalidInput(f"no {short}")) == f"no {short}"


@pytest.mark.parametrize("error", [MemoryError(), ImportError("failed to map segment from shared object")])
def test_memory_that_is_not_there_is_an_error_in_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutants: a traceback, with exit code 1; an import that fails for another reason passed off as want of memory."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(type(cli.command()), "__call__", fail)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "memory is exhausted, before anything was spent" in capsys.readouterr().err
    error = ImportError("No module named 'x'")
    with pytest.raises(ImportError, match="No module"):
        cli.main()


def test_a_job_of_the_studio_says_nothing_of_time() -> None:
    """Whoever sees the page learns no duration of a look. Mutant: seconds, as they were."""
    assert {f.name for f in fields(Job)} == {"name", "state", "step", "text"}
