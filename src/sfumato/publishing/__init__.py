"""A release as a static folder for its readers: tables that load when they are asked for, and a calculator."""

from sfumato.publishing.site import publish
from sfumato.releases.publication import Publication

__all__ = ["Publication", "publish"]
