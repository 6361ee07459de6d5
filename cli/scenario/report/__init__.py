"""The results of a scenario: ``report`` holds the data, ``tables`` and ``terminal_picture`` print them,
``picture_file`` draws an image.
"""
