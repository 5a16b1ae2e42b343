"""The noise of a test, drawn from its own name: what fails once in a thousand runs fails always, or never.

Of thirteen thousand tests some hundreds look at noise; were each wrong once in ten thousand runs, the suite would fail
once in thirty. So each test, and each file as it is collected, draws from a generator seeded by its name and by
SFUMATO_TESTS_SEED (0 where it is not set). Any other seed draws all tests anew, and `random` leaves the operating
system's bits as they are. Programs that a test starts, and processes that it forks, have the operating system's bits:
the library itself has no seed.

How often a long test draws is multiplied by SFUMATO_TESTS_DEPTH: `make deep` draws four times as often, from other
bits.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets

from sfumato.privacy.noise import SystemBits
from support.insecure_bits import InsecureTestBits, Words
from support.patching import put

__all__ = ["RANDOM", "Seeded", "draws", "seed_noise"]

SEED = os.environ.get("SFUMATO_TESTS_SEED", "0")
RANDOM = SEED == "random"
DEPTH = int(os.environ.get("SFUMATO_TESTS_DEPTH", "1"))


def draws(count: int) -> int:
    """How often a long test draws: `count` times, times the depth of the suite."""
    return count * DEPTH


class Seeded:
    """This process's noise and hash functions, from seeds; its children's from the operating system.

    Names of files and keys stay the system's: two processes must not share them.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._words, self._below = SystemBits.words, secrets.randbelow
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


def seed_noise() -> Seeded:
    """Have this process draw from seeds, until it ends."""
    seeded = Seeded()
    put(SystemBits, "words", lambda bits, count: seeded.words(bits, count))
    put(secrets, "randbelow", seeded.randbelow)
    return seeded
