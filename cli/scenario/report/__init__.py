"""What a scenario shows: ``report`` in words, ``tables`` and ``terminal_picture`` on a terminal,
``timeline_picture`` and ``picture_file`` as an image.
"""
