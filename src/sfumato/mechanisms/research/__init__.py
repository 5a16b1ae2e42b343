"""Mechanisms of the sources that the project's own figures show dominated: to compare with, never chosen unasked.

`biased` (docs/approximate.md): projected unbiased answers usually err less. `boosted` (docs/boosting.md): MWEM does.
`signed` and `sparse` (docs/sparse.md): buckets and the histogram do. Whoever reads the house may leave this folder out.
"""
