"""``python -m onehop``: the command line."""

from onehop.cli import main

main()
