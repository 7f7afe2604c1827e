"""What `make up` and `make down` run: the commands a person could type, in order, with checks in between."""
