"""Settings for the whole suite."""

from __future__ import annotations

import os

# before numpy is imported: the default two-thread BLAS is many times slower on factorizations
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

# no test asserts a speed, on a busy machine least of all
settings.register_profile("sfumato", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sfumato")
