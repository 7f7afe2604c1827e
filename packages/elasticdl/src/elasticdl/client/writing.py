"""The writer of data as a pod runs it: without the packages of the command line.

python3 -m elasticdl.client.writing digits /data/digits '{"records_per_shard": 500}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from elasticdl.data.writing import convert
from elasticdl.data.writing.sources import Asked
from elasticdl.errors import ElasticDLError
from tidewater.contract import exit_codes


def main(argv: Sequence[str]) -> int:
    """Write a source to an address with the options in a JSON text; return the exit code."""
    source, out, options = argv
    try:
        for line in written(source, out, json.loads(options)):
            print(line)
    except ElasticDLError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return exit_codes.FINISHED


def written(source: str, out: str, options: dict[str, Any]) -> list[str]:
    """Write a source; return what to say of each part.

    Args:
        source: The name of a dataset, or an address.
        out: Where to.
        options: The fields of `convert.Options`, and of `Asked` under `asked`.

    Raises:
        ElasticDLError: it can't be read or written.
    """
    own = {**options, "asked": Asked(**options.get("asked", {}))}
    return [
        f"{part.address}: {part.records} records in {part.files} files, {part.bytes} bytes"
        for part in convert.write(source, out, convert.Options(**own))
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
