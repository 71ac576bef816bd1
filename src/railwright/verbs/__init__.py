"""What each verb of the command line does: one file per verb, with plain imports."""
