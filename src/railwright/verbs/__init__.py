"""The verbs of `railwright`: a module or a package per verb, with its options and its work.

Importing a verb imports little more than click. A command imports the modules for its work when it is called.
"""
