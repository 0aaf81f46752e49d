"""``python -m btfl``: the command line, where the script ``btfl`` is not on the path."""

from btfl.cli import main

if __name__ == "__main__":
    main()
