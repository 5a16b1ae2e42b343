"""A release as a static folder for its readers: tables that load when they are asked for, and a calculator."""

from sfumato.publishing.formats import FORMATS, write_formats
from sfumato.publishing.site import publish
from sfumato.releases.publication import Publication

__all__ = ["FORMATS", "Publication", "publish", "write_formats"]
