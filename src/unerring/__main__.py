"""`python -m unerring` is the `unerring` command."""

from unerring.cli import main

if __name__ == "__main__":
    main()
