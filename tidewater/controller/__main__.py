"""`python -m tidewater.controller`: see `main`."""

from tidewater.controller.main import main

main()
