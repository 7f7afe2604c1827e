"""`python -m cli`: the command line without its console script."""

from cli.app import main

if __name__ == "__main__":
    main()
