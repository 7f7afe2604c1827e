"""AWS's APIs on one endpoint: moto behind a gateway that authenticates, authorizes and adds what moto lacks."""
