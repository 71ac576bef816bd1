"""What can be typed behind `railwright`: a module or a package for each verb, its options and its work.

Importing a verb loads little beside click; a command imports what its work needs when it is called.
"""
