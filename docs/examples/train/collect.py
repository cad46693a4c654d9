"""Prints the results of all runs as a table, the best one first.

python collect.py FOLDER looks into all folders below, too.
"""

import json
import sys
from pathlib import Path


def main():
    rows = [json.loads(file.read_text()) for file in Path(sys.argv[1]).rglob("lr=*.json")]
    rows.sort(key=lambda row: (row["loss"] is None, row["loss"]))  # a loss that is no number is the last
    for row in [{name: name for name in rows[0]}, *rows] if rows else []:
        print("  ".join(f"{value!s:>7}" for value in row.values()))
    if not rows:
        sys.exit(f"no results in {sys.argv[1]}")


if __name__ == "__main__":
    main()
