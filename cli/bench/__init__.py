"""``pocketmq bench``: a few cases against a running broker beside the machine's floor. The full suite is the folder
``bench`` at the root of the repository.
"""
