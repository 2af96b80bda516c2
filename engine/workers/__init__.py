"""Where games are played: in this process, in several, or on the nodes of a cluster."""
