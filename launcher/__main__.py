"""Start the guard. This file must parse on any Python 3, so that an old one can be told so."""

import sys

OLDEST = (3, 11)


def main() -> int:
    if sys.version_info < OLDEST:  # true only where this matters: on an old Python
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(
            "palaver: this is Python " + found + " and Palaver needs 3.11 or newer. "
            "Install one, then name it: make run PYTHON=python3.11\n"
        )
        return 1
    if not sys.platform.startswith("linux"):
        sys.stderr.write("palaver: this is " + sys.platform + " and Palaver runs on Linux. Use a Linux machine.\n")
        return 1
    from launcher import guard

    return guard.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
