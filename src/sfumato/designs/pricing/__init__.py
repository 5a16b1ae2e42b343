"""The price of an integer strategy: the search for it, and the certificate by which the wall checks what was found."""
