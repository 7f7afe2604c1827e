"""Waiting until an object is ready or gone: pure deciders and a loop (`wait`) that asks them."""
