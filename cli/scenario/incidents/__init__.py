"""The incidents, one module each: what provokes it, the bad cures, the good ones, and what must be seen.
``scenario.catalog`` lists them.
"""
