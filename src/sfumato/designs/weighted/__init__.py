"""Tables over many sets of attributes, each with a weight, and least squares over all of them."""
