"""Readers of records by address, on a volume or in S3, and writers of RecordIO.

opening    the reader for an address
reader     what a reader is: shards, records, metadata; the base class for one's own
params     parameters as ElasticDL's flags take them: `a=1;b=2`
csv        rows of CSV
recordio/  RecordIO as ElasticDL wrote it: chunks, index, reader, writer
examples/  what is in a record: fields by name; tf.Example without TensorFlow
storage    files of volumes and S3 by address, with the errors of this package
writing/   `elasticdl data write`: other data as RecordIO
"""
