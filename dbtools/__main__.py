"""Run the command line with `python -m dbtools`."""

from dbtools.cli import main

if __name__ == "__main__":
    main()
