"""``pocketmq explain``: what a text, a log line, a stack trace or a response code means.

``reading`` takes what was pasted and turns its bytes into lines; ``pocketmq.common.known_texts`` finds the known texts
in them; ``numbers`` adds what a number can mean besides; ``report`` shows it as text or JSON. ``log_file``
reads whole logs (``--log``).
"""
