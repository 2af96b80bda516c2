"""From a network to the launches that compute it."""
