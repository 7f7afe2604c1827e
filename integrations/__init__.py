"""Plug-ins by which other programs use this project.

torchx/   a scheduler of TorchX: its applications run as ElasticJobs
"""
