"""What all other packages import, without mathematics: files, fingerprints, checks, frames."""
