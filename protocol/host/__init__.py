"""What both processes need of the machine they run on, and no message."""
