"""``python -m pocketmq``: the command ``pocketmq`` of this interpreter's environment."""

from pocketmq.cli.main import main

if __name__ == "__main__":
    main()
