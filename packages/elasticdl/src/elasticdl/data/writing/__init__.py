"""`elasticdl data write`: other data as RecordIO.

convert  writes a dataset: files of records, parts for training and test, the manifest
sources  what can be written: data at an address, or a dataset by its name
"""
