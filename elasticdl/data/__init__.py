"""Readers of records by address, on a volume or in S3, and writers of RecordIO.

reader  what a reader is: shards, records, metadata; the base class for one's own
"""
