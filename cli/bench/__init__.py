"""``pocketmq bench``: a few cases against a running broker beside the machine's floor. The full suite is the folder
``bench`` at the root of the repository; it is not in the wheel, and uses the floors and closed loops of this package.
"""
