"""Waiting until an object is ready or gone: pure deciders per kind, and a loop (`wait`) that asks them."""
