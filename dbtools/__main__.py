"""Run the command line, as `dbtools` and as `python -m dbtools`."""

import gc
import os
import signal
from types import FrameType

INTERRUPTED = 130  #: exit status
#: New objects after which cycles are looked for. By default that is done so often, mostly among what imports
#: have made to stay, that it takes a tenth of the start.
COLLECTED = 50_000


def main() -> None:
    """Run the command line; an interrupt ends it quietly, even while it is still being imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(COLLECTED)
    from dbtools.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: an exception would print a traceback of what is being imported, or get lost in it."""
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
