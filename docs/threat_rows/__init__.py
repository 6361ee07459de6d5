"""The rows of docs/threats.md, and what finds in the code what must have one.

``scan`` reads the sources, ``codes`` to ``numbers`` are the rows, ``quiet`` what no peer can fill, ``page`` the tables.
"""
