"""`python -m sfumato` is the command line, where its own name is not on the path."""

from sfumato.cli import main

if __name__ == "__main__":
    main()
