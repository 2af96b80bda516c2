"""The UCI protocol: commands of a GUI and the answers."""
