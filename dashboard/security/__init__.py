"""Who asks, and whether the request is meant: what every request passes before a page sees it.

``guard`` checks the Host header and the size of a request, and sets the headers that keep other sites out; ``visits``
has the signed cookie, the users who are logged in, and the tokens of forms; ``throttle`` slows down guesses.
"""
