"""Speed, beside the machine's floor, in one run: ``python -m bench`` (``--help`` for the cases)."""
