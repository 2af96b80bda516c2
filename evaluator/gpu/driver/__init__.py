"""A vendor's GPU and compiler behind one interface."""
