"""The noise of a test, drawn from its own name: what fails once in a thousand runs fails always, or never.

Of thirteen thousand tests some hundreds look at noise; were each wrong once in ten thousand runs, the suite would fail
once in thirty. So each test, and each file as it is collected, draws from a generator seeded by its name and by
SFUMATO_TESTS_SEED (0 where it is not set). Any other seed draws all tests anew, and `random` leaves the operating
system's bits as they are. Programs that a test starts, and processes that it forks, have the operating system's bits:
the library itself has no seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets

from sfumato.privacy.noise import SystemBits
from support.insecure_bits import InsecureTestBits, Words

__all__ = ["RANDOM", "Seeded", "seed_noise"]

SEED = os.environ.get("SFUMATO_TESTS_SEED", "0")
RANDOM = SEED == "random"


class Seeded:
    """This process's noise, hash functions and keys, from seeds; its children's from the operating system."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._words, self._below, self._bytes = SystemBits.words, secrets.randbelow, secrets.token_bytes
        self.begin("")

    def begin(self, name: str) -> None:
        """Draw what `name` draws from here on."""
        seed = int.from_bytes(hashlib.sha256(f"{SEED}:{name}".encode()).digest()[:16])
        self._noise, self._drawn = InsecureTestBits(seed), random.Random(seed)

    @property
    def _here(self) -> bool:
        return os.getpid() == self._owner

    def words(self, bits: SystemBits, count: int) -> Words:
        """What `SystemBits.words` says."""
        return self._noise.words(count) if self._here else self._words(bits, count)

    def randbelow(self, bound: int) -> int:
        """What `secrets.randbelow` says."""
        return self._drawn.randrange(bound) if self._here else self._below(bound)

    def token_bytes(self, count: int | None = None) -> bytes:
        """What `secrets.token_bytes` says."""
        return self._drawn.randbytes(32 if count is None else count) if self._here else self._bytes(count)


def seed_noise() -> Seeded:
    """Have this process draw from seeds, until it ends."""
    seeded = Seeded()
    SystemBits.words = lambda bits, count: seeded.words(bits, count)  # type: ignore[method-assign]
    secrets.randbelow, secrets.token_bytes = seeded.randbelow, seeded.token_bytes
    return seeded
