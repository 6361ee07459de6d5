"""What the jobs share: options once for both ways to run (``command``), the Spark session and its errors in words
(``session``), inputs, topics looked up before Spark starts, and output for people (``console``).
"""
