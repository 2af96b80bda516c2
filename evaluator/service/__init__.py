"""What clients see of the service: connections, messages, sessions, networks, and what it shows over HTTP."""
