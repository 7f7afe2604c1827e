"""Rules of AWS about file systems that moto lacks.

efs_rules   operations of EFS, and errors where moto would crash
fsx_rules   what FSx says of file systems, and the folders of those of Lustre
"""
