"""`railwright net check`: a pod's GPU network, held against what it should be, by evidence and by real packets."""
