"""`python -m outlast` is the `outlast` command, also where its script is not on PATH."""

from outlast.cli import main

if __name__ == "__main__":
    main()
