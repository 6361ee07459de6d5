"""Settings that change while the broker runs.

    live_settings   which ones, what was changed and what it was before; its table is ``config/changedSettings.json``

What a change takes effect on is told by the broker (``BrokerApp``): most code reads the struct of its settings each
time; the rest has ``settings_changed`` or ``limits_changed``. The request codes are served in ``admin.settings_admin``.
"""
