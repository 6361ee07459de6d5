"""One run of a broker: every object is built here, once, and gets its dependencies.

``environment`` holds what comes from outside: settings, clock, file system, runner. ``build`` makes the parts in the
order of the packages; ``build_send``, ``build_transactions`` and ``build_staged`` make those of one area.
``role_changes`` starts the next run after a promotion or demotion.

No request or message is judged here.
"""
