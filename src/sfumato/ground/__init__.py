"""What every room stands on, without mathematics: files, fingerprints, checks, frames."""
