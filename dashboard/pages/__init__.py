"""One module for each screen: its routes, and how it is made of the watched state or of a few questions.

``desk`` has what they share: the visitor, the watch, templates, forms, notes; ``table`` cuts long lists into pages.
"""
