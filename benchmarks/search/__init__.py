"""The search by itself: its speed, memory, move generation, tablebases and clock."""
