"""The page: a table declared, questions asked, a release paid and read, in a browser on this machine alone.

Everything is kept in the spec file that the command line reads. Needs the extra `ui`.
"""
