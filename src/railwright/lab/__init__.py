"""An emulated fabric on this machine: hosts, leaves and spines as network namespaces, joined by real BGP."""
