"""Two sets of messages compared: lost, duplicated, reordered, delayed. Used by the job ``reconcile``."""
