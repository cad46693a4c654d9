"""A stand-in for Jupyter, for images that have busybox only; the real one is in `test_notebook_in_browser.py`."""

from __future__ import annotations

from tests.lab import Node

IMAGE = "lab/jupyter:1"
STANDIN = """#!/bin/sh
# Says of itself what Jupyter does, serves its folder to everybody who asks, and ends when it is told to.
file=$JUPYTER_RUNTIME_DIR/jpserver-$$.json
mkdir -p /tmp/www/api
hostname >/tmp/www/index.html
echo ok >/tmp/www/api/status
httpd -f -p 127.0.0.1:8888 -h /tmp/www &
trap 'rm "$file"; kill "$!"; exit 0' TERM
echo made >made.ipynb
echo "$@"
printf '{"port": 8888, "token": "%s"}' "$(cat "$JUPYTER_TOKEN_FILE")" >"$file"
wait
"""
PIP = f"""#!/bin/sh
cat >/bin/jupyter-lab <<'END'
{STANDIN}END
chmod +x /bin/jupyter-lab
"""
"""What `pip` is in an image whose env gets it."""


def make_image(node: Node) -> None:
    """Have an image with the stand-in on a node."""
    script = PIP.removeprefix("#!/bin/sh\n")
    node.sh(f"docker run --name maker --interactive busybox sh <<'END_OF_PIP'\n{script}END_OF_PIP\n").check_returncode()
    node.sh(f"docker commit maker {IMAGE}; docker rm maker").check_returncode()
