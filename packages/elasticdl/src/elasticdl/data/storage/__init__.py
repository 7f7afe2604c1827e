"""Where the bytes are: a volume or S3, behind one small interface.

blob       one file that can be read at any offset, and the file object over it
addresses  the files at an address, and one of them opened
local      files of a volume
s3         objects of a bucket, read by range
spool      a compressed file, unpacked to a temporary one
"""
