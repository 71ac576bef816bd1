"""The verbs of `railwright`: a module or a package for each, with its options and its work.

Importing a verb imports little but click. A command imports the modules for its work when it is called.
"""
