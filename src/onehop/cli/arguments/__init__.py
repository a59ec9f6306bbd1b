"""The arguments of each verb: read, and checked as far as possible, without torch.

A module has a command for Typer, whose work is a function of a module of the same name one folder above.
"""
