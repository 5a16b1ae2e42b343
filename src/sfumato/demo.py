"""From spec to release on the bundled table, which is public: so the demo may also compare with the exact answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato._util.frames import Frame
from sfumato.domain import OTHER, Attribute, Categories, Domain
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.plans.plan import Plan
from sfumato.present import write_report
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases import Release
from sfumato.releasing import REPORT, describe, plan_from_spec, release
from sfumato.specs import read_spec
from sfumato.workloads import Workload

_FOLDER = "sfumato-demo"
_DECILES = [i / 10 for i in range(1, 10)]
_QUESTIONS = (
    "education in ('Bachelors', 'Masters', 'Prof-school', 'Doctorate') and sex == 'Female'",
    "marital_status == 'Divorced' and relationship == 'Unmarried'",
    "age < 30 and income == '>50K'",
)


def run_demo(out: Path | None = None) -> Iterator[str]:
    """Plan, pay, release and ask about the bundled table, yielding what happens as text.

    `out` is a folder that is new or empty; by default a new one beside the caller. Raises InvalidInput
    for another folder, OSError where it cannot be written.
    """
    folder = _output_folder(out)
    data = resources.files("sfumato.data")
    with resources.as_file(data / "adult.toml") as spec_path, resources.as_file(data / "adult.parquet") as table:
        text = spec_path.read_text(encoding="utf-8")
        spec = read_spec(spec_path)
        yield f"1. Declare.  {spec_path.name} declares {len(spec.domain.names)} attributes and what is asked.\n"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adult.toml").write_text(text, encoding="utf-8", newline="\n")
        plan = plan_from_spec(spec)
        assert isinstance(plan, Plan)
        plan.save(folder / "adult.plan")
        yield f"2. Plan, before a row is read.\n\n{_indent_text(_summarize_plan(plan))}\n"
        ledger = Ledger.create(folder / "budget.db", total=spec.budget, table=spec.table)
        done = release(plan, table, ledger=ledger, name="demo", table=spec.table, out=folder / "release")
        yield f"3. Pay and release.\n\n{_indent_text(done.explain())}\n"
        yield from _demo_statistics(done)
        yield _compare_with_exact(done, table, folder / "release" / REPORT)
        yield _describe_itself(table, folder / "profile")
    yield _next_steps(folder)


def _output_folder(out: Path | None) -> Path:
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InvalidInput(f"{out} exists and is not an empty folder; choose another name with --out")
        return out
    number, folder = 1, Path(_FOLDER)
    while folder.exists():
        number += 1
        folder = Path(f"{_FOLDER}-{number}")
    return folder


def _indent_text(text: str) -> str:
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


def _summarize_plan(plan: Plan) -> str:
    """The plan's head, without its tables."""
    return plan.explain().split("\n\n", 1)[0] + f"\n\nConsidered:\n{plan.candidates}"


def _demo_statistics(done: Release) -> Iterator[str]:
    yield "4. Read off distributions: all quantiles come from the one measurement.\n"
    for attribute, by in (("age", "sex"), ("hours_per_week", "sex"), ("hours_per_week", "income")):
        found = done.quantiles(attribute, _DECILES, by=by).rows()
        groups = [g for g in done.plan.workload.domain[by].labels if g != OTHER]
        at = {(r[by], round(r["probability"], 1)): r for r in found}
        columns: dict[str, list[str]] = {by: groups}
        for p in _DECILES:
            columns[f"{p:.0%}"] = [_format_group_value(at[g, round(p, 1)]["quantile"]) for g in groups]
        ends = [(_format_group_value(at[g, 0.5]["low"]), _format_group_value(at[g, 0.5]["high"])) for g in groups]
        columns["95 % interval of the median"] = [f"{low} to {high}" for low, high in ends]
        yield f"   {attribute} by {by}\n{_indent_text(str(Frame(columns)))}\n"
    answers = [done.ask(question) for question in _QUESTIONS]
    frame = Frame(
        {
            "question": list(_QUESTIONS),
            "answer": [a.value for a in answers],
            "standard_error": [a.standard_error for a in answers],
            "low": [a.low for a in answers],
            "high": [a.high for a in answers],
        }
    )
    yield f"5. Ask more: free, because nothing new is measured.\n\n{_indent_text(str(frame))}\n"


def _format_group_value(value: float | None) -> str:
    """A number of a group; none where its size cannot be told from noise."""
    return "-" if value is None else f"{value:g}"


def _compare_with_exact(done: Release, table: Path, page: Path) -> str:
    """Predicted against actual errors, also as a chart in the report. Possible only because the table is public."""
    plan = done.plan
    exact = exact_answers(plan.workload, table)
    errors = done.answers - exact
    actual = math.sqrt(float((errors**2).mean()))
    width = plan.half_widths(0.95)
    inside = float((np.abs(errors) <= width).mean())
    write_report(done, page, actual=exact)
    return (
        "6. Compare with the exact answers, which is possible only because this table is public.\n\n"
        f"   predicted rmse {plan.rmse:.2f}, actual {actual:.2f}; of {len(exact):,} intervals at 95 %, "
        f"{inside:.2%} hold the exact answer\n"
    )


def _describe_itself(table: Path, folder: Path) -> str:
    """The bundled table as one that nobody described, on an account of its own: it is public."""
    found = describe(table, Budget.approx(1, "1e-6", thresholds="5e-7"), ledger=None, out=folder, records=50_000)
    return (
        "7. And had nobody described the table? One priced look over its columns proposes a spec.\n\n"
        f"{_indent_text(str(found.frame()))}\n"
    )


def _next_steps(folder: Path) -> str:
    place = folder / "release"
    return (
        f"Everything is in {folder}: the spec, the plan, the ledger, the release with its report, a description.\n"
        f"  read      {place / REPORT} in a browser\n"
        f'  ask       sfumato ask {place} "age >= 65"\n'
        f"  show      sfumato show {place}\n"
        f"  ledger    sfumato ledger status {folder / 'budget.db'}\n"
        "  a page    sfumato studio --demo, then sfumato studio TABLE.csv (pip install -e '.[ui]' in the clone)\n"
        f"  describe  {folder / 'profile' / 'profile.html'}, and its spec.toml\n"
        "  your own  sfumato describe TABLE.csv --epsilon 1 --delta 1e-6 --plan, or sfumato init TABLE.csv -o spec.toml"
    )


# -- exact answers, read around the curator because the table is public ----------------------------------


def exact_answers(workload: Workload, table: Path) -> FloatArray:
    """(k,) exact answers to a workload about a public Parquet table. Never for a table that is to be protected."""
    cells = _read_cell_numbers(workload.domain, table)
    counts: dict[tuple[str, ...], NDArray[np.int64]] = {}
    out: list[FloatArray] = []
    for query in workload.blocks:
        names = query.attributes
        if names not in counts:
            counts[names] = _tabulate_cells(cells, names, workload.domain.sizes(names))
        out.append(np.asarray(query.block.operator.matvec(counts[names]), dtype=np.float64))
    return np.concatenate(out)


def _tabulate_cells(
    cells: dict[str, NDArray[np.int64]], names: tuple[str, ...], sizes: tuple[int, ...]
) -> NDArray[np.int64]:
    key = np.zeros(len(next(iter(cells.values()))), dtype=np.int64)
    for name, size in zip(names, sizes, strict=True):
        key = key * size + cells[name]
    return np.bincount(key, minlength=math.prod(sizes)).astype(np.int64)


def _read_cell_numbers(domain: Domain, table: Path) -> dict[str, NDArray[np.int64]]:
    """The cell number of every record, per attribute."""
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as connection:
        columns = connection.execute("SELECT * FROM read_parquet(?)", [str(table)]).fetchnumpy()
    return {
        name: _encode_demo_column(attribute, np.ma.asarray(columns[name]))
        for name, attribute in domain.attributes.items()
    }


def _encode_demo_column(attribute: Attribute, column: NDArray[np.generic]) -> NDArray[np.int64]:
    last = attribute.size - 1
    if isinstance(attribute, Categories):
        place = {code: i for i, code in enumerate(attribute.codes)}
        return np.array([place.get(v, last) for v in np.ma.filled(column, "").tolist()], dtype=np.int64)
    intervals = attribute.intervals
    assert intervals is not None
    edges = np.array([low for low, _ in intervals] + [intervals[-1][1]])
    values = np.ma.filled(column.astype(np.float64), np.nan)
    found = np.searchsorted(edges, values, side="right") - 1
    top = len(intervals) - 1
    inside = np.clip(found, 0, top) if attribute.outside == "clamp" else found
    return np.where(np.isnan(values) | (inside < 0) | (inside > top), last, inside).astype(np.int64)
