"""RecordIO as ElasticDL wrote it, to be read record by record from any place.

chunk      a chunk: header, compression, records
reader     the chunks of a file, by their headers alone, and records of a file or a folder, by shard
writer     files of records
manifest   which files a folder holds, with their records and bytes
"""
