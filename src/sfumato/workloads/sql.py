"""SQL as people write it: counts, sums, averages and quantiles of one table, by groups, read as a workload.

    SELECT item, ... FROM table [WHERE condition] [GROUP BY attribute, ...] [ORDER BY item [DESC], ...] [LIMIT number]

    item      := an attribute of GROUP BY | COUNT(*) | COUNT(column) | SUM(column) | AVG(column)
               | VAR_POP(measure) | STDDEV_POP(measure) | MEDIAN(attribute) | QUANTILE_CONT(attribute, number)
               | PERCENTILE_CONT(number) WITHIN GROUP (ORDER BY attribute), each with or without a name
               | COUNT(*) FILTER (WHERE condition) | SUM(CASE WHEN condition THEN 1 ELSE 0 END)
    condition := comparisons of an attribute with constants, IN, BETWEEN, IS NOT NULL, AND, OR, NOT; and 1 = 1

Whatever else SQL has is refused with the reason and, where there is one, the nearest statement that is read. A cell
(other) of an attribute stands for null: it satisfies no comparison and no negation of one, and is a group of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from sfumato._util.checks import suggest_name
from sfumato.domain import OTHER, Bins, Domain, Integers
from sfumato.domain.predicates import compile_predicate, written_name
from sfumato.errors import InvalidInput, WorkloadError, how_to_install
from sfumato.workloads.sql_question import SqlItem, SqlQuestion

try:
    import sqlglot as parser
    from sqlglot import exp as nodes
except ImportError:  # an extra
    parser = nodes = None

# trees of statements have no types that a checker could follow
sqlglot: Any = parser
exp: Any = nodes

_MOST_RATIOS = 2_000  # averages under a condition, each of which has an interval of its own: some seconds
_MOST_STEPS = 6  # from a statement to one that is answered, a clause at a time
_MOST_STATEMENT = 10_000  # characters: statements of people are shorter, and a parser may recurse
_COMPARISONS = {"EQ": "==", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ASKED = {  # what may stand in place of a function that is not answered
    "Min": "a low quantile, QUANTILE_CONT({column}, 0.01)",
    "Max": "a high quantile, QUANTILE_CONT({column}, 0.99)",
    "Variance": "the variance of the records themselves, VAR_POP({column})",
    "Stddev": "the deviation of the records themselves, STDDEV_POP({column})",
    "StddevSamp": "the deviation of the records themselves, STDDEV_POP({column})",
    "Corr": "release.correlation, of a plan of sf.moments",
    "CovarPop": "release.covariance_between, of a plan of sf.moments",
    "CovarSamp": "release.covariance_between, of a plan of sf.moments",
}


def sql(statement: str, domain: Domain) -> SqlQuestion:
    """Read a SQL statement as queries over a domain.

    Args:
        statement: `SELECT ... FROM table [WHERE ...] [GROUP BY ...] [ORDER BY ...] [LIMIT ...]` with counts, sums,
            averages, variances and quantiles. The table's name is not looked at.
        domain: The attributes and measures that its columns are.

    Returns:
        A question with the `workload` to plan. `print` says how it was read, and `answer(release)` gives its result.

    Raises:
        WorkloadError: The statement is no SQL, or asks for what is not answered; the message says what is nearest.
        InvalidInput: The package sqlglot, which parses it, is not installed.

    >>> domain = sf.Domain({"region": sf.Categories(["north", "south"]), "age": sf.Integers(0, 99, width=5)})
    >>> asked = sf.sql("SELECT region, COUNT(*) AS people FROM t WHERE age >= 65 GROUP BY region", domain)
    >>> asked.workload
    Workload(2 queries over 40 cells; people: 2)
    >>> plan = sf.plan(asked.workload, sf.gdp(1), neighbours="add-remove")
    >>> found = asked.answer(sf.release(plan, sf.Histogram([[1] * 20, [2] * 20]), ledger=None))
    >>> list(found.columns), found["region"]
    (['region', 'people', 'people low', 'people high'], ['north', 'south'])
    """
    if sqlglot is None:
        raise InvalidInput(f"SQL is parsed by the package sqlglot, which is not installed: {how_to_install('sql')}")
    if not isinstance(statement, str) or len(statement) > _MOST_STATEMENT:
        raise WorkloadError(f"a statement is a text of at most {_MOST_STATEMENT:,} characters")
    try:
        trees = [t for t in sqlglot.parse(statement, read="duckdb") if t is not None]
    except sqlglot.errors.ParseError as error:
        at = error.errors[0] if error.errors else {}
        raise WorkloadError(
            f"this is no SQL that can be read, at line {at.get('line')}, character {at.get('col')}"
        ) from None
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        raise WorkloadError("this is no SQL that can be read") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        raise WorkloadError("one SELECT is read, of one table: SELECT region, COUNT(*) FROM people GROUP BY region")
    return _Reader(statement.strip(), domain, trees[0]).read()


class _Reader:
    """One statement; what it refuses names the nearest that is read."""

    def __init__(self, statement: str, domain: Domain, tree: Any, *, alone: bool = False) -> None:
        self.statement, self.domain, self.tree, self.alone = statement, domain, tree, alone
        self.nearest: str | None = None
        self.names: set[str] = set()

    def read(self) -> SqlQuestion:
        """The question. Raises WorkloadError."""
        tree = self.tree
        self._check_clauses()
        groups = self._groups()
        where = tree.args.get("where")
        condition = None if where is None else self._condition(where.this)
        items: list[SqlItem] = []
        for given in tree.expressions:
            items.append(self._item(given, groups, condition))
            if condition is not None and items[-1].condition is not None:
                self._check_satisfied(_both(condition, items[-1].condition))
            if sum(i.name == items[-1].name for i in items) > 1:
                raise self._refuse(
                    f"two columns are called {items[-1].name}; give one a name with AS",
                    self._with([e for e in tree.expressions if e is not given]),
                )
        if all(i.kind == "group" for i in items):
            raise self._refuse(
                "single records are never shown, nor which groups there are",
                self._with(
                    expressions=[*tree.expressions, exp.Count(this=exp.Star())], groups=[i.column for i in items]
                ),
            )
        question = SqlQuestion(
            self.statement, self.domain, tuple(items), groups, condition, self._order(items), self._limit()
        )
        ratios = any(i.kind == "mean" and (condition or i.condition) for i in items)
        rows = len(question.rows())
        if ratios and rows > _MOST_RATIOS:
            raise self._refuse(f"averages under a condition are answered for at most {_MOST_RATIOS:,} groups")
        return question

    # -- refusals --------------------------------------------------------------------------------------------

    def _refuse(self, why: str, nearest: str | None = None) -> WorkloadError:
        """Why it is not answered, and the nearest statement that is."""
        self.nearest = nearest
        if self.alone or nearest is None:
            return WorkloadError(why)
        found = self._answered(nearest)
        return WorkloadError(why if found is None else f"{why}; the nearest that is answered: {found}")

    def _answered(self, text: str) -> str | None:
        """A statement near this one that is answered: its own nearest where it is refused too."""
        for _ in range(_MOST_STEPS):
            reader = _Reader(text, self.domain, sqlglot.parse_one(text, read="duckdb"), alone=True)
            try:
                reader.read()
            except WorkloadError:
                if reader.nearest is None:
                    return None
                text = reader.nearest
            else:
                return text
        return None

    def _with(self, expressions: Sequence[Any] | None = None, groups: Sequence[Any] = (), **changed: Any) -> str:
        """The statement with some clauses changed."""
        tree = self.tree.copy()
        for key, value in changed.items():
            tree.set(key, value)
        if expressions is not None:
            tree.set("expressions", [e.copy() for e in expressions])
        if groups:
            tree.set(
                "group", exp.Group(expressions=[exp.column(str(g), quoted=not str(g).isidentifier()) for g in groups])
            )
        return tree.sql(dialect="duckdb")

    def _check_clauses(self) -> None:
        args = self.tree.args
        source = args.get("from_") or args.get("from")
        if args.get("with_") or args.get("with"):
            raise self._refuse("WITH is not read: name the table itself")
        if source is None or not isinstance(source.this, exp.Table):
            raise self._refuse("the rows come of one table: FROM people")
        self.names = {source.this.name, source.this.alias}
        if args.get("joins") or args.get("laterals"):
            raise self._refuse("joins are not read; join tables of the same persons first, with sf.joined")
        if args.get("having"):
            raise self._refuse(
                "HAVING would choose groups by the exact numbers; look at the answers and choose yourself",
                self._with(having=None),
            )
        if args.get("distinct"):
            columns = [e.this if isinstance(e, exp.Alias) else e for e in self.tree.expressions]
            if all(isinstance(c, exp.Column) for c in columns):
                more = [*self.tree.expressions, exp.Count(this=exp.Star())]
                raise self._refuse(
                    "DISTINCT shows which groups there are", self._with(more, [c.name for c in columns], distinct=None)
                )
            raise self._refuse("DISTINCT is not answered", self._with(distinct=None))
        known = {"expressions", "from_", "from", "where", "group", "order", "limit", "kind", "hint"}
        for key, value in args.items():
            if value and key not in known:
                raise self._refuse(
                    f"{key.strip('_').replace('_', ' ').upper()} is not read", self._with(None, (), **{key: None})
                )

    # -- columns ---------------------------------------------------------------------------------------------

    def _column(self, node: Any) -> str:
        """The attribute, level or measure that a column is."""
        if node.table and node.table not in self.names:
            raise self._refuse(f"{node.sql()} is of another table than the one of FROM")
        domain = self.domain
        known = [*domain.names, *domain.levels]
        found = [n for n in known if n == node.name] or [n for n in known if n.casefold() == node.name.casefold()]
        if len(found) != 1:
            raise self._refuse(f"{node.name!r} is no column that was declared; {suggest_name(node.name, known)}")
        return found[0]

    def _groups(self) -> tuple[str, ...]:
        group = self.tree.args.get("group")
        if group is None:
            return ()
        named = {e.alias: e.this for e in self.tree.expressions if isinstance(e, exp.Alias)}
        if group.args.get("all"):
            given = [e for e in map(_inner, self.tree.expressions) if isinstance(e, exp.Column)]
        else:
            given = list(group.expressions)
        if any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets")) or any(
            isinstance(e, exp.Cube | exp.Rollup | exp.GroupingSets) for e in group.expressions
        ):
            raise self._refuse(
                "CUBE, ROLLUP and GROUPING SETS ask for several tables: plan sf.marginals(domain, upto=...)"
            )
        found: list[str] = []
        for node in given:
            if isinstance(node, exp.Literal) and not node.is_string and 1 <= _whole(node) <= len(self.tree.expressions):
                node = _inner(self.tree.expressions[_whole(node) - 1])
            if isinstance(node, exp.Column) and not node.table and node.name in named:
                node = named[node.name]
            if not isinstance(node, exp.Column):
                inner = node.find(exp.Column)
                nearest = self._with(groups=[inner.name]) if inner is not None else None
                raise self._refuse(f"groups are declared attributes or levels, not {node.sql('duckdb')}", nearest)
            name = self._column(node)
            if name in self.domain.measures:
                raise self._refuse(
                    f"{name} is a measure, which has no groups; declare sf.Bins of the same column beside it"
                )
            if name not in found:
                found.append(name)
        owners = [self.domain.owner(n) for n in found]
        if len(set(owners)) < len(owners):
            raise self._refuse("two of the groups are of one attribute; the finer one tells the coarser")
        return tuple(found)

    def _item(self, given: Any, groups: tuple[str, ...], where: str | None) -> SqlItem:
        node = _inner(given)
        name = given.alias or (node.name if isinstance(node, exp.Column) else given.sql(dialect="duckdb"))
        condition = None
        if isinstance(node, exp.Filter):
            condition = self._condition(node.expression.this)
            node = node.this
        if isinstance(node, exp.Sum) and isinstance(node.this, exp.Case):
            case = node.this
            ones = [(i.args["true"], i.this) for i in case.args["ifs"]]
            rest = case.args.get("default")
            if (
                case.this
                or len(ones) > 1
                or ones[0][0].sql() != "1"
                or (rest is not None and rest.sql() not in ("0", "NULL"))
            ):
                raise self._refuse(
                    "sums of cases are counts: SUM(CASE WHEN condition THEN 1 ELSE 0 END)",
                    self._with(
                        [exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=ones[0][1].copy()))]
                    ),
                )
            found = [c for c in (condition, self._condition(ones[0][1])) if c is not None]
            return SqlItem(name, "count", None, reduce(_both, found) if found else None)
        if isinstance(node, exp.Column):
            column = self._column(node)
            if column not in groups:
                raise self._refuse(
                    f"{column} is a column of single records, which are never shown; group by it, or average it",
                    self._with(
                        [*groups_as_columns(groups), exp.column(column), exp.Count(this=exp.Star())], [*groups, column]
                    ),
                )
            return SqlItem(name, "group", column)
        if isinstance(node, exp.Star):
            raise self._refuse("single records are never shown", self._with([exp.Count(this=exp.Star())]))
        return self._statistic(name, node, groups, condition, where)

    def _statistic(
        self, name: str, node: Any, groups: Sequence[str], condition: str | None, where: str | None
    ) -> SqlItem:
        kinds = {
            exp.Count: "count",
            exp.Sum: "sum",
            exp.Avg: "mean",
            exp.VariancePop: "variance",
            exp.StddevPop: "std",
            exp.Median: "quantile",
            exp.PercentileCont: "quantile",
            exp.PercentileDisc: "quantile",
            exp.Quantile: "quantile",
        }
        probability: float | None = 0.5
        outer, inner = node, node.this
        if isinstance(node, exp.WithinGroup) and isinstance(inner, exp.PercentileCont | exp.PercentileDisc):
            ordered = node.expression.expressions
            given, node, inner = inner.this, inner, ordered[0].this
            probability = _number(given)
            if probability is not None and ordered[0].args.get("desc"):
                probability = 1 - probability
        elif isinstance(node, exp.PercentileCont | exp.PercentileDisc | exp.Quantile):
            probability = _number(node.args.get("expression") or node.args.get("quantile"))
        kind = kinds.get(type(node))
        if kind is None:
            column = node.find(exp.Column)
            text = _ASKED.get(type(node).__name__, "a count, COUNT(*)")
            text = text.format(column=column.sql(dialect="duckdb") if column is not None else "column")
            if column is not None and self._column(column) in self.domain.measures and "QUANTILE" in text:
                text = f"an average, AVG({column.sql(dialect='duckdb')})"  # a measure has no quantiles
            raise self._refuse(
                f"{outer.sql(dialect='duckdb')} is not answered; ask {text}",
                self._replaced(outer, exp.Count(this=exp.Star())),
            )
        if kind == "count" and isinstance(inner, exp.Star | exp.Literal):
            return SqlItem(name, kind, None, condition)
        if isinstance(inner, exp.Distinct):
            column = inner.find(exp.Column)
            raise self._refuse(
                "how many different values there are is not answered",
                self._with([column.copy(), exp.Count(this=exp.Star())], [column.name]) if column is not None else None,
            )
        if not isinstance(inner, exp.Column):
            raise self._refuse(
                f"{node.sql(dialect='duckdb')}: a statistic is of one declared column; declare the expression as a "
                "column of the table first",
                self._replaced(outer, exp.Count(this=exp.Star())),
            )
        return self._of_column(outer, name, kind, self._column(inner), groups, condition, where, probability)

    def _of_column(
        self,
        node: Any,
        name: str,
        kind: str,
        column: str,
        groups: Sequence[str],
        condition: str | None,
        where: str | None,
        probability: float | None,
    ) -> SqlItem:
        attribute, measure = self.domain[column], column in self.domain.measures
        conditioned = condition is not None or where is not None
        if kind in ("mean", "quantile") and self.domain.owner(column) in map(self.domain.owner, groups):
            raise self._refuse(
                f"within a group of {column} its values are those of the group",
                self._replaced(node, exp.Count(this=exp.Star())),
            )
        if kind == "count" and not measure:
            if attribute.has_other:
                also = f"{written_name(column)} != '{OTHER}'"
                condition = also if condition is None else _both(condition, also)
            return SqlItem(name, kind, None, condition)
        if kind == "quantile":
            if probability is None or not 0 < probability < 1:
                raise self._refuse("a quantile is at one number between 0 and 1: QUANTILE_CONT(age, 0.9)")
            if measure or not isinstance(attribute, Integers | Bins):
                raise self._refuse(
                    f"{column} has no quantiles: these need sf.Integers or sf.Bins"
                    + (" of the same column, declared beside the measure under another name" if measure else ""),
                    self._replaced(node, exp.Avg(this=exp.column(column, quoted=True))) if measure else None,
                )
            if conditioned:
                raise self._refuse("quantiles are answered by groups and not under a condition", self._with(where=None))
            return SqlItem(name, kind, column, None, probability)
        if kind in ("variance", "std"):
            if not measure:
                raise self._refuse(
                    f"{column} is no measure, of which variances are: declare sf.Measure", f"AVG({column})"
                )
            if conditioned:
                raise self._refuse("variances are answered by groups and not under a condition", self._with(where=None))
            return SqlItem(name, kind, column)
        if not measure and attribute.midpoints is None:
            raise self._refuse(
                f"{column} is not numeric", self._with([exp.column(column), exp.Count(this=exp.Star())], [column])
            )
        if kind == "sum" and not measure and not (isinstance(attribute, Integers) and attribute.width == 1):
            raise self._refuse(
                f"{column} is counted in classes, whose middles add up to no sum; declare sf.Measure for sums",
                self._replaced(node, exp.Avg(this=exp.column(column, quoted=True))),
            )
        return SqlItem(name, kind, column, condition)

    # -- conditions ------------------------------------------------------------------------------------------

    def _condition(self, node: Any) -> str | None:
        """A condition as a predicate; None where it always holds, as programs write 1 = 1. Raises WorkloadError."""
        found = [self._predicate(n, negated=False) for n in _conjuncts(node)]
        if not found:
            return None
        text = reduce(_both, found)
        self._check_satisfied(text)
        return text

    def _check_satisfied(self, text: str) -> None:
        if not compile_predicate(self.domain, text).mask.any():
            raise self._refuse(f"no record can satisfy {text}, as values are declared: there are 0")

    def _predicate(self, node: Any, *, negated: bool) -> str:
        """Negations are moved inwards, so that what is null satisfies neither a comparison nor its negation."""
        if isinstance(node, exp.Paren):
            return self._predicate(node.this, negated=negated)
        if isinstance(node, exp.Not):
            return self._predicate(node.this, negated=not negated)
        if isinstance(node, exp.And | exp.Or):
            word = "or" if isinstance(node, exp.And) == negated else "and"
            left, right = (self._predicate(n, negated=negated) for n in (node.left, node.right))
            return f"({left}) {word} ({right})"
        if isinstance(node, exp.Is):
            if not isinstance(node.expression, exp.Null) or not isinstance(node.this, exp.Column):
                raise self._refuse(f"{node.sql(dialect='duckdb')} is not read; compare with =")
            name = self._column(node.this)
            return self._other(name, negated=negated)
        if isinstance(node, exp.Between):
            low = self._compared(">=", node.this, node.args["low"], negated=negated)
            high = self._compared("<=", node.this, node.args["high"], negated=negated)
            return f"({low}) {'or' if negated else 'and'} ({high})"
        if isinstance(node, exp.In):
            if not node.expressions or node.args.get("query") or not isinstance(node.this, exp.Column):
                raise self._refuse(f"{node.sql(dialect='duckdb')}: IN takes a list of constants")
            name = self._compared_column(node.this)
            listed = ", ".join(self._constant(c) for c in node.expressions)
            if not negated:
                return f"{written_name(name)} in ({listed})"
            return self._known(name, f"{written_name(name)} not in ({listed})")
        op = _COMPARISONS.get(type(node).__name__)
        if op is not None:
            return self._compared(op, node.left, node.right, negated=negated)
        if isinstance(node, exp.Column):
            name = self._compared_column(node)
            return f"{written_name(name)} == {'false' if negated else 'true'}"
        if isinstance(node, exp.Like | exp.ILike) and isinstance(node.this, exp.Column):
            raise self._refuse(
                f"{node.sql(dialect='duckdb')} is not read: list the labels",
                self._replaced(node, self._alike(node)),
            )
        raise self._refuse(
            f"{node.sql(dialect='duckdb')} is no condition that is read: compare an attribute with constants"
        )

    def _compared_column(self, node: Any) -> str:
        name = self._column(node)
        if name in self.domain.measures:
            raise self._refuse(
                f"{name} is a measure, which is summed and not compared; declare sf.Bins of the same column beside it"
            )
        return name

    def _alike(self, node: Any) -> Any:
        """The labels that are like a pattern, as a list."""
        labels = self.domain[self._column(node.this)].declared_labels
        pattern = node.expression.this if isinstance(node.expression, exp.Literal) else ""
        text = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)
        flags = re.DOTALL | (re.IGNORECASE if isinstance(node, exp.ILike) else 0)
        found = [exp.Literal.string(label) for label in labels if re.fullmatch(text, label, flags)]
        return exp.In(this=node.this.copy(), expressions=found) if found else None

    def _replaced(self, node: Any, other: Any) -> str | None:
        """The statement with one piece of it in another's place."""
        if other is None:
            return None
        place = [n is node for n in self.tree.walk()].index(True)
        tree = self.tree.copy()
        list(tree.walk())[place].replace(other)
        return tree.sql(dialect="duckdb")

    def _compared(self, op: str, left: Any, right: Any, *, negated: bool) -> str:
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, op = right, left, _FLIPPED[op]
        if not isinstance(left, exp.Column):
            raise self._refuse(f"{left.sql(dialect='duckdb')} is no declared attribute; conditions have no arithmetic")
        name = self._compared_column(left)
        if isinstance(right, exp.Column):
            raise self._refuse(f"{left.sql()} and {right.sql()} are compared with each other; compare with constants")
        op = _NEGATED[op] if negated else op
        text = f"{written_name(name)} {op} {self._constant(right)}"
        return self._known(name, text) if op == "!=" else text

    def _known(self, name: str, text: str) -> str:
        """What is null satisfies no inequality."""
        return f"({text}) and ({self._other(name, negated=True)})" if self.domain[name].has_other else text

    def _other(self, name: str, *, negated: bool) -> str:
        if name in self.domain.measures:
            raise self._refuse(
                f"{name} is a measure, which is summed and not compared; COUNT({name}) counts its numbers"
            )
        if not self.domain[name].has_other:
            raise self._refuse(f"no record that is counted has no {name}: it is declared without a cell {OTHER}")
        return f"{written_name(name)} {'!=' if negated else '=='} '{OTHER}'"

    def _constant(self, node: Any) -> str:
        if isinstance(node, exp.Cast | exp.Paren):
            return self._constant(node.this)
        if isinstance(node, exp.Neg):
            inner = self._constant(node.this)
            return inner[1:] if inner.startswith("-") else f"-{inner}"
        if isinstance(node, exp.Boolean):
            return "true" if node.this else "false"
        if isinstance(node, exp.Literal):
            return "'" + node.this.replace("'", "''") + "'" if node.is_string else str(node.this)
        raise self._refuse(f"{node.sql(dialect='duckdb')} is no constant; conditions compare with constants")

    # -- the order of the result -----------------------------------------------------------------------------

    def _order(self, items: Sequence[SqlItem]) -> tuple[tuple[str, bool], ...]:
        order = self.tree.args.get("order")
        found: list[tuple[str, bool]] = []
        for given in order.expressions if order is not None else ():
            node = given.this
            texts = {_inner(e).sql(dialect="duckdb"): i.name for e, i in zip(self.tree.expressions, items, strict=True)}
            names = {i.name.casefold(): i.name for i in items}
            if isinstance(node, exp.Literal) and not node.is_string and 1 <= _whole(node) <= len(items):
                name: str | None = items[_whole(node) - 1].name
            else:
                name = texts.get(node.sql(dialect="duckdb")) or names.get(node.name.casefold() if node.name else "")
            if name is None:
                raise self._refuse(
                    f"ORDER BY {node.sql(dialect='duckdb')} is no column of the result", self._with(order=None)
                )
            found.append((name, bool(given.args.get("desc"))))
        return tuple(found)

    def _limit(self) -> int | None:
        limit = self.tree.args.get("limit")
        if limit is None:
            return None
        given = limit.expression
        if not isinstance(given, exp.Literal) or given.is_string or not str(given.this).isdigit():
            raise self._refuse("LIMIT takes a whole number", self._with(limit=None))
        return int(given.this)


def groups_as_columns(groups: Sequence[str]) -> list[Any]:
    """Groups as columns of a statement."""
    return [exp.column(g, quoted=not g.isidentifier()) for g in groups]


def _inner(node: Any) -> Any:
    return node.this if isinstance(node, exp.Alias) else node


def _both(one: str, other: str) -> str:
    return f"({one}) and ({other})"


def _conjuncts(node: Any) -> list[Any]:
    """The parts that all have to hold, but those that always do."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    alike = isinstance(node, exp.EQ) and isinstance(node.left, exp.Literal) and node.left == node.right
    return [] if alike or (isinstance(node, exp.Boolean) and node.this) else [node]


def _whole(node: Any) -> int:
    return int(node.this) if str(node.this).isdigit() else 0


def _number(node: Any) -> float | None:
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    return None
