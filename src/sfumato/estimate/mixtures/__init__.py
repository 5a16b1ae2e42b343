"""Noisy pairs of attributes denoised together by models that are fitted to them."""

from sfumato.estimate.mixtures.adapted import Adapted, adapt
from sfumato.estimate.mixtures.held import AdaptedTables

__all__ = ["Adapted", "AdaptedTables", "adapt"]
