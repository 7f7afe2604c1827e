"""Images in folders of their class, as they lie or in an archive.

layout   classes and order of images, from their paths alone
store    where image files are: a folder, a zip, a tar; records of images: the file as it is, with its label
"""
