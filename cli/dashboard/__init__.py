"""``pocketmq dashboard``: serves the pages of ``pocketmq.dashboard``, and gives them the doctor and the scenarios.

command      options, and who may reach the pages
findings     the doctor, as the dashboard takes it
serving      uvicorn in this process, until a signal
"""
