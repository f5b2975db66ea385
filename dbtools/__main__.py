"""Run the command line, as `dbtools` and as `python -m dbtools`."""

import gc
import sys

INTERRUPTED = 130  #: exit status
#: Allocations between garbage collections. The default costs a tenth of the start, mostly on the objects of
#: imported modules, which stay.
COLLECTED = 50_000


def main() -> None:
    """Run the command line; an interrupt ends it without a message, even during its imports."""
    gc.set_threshold(COLLECTED)
    try:
        from dbtools.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # CPython ends by a signal after any KeyboardInterrupt inside `exec`, even one that was handled, until
        # another `exec`. Imports run `exec` for each dataclass.
        exec("")


if __name__ == "__main__":
    main()
