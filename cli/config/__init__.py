"""``pocketmq config``: the settings, their meaning, their values and where each value comes from.

setting_docs    what each setting is for, from the structs that declare it
template        a settings file with every setting, and the tables of docs/settings.md
command         the subcommands
"""
