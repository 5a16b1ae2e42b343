"""What a release answers: parts, tables, further questions, statistics with intervals, pooling, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.releases.files import check_folder

DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 9),
        "sex": sf.Categories(["f", "m"]),
        "pay": sf.Bins([0, 10, 20, 50, 100]),
    }
)
COUNTS = (np.arange(DOMAIN.size).reshape(DOMAIN.shape) * 37) % 90 + 20
WORK = sf.stack(
    tables=sf.marginals(DOMAIN, upto=2),
    cdf=sf.prefix(DOMAIN, "age", by=["sex"]),
    money=sf.sums(DOMAIN, "pay", by=["sex"]),
)
SHARP = sf.gdp(1000)


def make(budget: sf.Budget = SHARP, work: sf.Workload = WORK, mechanism: str = "auto", **options: object) -> sf.Release:
    plan = sf.plan(work, budget, neighbours="add-remove", mechanism=mechanism)
    return sf.release(plan, sf.Histogram(COUNTS), ledger=None, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sharp() -> sf.Release:
    """A release so precise that every answer is the truth but for hundredths."""
    return make(mechanism="marginals")


def test_answers_are_those_of_the_workload(sharp: sf.Release) -> None:
    truth = WORK.answer(COUNTS)
    assert np.abs(sharp.answers - truth).max() < 8 * sharp.standard_errors().max()
    assert len(sharp.labels()) == len(sharp.answers) == len(sharp.standard_errors()) == len(WORK)
    ends = sharp.intervals(0.95)
    assert np.all(ends.low < sharp.answers)
    assert np.all(sharp.answers < ends.high)
    wide = sharp.intervals(0.95, simultaneous=True)
    assert np.all(wide.high >= ends.high)


def test_parts_are_releases_of_their_own(sharp: sf.Release) -> None:
    part = sharp["cdf"]
    assert len(part.answers) == 20
    assert part.answers == pytest.approx(sharp.answers[-22:-2])
    assert list(sharp.parts) == ["tables", "cdf", "money"]
    with pytest.raises(sf.NotAnswerable, match="tables, cdf, money"):
        sharp["nothing"]


def test_tables_have_any_order_of_attributes(sharp: sf.Release) -> None:
    table = sharp.table("sex", "age")
    assert table.values == pytest.approx(COUNTS.sum(axis=2).T, abs=0.5)
    assert table.values == pytest.approx(sharp.table("age", "sex").values.T)
    assert table.standard_errors.shape == table.low.shape == table.high.shape == (2, 10)
    assert table.labels == (("f", "m"), tuple("0123456789"))
    assert sharp.table().values == pytest.approx(COUNTS.sum(), abs=1)
    with pytest.raises(sf.NotAnswerable, match="age, pay, sex"):
        sharp.table("age", "sex", "pay")
    with pytest.raises(sf.errors.DomainError, match="age, sex, pay"):
        sharp.table("height")


def test_a_table_measured_only_inside_a_larger_one_is_summed() -> None:
    result = make(work=sf.marginals(DOMAIN, sets=[("age", "sex")]))
    assert result.table("age").values == pytest.approx(COUNTS.sum(axis=(1, 2)), abs=0.5)
    assert np.all(result.table("age").standard_errors > result.table("age", "sex").standard_errors[:, 0])


def test_further_predicates_and_workloads(sharp: sf.Release) -> None:
    answer = sharp.ask("age >= 5 and sex == 'f'")
    assert answer.value == pytest.approx(COUNTS[5:, 0].sum(), abs=1)
    assert answer.low < answer.value < answer.high
    assert answer.standard_error > 0
    more = sharp.ask(sf.ranges(DOMAIN, "age"))
    assert len(more) == 55
    with pytest.raises(sf.NotAnswerable):
        sharp.ask("age >= 5 and sex == 'f' and pay < 10")
    with pytest.raises(sf.errors.WorkloadError):
        sharp.ask("age >= 5; drop table")


def test_frames_convert(sharp: sf.Release) -> None:
    table = sharp.table("age", "sex")
    assert list(table.to_pandas().columns) == ["age", "sex", "answer", "standard_error", "low", "high"]
    assert table.to_polars().height == 20
    assert table.to_arrow().num_rows == 20
    assert "<table>" in table._repr_html_()


def test_tables_have_pictures(sharp: sf.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sharp.table("age").plot().to_dict()
    assert len(one["data"]["values"] if "values" in one["data"] else one["layer"][0]["data"]["values"]) == 10
    assert "xOffset" in str(sharp.table("age", "sex").plot().to_dict())
    with pytest.raises(sf.errors.PlanError, match="no simple picture"):
        sharp.table().plot()
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(sf.errors.MissingExtra, match=r"pip install -e '.\[plots\]'"):
        sharp.table("age").plot()


def test_a_picture_of_two_attributes_keeps_the_order_of_the_domain() -> None:
    """Mutant: the second attribute without an order, which Vega sorts by the alphabet."""
    labels = {"size": ["small", "medium", "large"], "ok": ["yes", "no"]}
    domain = sf.Domain({name: sf.Categories(values) for name, values in labels.items()})
    made = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    release = sf.release(made, sf.Histogram(np.full((3, 2), 9)), ledger=None)
    for first, second in (("size", "ok"), ("ok", "size")):
        for layer in release.table(first, second).plot().to_dict()["layer"]:
            drawn = layer["encoding"]
            assert drawn["x"]["sort"] == labels[first]
            assert drawn["xOffset"]["sort"] == labels[second]
            assert "sort" not in drawn["color"] or drawn["color"]["sort"] == labels[second]
        assert release.table(first, second).plot().to_dict()["layer"][0]["encoding"]["color"]["sort"] == labels[second]


def test_a_part_shows_its_answers_and_no_total_in_their_place(sharp: sf.Release) -> None:
    domain = sharp.plan.workload.domain
    named = sf.predicates(domain, ["age >= 5", "sex == 'm'"])
    work = sf.stack(tables=sf.marginals(domain, upto=1), pairs=sf.marginals(domain, order=2), named=named)
    made = sf.plan(work, sf.gdp(100), neighbours="add-remove")
    release = sf.release(made, sf.Histogram(COUNTS), ledger=None)
    printed = str(release["named"])
    for row in release["named"].frame().rows():
        assert row["label"] in printed
        assert f"{row['answer']:,.4g}" in printed
    assert "sex == 'm'" not in str(release)
    assert "frame() has them" in str(release["pairs"])
    assert float(release["tables"].table().values) == pytest.approx(COUNTS.sum(), abs=1)
    for part in ("named", "pairs"):
        with pytest.raises(sf.NotAnswerable, match="no number of records of its own"):
            release[part].table()
    with pytest.raises(sf.NotAnswerable, match=r"as in table\('age', 'sex'\)"):
        release["pairs"].table()


def test_an_answer_reads_as_a_sentence(sharp: sf.Release) -> None:
    """Value, unit, interval, standard error, each to two figures of the error; a share has no unit."""
    answer = sf.Answer(1234.567, 0.5, 1233.587, 1235.547)
    assert str(answer) == "1,234.57 records, 95 % interval 1,233.59 to 1,235.55, standard error 0.50"
    assert f"{sf.Answer(1234.567, None, 1200.0, 1300.0)}" == "1,235 records, 95 % interval 1,200 to 1,300"
    assert "\n" not in str(sharp.ask("age >= 5"))
    assert "records" not in str(sharp.ask("age >= 5") / sharp.ask("age >= 0"))


# ---- statistics ------------------------------------------------------------------------------------------


def test_shares_means_and_distributions_of_a_sharp_release(sharp: sf.Release) -> None:
    both = COUNTS.sum(axis=2)
    assert sharp.share("sex", within="age")["share"] == pytest.approx(
        (both / both.sum(axis=1, keepdims=True)).reshape(-1), abs=1e-3
    )
    expected = both.cumsum(axis=0) / both.sum(axis=0)
    assert sharp.cdf("age", by="sex")["share"] == pytest.approx(expected.T.reshape(-1), abs=1e-3)
    pay = COUNTS.sum(axis=0)
    middle = np.array([5, 15, 35, 75])
    assert sharp.mean("pay", by="sex")["mean pay"] == pytest.approx((pay @ middle) / pay.sum(axis=1), abs=1e-2)
    assert sharp.mean("sex", values=[0, 1])["mean sex"] == pytest.approx([COUNTS[:, 1].sum() / COUNTS.sum()], abs=1e-3)


def test_quantiles_of_a_sharp_release(sharp: sf.Release) -> None:
    found = sharp.quantiles("age", [0.1, 0.5, 0.9], by="sex")
    by_age = COUNTS.sum(axis=2)
    for sex in range(2):
        share = by_age[:, sex].cumsum() / by_age[:, sex].sum()
        expected = [int(np.argmax(share >= p)) for p in (0.1, 0.5, 0.9)]
        rows = slice(3 * sex, 3 * sex + 3)
        assert list(found["quantile"][rows]) == pytest.approx(expected)
        assert all(
            a <= q <= b
            for a, q, b in zip(found["low"][rows], found["quantile"][rows], found["high"][rows], strict=True)
        )
    inside = sharp.quantiles("pay", [0.5])
    assert inside["low"][0] in (0, 10, 20, 50)
    assert inside["low"][0] <= inside["quantile"][0] <= inside["high"][0]
    for wrong in ([0], [1.5], [True], []):
        with pytest.raises(sf.SfumatoError):
            sharp.quantiles("age", wrong)
    with pytest.raises(sf.errors.PlanError, match="not numeric"):
        sharp.quantiles("sex", [0.5])
    with pytest.raises(sf.errors.PlanError, match="no order"):
        sharp.cdf("sex")


def test_attributes_may_be_called_like_our_columns() -> None:
    domain = sf.Domain({"share": sf.Integers(0, 2), "low": sf.Categories(["a", "b"])})
    plan = sf.plan(sf.marginals(domain, order=2), SHARP, neighbours="add-remove")
    result = sf.release(plan, sf.Histogram([[1, 2], [3, 4], [5, 6]]), ledger=None)
    assert list(result.share("low", within="share").columns)[:3] == ["share (attribute)", "low (attribute)", "share"]
    assert len(result.cdf("share", by="low")) == 6
    assert len(result.quantiles("share", [0.5], by="low")) == 2


def test_intervals_of_statistics_cover() -> None:
    """Fieller and inverted quantiles hold at their level, also where denominators are small.

    Mutant: the delta method with deviations in place of the joint variance. 1e-12 bound for 400 runs.
    """
    small = sf.Domain({"age": sf.Integers(0, 4), "sex": sf.Categories(["f", "m"])})
    counts = np.array([[30, 4], [10, 9], [40, 2], [5, 5], [20, 10]])
    plan = sf.plan(sf.marginals(small, order=2), sf.gdp(1), neighbours="add-remove")
    shares = counts / counts.sum(axis=1, keepdims=True)
    hits = {"share": 0, "mean": 0, "median": 0}
    runs = 400
    for _ in range(runs):
        result = sf.release(plan, sf.Histogram(counts), ledger=None)
        found = result.share("sex", within="age", confidence=0.9)
        hits["share"] += found["low"][2] <= shares[1, 0] <= found["high"][2]
        found = result.mean("age", by="sex", confidence=0.9)
        truth = (counts[:, 1] @ np.arange(5)) / counts[:, 1].sum()
        hits["mean"] += found["low"][1] <= truth <= found["high"][1]
        found = result.quantiles("age", [0.4], by="sex", confidence=0.9)
        share = counts[:, 1].cumsum() / counts[:, 1].sum()
        hits["median"] += found["low"][1] <= int(np.argmax(share >= 0.4)) <= found["high"][1]
    slack = 7.13 * np.sqrt(0.9 * 0.1 / runs)
    assert abs(hits["share"] / runs - 0.9) < slack
    assert abs(hits["mean"] / runs - 0.9) < slack
    assert hits["median"] / runs > 0.9 - slack


# ---- two releases -------------------------------------------------------------------------------------------


def test_pooling_and_differences() -> None:
    work = sf.identity(DOMAIN, "age", "sex")
    one = make(sf.gdp(1), work, name="one", snapshot="s")
    two = make(sf.gdp(2), work, name="two", snapshot="s")
    pooled = sf.combine(one, two)
    assert pooled.standard_errors() == pytest.approx(np.full(20, 1 / np.sqrt(5)), rel=1e-4)
    change = sf.difference(two, one)
    assert change.answers == pytest.approx(two.answers - one.answers)
    assert change.standard_errors() == pytest.approx(np.full(20, np.sqrt(1.25)), rel=1e-4)
    ends = change.intervals(0.95)
    assert ends.high - ends.low == pytest.approx(2 * 1.959964 * change.standard_errors(), rel=1e-4)
    other = make(sf.gdp(1), work, name="three", snapshot="t")
    with pytest.raises(sf.errors.PlanError, match="one declared snapshot"):
        sf.combine(one, other)
    with pytest.raises(sf.errors.PlanError, match="same release"):
        sf.combine(one, one)
    with pytest.raises(sf.errors.PlanError, match="different workloads"):
        sf.difference(make(work=sf.total(DOMAIN)), one)


def test_laplace_releases_pool_too() -> None:
    work = sf.identity(DOMAIN, "age")
    one, two = (make(sf.pure(1), work, name=n, snapshot="s") for n in ("one", "two"))
    ends = sf.combine(one, two).intervals(0.95)
    # the mean of two unit Laplace draws: (1 + x) exp(-2 x) = 0.05
    x = (ends.high - ends.low) / 2
    assert (1 + x) * np.exp(-2 * x) == pytest.approx(np.full(10, 0.05), rel=0.01)


# ---- on disk ---------------------------------------------------------------------------------------------------


def test_files_of_a_release(tmp_path: Path) -> None:
    import duckdb

    folder = tmp_path / "out" / "first"
    result = make(name="first", out=folder)
    facts = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    assert facts["ledger"]["one_shot"] is True
    assert facts["privacy"]["neighbours"] == "add-remove"
    back = sf.load(folder)
    assert (back.answers == result.answers).all()
    assert back.explain() == result.explain()
    with duckdb.connect() as own:
        rows = own.sql(f"SELECT part, answer, low, high FROM '{folder}/answers.parquet'").fetchnumpy()
    assert rows["answer"] == pytest.approx(result.answers)
    stored = np.load(folder / "measurements.npz", allow_pickle=False)
    assert all(stored[f"values_{i}"].dtype == np.int64 for i in range(len(result.measurement.values)))
    assert {f.name for f in (folder / "tables").iterdir()} == {
        "age.csv", "sex.csv", "pay.csv", "age.sex.csv", "age.pay.csv", "sex.pay.csv"
    }  # fmt: skip
    with duckdb.connect() as own:
        meta = own.execute(f"SELECT value FROM parquet_kv_metadata('{folder}/answers.parquet')").fetchone()
    assert meta is not None
    assert json.loads(bytes(meta[0]))["name"] == "first"


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    make(name="first", out=tmp_path / "r")
    bundle = tmp_path / "r" / "release.sfumato"
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"x")
    with pytest.raises(sf.errors.InvalidInput, match="was changed"):
        sf.load(tmp_path / "r")
    (tmp_path / "r" / "release.json").write_text("{}", encoding="utf-8")
    with pytest.raises(sf.errors.InvalidInput, match="no finished release"):
        sf.load(tmp_path / "r")
    with pytest.raises(sf.errors.InvalidInput):
        sf.load(tmp_path / "nothing")


def test_a_release_of_the_first_days_of_this_version_loads(tmp_path: Path) -> None:
    """It lacks words that came later; what binds it is compared all the same, and a file of today in every word.

    Mutants: words that are new compared where they are not said; nothing compared where a word is missing; a file that
    lacks other words taken for an old one.
    """
    result = make(name="first", out=tmp_path / "r")
    place = tmp_path / "r" / "release.json"
    today = json.loads(place.read_text(encoding="utf-8"))
    old = {key: value for key, value in today.items() if key not in ("other", "cut_persons")}
    old["error"] = {k: v for k, v in today["error"].items() if k not in ("serves", "any_noise_bound")}
    old["mechanism"] = {k: v for k, v in today["mechanism"].items() if k != "cut"}
    place.write_text(json.dumps(old), encoding="utf-8")
    assert (sf.load(tmp_path / "r").answers == result.answers).all()
    for key in ("name", "created", "privacy", "hashes", "workload", "ledger", "versions"):
        place.write_text(json.dumps(old | {key: "x"}), encoding="utf-8")
        with pytest.raises(sf.errors.InvalidInput, match=rf"something else of {key} than"):
            sf.load(tmp_path / "r")
    lies = [{k: v for k, v in old.items() if k != key} for key in old if key != "files"]
    lies += [today | {"error": today["error"] | {"rmse": 0.0}}, today | {"other": ["x"]}, today | {"error": {"x": {}}}]
    for said in lies:
        place.write_text(json.dumps(said), encoding="utf-8")
        with pytest.raises(sf.errors.InvalidInput, match="something else of"):
            sf.load(tmp_path / "r")


def test_folders_that_cannot_hold_a_release(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x", encoding="utf-8")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    for wrong in ("full", "file", "link", "a/../b"):
        with pytest.raises(sf.errors.InvalidInput):
            check_folder(tmp_path / wrong)


def test_texts_that_look_like_formulas_are_defused(tmp_path: Path) -> None:
    domain = sf.Domain({"x": sf.Categories(["=cmd()", "b"])})
    plan = sf.plan(sf.marginals(domain, order=1), sf.gdp(1), neighbours="add-remove")
    sf.release(plan, sf.Histogram([1, 2]), ledger=None, out=tmp_path / "r")
    assert (tmp_path / "r/tables/x.csv").read_text(encoding="utf-8").splitlines()[1].startswith("'=cmd()")


def test_the_tables_name_stands_in_the_release(tmp_path: Path) -> None:
    domain = sf.Domain({"a": sf.Integers(0, 3, outside="clamp", missing="other")})
    plan = sf.plan(sf.identity(domain, "a"), sf.gdp(1), neighbours="add-remove")
    ledger = sf.Ledger.create(tmp_path / "b.db", total=sf.gdp(2))
    counts = sf.Histogram(np.ones(domain.shape, dtype=np.int64))
    made = sf.release(plan, counts, ledger=ledger, name="n", out=tmp_path / "n", table="people")
    stored = sf.load(tmp_path / "n")
    assert made.provenance.table == stored.provenance.table == "people"
    assert json.loads((tmp_path / "n" / "release.json").read_text())["table"] == "people"
    assert "people" in (tmp_path / "n" / "report.html").read_text()


def test_an_answer_is_no_array_and_has_no_order() -> None:
    """Logarithms of value, error and ends, and comparisons by them in turn, are nothing that anybody asked for."""
    plan = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram([300, 200, 100, 0]), ledger=None)
    one, other = release.ask("age <= 1"), release.ask("age <= 2")
    with pytest.raises(TypeError, match="ufunc"):
        np.log(one)  # type: ignore[call-overload]
    for compare in (lambda: one < other, lambda: one >= 3, lambda: max(one, other)):
        with pytest.raises(TypeError, match=r"compare their \.value"):
            compare()
    assert (np.float64(2) * one).standard_error == pytest.approx(2 * one.standard_error)  # type: ignore[attr-defined,operator]
    value, error, low, high = one
    assert low < value < high
    assert error == one.standard_error
