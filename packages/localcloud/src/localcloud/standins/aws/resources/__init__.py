"""The resource types, a module per service."""
