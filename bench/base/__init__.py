"""The base of every benchmark: server processes, schedules and open-loop load, histograms, result lines, conditions
of the machine.
"""
