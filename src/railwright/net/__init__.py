"""`railwright net check`: checks a pod's GPU network by its configuration and with real packets."""
