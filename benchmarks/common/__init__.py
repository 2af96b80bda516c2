"""What several rooms use: figures and their tables, installations, processes, devices that sleep."""
