"""The command line: `python3 -m split TOTAL NAME ...`."""

import argparse

from split.shares import shares


def main():
    parser = argparse.ArgumentParser(prog="split", description=__doc__)
    parser.add_argument("total", type=float)
    parser.add_argument("people", nargs="+")
    given = parser.parse_args()
    paid = shares(given.total, given.people)
    width = max(len(person) for person in paid)
    for person, amount in paid.items():
        print(f"{person:<{width}}  {amount:.2f}")


if __name__ == "__main__":
    main()
