"""sfumato: large sets of linear queries under differential privacy, with errors known before any budget is spent."""

from sfumato.domain import Bins, Booleans, Categories, Domain, Hierarchy, Integers
from sfumato.errors import (
    BudgetError,
    BudgetExceeded,
    DomainError,
    InvalidInput,
    LedgerCorrupted,
    LedgerError,
    LedgerMismatch,
    MissingExtra,
    NameTaken,
    NotAnswerable,
    NotInRowSpace,
    NotWritten,
    PlanError,
    SfumatoError,
    SourceError,
    SpecError,
    WorkloadError,
)
from sfumato.estimate.bodies import project
from sfumato.estimate.projection import Projection
from sfumato.estimate.width import width
from sfumato.local.collecting import LocalRelease, collect, load_local_release, respond
from sfumato.local.planning import plan_local
from sfumato.local.plans import LocalPlan, load_local_plan
from sfumato.mechanisms import Factorization, Simulation, budget_for, factorization, plan, plan_for, simulate
from sfumato.mechanisms.keyed import plan_keys
from sfumato.mechanisms.run import sketch
from sfumato.needs import records_for
from sfumato.plans.courses import CoursePlan
from sfumato.plans.keys import KeyPlan, load_key_plan
from sfumato.plans.plan import Plan, load_plan
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours
from sfumato.releases import (
    Answer,
    Comparison,
    Intervals,
    ModelRelease,
    Release,
    Synthetic,
    Table,
    combine,
    difference,
    load_release,
)
from sfumato.releases.sketched import SketchRelease, load_sketch
from sfumato.releasing import release
from sfumato.sessions import (
    KeySession,
    Session,
    SessionAnswer,
    SessionPlan,
    pmw_min_alpha,
    resume_session,
    session,
    session_plan,
    session_status,
)
from sfumato.sketches import Keys
from sfumato.specs import Spec, read_spec
from sfumato.wall import Histogram
from sfumato.wall.keys import KeyCounts
from sfumato.workloads import (
    Workload,
    conjunctions,
    disjunctions,
    hierarchy,
    identity,
    marginals,
    parities,
    predicates,
    prefix,
    queries,
    ranges,
    stack,
    sums,
    total,
    windows,
)

pure = Budget.pure
approx = Budget.approx
zcdp = Budget.zcdp
gdp = Budget.gdp

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Bins",
    "Booleans",
    "Budget",
    "BudgetError",
    "BudgetExceeded",
    "Categories",
    "Comparison",
    "CoursePlan",
    "Domain",
    "DomainError",
    "Factorization",
    "Hierarchy",
    "Histogram",
    "Integers",
    "Intervals",
    "InvalidInput",
    "KeyCounts",
    "KeyPlan",
    "KeySession",
    "Keys",
    "Ledger",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerMismatch",
    "LocalPlan",
    "LocalRelease",
    "MissingExtra",
    "ModelRelease",
    "NameTaken",
    "Neighbours",
    "NotAnswerable",
    "NotInRowSpace",
    "NotWritten",
    "Plan",
    "PlanError",
    "Projection",
    "Release",
    "Session",
    "SessionAnswer",
    "SessionPlan",
    "SfumatoError",
    "Simulation",
    "SketchRelease",
    "SourceError",
    "Spec",
    "SpecError",
    "Synthetic",
    "Table",
    "Workload",
    "WorkloadError",
    "approx",
    "budget_for",
    "collect",
    "combine",
    "conjunctions",
    "difference",
    "disjunctions",
    "factorization",
    "gdp",
    "hierarchy",
    "identity",
    "load_key_plan",
    "load_local_plan",
    "load_local_release",
    "load_plan",
    "load_release",
    "load_sketch",
    "marginals",
    "parities",
    "plan",
    "plan_for",
    "plan_keys",
    "plan_local",
    "pmw_min_alpha",
    "predicates",
    "prefix",
    "project",
    "pure",
    "queries",
    "ranges",
    "read_spec",
    "records_for",
    "release",
    "respond",
    "resume_session",
    "session",
    "session_plan",
    "session_status",
    "simulate",
    "sketch",
    "stack",
    "sums",
    "total",
    "width",
    "windows",
    "zcdp",
]
