"""What clients see of the service: sockets, sessions, networks, health."""
