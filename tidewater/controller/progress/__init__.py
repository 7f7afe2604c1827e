"""Whether the workers of running jobs make steps, as their metrics say.

silence   what the metrics say, and the sentence for the condition; pure
watch     asks the workers, again and again
"""
