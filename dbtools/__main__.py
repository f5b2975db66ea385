"""Run the command line, as `dbtools` and as `python -m dbtools`."""

import gc
import sys

INTERRUPTED = 130  #: exit status
#: New objects after which cycles are looked for. By default that is done so often, mostly among what imports
#: have made to stay, that it takes a tenth of the start.
COLLECTED = 50_000


def main() -> None:
    """Run the command line; an interrupt ends it quietly, even while it is still being imported."""
    gc.set_threshold(COLLECTED)
    try:
        from dbtools.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
