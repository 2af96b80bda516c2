"""What several packages use: figures and their tables, installations, processes, devices that sleep."""
