"""The `regard` script: it handles Ctrl-C before anything large is imported."""

from __future__ import annotations

from regard.cli.interrupt import handle_interrupts


def main() -> None:
    """Run a command and end the process."""
    handle_interrupts()
    from regard.cli.main import main as run

    run()
