"""Tables at every level of a tree of places: what to measure, and least squares up and down the tree."""
