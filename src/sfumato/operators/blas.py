"""One thread for dense factorizations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["single_thread"]


@contextmanager
def single_thread() -> Generator[None]:
    """Run BLAS on one thread inside the block, whatever the environment says.

    Several threads make eigendecompositions and Cholesky factors of a few thousand rows slower (ten times and
    more on small or shared machines), never much faster; matrix products inside the block lose their threads too.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  (read only by those who factor a matrix)

    with threadpool_limits(limits=1, user_api="blas"):
        yield
