"""The vendors' libraries of matrix products behind one interface."""
