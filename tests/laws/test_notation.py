"""docs/notation.md has every symbol that the five sources use, and the words that readers look for are in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# read off the sources, source by source: what a reader of each will look up
SYMBOLS = {
    "Notes": """D D′ 𝒟 n X x m h_D (h_D)_x D_x f f_i f(x) k Q F ⟨f,h_D⟩ Z Z̃ σ Δ₂F c_{ε,δ} v ‖·‖_{1→2} ‖·‖₁ ‖·‖₂ ‖·‖_∞ c
        α M_G M R I M_{R,M} r_i d ‖R‖_F γ(F) λ(F) 𝒞 h a a* g Π_𝒞(a)""",
    "SmithUllman": """x x_j n 𝒰 u u_1…u_m m f_i φ_i k f_t F(x) F A_{i,j} h_x (h_x)_u h 𝓜 𝓜_F 𝓜_{R,M} 𝓜_fact Z σ² 𝕀 Δ₂
        ‖F‖_{1→2} ‖F‖_{p→q} v ε δ c_{ε,δ} a a_i a* α M R ℓ r_i ‖R‖_F γ(F) E γ_α(F) C Π_C ã â a′ p c_j d""",
    "Tutunov": """X |X| x D D[x] n D′ D△D′ Q Q[x] Q(D) 𝒬 𝒬_m k m ε δ S M R r Eval α β Lap(x|b) b 𝒟_r u f T A A[i,j] i j
        Q̂ v σ τ r-wise s GF[2^s] SMW IDC Õ""",
    "Nikolov": """X x n 𝒳 𝒳^n Q q_i q_i(x) q_i(X) Q(X) k ε δ 𝓜 α β Z_i Z I G ρ ρ_{ε,δ} L C S conv(S) α_x S_Q K_Q Ỹ Ŷ y
        Ŷ_λ f(λ) h_K w t M*(K) Y c_k ℓ*(K) λ d k-way c_1 K m z""",
    "Brown": """𝒰 x x_i x_l n k f_j φ_j F M_{ε,δ} err Δ_p Δ₁ Δ₂ Lap N σ_{ε,δ} δ_{ε,δ} S_j F_hist d [d]
        f_{s,t} f̃_{s,t} F_tree""",
}
WORDS = {
    "matrix mechanism": ("notation", "marginals", "sources"),
    "curator": ("notation", "architecture", "local"),
    "average error": ("notation", "projection", "sources"),
    "convex hull": ("notation", "projection", "sources"),
    "support function": ("notation", "projection", "sources"),
    "mean width": ("notation", "projection", "sources"),
    "Gaussian width": ("notation", "projection", "sources"),
    "separation oracle": ("notation", "projection", "sources"),
    "k-way marginal": ("notation", "marginals", "sources"),
    "contingency table": ("notation", "marginals"),
    "factorization norm": ("notation", "approximate", "sources"),
    "binary tree mechanism": ("notation", "who-wins-where", "sources"),
    "private multiplicative weights": ("notation", "sessions", "sources"),
    "linear quer": ("notation", "who-wins-where", "sources"),
}


def _plain(text: str) -> str:
    return re.sub(r"[\s*\\]", "", text)


def _listed(source: str) -> set[str]:
    """The symbols in the first column of a source's table."""
    page = (DOCS / "notation.md").read_text(encoding="utf-8")
    section = next(s for s in page.split("\n## ") if s.startswith(f"{source}:"))
    rows = [re.split(r"(?<!\\)\|", line)[1] for line in section.splitlines() if line.startswith("| ")]
    assert "symbol" in rows[0]
    return {_plain(symbol.split(" (")[0]) for row in rows[1:] for symbol in row.split(" · ")}


@pytest.mark.parametrize("source", SYMBOLS)
def test_every_symbol_of_a_source_is_mapped(source: str) -> None:
    asked = {_plain(s) for s in SYMBOLS[source].split()}
    assert len(asked) > 20
    assert asked <= _listed(source), sorted(asked - _listed(source))


def test_every_row_says_what_a_symbol_is_here() -> None:
    page = (DOCS / "notation.md").read_text(encoding="utf-8")
    for source in SYMBOLS:
        section = next(s for s in page.split("\n## ") if s.startswith(f"{source}:"))
        for line in [x for x in section.splitlines() if x.startswith("| ")][1:]:
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 4, line
            assert all(cells[:3]), line


@pytest.mark.parametrize("word", WORDS)
def test_words_occur_where_a_reader_looks(word: str) -> None:
    for page in WORDS[word]:
        text = re.sub(r"\s+", " ", (DOCS / f"{page}.md").read_text(encoding="utf-8"))
        found = word.lower() in text.lower()
        assert found, f"{word!r} is not in {page}.md"
