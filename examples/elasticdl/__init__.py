"""Scripts of one's own for `elasticdl train --job_command`.

digits_script     handwritten digits as image folders, all-reduce with a fixed global batch
"""
