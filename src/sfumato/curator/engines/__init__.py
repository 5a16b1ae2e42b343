"""Where tables live that are no file and no frame. An engine is one file, and one line in registry.py."""
