"""A component with two roles; one needs the other: `torchx run --scheduler tidewater pair.py:pair`."""

from torchx import specs

_SERVE = "import http.server as h; h.HTTPServer(('', 8000), h.SimpleHTTPRequestHandler).handle_request()"
_ASK = """
import sys, time, urllib.request
while True:
    try:
        print("the reader answers", urllib.request.urlopen(f"http://{sys.argv[1]}:8000").status, flush=True)
        break
    except OSError:
        time.sleep(0.2)
"""


def pair(image: str, cpu: int = 1) -> specs.AppDef:
    """Return a trainer that asks a reader, once.

    Args:
        image: an image with Python
        cpu: CPUs of each
    """
    resource = specs.Resource(cpu=cpu, gpu=0, memMB=512)
    reader = f"{specs.macros.app_id}-reader-0"
    return specs.AppDef(
        name="pair",
        roles=[
            specs.Role("trainer", image, entrypoint="python3", args=["-c", _ASK, reader], resource=resource),
            specs.Role("reader", image, entrypoint="python3", args=["-c", _SERVE], resource=resource),
        ],
    )
