"""What every benchmark stands on: server processes, schedules and open-loop load, histograms, result lines, conditions
of the machine.
"""
