"""Entry point of `python -m lobench.cli`."""

from lobench.cli import main

main()
