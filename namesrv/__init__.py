"""The name server: which topic lives on which broker."""
