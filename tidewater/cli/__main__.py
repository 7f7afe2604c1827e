"""`python -m tidewater.cli`: the command line without its console script."""

from tidewater.cli.app import main

if __name__ == "__main__":
    main()
