"""Noisy pairs of attributes denoised together by models that the data bear out."""

from sfumato.estimate.mixtures.adapted import Adapted, adapt

__all__ = ["Adapted", "adapt"]
