"""What a person or Prometheus sees of the training.

log       one logfmt line for each report or event
bar       a progress bar on a terminal
tracker   a script's experiment tracker, written by one worker at a time
meter     throughput, and what a change of the membership has cost
metrics   the Prometheus endpoint
report    `trainer report`: from the logs of the workers to a summary
chart     the picture of a report
"""
