"""Run one Pulumi program in a separate process for the language host.

    python -u -P run_program.py '{"program": ".", "pwd": "…", "project": "…", …}'

It is run by path, so that the program sees only its own modules on `sys.path`. Config is passed in the environment
(`PULUMI_CONFIG`), as with the official host, so that no process listing shows it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

EXIT_SHOWN: Final = 32
"""The program failed and the user has seen why; the official host uses the same number."""
GC_THRESHOLD: Final = 200_000
"""New objects between two garbage collections. The SDKs' thousands of classes and most of a program's objects live
until the program exits: with Python's own threshold of 700, garbage collection takes a quarter of the time of the
imports and finds nothing."""


def main(request: dict[str, Any]) -> int:
    """Run the program and returns the exit code."""
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    import pulumi
    import pulumi.runtime

    pulumi.runtime.set_all_config(pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env())
    pulumi.runtime.configure(pulumi.runtime.Settings(**request["settings"]))
    os.chdir(request["pwd"])
    program = os.path.abspath(request["program"])
    sys.argv = [request["program"], *request["args"]]
    if os.path.isfile(program):  # runpy adds a directory to the path by itself, but not a file's
        sys.path.insert(0, os.path.dirname(program))
    elif not os.path.isfile(os.path.join(program, "__main__.py")):
        pulumi.log.error(f"unable to find main python program `__main__.py` in `{program}`")
        return EXIT_SHOWN
    # A failed resource leaves futures that are never awaited; asyncio's warnings about them would hide the real error.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return _run(program, request["settings"]["parallel"])


def _run(program: str, parallel: int) -> int:
    import pulumi
    import pulumi.runtime

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=max(parallel, 1) * 4)
    loop.set_default_executor(executor)

    def run() -> None:
        runpy.run_path(program, run_name="__main__")

    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(run))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return 1
    except Exception:  # whatever the program raises is shown with its own part of the traceback
        pulumi.log.error("Program failed with an unhandled exception:\n" + _user_traceback(program))
        return EXIT_SHOWN
    finally:
        executor.shutdown(wait=True)
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _user_traceback(program: str) -> str:
    """Return the traceback from the program's first frame on, without the runtime's frames above it."""
    main_file = program if os.path.isfile(program) else os.path.join(program, "__main__.py")
    frames = traceback.extract_tb(sys.exc_info()[2])
    for index, frame in enumerate(frames):
        if os.path.abspath(frame.filename) == main_file:
            return traceback.format_exc(limit=index - len(frames))
    return traceback.format_exc()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
