"""`python -m controller`: see `main`."""

from controller.main import main

main()
