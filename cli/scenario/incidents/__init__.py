"""The incidents, one module each: the fault, the bad cures, the good ones, and the checks of each run.
``scenario.catalog`` lists them.
"""
