"""Files on a volume or in S3, by their address. Checkpoints, datasets and models are read and written here.

store    what an address names: files listed, read at any offset, written as a whole, removed
blob     one file that is read at any offset, and the file object over it
local    files of a volume
s3       objects of a bucket
filled   a folder of the volume that is filled once: complete, or absent
errors   what can go wrong, as exceptions that the program which reads or writes has chosen
"""
