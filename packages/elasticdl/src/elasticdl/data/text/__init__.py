"""Records that are text: the rows of CSV, or lines.

rows   the base of both: where each row begins, so that a task reads only its own
csv    rows of CSV files with a header
lines  lines of text files
"""
